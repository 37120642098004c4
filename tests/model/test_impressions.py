"""Impressions as negatives: each query's own candidates, taken whole, beside those that all queries share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cg.config import ModelConfig, NegativesConfig
from recsys_cg.data.dataset import Dataset
from recsys_cg.data.impressions import impressions_schema
from recsys_cg.errors import DataError
from recsys_cg.model.chunked import masked_logsumexp
from recsys_cg.model.frameworks import tf
from recsys_cg.model.inputs import Sequences, batch_signature, pack_batch, split_batch, stream_epoch
from recsys_cg.model.logits import Exclusions, candidate_offset
from recsys_cg.model.negatives import BatchEvents, Impressions, Popularity
from recsys_cg.model.own_candidates import OwnCandidates
from recsys_cg.schema import DatasetFiles
from tests.model.conftest import FEATURES, MODEL, make_catalogue, make_events, train
from tests.model.datasets import write_dataset
from tests.model.test_inputs import table
from tests.model.test_negatives import COUNTS
from tests.model.test_options import SHAPE, build

OWN = {"kind": "impressions", "per_query": 2}
NEGATIVES = [*MODEL["negatives"], OWN]


def test_every_skipped_item_of_a_query_is_there_once_and_expected_once() -> None:
    source = Impressions(3)
    batch = BatchEvents(tf.constant([7, 8, 9]), tf.constant([True, True, False]),
                        tf.constant([[4, 2, -1], [-1, -1, -1], [5, 5, 5]]))  # fmt: skip
    draw = source.sample(batch, tf.constant([0, 0]))
    np.testing.assert_array_equal(draw.valid.numpy(), [[True, True, False], [False] * 3, [False] * 3])
    assert draw.items.numpy()[0, :2].tolist() == [4, 2]
    np.testing.assert_array_equal(source.log_expected_count(draw.items, draw).numpy(), np.zeros((3, 3)))


@pytest.mark.parametrize("members", [[2], [4, 7], [1, 3, 5, 6]])
@pytest.mark.parametrize("chunk", [4, 64])
def test_the_denominator_is_unbiased_whatever_a_query_was_shown(members: list[int], chunk: int) -> None:
    powers = np.exp(np.array([0.1, 2.0, -1.0, 1.0, 3.0, 0.0, -2.0, 2.5]))
    vectors = tf.constant(np.log(powers)[:, None], tf.float32)
    query = tf.constant([[1.0]])
    sampler, source = Popularity(COUNTS, 10, 0.5), Impressions(4)
    shown = np.pad(members, (0, 4 - len(members)), constant_values=-1)[None].astype(np.int32)
    batch = BatchEvents(tf.constant([0]), tf.constant([True]), tf.constant(shown))

    @tf.function
    def estimate(seed: tf.Tensor) -> tf.Tensor:
        draw, apart = sampler.sample(batch, seed), source.sample(batch, seed)
        certain = tf.where(apart.valid, apart.items, -2)
        offset = candidate_offset(
            sampler.log_expected_count(draw.items, draw), draw.valid, correction="refined", strength=1.0
        )
        exclusions = Exclusions(tf.constant([-7]), draw.items, certain=certain)
        rest = masked_logsumexp(query, tf.gather(vectors, draw.items), offset, exclusions, chunk=chunk)
        own = OwnCandidates(tf.gather(vectors, apart.items), apart.valid, source.log_expected_count(apart.items, apart))
        return tf.reduce_sum(tf.exp(tf.concat([rest[:, None], own.logits(query)], axis=1)))

    estimates = np.array([float(estimate(tf.constant([step, 3]))) for step in range(600)])
    error = estimates.std(ddof=1) / np.sqrt(len(estimates))
    assert abs(estimates.mean() - powers.sum()) < 4.0 * error
    assert error < 0.15 * powers.sum()


def test_own_candidates_count_their_weight_and_absent_ones_nothing() -> None:
    vectors = tf.constant([[[1.0, 0.0], [0.0, 1.0]]])
    own = OwnCandidates(vectors, tf.constant([[True, False]]), tf.zeros([1, 2]), weight=4.0)
    np.testing.assert_allclose(own.logits(tf.constant([[0.5, 9.0]])).numpy(), [[0.5 + np.log(4.0), -1e9]], rtol=1e-6)


def skipping(sequences: Sequences) -> Sequences:
    """Two items of the other taste for each event: none is its user's."""
    return replace(sequences, skips=np.stack([sequences.items ^ 1, np.full(sequences.events, -1)], 1).astype(np.int32))


def test_batches_carry_skips_for_targets_alone_and_replicas_split_them() -> None:
    sequences = skipping(Sequences.from_tables([table([([1, 2, 3], [1, 2, 3]), ([4, 5], [1, 2])])]))
    batch = pack_batch(sequences, np.array([3, 4, 0, 1, 2]), shape=(2, 4))
    assert batch["skipped"][:, 0].tolist() == [5, 4, 0, 3, -1, -1, -1, -1]
    assert split_batch(batch, 1, 2)["skipped"].shape == (4, 2)
    assert batch_signature((1, 4), skips=sequences.skips)["skipped"].shape == (4, 2)
    assert "skipped" not in batch_signature((1, 4))


def loss_with(dataset: Path, skips: np.ndarray | None, **options: Any) -> tuple[float, float]:
    """Return loss and masked candidates of one step."""
    network, _ = build(dataset, {"negatives": NEGATIVES if skips is not None else MODEL["negatives"], **options})
    sequences = replace(Sequences.from_tables(Dataset.open(dataset).iter_sequences()), skips=skips)
    batch = next(stream_epoch(sequences, shape=SHAPE, seed=1, epoch=0))
    loss, _, figures = network.loss_and_gradients({name: tf.constant(value) for name, value in batch.items()})
    return float(loss), float(figures["masked"])


@pytest.mark.parametrize("loss", ["softmax", "triplet"])
def test_skips_are_negatives_of_their_query_and_no_skip_changes_nothing(dataset: Path, loss: str) -> None:
    options = {"loss": loss, "correction": "none"} if loss == "triplet" else {"loss": loss}
    events = Sequences.from_tables(Dataset.open(dataset).iter_sequences()).events
    none, some = np.full((events, 2), -1, np.int32), np.full((events, 2), -1, np.int32)
    some[:, 0] = 79  # the item that nobody ever met
    without = loss_with(dataset, None, **options)
    assert loss_with(dataset, none, **options) == pytest.approx(without, rel=1e-6)
    assert loss_with(dataset, some, **options)[0] >= without[0]
    if loss == "softmax":
        assert loss_with(dataset, some, **options)[0] > without[0]


def test_shared_candidates_that_a_query_has_for_itself_are_masked_and_counted(dataset: Path) -> None:
    sequences = Sequences.from_tables(Dataset.open(dataset).iter_sequences())
    popular = np.full((sequences.events, 2), -1, np.int32)
    users = np.repeat(np.arange(sequences.users), np.diff(sequences.starts))
    owners = set(zip(users.tolist(), sequences.items.tolist(), strict=True))
    popular[:, 0] = [next(item for item in range(80) if (user, item) not in owners) for user in users]
    assert loss_with(dataset, popular)[1] > loss_with(dataset, None)[1] + 1.0


def write_impressions(directory: Path, *, offset_us: int = 0, alone: bool = False) -> None:
    """Show each event's item, and with it the least popular items, at the time of the event."""
    data = Dataset.open(directory)
    (directory / DatasetFiles.IMPRESSIONS).mkdir()
    for part, sequences in enumerate(data.iter_sequences()):
        rows = []
        for user in sequences.to_pylist():
            for item, time in zip(user["item_rows"], user["times_us"], strict=True):
                for position, shown in enumerate([item] if alone else [item, 79, 78, 77]):
                    rows.append({"user_id": user["user_id"], "item_row": shown, "time_us": time + offset_us,
                                 "position": position})  # fmt: skip
        written = pa.Table.from_pylist(rows, schema=impressions_schema).sort_by(
            [("user_id", "ascending"), ("time_us", "ascending")]
        )
        pq.write_table(written, directory / DatasetFiles.IMPRESSIONS / f"part-{part:05d}.parquet")


def small(path: Path) -> Path:
    return write_dataset(path, make_events(30), make_catalogue(), FEATURES, max_history=12)


def test_a_dataset_without_impressions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no impressions: name their log in the section \[impressions\]"):
        train(small(tmp_path / "data"), tmp_path, model={"negatives": NEGATIVES})


@pytest.mark.parametrize("options", [{"offset_us": 10**15}, {"alone": True}])
def test_impressions_that_tell_nothing_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    directory = small(tmp_path / "data")
    write_impressions(directory, **options)
    with pytest.raises(DataError, match="no training event has one of its item at or before its time with another"):
        train(directory, tmp_path, model={"negatives": NEGATIVES})


@pytest.mark.parametrize(
    ("negatives", "message"),
    [
        ([OWN], "declare in_batch, uniform or popularity too"),
        ([*NEGATIVES, OWN], "impressions negatives may be declared once"),
        ([*MODEL["negatives"], {**OWN, "count": 8}], "count is no option of impressions negatives"),
        ([{"kind": "in_batch", "per_query": 2}], "per_query is an option of impressions negatives"),
        ([*MODEL["negatives"], {**OWN, "weight": 0.0}], "greater than 0"),
    ],
)
def test_declarations_that_cannot_be_are_refused(negatives: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelConfig(negatives=negatives)


@pytest.mark.parametrize("loss", ["sigmoid", "triplet", "margin"])
def test_a_weight_is_refused_where_there_is_no_denominator(loss: str) -> None:
    with pytest.raises(ValueError, match="no denominator for impressions to weigh in"):
        ModelConfig(loss=loss, correction="none", negatives=[*MODEL["negatives"], {**OWN, "weight": 2.0}])


def test_the_declaration_names_its_own_options_and_no_count() -> None:
    declared = NegativesConfig(kind="impressions", span_s=2.0, weight=3.0).declaration
    assert declared == {"kind": "impressions", "per_query": 4, "span_s": 2.0, "weight": 3.0}
