from __future__ import annotations

import pyarrow as pa
import pytest

from recsys_cg.data.filters import Filter, apply_filters, parse_filter, parse_filters
from recsys_cg.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "column", "op", "values"),
    [
        ("quantity > 0", "quantity", ">", (0,)),
        ("a==1.5", "a", "==", (1.5,)),
        ("event in [\"click\", 'buy']", "event", "in", ("click", "buy")),
        ('"unit price" <= 9', "unit price", "<=", (9,)),
        ("`größe` != 'L, XL'", "größe", "!=", ("L, XL",)),
        ("ok == true", "ok", "==", (True,)),
        ("n in [1, 2]", "n", "in", (1, 2)),
    ],
)
def test_a_filter_is_column_op_literal(text: str, column: str, op: str, values: tuple[object, ...]) -> None:
    assert parse_filter(text) == Filter(column, op, values, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "quantity",
        "quantity >",
        "> 0",
        "a > b",
        "a > 'x'",
        "a == 1 and b == 2",
        "__import__('os').system('true') == 0",
        "a in 1",
        "a in []",
        "a in [1, 'x']",
        "a in [1, 2",
        "a == NaN",
        "a == 1e999",
        "a == null",
        "a == [1]",
    ],
)
def test_anything_else_is_refused_with_the_form_it_should_have(text: str) -> None:
    with pytest.raises(ConfigError, match=r"write column op literal"):
        parse_filter(text)


def _kept(text: str, values: list[object]) -> tuple[list[bool], list[bool]]:
    kept, broken = apply_filters(parse_filters([text]), pa.table({"x": values}))
    return kept.tolist(), broken.tolist()


def test_a_missing_value_meets_no_filter() -> None:
    assert _kept("x != 3", [1, None, 3])[0] == [True, False, False]
    assert _kept("x != ''", ["a", None, ""])[0] == [True, False, False]
    assert _kept("x in ['a']", ["a", None, "b"])[0] == [True, False, False]


def test_text_is_compared_as_a_number_where_the_literal_is_one() -> None:
    assert _kept("x > 5", ["10", " 9 ", "4", None, "many"]) == (
        [True, True, False, False, False],
        [False, False, False, False, True],
    )


def test_numbers_are_compared_as_text_where_the_literal_is_a_string() -> None:
    assert _kept("x == '7'", [7, 8])[0] == [True, False]
    assert _kept("x == true", [True, False])[0] == [True, False]


def test_every_filter_must_be_met_and_none_keeps_all() -> None:
    table = pa.table({"a": [1, 2, 3], "b": ["x", "y", "x"]})
    kept, broken = apply_filters(parse_filters(["a >= 2", "b == 'x'"]), table)
    assert kept.tolist() == [False, False, True]
    assert not broken.any()
    assert apply_filters((), table)[0].all()
    assert table.num_columns == 2
