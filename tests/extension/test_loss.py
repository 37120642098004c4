from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.config import ModelConfig
from recsys_cg.errors import ConfigError
from recsys_cg.model.candidates import Candidates
from recsys_cg.model.frameworks import tf
from recsys_cg.model.logits import Exclusions
from recsys_cg.model.task import CorrectedRetrieval

LOSS = "tests.extension.outside.loss:squared_hinge"
QUERIES = np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
CANDIDATES = np.array([[0.6, 0.8], [1.0, 0.0], [0.0, 1.0]], dtype=np.float32)


def losses(**changes: object) -> np.ndarray:
    """Two queries, each its own positive; candidate 1 is a repeat of the first's, candidate 2 is not there."""
    config = ModelConfig.model_validate(
        {"loss": LOSS, "correction": "none", "temperature": 1.0, "learn_temperature": False, **changes}
    )
    candidates = Candidates(
        vectors=tf.constant(CANDIDATES),
        valid=tf.constant([True, True, False]),
        log_expected=tf.zeros([3]),
        log_expected_positive=tf.zeros([2]),
        exclusions=Exclusions(tf.constant([7, 8]), tf.constant([5, 7, 9])),
    )
    task = CorrectedRetrieval(config, chunk=64)
    values: np.ndarray = task.per_query(tf.constant(QUERIES), tf.constant(QUERIES), candidates, tf.ones([2])).numpy()
    return values


def test_it_sees_the_logits_that_count_and_no_others() -> None:
    # First query: s+ = 1 and one negative of 0.6, so (1 - 1 + 0.6)^2. Second: negatives of 0.8 and 0.
    assert losses() == pytest.approx([0.36, (0.64 + 0.0) / 2])


def test_it_is_called_with_its_options() -> None:
    assert losses(loss_options={"margin": 0.5}) == pytest.approx([0.01, (0.09 + 0.0) / 2], abs=1e-6)


def test_it_takes_the_logits_scaled_by_the_temperature_and_corrected() -> None:
    # With temperature 0.5 s+ = 2 and s = 1.2: a hinge of 0.2; log E = 0 corrects nothing.
    assert losses(temperature=0.5, correction="standard")[0] == pytest.approx(0.04, abs=1e-6)


def test_options_that_it_does_not_take_are_a_fault_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"model\.loss .* refuses its options: .*unexpected"):
        losses(loss_options={"slope": 2})


@pytest.mark.parametrize("name", ["summed", "undefined"])
def test_a_loss_of_another_shape_or_that_is_not_finite_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"must give finite float32 \[queries\]"):
        losses(loss=LOSS.replace("squared_hinge", name))


def test_options_need_a_loss_of_ones_own() -> None:
    with pytest.raises(ValueError, match="loss_options are those of a loss of your own"):
        ModelConfig(loss_options={"margin": 1.0})
