"""Drift as Prometheus text, for the node exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["render_prometheus"]

_PREFIX = "recsys_cg_drift_"
_HELP: Final = {
    "info": "Which release is served, and which one it is compared with.",
    "measured_timestamp_seconds": "When this was measured.",
    "queries": "Queries asked: the frozen probes, or the fresh requests with a known history.",
    "probe_recall": "Share of what the probes' users chose next that is among the first k.",
    "index_recall": "Share of exact search's first k that the index finds.",
    "churn_ratio": "Share of the predecessor's first k that the served release does not give to the same probes.",
    "nearest_distance_mean": "Mean of 1 - similarity of the best item.",
    "query_norm_mean": "Mean norm of the query vectors.",
    "ks_statistic": "Two-sample Kolmogorov-Smirnov statistic of the figure, against the other set.",
    "ks_p_value": "Its p-value.",
    "mean_pairwise_similarity": "Mean dot product of two different queries' vectors: 1 is collapse.",
    "requests": "Fresh requests read.",
    "requests_without_known_history_ratio": "Share of the fresh requests of which the release knows no item.",
    "request_unknown_item_ratio": "Share of the items in fresh histories that the release does not have.",
    "items": "Items of the served release.",
    "stale_items_ratio": "Share of the items embedded by another encoder than the one that answers.",
    "unavailable_items_ratio": "Share of the items that may not be shown now.",
    "release_age_seconds": "Since the served release was built.",
    "served_seconds": "Since CURRENT was moved to it.",
    "data_age_seconds": "Since the last interaction that its dataset knows.",
}
_STALENESS: Final = {
    "items": ("items", 1.0),
    "stale_fraction": ("stale_items_ratio", 1.0),
    "unavailable_share": ("unavailable_items_ratio", 1.0),
    "release_age_hours": ("release_age_seconds", 3600.0),
    "served_hours": ("served_seconds", 3600.0),
    "data_age_hours": ("data_age_seconds", 3600.0),
}

Sample = tuple[str, dict[str, str], float]


def render_prometheus(drift: Mapping[str, Any]) -> str:
    """Return the exposition text (format 0.0.4) of what `recsys_cg.workflow.drift.look_at_drift` found.

    Every sample carries no release name, so that series live on over releases; ``recsys_cg_drift_info`` names it.
    A figure that could not be had is left out: never a made-up zero.
    """
    found: dict[str, list[Sample]] = {}
    for name, labels, value in _samples(drift):
        found.setdefault(name, []).append((name, labels, value))
    lines = []
    for name in (name for name in _HELP if name in found):
        lines += [f"# HELP {_PREFIX}{name} {_HELP[name]}", f"# TYPE {_PREFIX}{name} gauge"]
        lines += [f"{_PREFIX}{name}{_labels(labels)} {value!r}" for _, labels, value in found[name]]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = (
        (name, text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, text in labels.items()
    )
    return "{" + ",".join(f'{name}="{text}"' for name, text in escaped) + "}"


def _samples(drift: Mapping[str, Any]) -> Iterator[Sample]:
    yield "info", {"release": drift["release"], "against": drift["against"] or ""}, 1.0
    yield "measured_timestamp_seconds", {}, drift["measured_us"] / 1e6
    for name, labels, value in (*_frozen(drift), *_fresh(drift), *_staleness(drift)):
        if value is not None:
            yield name, labels, float(value)


def _frozen(drift: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str], Any]]:
    frozen, k = drift["frozen"], {"k": str(drift["k"])}
    of_set = {"set": "probes"}
    yield "queries", of_set, frozen.get("probes")
    for figure, name, labels in (
        (f"probe_recall@{drift['k']}", "probe_recall", k),
        (f"probe_index_recall@{drift['k']}", "index_recall", of_set | k),
        ("mean_pairwise_similarity", "mean_pairwise_similarity", of_set),
    ):
        for release, value in (frozen.get(figure) or {}).items():
            yield name, {"release": release, **labels}, value
    yield "churn_ratio", k, frozen.get(f"churn@{drift['k']}")
    for figure in ("nearest_distance", "query_norm"):
        values = frozen.get(figure) or {}
        yield f"{figure}_mean", {"release": "current", **of_set}, values.get("mean")
        yield f"{figure}_mean", {"release": "previous", **of_set}, values.get("previous_mean")
        yield "ks_statistic", {"figure": figure, "against": "previous_release"}, values.get("ks")
        yield "ks_p_value", {"figure": figure, "against": "previous_release"}, values.get("p_value")


def _fresh(drift: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str], Any]]:
    fresh, labels = drift.get("fresh"), {"release": "current", "set": "fresh"}
    if fresh is None:
        return
    yield "requests", {}, fresh["requests"]
    yield "requests_without_known_history_ratio", {}, fresh["without_known_history"]
    yield "request_unknown_item_ratio", {}, fresh["unknown_item_share"]
    yield "queries", {"set": "fresh"}, fresh["queries"]
    yield "index_recall", {**labels, "k": str(drift["k"])}, fresh[f"index_recall@{drift['k']}"]
    yield "mean_pairwise_similarity", labels, fresh["mean_pairwise_similarity"]
    for figure in ("nearest_distance", "query_norm"):
        yield f"{figure}_mean", labels, fresh[figure]["mean"]
        yield "ks_statistic", {"figure": figure, "against": "probes"}, fresh[figure]["ks"]
        yield "ks_p_value", {"figure": figure, "against": "probes"}, fresh[figure]["p_value"]


def _staleness(drift: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str], Any]]:
    for figure, (name, scale) in _STALENESS.items():
        value = drift["staleness"].get(figure)
        yield name, {}, None if value is None else value * scale
