"""What a simulated world is made of: every parameter, checked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

__all__ = ["WorldConfig"]

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=1)]

_EPOCH_MARGIN_MS = 600_000


def _check_start(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("start needs a zone, e.g. 2026-01-01T00:00:00Z")
    if value.microsecond:
        raise ValueError("start must be a whole second")
    return value.astimezone(UTC)


class WorldConfig(BaseModel):
    """Parameters of `simulate_world`; equal parameters give equal rows.

    Time runs in ``epochs`` of ``epoch_hours``; catalogue and policy change between epochs and not within one.
    ``part_rows`` and ``row_group_rows`` decide how rows are laid out in files and nothing else.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(0, ge=0, le=2**63 - 1)
    events: Count = Field(1_000_000, description="expected number of clicks; world.json counts those that came")
    users: Count = 20_000
    items: Count = 10_000
    start: Annotated[datetime, AfterValidator(_check_start)] = datetime(2026, 1, 1, tzinfo=UTC)
    epochs: Count = 60
    epoch_hours: float = Field(24.0, ge=0.5, le=24.0 * 365)

    factors: int = Field(16, ge=4, le=256, description="dimension of taste")
    categories: int = Field(24, ge=1, le=10_000)
    tags: Count = 96
    content_strength: Share = Field(0.6, description="share of the variance of taste that category and tags tell")
    missing_price: Share = 0.02
    dense_dim: int = Field(0, ge=0, le=4096, description="length of an item's dense content vector; 0: none")
    dense_noise: float = Field(0.5, ge=0.0, description="noise of the dense vector, in standard deviations of taste")

    zipf_exponent: float = Field(1.0, ge=0.0, le=3.0, description="popularity of rank r is r^-zipf_exponent")
    popularity_quality: float = Field(0.2, description="how much better popular items truly are, in logits")
    relevance_bias: float = Field(-2.0, description="logit of an average pair")
    relevance_scale: float = Field(1.5, ge=0.0, description="how much taste moves the logit")
    purchase_rate: Share = Field(0.05, description="share of clicks that end in a purchase")

    permanent_share: Share = Field(0.6, description="share of the items that are there all the time")
    mean_lifetime_epochs: float = Field(20.0, gt=0.0, description="of the other items")
    new_user_share: Share = Field(0.2, description="share of the users who arrive after the start")
    activity_spread: float = Field(1.0, ge=0.0, le=3.0, description="sigma of the log-normal activity of users")

    positions: int = Field(5, ge=1, le=100, description="slots of a slate")
    examination_exponent: float = Field(0.5, ge=0.0, le=5.0, description="slot p is looked at with p^-exponent")
    incumbent_taste: float = Field(1.0, ge=0.0, description="how much the incumbent follows a user's taste")
    incumbent_greed: float = Field(
        0.3, ge=0.0, le=2.0, description="how much steeper popularity is in the first slot than in the last"
    )
    random_share: Share = Field(0.05, description="share of slots filled uniformly at random")

    impressions: Share = Field(1.0, description="share of slates whose impressions are logged")
    user_prefix: str = Field("u", max_length=100)
    item_prefix: str = Field("i", max_length=100)
    part_rows: Count = Field(2_000_000, description="rows of a Parquet part")
    row_group_rows: Count = Field(250_000, description="rows of a row group")

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.items < self.categories:
            raise ValueError(f"items = {self.items} is below categories = {self.categories}: a category would be empty")
        return self

    @property
    def epoch_ms(self) -> int:
        """Length of an epoch: whole seconds, in milliseconds."""
        return round(self.epoch_hours * 3600) * 1000

    @property
    def start_ms(self) -> int:
        """Start of the world, milliseconds since the Unix epoch."""
        return int(self.start.timestamp()) * 1000

    @property
    def slate_span_ms(self) -> int:
        """Slates are shown in the first part of an epoch only, so that their clicks fall into it as well."""
        return self.epoch_ms - _EPOCH_MARGIN_MS

    @property
    def examination(self) -> NDArray[np.float64]:
        """Probability that slot p = 1..positions is looked at: ``p ** -examination_exponent``."""
        return np.arange(1, self.positions + 1, dtype=np.float64) ** -self.examination_exponent

    @property
    def greed(self) -> NDArray[np.float64]:
        """Exponent put on popularity in each slot: falls evenly around 1, by ``incumbent_greed`` in all."""
        return 1.0 + self.incumbent_greed * (0.5 - np.linspace(0.0, 1.0, self.positions))
