from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest

from recsys_cg.release.report import render_history, render_html
from tests.release.sample import (
    refused_report,
    sample_examples,
    sample_history,
    sample_mined,
    sample_report,
    sample_training,
)

VOID = {"meta", "link", "br", "hr", "img", "input", "path", "line", "circle", "rect", "polyline"}


class Page(HTMLParser):
    """A page as elements and text; fails on tags that do not close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def full_page() -> str:
    return render_html(
        sample_report(),
        training=sample_training(),
        examples=sample_examples(),
        history=sample_history(),
        mined=sample_mined(),
    )


PAGES: dict[str, Callable[[], str]] = {
    "full": full_page,
    "refused": lambda: render_html(refused_report()),
    "empty": lambda: render_html({}),
    "history": lambda: render_history(sample_history(), links={"r": "x.html"}),
    "no history": lambda: render_history([]),
}


@pytest.fixture(params=sorted(PAGES))
def html(request: pytest.FixtureRequest) -> str:
    return PAGES[request.param]()


def test_a_page_is_well_formed_and_self_contained(html: str) -> None:
    page = Page(html)
    assert not re.search(r"https?:|//[a-z]|@import|url\(", html.replace("<!doctype html>", ""))
    assert page.count("script") == page.count("img") == page.count("iframe") == 0
    for tag, attributes in page.elements:
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        assert tag != "link" or attributes["href"] == "data:,"


def test_a_page_has_landmarks_one_title_and_headings_in_order(html: str) -> None:
    page = Page(html)
    assert [page.count(tag) for tag in ("h1", "main", "header", "footer")] == [1, 1, 1, 1]
    assert page.elements[0] == ("html", {"lang": "en"})
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_tables_are_captioned_headers_scoped_and_drawings_named(html: str) -> None:
    page = Page(html)
    assert page.count("caption") == page.count("table")
    for tag, attributes in page.elements:
        if tag == "th":
            assert "scope" in attributes or attributes.get("aria-hidden") == "true"
        if tag == "svg":
            assert attributes.get("aria-hidden") == "true" or (attributes["role"] == "img" and attributes["aria-label"])


def test_identifiers_are_unique_and_links_lead_somewhere(html: str) -> None:
    page = Page(html)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    for tag, attributes in page.elements:
        if tag == "a" and (attributes["href"] or "").startswith("#"):
            assert (attributes["href"] or "")[1:] in ids
        if tag == "section":
            assert attributes["aria-labelledby"] in ids


def test_the_verdict_and_the_gates_come_first() -> None:
    page = Page(render_html(refused_report()))
    assert "Refused: 2 of 14 gates failed" in page.text
    assert next(a["id"] for tag, a in page.elements if tag == "section") == "gates"
    text = page.text
    assert text.index("Failed Index finds") < text.index("Failed Tail recall") < text.index("Passed Vectors are finite")
    assert "Tail recall@100 fell by 0.064" in text


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({}, "Published: all 14 gates passed"),
        ({"published": False}, "Passed all 14 gates, not published"),
        ({"gates": []}, "Measured, not judged"),
        ({"gates": None}, "Measured, not judged"),
    ],
)
def test_the_verdict_says_what_happened(changes: dict[str, Any], title: str) -> None:
    assert title in Page(render_html({**sample_report(), **changes})).text


def test_a_lead_that_may_be_chance_is_called_so() -> None:
    report = sample_report()
    assert "EASE, reached 38.9%. " in Page(render_html(report)).text
    for entry in report["comparisons"]:
        if (entry["against"], entry["group"]) == ("ease", "overall"):
            entry["ci95"] = [-0.001, 0.05]
    assert "EASE, reached 38.9%, a difference within chance. " in Page(render_html(report)).text


def test_a_forced_release_shows_the_reason() -> None:
    report = {**refused_report(), "published": True, "forced": {"reason": "the tail feed was broken <today>"}}
    text = Page(render_html(report)).text
    assert "Published although 2 of 14 gates failed" in text
    assert "Published all the same because: the tail feed was broken <today>" in text


def test_every_part_of_a_full_report_is_shown() -> None:
    page = Page(full_page())
    sections = [attributes["id"] for tag, attributes in page.elements if tag == "section"]
    assert sections == [
        "gates",
        "recall",
        "cold",
        "coverage",
        "debiasing",
        "index",
        "geometry",
        "mined",
        "duplicates",
        "drift",
        "examples",
        "history",
        "limits",
        "definitions",
    ]
    for shown in (
        "0.412",
        "0.400 to 0.424",
        "9,430 queries",
        "+0.007",
        "Recent popularity",
        "top 10%",
        "0.993 (0.992 to 0.995)",
        "148 µs",
    ):
        assert shown in page.text
    assert page.text.count("not probabilities") >= 3
    assert "in-batch: 1,024 candidates a step; popularity: 512 candidates a step, q" in page.text
    assert "marks epoch 11" in page.text


@pytest.mark.parametrize(
    "part", ["systems", "coverage", "index", "geometry", "drift", "freshness", "protocol", "gates"]
)
def test_an_absent_part_is_left_out_and_nothing_is_invented(part: str) -> None:
    report = sample_report()
    del report[part]
    report.pop("vectors")
    page = Page(render_html(report))
    sections = [attributes["id"] for tag, attributes in page.elements if tag == "section"]
    expected = {"systems": "recall", "protocol": "definitions", "freshness": None, "drift": None}.get(part, part)
    assert expected not in sections or expected is None
    assert not re.search(r"\b(nan|None|Undefined|inf)\b", page.text)


def test_an_empty_report_says_that_it_is_empty() -> None:
    page = Page(render_html({}))
    assert "Measured, not judged" in page.text
    assert "The report holds no recall for this release." in page.text
    assert [attributes["id"] for tag, attributes in page.elements if tag == "section"] == ["limits"]


def test_a_bucket_without_queries_says_so_and_shows_no_figure() -> None:
    report = sample_report()
    for entry in report["systems"].values():
        entry["cold"] = {"queries": 0, "users": 0}
    page = Page(render_html(report))
    assert "Cold 0 queries" in page.text
    assert "No query has a target here, so there is nothing to measure." in page.text
    assert "How new items fare: no query of the test window" in page.text


def test_a_skipped_system_is_named_with_its_reason() -> None:
    report = sample_report()
    report["systems"]["ease"] = {"skipped": "1,000,000 items are above evaluation.ease_max_items."}
    text = Page(render_html(report)).text
    assert "EASE was not run: 1,000,000 items are above evaluation.ease_max_items." in text


def _break(value: Any, bad: Any) -> Any:
    if isinstance(value, dict):
        return {key: _break(inner, bad) for key, inner in value.items()}
    if isinstance(value, list):
        return [_break(inner, bad) for inner in value]
    return bad if isinstance(value, int | float) and not isinstance(value, bool) else value


@pytest.mark.parametrize("bad", [math.nan, math.inf, None, "text", 0, -1, 1e300, [], {}])
def test_no_figure_breaks_the_page(bad: Any) -> None:
    report, training = _break(sample_report(), bad), _break(sample_training(), bad)
    history = [_break(entry, bad) for entry in sample_history()]
    page = Page(render_html(report, training=training, examples=sample_examples(), history=history))
    assert not re.search(r"\b(nan|inf|Undefined)\b", page.text)
    for tag, attributes in page.elements:
        if tag in ("line", "circle", "rect", "polyline"):
            assert not any("nan" in str(value) or "inf" in str(value) for value in attributes.values())
    Page(render_history(history))


def test_titles_are_escaped_and_isolated() -> None:
    html = full_page()
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "<bdi>طعم گيلاس (1997)</bdi>" in html
    page = Page(html)
    assert "\"Quotes\" & 'ends' <b>bold</b>" in page.text
    assert "User u<302>" in page.text


def test_markup_in_any_text_of_the_report_stays_text() -> None:
    def poison(value: Any) -> Any:
        if isinstance(value, dict):
            return {f"{key}<i>&\"'": poison(inner) for key, inner in value.items()} | value
        if isinstance(value, list):
            return [poison(inner) for inner in value]
        return "<i onload=x>\"'&" if isinstance(value, str) else value

    report = sample_report()
    poisoned = {key: poison(value) for key, value in report.items()} | {"release": "<i>", "created": "<i>"}
    page = Page(render_html(poisoned, training=poison(sample_training()), examples=poison(sample_examples())))
    assert page.count("i") == Page(full_page()).count("i")


def test_examples_show_targets_that_were_found_and_long_histories_shortened() -> None:
    page = Page(full_page())
    hits = [
        index
        for index, (tag, attributes) in enumerate(page.elements)
        if tag == "li" and attributes.get("class") == "hit"
    ]
    assert len(hits) == 2
    assert "History, newest first (4 earlier not shown)" in page.text
    assert "none: a new user" in page.text


def test_drift_stands_beside_the_previous_release_with_its_tests_in_words() -> None:
    text = Page(full_page()).text
    assert (
        "Asked 1,000 frozen probes, this release replaces 31.8% of the first 100 that the previous release "
        "20261122T192233Z-0a0b0c0d gave."
    ) in text
    for row in (
        "Recall@100 of the probes 0.409 0.398",
        "Index recall@100 of the probes 0.992 0.991",
        "Distance to the nearest item no move shown; KS 0.021, p = 0.083 0.412 0.405",
        "Norm of the query vectors no move shown; KS 0.000, p = 1.000 1.000 1.000",
        "Mean similarity of two probes 0.210 0.200",
        "Age of the catalogue 3.2 h",
    ):
        assert row in text
    report = sample_report()
    report["drift"]["nearest_distance"] |= {"p_value": 0.0002, "ks": 0.3}
    assert "moved; KS 0.300, p < 0.001" in Page(render_html(report)).text


def test_a_first_release_shows_its_probes_without_a_column_for_the_previous_one() -> None:
    report = sample_report()
    report["drift"] = {
        "probes": 12,
        "probe_recall@100": {"current": 0.4},
        "nearest_distance": {"mean": 0.3},
        "query_norm": {"mean": 1.0},
        "mean_pairwise_similarity": {"current": 0.2},
    }
    text = Page(render_html(report)).text
    assert "Asked 12 frozen probes. There is no previous release to compare with." in text
    assert "Figure This release Recall@100 of the probes 0.400 Distance to the nearest item 0.300 Norm" in text
    report["drift"] = {"probes": 0}
    assert "There was no query with a history to freeze as a probe." in Page(render_html(report)).text


def test_impressions_as_negatives_are_described_by_what_a_query_has() -> None:
    declared = [{"kind": "impressions", "per_query": 4, "span_s": 0.0, "weight": weight} for weight in (1.0, 8.0)]
    text = Page(render_html(sample_report(), training=sample_training() | {"negatives": declared})).text
    assert (
        "impressions: up to 4 skipped items a query; impressions: up to 4 skipped items a query, each counted 8" in text
    )


def test_mined_negatives_that_were_wanted_are_counted_and_shown() -> None:
    page = Page(full_page())
    assert (
        "Of 4,000 mined items, 320 were met by their user later (8.0%, 95% interval 7.2% to 8.8%): wanted after all"
    ) in page.text
    assert "Twelve Monkeys (1995) met later 12 0.812" in page.text
    assert "<8> 31 0.750" in page.text
    nothing = sample_training() | {"mined_negatives": {"sampled": 0, "later_interacted": 0, "ci95": None}}
    assert "Of 0 mined items, 0 were met by their user later:" in Page(render_html({}, training=nothing)).text
    assert "Mined negatives" not in Page(render_html(sample_report())).text


def test_near_duplicates_are_counted_and_the_closest_groups_named() -> None:
    text = Page(full_page()).text
    assert (
        "41 items have a similarity of at least 0.98 with another one; they form 19 groups. Looked at: 1,682 items."
        in text
    )
    assert "Kull the Conqueror (1997) · Kull <the> Conqueror 0.999" in text
    assert "1 · B · and 7 more 0.985" in text
    report = sample_report()
    report["catalogue"]["near_duplicates"] = {"items": 0, "groups": 0, "searched": 9, "least_similarity": 0.98}
    assert "No two items have a similarity of at least 0.98. Looked at: 9 items." in Page(render_html(report)).text


def test_the_index_chart_names_every_setting_and_the_one_that_serves() -> None:
    page = Page(full_page())
    assert "21 of 82 leaves, 300 scored again (serves) 61 0.993" in page.text
    assert "Latency of exact search, p50 1.2 ms" in page.text
    assert [attributes["class"] for tag, attributes in page.elements if tag == "span"].count("dot chosen") == 1


def test_the_verdict_says_where_a_baseline_is_ahead_in_the_tail() -> None:
    report = sample_report()
    assert "In the tail" not in Page(render_html(report)).text
    for entry in report["comparisons"]:
        if entry["group"] == "tail" and entry["against"] in ("ials", "previous_release"):
            entry |= {"difference": -0.1, "ci95": [-0.12, -0.08]}
    report["systems"]["ials"]["tail"]["recall@100"]["mean"] = 0.336
    assert "In the tail iALS is ahead: 33.6% against 23.6%." in Page(render_html(report)).text
    report["systems"]["previous_release"]["tail"]["recall@100"]["mean"] = 0.4
    assert "In the tail the previous release is ahead: 40.0% against 23.6%." in Page(render_html(report)).text


def test_rendering_leaves_its_input_alone() -> None:
    report, training, examples = sample_report(), sample_training(), sample_examples()
    before = copy.deepcopy((report, training, examples))
    render_html(report, training=training, examples=examples)
    assert (report, training, examples) == before


def test_the_history_page_lists_releases_newest_first_with_links() -> None:
    reports = sample_history()
    html = render_history(reports, links={reports[0]["release"]: "../first/report.html"})
    page = Page(html)
    names = [report["release"] for report in reports]
    places = [page.text.index(name) for name in names]
    assert places == sorted(places, reverse=True)
    assert ("a", {"href": "../first/report.html"}) in page.elements
    assert page.text.count("refused") == 1
    assert "1 release " in Page(render_history(reports[:1])).text
    assert "Nothing was published yet." in Page(render_history([])).text


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("mode", [0, 1])
def test_text_reaches_aa_contrast_in_light_and_dark(mode: int) -> None:
    css = resources.files("recsys_cg.release.report").joinpath("templates/style.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", blocks[mode]))
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for name in ("ink", "muted", "accent", "good", "bad"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name
    for name in ("other", "warn", "mix-head"):  # marks, not text: 3 to 1
        assert contrast(colours[name], colours["paper"]) >= 3.0, name
