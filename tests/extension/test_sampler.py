from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.config import ModelConfig, NegativesConfig
from recsys_cg.errors import ConfigError
from recsys_cg.model.frameworks import tf
from recsys_cg.model.negatives import Sampler
from recsys_cg.model.sources import Sources
from tests.contracts.sampler import COUNTS, SamplerContract
from tests.extension.outside.sampler import EveryOther

KIND = "tests.extension.outside.sampler:EveryOther"


class TestTheSamplerFromOutside(SamplerContract):
    """It draws as often as it says: this class is all that it takes to see that."""

    @staticmethod
    def make() -> Sampler:
        return EveryOther(counts=COUNTS, count=6)


def declare(**changes: object) -> ModelConfig:
    own = {"kind": KIND, "count": 6, **changes}
    return ModelConfig(negatives=[NegativesConfig(kind="uniform", count=8), NegativesConfig.model_validate(own)])


def test_it_is_one_source_of_the_mixture_among_others() -> None:
    mixture = Sources(declare(), COUNTS).mixture
    draws = mixture.sample(SamplerContract.batch(0), tf.constant([1, 2]))
    assert [draw.items.shape[0] for draw in draws] == [8, 6]
    expected = np.exp(mixture.log_expected_count(tf.range(8), draws).numpy())
    # Eight draws among eight items, and six more among the four of even row.
    assert expected == pytest.approx([2.5, 1.0] * 4)


def test_what_is_declared_goes_into_the_record_with_its_options() -> None:
    (_, own) = declare(options={"step": 4}).negatives
    assert own.declaration == {"kind": KIND, "count": 6, "options": {"step": 4}}


def test_options_that_it_does_not_take_are_a_fault_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"model\.negatives\.kind .* refuses its options: .*unexpected"):
        Sources(declare(options={"pace": 4}), COUNTS)


def test_what_draws_nothing_is_no_sampler() -> None:
    with pytest.raises(ConfigError, match="does not offer sample and log_expected_count"):
        Sources(declare(kind="tests.extension.outside.metric:first_page"), COUNTS)


def test_options_need_a_sampler_of_ones_own() -> None:
    with pytest.raises(ValueError, match="options are those of a sampler of your own"):
        NegativesConfig(kind="uniform", options={"step": 4})
