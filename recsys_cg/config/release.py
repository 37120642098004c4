"""Sections that describe how a release is measured, gated, stored and served."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from recsys_cg.config.section import Fraction, Positive, Section, one_of

__all__ = ["Baseline", "EvaluationConfig", "GatesConfig", "ServingConfig", "StoreConfig"]

Baseline = Literal["popularity", "popularity_recent", "item_knn", "ease", "ials"]


class EvaluationConfig(Section):
    """``[evaluation]``: what a release is measured by."""

    k: list[Positive] = Field(default_factory=lambda: [20, 100, 500], min_length=1)
    primary_k: Positive = Field(100, description="k of gates and headlines; one of k")
    metrics: list[Annotated[str, one_of()]] = Field(
        default_factory=list, description='your own beside the usual ones, e.g. ["my_package.metrics:first_page"]'
    )
    split: Literal["test", "validation"] = "test"
    by: list[str] = Field(default_factory=list, description="categorical item features that the report splits by")
    filter_seen: bool = Field(True, description="items of a query's past are not candidates")
    baselines: list[Baseline] = Field(default_factory=lambda: list(get_args(Baseline)))
    ease_max_items: Positive = Field(20_000, description="larger catalogues skip EASE, and the report says so")
    recent_hours: float = Field(168.0, gt=0.0, description="window of popularity_recent, ending at the query")
    max_queries: Positive = Field(100_000, description="a seeded sample of the queries beyond this")
    bootstrap_samples: int = Field(1000, ge=100, le=100_000)
    tuning_queries: Positive = Field(2000, description="validation queries by which the baselines are tuned")
    propensity_exponent: float = Field(0.5, ge=0.0, le=2.0, description="exposure ~ popularity ^ this, if not logged")
    propensity_clip: float = Field(
        0.01, ge=0.0, lt=1.0, description="share of the targets, those least likely to be seen, whose weight is capped"
    )
    examples: int = Field(5, ge=0, le=50, description="users shown with titles in the report")

    @model_validator(mode="after")
    def _primary_is_measured(self) -> Self:
        if self.primary_k not in self.k:
            raise ValueError(f"primary_k = {self.primary_k} is not one of k = {self.k}")
        return self


class GatesConfig(Section):
    """``[gates]``: what a release must reach to be published; ``"off"`` switches a gate off."""

    min_index_recall: Fraction | None = 0.95
    min_fill_rate: Fraction | None = 0.99
    min_coverage: Fraction | None = Field(None, description="catalogue coverage at primary_k")
    min_effective_rank: float | None = Field(2.0, ge=1.0)
    max_mean_similarity: Fraction | None = 0.95
    max_recall_drop: Fraction | None = Field(0.02, description="against the previous release, by paired interval")
    max_tail_recall_drop: Fraction | None = 0.02
    max_user_overlap: Fraction | None = Field(0.95, description="mean overlap of two users' lists at primary_k")
    max_churn: Fraction | None = Field(
        None, description="share of the probe's lists that the previous one did not give"
    )
    beat_baseline: Baseline | None = "popularity"

    @field_validator("*", mode="before")
    @classmethod
    def _may_be_off(cls, value: Any) -> Any:
        return None if value == "off" else value


class ServingConfig(Section):
    """``[serving]``: the lookup service."""

    host: str = Field("127.0.0.1", min_length=1)
    port: int = Field(8080, ge=0, le=65535)
    grpc_port: int | None = Field(None, ge=0, le=65535, description="also serve gRPC there (extra grpc); 0: a free one")
    max_k: Positive = 1000
    max_batch: Positive = 256
    max_history: Positive = Field(1000, description="longest history taken from a request")
    max_body_bytes: int = Field(1_000_000, ge=1024, description="larger request bodies are refused")
    read_seconds: float = Field(10.0, gt=0.0, description="a request's head, and then its body, must arrive within")
    max_waiting: Positive = Field(256, description="lookups waiting in a worker; more are refused with 503")
    deadline_ms: Positive = Field(1000, description="a lookup that waited longer is refused with 503")
    log_requests: bool = Field(True, description="one line of JSON a request on standard error")
    token_env: str | None = Field(None, description="environment variable that holds the bearer token")
    reload_seconds: float = Field(2.0, gt=0.0, description="how often CURRENT is looked at, and what trends is read")
    histories: bool = Field(True, description="carry user histories inside the release")
    live_histories: str | None = Field(
        None, min_length=1, description="Redis that holds fresher ones: redis://host:6379/0 (extra redis)"
    )
    live_histories_timeout_ms: Positive = Field(20, description="then the release's histories are used")
    live_trends: str | None = Field(
        None, min_length=1, description="Redis that holds what is asked for at the moment (extra redis)"
    )


class StoreConfig(Section):
    """``[store]``: where releases are published."""

    path: str = Field(
        "store", min_length=1, description="directory, relative to the work directory; or a URL, e.g. s3://bucket/store"
    )
    keep: int = Field(
        5, ge=2, description="releases kept, CURRENT and its predecessor always; also reports of refused ones"
    )
