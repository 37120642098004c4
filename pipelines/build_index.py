"""Embed the catalogue and index it: ``python -m pipelines.build_index --config F --workdir DIR``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pipelines.job import main, run_stage
from recsys_cg.workflow import index

__all__ = ["run"]


def run(argv: Sequence[str] | None = None) -> Path:
    """Embed the catalogue and index it: a release, not yet published; return the stage's directory."""
    return run_stage("pipelines.build_index", lambda project, _: index.build(project), argv)


if __name__ == "__main__":
    sys.exit(main(run))
