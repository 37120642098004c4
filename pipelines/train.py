"""Train the two towers on the dataset of a project: ``python -m pipelines.train --config F --workdir DIR``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pipelines.job import main, run_stage
from recsys_cg.workflow import train

__all__ = ["run"]


def run(argv: Sequence[str] | None = None) -> Path:
    """Train the two towers on the dataset of a project; return the stage's directory.

    A job that was killed goes on from its last whole epoch when it is started again.
    """
    return run_stage("pipelines.train", lambda project, _: train.build(project), argv)


if __name__ == "__main__":
    sys.exit(main(run))
