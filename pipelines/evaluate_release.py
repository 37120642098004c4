"""Measure and judge a release as it will serve: ``python -m pipelines.evaluate_release --config F --workdir DIR``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pipelines.job import main, run_stage
from recsys_cg.workflow import evaluate

__all__ = ["run"]


def run(argv: Sequence[str] | None = None) -> Path:
    """Measure and judge the release through the index that will serve; return the stage's directory.

    A refusal is in the report; `recsys-cg publish` acts on it.
    """
    return run_stage("pipelines.evaluate_release", lambda project, _: evaluate.build(project), argv)


if __name__ == "__main__":
    sys.exit(main(run))
