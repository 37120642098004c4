from __future__ import annotations

import re

from recsys_cg.release.report import render_markdown
from tests.release.sample import refused_report, sample_report


def tables(text: str) -> list[list[str]]:
    return [block.splitlines() for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]


def test_verdict_gates_recall_differences_and_coverage_are_there() -> None:
    text = render_markdown(sample_report())
    assert text.startswith("## Published: all 14 gates passed\n")
    assert "| This release | 0.412 | 0.400 to 0.424 |" in text
    assert "| All queries | EASE | +0.023 |" in text
    assert "Scores are similarities, not probabilities." in text
    assert len(tables(text)) == 4


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    for text in (render_markdown(sample_report()), render_markdown(refused_report())):
        for rows in tables(text):
            widths = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
            assert len(widths) == 1


def test_failed_gates_stand_first_and_are_marked() -> None:
    rows = tables(render_markdown(refused_report()))[0]
    assert "**failed**" in rows[2]
    assert "**failed**" in rows[3]
    assert "passed" in rows[4]


def test_text_of_the_report_cannot_become_markup() -> None:
    report = refused_report()
    report["release"] = "a|b\n# head <script> [x](y) `c` *d* _e_"
    report["gates"][0]["why"] = "pipe | newline\n| --- |"
    report |= {"published": True, "forced": {"reason": "<b>now</b> | later"}}
    text = render_markdown(report)
    assert "Release a\\|b \\# head \\<script\\> \\[x\\](y) \\`c\\` \\*d\\* \\_e\\_." in text
    assert "pipe \\| newline \\| --- \\|" in text
    assert "because: \\<b\\>now\\</b\\> \\| later" in text


def test_an_empty_report_and_an_empty_bucket_give_no_made_up_figure() -> None:
    assert render_markdown({}).startswith("## Measured, not judged\n")
    assert tables(render_markdown({})) == []
    report = sample_report()
    for entry in report["systems"].values():
        entry["cold"] = {"queries": 0}
    assert "| Cold (0 queries) | \u2013 | \u2013 | no query |" in render_markdown(report)
