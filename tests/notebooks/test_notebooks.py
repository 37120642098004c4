"""The notebooks: committed without outputs, on the public names only, executed whole by ``make notebooks``."""

from __future__ import annotations

import ast
import importlib
import os
import re
import resource
import time
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RESULTS = ROOT / ".cache" / "notebooks"

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_the_notebooks_are_listed_in_the_readme() -> None:
    listed = re.findall(r"\]\(notebooks/(\w+)\.ipynb\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert listed == [path.stem for path in NOTEBOOKS]
    assert listed


@each
def test_a_notebook_is_valid_and_carries_no_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert [cell.id for cell in code if cell.outputs or cell.execution_count is not None] == []


@each
def test_a_notebook_ends_by_saying_what_to_conclude(path: Path) -> None:
    last = nbformat.read(path, as_version=4).cells[-1]
    assert last.cell_type == "markdown"
    assert last.source.startswith("## What to conclude\n")
    assert len(last.source.split()) > 60


@each
def test_a_notebook_calls_public_names_only(path: Path) -> None:
    source = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
    imports = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("recsys_cg")
    ]
    assert imports
    for node in imports:
        module = importlib.import_module(str(node.module))
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            is_module = (Path(str(module.__file__)).parent / f"{alias.name}.py").exists()
            assert is_module or alias.name in module.__all__, f"{name} is not public"


@pytest.mark.slow
@pytest.mark.notebook
@each
def test_a_notebook_executes_whole(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long it took is printed: two to three minutes at most on two cores that are free."""
    from nbclient import NotebookClient

    monkeypatch.setenv("TMPDIR", str(tmp_path))  # what the notebook writes goes with the test
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(path, as_version=4)
    before, started = _processor_time(), time.monotonic()
    client = NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=dict(os.environ))
    wall, processor = time.monotonic() - started, _processor_time() - before
    RESULTS.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, RESULTS / path.name)
    print(f"{path.stem}: {wall:.0f} s, {processor:.0f} s of processor time")


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
