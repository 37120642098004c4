"""The examples of the docstrings run, and each module's ``__all__`` is what it defines for others."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

import recsys_cg

PACKAGE = Path(recsys_cg.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def has_examples(path: Path) -> bool:
    return any("+SKIP" not in line for line in re.findall(r">>> .*", path.read_text(encoding="utf-8")))


WITH_EXAMPLES = [module_name(path) for path in SOURCES if has_examples(path)]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_give_what_they_show(name: str) -> None:
    module = importlib.import_module(name)
    found = doctest.testmod(module)
    assert found.failed == 0
    assert found.attempted > 0


def test_the_pure_functions_have_examples() -> None:
    expected = {"data.popularity", "data.splits", "evaluation.exposure", "evaluation.metrics", "geometry"}
    assert {f"recsys_cg.{name}" for name in expected} <= set(WITH_EXAMPLES)


@pytest.mark.parametrize("path", [path for path in SOURCES if path.parent.name != "cli"], ids=module_name)
def test_a_module_lists_the_names_it_defines_for_others(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    public = {name for name in defined if not name.startswith("_")}
    module = importlib.import_module(module_name(path))
    listed = list(getattr(module, "__all__", []))
    assert len(listed) == len(set(listed))
    assert [name for name in listed if not hasattr(module, name)] == []
    assert public <= set(listed)
