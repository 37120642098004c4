from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recsys_cg.config import NegativesConfig
from recsys_cg.model.frameworks import tf
from recsys_cg.model.inputs import Sequences
from recsys_cg.model.memory import Mined
from recsys_cg.model.mining import Search, mine
from recsys_cg.model.negatives import BatchEvents
from tests.model.test_inputs import table
from tests.model.test_validation import VECTORS, Mirror

NOBODY = BatchEvents(tf.zeros([0], tf.int32), tf.zeros([0], tf.bool))


def test_nothing_is_drawn_before_the_first_mining() -> None:
    source = Mined(5, count=8, warmup_epochs=1, band=(1, 3))
    draw = source.sample(NOBODY, tf.constant([0, 0]))
    assert not draw.valid.numpy().any()
    assert float(draw.count) == 0.0
    assert (source.log_expected_count(tf.range(5), draw).numpy() == -np.inf).all()


def test_mined_items_are_drawn_and_corrected_by_their_share() -> None:
    source = Mined(4, count=4000, warmup_epochs=1, band=(1, 3))
    source.assign(np.array([0, 3, 1, 0]))
    draw = source.sample(NOBODY, tf.constant([1, 2]))
    observed = np.bincount(draw.items.numpy(), minlength=4)
    assert observed[[0, 3]].sum() == 0
    assert observed[1] == pytest.approx(3000, abs=120)
    logs = source.log_expected_count(tf.range(4), draw).numpy()
    np.testing.assert_allclose(np.exp(logs), [0, 3000, 1000, 0], rtol=1e-5)


def test_a_mining_that_found_nothing_draws_nothing() -> None:
    source = Mined(4, count=8, warmup_epochs=1, band=(1, 3))
    source.assign(np.array([1, 1, 1, 1]))
    source.assign(np.zeros(4, np.int64))
    assert not source.sample(NOBODY, tf.constant([1, 2])).valid.numpy().any()


def find(users: list[tuple[list[int], list[int]]], band: tuple[int, int]) -> Any:
    sequences = Sequences.from_tables([table(users)])
    return mine(Search(Mirror(), sequences, VECTORS, VECTORS, band=band, max_history=3, seed=0))


def test_the_band_is_mined_without_the_past_and_the_later() -> None:
    # The only query: after item 0. By similarity come 1, 2, 3, 4; item 2 is met later.
    findings = find([([0, 2], [1, 2])], band=(1, 3))
    np.testing.assert_array_equal(findings.counts, [0, 1, 0, 1, 0])
    assert findings.false_share == pytest.approx(1 / 3)
    assert findings.queries == 1


def test_ranks_before_the_band_are_left_alone_and_a_band_past_the_catalogue_ends_with_it() -> None:
    np.testing.assert_array_equal(find([([0, 2], [1, 2])], band=(3, 50)).counts, [0, 0, 0, 1, 1])


def test_users_without_an_earlier_event_are_not_asked() -> None:
    findings = find([([0, 1], [5, 5]), ([2], [1])], band=(1, 3))
    assert findings.queries == 0
    assert findings.false_share == 0.0
    assert not findings.counts.any()


def test_options_of_other_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="alpha is an option of popularity negatives, and these are uniform"):
        NegativesConfig(kind="uniform", alpha=0.5)
    assert NegativesConfig(kind="popularity", alpha=0.5).declaration == {
        "kind": "popularity",
        "count": 512,
        "alpha": 0.5,
    }
