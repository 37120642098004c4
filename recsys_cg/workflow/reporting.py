"""The report's files: report.json, the page, the Markdown summary; and what the command line says of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.bonuses import NOTHING_RAISED, join, lift
from recsys_cg.evaluation.ragged import Ragged
from recsys_cg.release.store import Store
from recsys_cg.schema import EncoderFiles, ReleaseFiles, ReportFiles
from recsys_cg.trends import Trend

if TYPE_CHECKING:
    from recsys_cg.serving.release import Release
    from recsys_cg.workflow.under_test import ReleaseUnderTest

__all__ = ["Extras", "choose_examples", "read_extras", "summarise", "summary_of", "write_report"]

_EXAMPLES = "examples.json"
_TRAINING = "training.json"
_MINED = "mined_negatives.json"
_SHOWN = 12
_MINED_SHOWN = 12
Rows = NDArray[np.int32]


@dataclass(frozen=True)
class Extras:
    """What the page shows beside report.json: the training record, example users, and some mined negatives."""

    training: Mapping[str, Any] | None
    examples: list[dict[str, Any]]
    mined: list[dict[str, Any]]

    @classmethod
    def of(cls, under_test: ReleaseUnderTest, examples: list[dict[str, Any]]) -> Extras:
        """Take the training record and the audit of mined negatives that the release carries."""
        encoder = under_test.release.path / ReleaseFiles.ENCODER
        training = json.loads((encoder / EncoderFiles.TRAINING).read_text(encoding="utf-8"))
        return cls(training, examples, _read_mined(encoder / EncoderFiles.MINED_NEGATIVES))


def _read_mined(path: Path) -> list[dict[str, Any]]:
    """Return the first rows of the audit's table, as many that were met later as others; none without a table."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows: list[dict[str, Any]] = [
            {
                **row,
                "score": float(row["score"]),
                "rank": int(row["rank"]),
                "later_interacted": row["later_interacted"] == "true",
            }
            for row in csv.DictReader(file)
        ]
    taken = {True: 0, False: 0}
    chosen = []
    for row in rows:
        taken[row["later_interacted"]] += 1
        if taken[row["later_interacted"]] <= _MINED_SHOWN:
            chosen.append(row)
    return chosen


def read_extras(directory: Path) -> Extras:
    """Read what `write_report` kept beside the page; a report of an earlier version has no mined negatives."""
    training, examples = (json.loads((directory / name).read_text(encoding="utf-8")) for name in (_TRAINING, _EXAMPLES))
    mined = directory / _MINED
    return Extras(training, examples, json.loads(mined.read_text(encoding="utf-8")) if mined.is_file() else [])


def write_report(directory: Path, report: Mapping[str, Any], extras: Extras, store: Store) -> None:
    """Write every form of the report into ``directory``, replacing what is there.

    Args:
        directory: existing.
        report: report.json with its gates and its verdict.
        extras: what the page shows besides.
        store: whose other releases the page shows over time.
    """
    from recsys_cg.release.report import render_html, render_markdown

    _write_json(directory / ReportFiles.JSON, report)
    _write_json(directory / _TRAINING, extras.training)
    _write_json(directory / _EXAMPLES, extras.examples)
    if extras.mined:
        _write_json(directory / _MINED, extras.mined)
    earlier = [one.name for one in reversed(store.releases()) if not one.fault and one.name != report["release"]]
    history = [store.report_of(name) for name in earlier]
    page = render_html(report, training=extras.training, examples=extras.examples, history=history, mined=extras.mined)
    (directory / ReportFiles.HTML).write_text(page, encoding="utf-8")
    (directory / ReportFiles.MARKDOWN).write_text(render_markdown(report), encoding="utf-8")


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def choose_examples(under_test: ReleaseUnderTest, queries: pa.Table, *, count: int, seed: int) -> list[dict[str, Any]]:
    """Draw users of whose history the release knows something and set their lists beside what they chose next.

    Args:
        under_test: the release, asked as it serves: what was available then, without what the user met, or, where that
            is answered too, with its bonus.
        queries: of the dataset; one query a user is drawn.
        count: users.
        seed: of the draw.
    """
    met_before = Ragged.from_column(queries, "history")
    known = met_before.keep(under_test.release_rows[met_before.values] >= 0)
    with_history = np.flatnonzero(known.lengths)
    users = queries["user_id"].take(pa.array(with_history)).to_numpy(zero_copy_only=False)
    order = np.random.default_rng(seed).permutation(len(users))
    _, first = np.unique(users[order], return_index=True)
    chosen = queries.take(pa.array(np.sort(with_history[order[np.sort(first)[:count]]])))
    if not len(chosen):
        return []
    met = zip(under_test.rows_of(chosen["seen"]), under_test.rows_of(chosen["history"]), strict=True)
    trends = under_test.system("examples", seed).trends_of(chosen)
    found = [
        _ask(under_test.release, vector, seen, history, time_us, trend)
        for vector, (seen, history), time_us, trend in zip(
            under_test.encode(chosen), met, chosen["time_us"].to_pylist(), trends, strict=True
        )
    ]
    return [
        {
            "user": query["user_id"],
            "history": [_listed(under_test.items, row) for row in query["history"]],
            "targets": [_listed(under_test.items, row) for row in query["targets"]],
            "retrieved": [
                _listed(under_test.items, int(under_test.item_rows[row])) | {"score": round(float(score), 4)}
                for row, score in zip(*one, strict=True)
                if under_test.item_rows[row] >= 0
            ],
        }
        for query, one in zip(chosen.to_pylist(), found, strict=True)
    ]


def _ask(  # noqa: PLR0917 - what one example needs
    release: Release, vector: NDArray[np.float32], seen: Rows, history: Rows, time_us: int, trend: Trend
) -> tuple[Rows, NDArray[np.float32]]:
    """Return rows and scores of the first items that a lookup answers."""
    available = release.availability.at(time_us)
    exclude = [seen] if release.filters_seen else None
    found = release.retriever.search(vector[None, :], _SHOWN, exclude=exclude, allow=available)
    rows, scores = found.rows[0, : found.found[0]], found.scores[0, : found.found[0]]
    raised = NOTHING_RAISED if release.trends is None else trend.raised(release.trends.bonus)
    if release.filters_seen:
        raised = raised.among(~np.isin(raised.rows, seen))
    elif release.repeats is not None:
        raised = join(release.repeats.raised(np.unique(history[-release.repeats.max_history :])), raised)
    if available is not None:
        raised = raised.among(available[raised.rows])
    return lift(rows, scores, vector, raised, vectors=release.vectors, k=_SHOWN)


def _listed(items: pa.Table, row: int) -> dict[str, Any]:
    return {name: items[name][row].as_py() for name in ("item_id", "title", "bucket")}


def summarise(report: Mapping[str, Any]) -> str:
    """Return a few lines for a terminal: the two-tower beside the best baseline, by bucket, and the gates."""
    k = report["protocol"]["primary_k"]
    metric = f"recall@{k}"
    lines = [f"{'':<18}{'queries':>9}  " + "  ".join(f"{group:>8}" for group in ("overall", *_GROUPS))]
    for name, system in report["systems"].items():
        if "overall" in system:
            values = "  ".join(f"{_mean(system, group, metric):>8}" for group in ("overall", *_GROUPS))
            lines.append(f"{name:<18}{system['overall']['queries']:>9,}  {values}")
        else:
            lines.append(f"{name:<18} skipped: {system.get('skipped', 'not measured')}")
    failed = [gate["name"] for gate in report["gates"] if not gate["passed"]]
    verdict = f"refused by {', '.join(failed)}" if failed else f"all {len(report['gates'])} gates passed"
    return "\n".join([f"{metric} on the {report['protocol']['split']} window", *lines, verdict])


def summary_of(directory: Path) -> str:
    """Return `summarise` of the report in ``directory``, and where its page is."""
    report = json.loads((directory / ReportFiles.JSON).read_text(encoding="utf-8"))
    return f"{summarise(report)}\nreport: {directory / ReportFiles.HTML}"


_GROUPS = ("head", "torso", "tail", "cold")


def _mean(system: Mapping[str, Any], group: str, metric: str) -> str:
    value = system.get(group, {}).get(metric)
    return "-" if value is None or value["mean"] is None else f"{value['mean']:.4f}"
