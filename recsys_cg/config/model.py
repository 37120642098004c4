"""Sections that describe the model, its training and its index."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from recsys_cg.config.section import Positive, Section, one_of
from recsys_cg.extensions import is_extension

__all__ = ["IndexConfig", "ModelConfig", "NegativesConfig", "TrainingConfig"]


_OPTION_OF = {
    "alpha": "popularity",
    "max_age": "cross_batch",
    "warmup_epochs": "mined",
    "first_rank": "mined",
    "last_rank": "mined",
    "per_query": "impressions",
    "span_s": "impressions",
    "weight": "impressions",
}


class NegativesConfig(Section):
    """``[[model.negatives]]``: one declared source of negatives; several form a mixture."""

    kind: Annotated[str, one_of("in_batch", "uniform", "popularity", "cross_batch", "mined", "impressions")]
    count: int = Field(512, ge=1, description="candidates drawn a step")
    alpha: float = Field(1.0, ge=0.0, le=2.0, description="popularity: q proportional to count^alpha")
    max_age: Positive = Field(8, description="cross_batch: steps that a remembered vector stays a candidate")

    warmup_epochs: Positive = Field(2, description="mined: epochs before the first mining")
    first_rank: Positive = Field(20, description="mined: best rank taken; better ones are likely to be wanted")
    last_rank: Positive = Field(200, description="mined: worst rank taken; worse ones are easy")

    per_query: int = Field(4, ge=1, le=32, description="impressions: skipped items that a query meets at most")
    span_s: float = Field(0.0, ge=0.0, le=86_400.0, description="impressions: seconds that one request's showing takes")
    weight: float = Field(
        1.0, gt=0.0, le=1000.0, description="impressions: times that a skip counts; 1 leaves the objective as it is"
    )

    options: dict[str, Any] = Field(default_factory=dict, description="what a sampler of your own is made with")

    @property
    def declaration(self) -> dict[str, Any]:
        """What decides the source's proposal and draws, and nothing that it does not read."""
        shared = {"impressions": []}.get(self.kind, ["count", "options"] if is_extension(self.kind) else ["count"])
        names = ["kind", *shared, *(name for name, kind in _OPTION_OF.items() if kind == self.kind)]
        return {name: getattr(self, name) for name in names}

    @model_validator(mode="after")
    def _options_fit_the_kind(self) -> Self:
        for name, kind in _OPTION_OF.items():
            if kind != self.kind and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} is an option of {kind} negatives, and these are {self.kind}")
        if self.options and not is_extension(self.kind):
            raise ValueError(f"options are those of a sampler of your own, and these are {self.kind}")
        if self.kind == "impressions" and self.count != type(self).model_fields["count"].default:
            raise ValueError("count is no option of impressions negatives: each query has its own, see per_query")
        if self.first_rank > self.last_rank:
            raise ValueError(f"first_rank = {self.first_rank} is above last_rank = {self.last_rank}")
        if self.kind == "cross_batch" and self.max_age > self.count:
            raise ValueError(f"max_age = {self.max_age} is above count = {self.count}: no event a step could be added")
        return self


def _default_negatives() -> list[NegativesConfig]:
    return [NegativesConfig(kind="in_batch", count=1024), NegativesConfig(kind="popularity", count=2048, alpha=0.5)]


class ModelConfig(Section):
    """``[model]``: towers, negatives, correction, loss."""

    dim: int = Field(64, ge=2, le=1024)
    query_encoder: Literal["transformer", "recency", "mean"] = "transformer"
    blocks: int = Field(2, ge=1, le=12, description="transformer blocks; recency and mean have one mixing step")
    heads: int = Field(2, ge=1, le=16)
    dropout: float | None = Field(
        None, ge=0.0, le=0.95, description="default: 0.05 to 0.5, the more the fewer training events an item has"
    )
    initial_ids: Literal["co_occurrence", "random"] = Field(
        "co_occurrence", description="where ids of items begin: near what users meet with them, or anywhere"
    )
    id_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="share of training lookups that see content only")
    fit_content: bool = Field(
        True, description="after training, fit content to the learned items, for the vectors of those it never met"
    )
    content_power: float = Field(
        0.1,
        ge=0.0,
        le=1.0,
        description="an item weighs in that fit by this power of its events: more finds more of "
        "the new items, and less of the known ones",
    )
    content_ridge: float = Field(
        3.0, gt=0.0, description="penalty of the content in that fit, as a number of items that say nothing of it"
    )
    context_dropout: float = Field(
        0.1, ge=0.0, lt=1.0, description="share of training queries without context, and of features hidden in others"
    )
    negatives: list[NegativesConfig] = Field(default_factory=_default_negatives, min_length=1)
    correction: Literal["standard", "refined", "none"] = Field(
        "refined", description="refined leaves the positive alone and is exact; standard corrects it too, as TFRS does"
    )
    correction_strength: float = Field(1.0, ge=0.0, le=1.0, description="trades coverage for hits")
    frequencies: Literal["counts", "streaming"] = Field(
        "counts", description="shares of in_batch and cross_batch: from the dataset, or estimated while training"
    )
    frequency_rate: float = Field(0.01, gt=0.0, lt=1.0, description="streaming: weight of the newest gap")
    mask_history: bool = Field(
        True, description="a user's own items are no negatives; false may find more of the tail and less of the head"
    )
    repeat_bonus: float | None = Field(
        None,
        ge=0.0,
        le=2.0,
        description="added to the similarity of items of the history, where those are candidates; "
        "default: fitted on validation queries if evaluation.filter_seen is false, else 0",
    )
    loss: Annotated[str, one_of("softmax", "symmetric", "sigmoid", "triplet", "margin")] = "softmax"
    loss_options: dict[str, Any] = Field(default_factory=dict, description="what a loss of your own is called with")
    margin: float = Field(0.2, gt=0.0, le=2.0, description="triplet and margin: cosine by which the positive must lead")
    projection_head: int | None = Field(
        None, ge=2, le=4096, description="output width of a head that the loss is computed on and export leaves behind"
    )
    temperature: float = Field(0.07, gt=0.0, le=1.0)
    learn_temperature: bool = True
    temperature_min: float = Field(0.01, gt=0.0)
    temperature_max: float = Field(1.0, gt=0.0)

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.dim % self.heads:
            raise ValueError(f"dim = {self.dim} is not divisible by heads = {self.heads}")
        if not self.temperature_min <= self.temperature <= self.temperature_max:
            raise ValueError(
                f"temperature = {self.temperature} is outside "
                f"[temperature_min, temperature_max] = [{self.temperature_min}, {self.temperature_max}]"
            )
        kinds = [source.kind for source in self.negatives]
        twice = [kind for kind in ("in_batch", "cross_batch", "mined", "impressions") if kinds.count(kind) > 1]
        if twice:
            raise ValueError(f"{twice[0]} negatives may be declared once")
        if not set(kinds) - {"cross_batch", "mined", "impressions"}:
            raise ValueError(
                "cross_batch and mined are empty at first, and most items were never among a query's impressions: "
                "declare in_batch, uniform or popularity too"
            )
        mined = sum(source.count for source in self.negatives if source.kind == "mined")
        if 2 * mined > sum(source.count for source in self.negatives if source.kind != "impressions"):
            raise ValueError("mined negatives may be half of all at most: many of them are wanted items not met yet")
        return self

    @model_validator(mode="after")
    def _correction_fits_the_loss(self) -> Self:
        if self.loss_options and not is_extension(self.loss):
            raise ValueError(f"loss_options are those of a loss of your own, and loss is {self.loss!r}")
        if self.loss not in ("softmax", "symmetric") and any(source.weight != 1.0 for source in self.negatives):
            raise ValueError(f'loss = "{self.loss}" has no denominator for impressions to weigh in: set weight = 1.0')
        if self.loss in ("triplet", "margin") and self.correction != "none":
            raise ValueError(f'loss = "{self.loss}" compares similarities and takes no correction: set "none"')
        if self.loss == "sigmoid" and self.correction == "refined":
            raise ValueError('loss = "sigmoid" corrects the positive too: set correction = "standard" or "none"')
        return self


class TrainingConfig(Section):
    """``[training]``: the optimiser's schedule and its limits."""

    epochs: Positive = 12
    max_minutes: float | None = Field(None, gt=0.0, description="stop after this long, whatever the epoch")
    batch_sequences: Positive | None = Field(
        None, description="packed rows a step; by default 4 to 32, so that an epoch has at least 400 steps where it can"
    )
    row_length: int = Field(100, ge=2, le=4096, description="events a packed row")
    ties_in_order: float = Field(
        0.5, ge=0.0, le=1.0, description="share of baskets (events of one user and time) predicted item by item"
    )
    learning_rate: float = Field(0.01, gt=0.0, le=10.0)
    warmup_steps: int = Field(100, ge=0)
    patience: Positive = Field(4, description="epochs without a better validation recall before stopping")
    validation_k: Positive = 100
    validation_queries: Positive = Field(10_000, description="validation queries used for early stopping")
    devices: Literal["one", "mirrored", "multi_worker"] = Field(
        "one", description="mirrored: all devices of this machine; multi_worker: the cluster of TF_CONFIG"
    )
    deterministic: bool = Field(True, description="bit-equal weights for one seed on one machine")
    mixed_precision: bool = False
    jit_compile: bool = False
    softmax_chunk: Positive = Field(4096, description="candidates scored at a time; bounds memory")
    min_effective_rank: float = Field(2.0, ge=1.0, description="below: collapsed")
    max_mean_similarity: float = Field(0.95, gt=0.0, le=1.0, description="above: collapsed")


class IndexConfig(Section):
    """``[index]``: how the vectors are searched."""

    kind: Annotated[str, one_of("auto", "scann", "exact")] = "auto"
    options: dict[str, Any] = Field(default_factory=dict, description="what a backend of your own is built with")
    target_recall: float = Field(0.99, gt=0.0, le=1.0, description="share of exact search's top k to be found")
    k: Positive = Field(100, description="list length at which target_recall holds")
    exact_below: int = Field(5_000, ge=0, description="auto: catalogues smaller than this use exact search")
    tuning_queries: Positive = Field(1024, description="queries to tune on; up to twice as many verify the choice")
    trend_half_life_hours: float | None = Field(
        None,
        ge=1 / 12,
        le=24 * 366,
        description="items get a bonus for how often they were asked for of late: time in which an interaction comes "
        "to count half as much; default: none do",
    )
    trend_bonus: float | None = Field(
        None, ge=0.0, le=2.0, description="times log(1 + interactions); default: fitted on validation queries"
    )

    @model_validator(mode="after")
    def _options_fit_the_kind(self) -> Self:
        if self.options and not is_extension(self.kind):
            raise ValueError(f"options are those of a backend of your own, and kind is {self.kind!r}")
        if self.trend_bonus is not None and self.trend_half_life_hours is None:
            raise ValueError("trend_bonus needs trend_half_life_hours, by which interactions fade")
        return self
