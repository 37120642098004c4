"""The error tree is what its module draws."""

from __future__ import annotations

import inspect
import re

from recsys_cg import errors


def test_the_drawn_tree_names_every_error_and_no_other() -> None:
    drawn = re.findall(r"(\w+Error)\b", (errors.__doc__ or "").split("exit code above")[0])
    defined = {name for name, _ in inspect.getmembers(errors, inspect.isclass)}
    assert set(drawn) == defined == set(errors.__all__)


def test_the_drawn_tree_shows_each_base() -> None:
    parents: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^    ([│ ├└─]*)(\w+Error)", line)
        if found:
            depth = len(found.group(1)) // 4
            parents[depth:] = [found.group(2)]
            expected = parents[depth - 1] if depth else "Exception"
            assert getattr(errors, found.group(2)).__bases__[0].__name__ == expected


def test_exit_codes_are_the_documented_ones() -> None:
    assert errors.RecsysError.exit_code == 1
    assert errors.UnknownKeyError.exit_code == 2
    assert errors.GateRefusedError.exit_code == 3
