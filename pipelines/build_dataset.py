"""Build the dataset of a project by Beam: ``python -m pipelines.build_dataset --config F --workdir DIR``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pipelines.job import main, run_stage
from recsys_cg.workflow import dataset

__all__ = ["run"]


def run(argv: Sequence[str] | None = None) -> Path:
    """Build the dataset of a project by Beam; return the stage's directory.

    Flags that are not the job's own are the Beam runner's, e.g. ``--runner=FlinkRunner --flink_master=HOST:8081``.
    """
    return run_stage("pipelines.build_dataset", dataset.build, argv, takes_runner=True)


if __name__ == "__main__":
    sys.exit(main(run))
