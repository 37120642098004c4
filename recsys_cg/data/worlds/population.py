"""The users of a simulated world: taste, activity, arrival."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.data.worlds.config import WorldConfig
from recsys_cg.data.worlds.seeds import make_ids, stream

__all__ = ["Population", "make_population"]


@dataclass(frozen=True)
class Population:
    """Users by their index in the world.

    Attributes:
        ids: string [users].
        factors: float32 [users, factors], taste, each coordinate standard normal.
        activity: float64 [users], weight with which a slate is shown to the user.
        first_epoch: int64 [users], first epoch in which the user comes.
    """

    ids: pa.StringArray
    factors: NDArray[np.float32]
    activity: NDArray[np.float64]
    first_epoch: NDArray[np.int64]


def make_population(config: WorldConfig) -> Population:
    """Draw the users of a world; one of them at least is there from the start."""
    rng = stream(config.seed, "population")
    is_new = rng.random(config.users) < config.new_user_share
    is_new[0] = False
    return Population(
        ids=make_ids(config.user_prefix, config.users),
        factors=rng.normal(size=(config.users, config.factors)).astype(np.float32),
        activity=np.exp(config.activity_spread * rng.normal(size=config.users)),
        first_epoch=np.where(is_new, rng.integers(0, config.epochs, size=config.users), 0),
    )
