"""The stock model: the two towers of the TFRS retrieval tutorial, trained with the tfrs package as the tutorial does.

A user id and an item id, each an embedding behind a StringLookup; in-batch softmax by `tfrs.tasks.Retrieval`; Adagrad
at rate 0.1; batches of 8,192, cached after shuffling. A user unseen in training is the shared unknown vector. With
``corrected`` the task gets each item's sampling probability and removes accidental hits, in batches of 2,048: finding
those hits costs TFRS the third power of the batch. The number of epochs is the one thing chosen, by recall on
validation queries.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.data.dataset import Dataset
from recsys_cg.evaluation.baselines.scored import recommend_by_score
from recsys_cg.evaluation.metrics import recall
from recsys_cg.evaluation.queries import QuerySet
from recsys_cg.evaluation.retrieval import rank_queries

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

BATCH, CORRECTED_BATCH = 8192, 2048
_SHUFFLED = 100_000

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class StockSystem:
    """The trained tables as a system under test.

    Attributes:
        name: key in the report.
        settings: what was chosen, and how.
        users: known user ids; row 0 of ``user_vectors`` is for all others.
        user_vectors: [1 + users, dim].
        item_vectors: [items, dim].
    """

    name: str
    settings: Mapping[str, Any]
    users: pa.Array
    user_vectors: Floats
    item_vectors: Floats

    def recommend(self, batch: pa.Table, k: int, allow: NDArray[np.bool_] | None = None) -> NDArray[np.int32]:
        """See `recsys_cg.evaluation.System.recommend`."""
        return recommend_by_score(self._score, batch, k, len(self.item_vectors), allow)

    def _score(self, batch: pa.Table) -> Floats:
        found = pc.fill_null(pc.index_in(batch["user_id"], value_set=self.users), -1).to_numpy()
        scores: Floats = self.user_vectors[found + 1] @ self.item_vectors.T
        return scores


class StockModel:
    """The tutorial's model over one dataset.

    Args:
        dataset: items, and the training sequences as (user, item) pairs.
        dim: of both embeddings.
        seed: of weights and order.
        corrected: with logQ and without accidental hits.
        batch: pairs a step.
    """

    def __init__(self, dataset: Dataset, *, dim: int, seed: int, corrected: bool, batch: int) -> None:
        import tensorflow as tf
        import tensorflow_recommenders as tfrs

        tf.keras.utils.set_random_seed(seed)
        sequences = dataset.sequences()
        lists = sequences["item_rows"].combine_chunks()
        self._rows = lists.flatten().to_numpy()
        self.users, self.items = sequences["user_id"].combine_chunks(), dataset.items["item_id"].combine_chunks()
        self.pairs = len(self._rows)
        names = {"user": self.users, "item": self.items}
        self._towers = {
            name: tf.keras.Sequential(
                [
                    tf.keras.layers.StringLookup(vocabulary=ids.to_pylist(), mask_token=None),
                    tf.keras.layers.Embedding(len(ids) + 1, dim),
                ]
            )
            for name, ids in names.items()
        }
        lengths = pc.list_value_length(lists).to_numpy()
        share = np.bincount(self._rows, minlength=len(self.items)) / len(self._rows)
        features = {
            "user": np.repeat(self.users.to_numpy(zero_copy_only=False), lengths),
            "item": self.items.to_numpy(zero_copy_only=False)[self._rows],
            "share": share[self._rows].astype(np.float32),
        }
        pairs = tf.data.Dataset.from_tensor_slices(features).shuffle(_SHUFFLED, seed=seed)
        self.batches = pairs.batch(batch).cache()
        task = tfrs.tasks.Retrieval(remove_accidental_hits=corrected)
        towers = self._towers

        class Tutorial(tfrs.Model):  # type: ignore[misc, unused-ignore]
            def compute_loss(self, features: Mapping[str, Any], training: bool = False) -> Any:
                more = {"candidate_sampling_probability": features["share"], "candidate_ids": features["item"]}
                return task(
                    towers["user"](features["user"]),
                    towers["item"](features["item"]),
                    compute_metrics=False,
                    **(more if corrected else {}),
                )

        self.model = Tutorial()
        self.model.user, self.model.item = towers["user"], towers["item"]
        self.model.compile(optimizer=tf.keras.optimizers.Adagrad(0.1))

    def epochs(self, most: int) -> Iterator[float]:
        """Train epoch by epoch; yield the seconds of each."""
        for _ in range(most):
            started = time.perf_counter()
            self.model.fit(self.batches, epochs=1, verbose=0)
            yield time.perf_counter() - started

    def system(self, name: str, **settings: Any) -> StockSystem:
        """Return the model as it stands."""
        user, item = (np.array(self._towers[which].layers[1].get_weights()[0]) for which in ("user", "item"))
        return StockSystem(name, settings, self.users, user, item[1:])


def fit_stock(
    dataset: Dataset, validation: QuerySet, *, corrected: bool, batch: int, seed: int, most: int
) -> StockSystem:
    """Train for at most ``most`` epochs and return the one of the best validation recall@100; two worse ones end it."""
    name = "tfrs_logq" if corrected else "tfrs"
    model = StockModel(dataset, dim=32, seed=seed, corrected=corrected, batch=batch)
    best, best_value, best_epoch, seconds = None, -1.0, 0, []
    for epoch, spent in enumerate(model.epochs(most), start=1):
        seconds.append(spent)
        system = model.system(name)
        (ranks,) = rank_queries([system], validation, len(system.item_vectors), [100], quiet=True)
        value = float(np.mean(recall(ranks[100], 100)))
        print(f"  {name}: epoch {epoch}, {spent:.1f} s, validation recall@100 {value:.4f}", flush=True)
        if value > best_value:
            best, best_value, best_epoch = system, value, epoch
        elif epoch - best_epoch >= 2:
            break
    assert best is not None
    settings = {
        "dim": 32, "optimizer": "Adagrad 0.1", "batch": batch, "epochs": best_epoch,
        "chosen": f"epoch {best_epoch} of {len(seconds)} by recall@100 = {best_value:.4f} on "
        f"{validation.count:,} validation queries", "pairs_per_s": round(model.pairs / min(seconds), 1),
    }  # fmt: skip
    return StockSystem(name, settings, best.users, best.user_vectors, best.item_vectors)
