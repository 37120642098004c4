"""Gates: what a release must show in its report before it may be published.

Two kinds of question need two rules, because the burden of proof lies on different sides.

*Did it get worse than the previous release?* Both were measured on the same queries, so the report holds a paired
95% interval of the difference, new minus old. The gate refuses when the interval lies wholly below zero (the drop is
not noise) **and** the mean drop exceeds the allowance (it matters). A small but certain drop within the allowance
passes, and so does a large mean drop that the queries cannot tell from noise; the reason says so in words. Demanding
proof that there is *no* drop would refuse every release with few tail queries. Asking for proof that the drop exceeds
the allowance would let a likely large one through. The rule looks back one release: a slow decline, each step within
the allowance, shows on the history page.

*Does it beat the baseline?* Here the release has to prove itself: the mean must be higher, and where the report holds
the paired interval, all of it must lie above zero.

A figure that the report lacks fails its gate, with a reason. A gate set to None is not judged. Some gates cannot be
overridden by any reason: see `UNFORCEABLE`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from recsys_cg.config.release import GatesConfig
from recsys_cg.release.contents import NORM_TOLERANCE
from recsys_cg.release.reading import TWO_TOWER, comparison, find_at_k, interval_of, mean_of, number, primary_k, section

__all__ = ["UNFORCEABLE", "conclude", "failed_gates", "judge"]

Gate = dict[str, Any]

UNFORCEABLE: Final = frozenset(
    {
        "vectors_finite",
        "vectors_unit_norm",
        "stale_fraction",
        "items_without_vector",
        "effective_rank",
        "mean_similarity",
    }
)
"""Gates that no reason overrides: a release that fails one cannot be searched correctly, or is collapsed."""

PREVIOUS: Final = "previous_release"


def judge(report: Mapping[str, Any], gates: GatesConfig, previous: Mapping[str, Any] | None) -> list[Gate]:
    """Judge a report by every gate that is set.

    Args:
        report: the new release's report.json; its ``systems.previous_release.paired`` compares the two.
        gates: the thresholds; None switches a gate off.
        previous: the report.json of the release that is current, or None when there is none.

    Returns:
        One ``{"name", "value", "threshold", "passed", "why"}`` a gate. ``value`` is None where the report lacks it,
        and then ``passed`` is False, unless there is nothing to compare with.
    """
    return [
        *_judge_vectors(report),
        *_judge_geometry(report, gates),
        *_judge_index(report, gates),
        *_judge_lists(report, gates),
        *_judge_baseline(report, gates),
        *_judge_drops(report, gates, previous),
        *_judge_drift(report, gates, previous),
    ]


def failed_gates(gates: list[Gate]) -> list[Gate]:
    """Return the gates that did not pass."""
    return [gate for gate in gates if gate.get("passed") is not True]


def conclude(report: Mapping[str, Any], gates: list[Gate], *, force_reason: str | None = None) -> dict[str, Any]:
    """Return ``report`` with its gates and the verdict: ``published``, and ``forced`` when a reason overrode a gate.

    Args:
        report: a measured report.
        gates: what `judge` returned for it.
        force_reason: why to publish although a gate failed; it is recorded with the names of the gates it overrode.
            It has no effect on the gates in `UNFORCEABLE`, nor where all gates passed.
    """
    failed = [str(gate["name"]) for gate in failed_gates(gates)]
    reason = (force_reason or "").strip()
    may_force = bool(reason) and not UNFORCEABLE.intersection(failed)
    verdict = {key: value for key, value in report.items() if key != "forced"}
    verdict |= {"gates": gates, "published": bool(gates) and (not failed or may_force)}
    if failed and may_force:
        verdict["forced"] = {"reason": reason, "gates": failed}
    return verdict


def _gate(name: str, value: float | None, threshold: float | None, passed: bool, why: str) -> Gate:
    return {"name": name, "value": value, "threshold": threshold, "passed": passed, "why": why}


def _missing(name: str, threshold: float | None, where: str) -> Gate:
    return _gate(name, None, threshold, False, f"The report has no figure at {where}, so this cannot be judged.")


def _at_least(name: str, value: float | None, threshold: float, what: str, where: str) -> Gate:
    if value is None:
        return _missing(name, threshold, where)
    passed = value >= threshold
    relation = "reaches" if passed else "is below"
    return _gate(name, value, threshold, passed, f"{what} is {_show(value)} and {relation} {_show(threshold)}.")


def _at_most(name: str, value: float | None, threshold: float, what: str, where: str) -> Gate:
    if value is None:
        return _missing(name, threshold, where)
    passed = value <= threshold
    relation = "stays within" if passed else "is above"
    return _gate(name, value, threshold, passed, f"{what} is {_show(value)} and {relation} {_show(threshold)}.")


def _show(value: float) -> str:
    return f"{value:.4g}"


def _judge_vectors(report: Mapping[str, Any]) -> Iterator[Gate]:
    vectors, freshness = section(report, "vectors"), section(report, "freshness")
    yield _none_of(
        "vectors_finite", vectors.get("not_finite"), "vectors.not_finite", "item vector(s) hold a NaN or an infinity",
        "Every number of every item vector is finite.",
    )  # fmt: skip
    yield _at_most(
        "vectors_unit_norm", number(vectors.get("max_norm_error")), NORM_TOLERANCE,
        "The largest difference of an item vector's norm from 1", "vectors.max_norm_error",
    )  # fmt: skip
    yield _none_of(
        "stale_fraction", freshness.get("stale_fraction"), "freshness.stale_fraction",
        "is the share of items embedded by another encoder or from other content",
        "Every item was embedded by this encoder, from the content that the catalogue has now.",
    )  # fmt: skip
    yield _none_of(
        "items_without_vector", freshness.get("items_without_vector"), "freshness.items_without_vector",
        "catalogue item(s) have no vector",
        "Every item of the catalogue has a vector.",
    )  # fmt: skip


def _none_of(name: str, found: Any, where: str, fault: str, fine: str) -> Gate:
    value = number(found)
    if value is None:
        return _missing(name, 0.0, where)
    return _gate(name, value, 0.0, value <= 0, fine if value <= 0 else f"{_show(value)} {fault}.")


def _judge_geometry(report: Mapping[str, Any], gates: GatesConfig) -> Iterator[Gate]:
    geometry = section(report, "geometry")
    if gates.min_effective_rank is not None:
        yield _at_least(
            "effective_rank", number(geometry.get("effective_rank")), gates.min_effective_rank,
            "The effective rank of the item vectors", "geometry.effective_rank",
        )  # fmt: skip
    if gates.max_mean_similarity is not None:
        yield _at_most(
            "mean_similarity", number(geometry.get("mean_pairwise_similarity")), gates.max_mean_similarity,
            "The mean similarity of two item vectors", "geometry.mean_pairwise_similarity",
        )  # fmt: skip


def _judge_index(report: Mapping[str, Any], gates: GatesConfig) -> Iterator[Gate]:
    index, k = section(report, "index"), primary_k(report)
    if gates.min_index_recall is not None:
        name, value = find_at_k(index, "recall_vs_exact", k)
        yield _at_least(
            "index_recall", number(value), gates.min_index_recall,
            "The share of exact search's results that the index finds", f"index.{name}",
        )  # fmt: skip
    if gates.min_fill_rate is not None:
        yield _at_least(
            "fill_rate", number(index.get("fill_rate")), gates.min_fill_rate,
            "The share of requested places that the index fills", "index.fill_rate",
        )  # fmt: skip


def _judge_lists(report: Mapping[str, Any], gates: GatesConfig) -> Iterator[Gate]:
    coverage, k = section(report, "coverage", TWO_TOWER), primary_k(report)
    if gates.min_coverage is not None:
        name = f"catalogue_coverage@{k}"
        yield _at_least(
            "coverage", number(coverage.get(name)), gates.min_coverage,
            f"The share of the catalogue that is in anybody's first {k}", f"coverage.{TWO_TOWER}.{name}",
        )  # fmt: skip
    if gates.max_user_overlap is not None:
        yield _judge_overlap(report, coverage, k, gates.max_user_overlap)


def _judge_overlap(report: Mapping[str, Any], coverage: Mapping[str, Any], k: int, threshold: float) -> Gate:
    name = f"between_user_overlap@{k}"
    value = number(coverage.get(name))
    candidates = number(section(report, "protocol").get("candidates"))
    if candidates is not None and candidates <= 2 * k:
        why = f"Lists of {k} out of {candidates:.0f} candidates overlap whatever the model: not judged."
        return _gate("user_overlap", value, threshold, True, why)
    what = f"The mean overlap of two users' first {k}"
    return _at_most("user_overlap", value, threshold, what, f"coverage.{TWO_TOWER}.{name}")


def _judge_baseline(report: Mapping[str, Any], gates: GatesConfig) -> Iterator[Gate]:
    baseline = gates.beat_baseline
    if baseline is None:
        return
    name, metric = f"beats_{baseline}", f"recall@{primary_k(report)}"
    ours, theirs = mean_of(report, TWO_TOWER, "overall", metric), mean_of(report, baseline, "overall", metric)
    if ours is None or theirs is None:
        lacking = TWO_TOWER if ours is None else baseline
        skipped = section(report, "systems", lacking).get("skipped")
        if skipped:
            yield _gate(name, ours, theirs, False, f"{lacking} was not measured: {skipped}")
        else:
            yield _missing(name, theirs, f"systems.{lacking}.overall.{metric}")
        return
    label = baseline.replace("_", " ")
    why = f"{metric.capitalize()} is {_show(ours)} against {_show(theirs)} of {label}"
    interval = interval_of(comparison(report, baseline, "overall", metric))
    if interval is None:
        passed = ours > theirs
        why += "; the report holds no paired interval." if passed else ": not above it."
    else:
        passed = ours > theirs and interval[0] > 0
        why += f"; the 95% interval of the difference is {_show_interval(interval)}"
        why += "." if passed else ", not wholly above zero: an advantage is not shown."
    yield _gate(name, ours, theirs, passed, why)


def _judge_drops(report: Mapping[str, Any], gates: GatesConfig, previous: Mapping[str, Any] | None) -> Iterator[Gate]:
    metric = f"recall@{primary_k(report)}"
    allowances = {"overall": gates.max_recall_drop, "tail": gates.max_tail_recall_drop}
    for group, allowed in allowances.items():
        if allowed is None:
            continue
        name = "recall_drop" if group == "overall" else f"{group}_recall_drop"
        if previous is None and not section(report, "systems", PREVIOUS):
            yield _gate(name, None, allowed, True, "There is no previous release to compare with.")
        else:
            yield _judge_drop(name, comparison(report, PREVIOUS, group, metric), allowed, group, report)


def _judge_drop(name: str, entry: Mapping[str, Any], allowed: float, group: str, report: Mapping[str, Any]) -> Gate:
    metric = f"recall@{primary_k(report)}"
    if entry.get("queries") == 0 or (not entry and section(report, "systems", TWO_TOWER, group).get("queries") == 0):
        return _gate(name, None, allowed, True, f"No query has a target in this group ({group}): nothing to compare.")
    difference, interval = number(entry.get("difference")), interval_of(entry)
    if difference is None or interval is None:
        skipped = section(report, "systems", PREVIOUS).get("skipped")
        if skipped:
            return _gate(name, None, allowed, False, f"The previous release was not measured: {skipped}")
        return _missing(name, allowed, f"comparisons: {TWO_TOWER} against {PREVIOUS}, {group}, {metric}")
    certain, large = interval[1] < 0, -difference > allowed
    moved = "fell" if difference < 0 else "rose" if difference > 0 else "moved"
    label = metric.capitalize() if group == "overall" else f"{group.capitalize()} {metric}"
    why = f"{label} {moved} by {_show(abs(difference))} (95% interval of new minus old {_show_interval(interval)}): "
    if certain and large:
        why += f"a drop beyond chance and above the {_show(allowed)} allowed."
    elif large:
        why += f"above the {_show(allowed)} allowed, but the queries cannot tell it from chance."
    elif certain:
        why += f"a drop beyond chance, within the {_show(allowed)} allowed."
    else:
        why += "no drop is shown."
    return _gate(name, -difference, allowed, not (certain and large), why)


def _judge_drift(report: Mapping[str, Any], gates: GatesConfig, previous: Mapping[str, Any] | None) -> Iterator[Gate]:
    if gates.max_churn is None:
        return
    if previous is None and "against" not in section(report, "drift"):
        yield _gate("churn", None, gates.max_churn, True, "There is no previous release to compare with.")
        return
    name, value = find_at_k(section(report, "drift"), "churn", primary_k(report))
    yield _at_most(
        "churn", number(value), gates.max_churn,
        "The share of the probe's lists that the previous release did not give", f"drift.{name}",
    )  # fmt: skip


def _show_interval(interval: tuple[float, float]) -> str:
    return f"{interval[0]:+.4f} to {interval[1]:+.4f}"
