"""What every job shares: its options, its lock, and one line with an exit code for each error."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from recsys_cg.artifacts import lock_workdir
from recsys_cg.cli.output import set_up_logging
from recsys_cg.config import load_config
from recsys_cg.errors import ConfigError, RecsysError
from recsys_cg.workflow.project import Project, Stage

__all__ = ["main", "run_stage"]

Build = Callable[[Project, Sequence[str]], Stage]


def run_stage(name: str, build: Build, argv: Sequence[str] | None, *, takes_runner: bool = False) -> Path:
    """Parse a job's options, hold the work directory, build the stage, and return its directory.

    Args:
        name: of the module, for ``--help``.
        build: makes the stage from the project and the Beam runner's flags.
        argv: the arguments; None: those of the process.
        takes_runner: flags that are not the job's own go to Beam, e.g. ``--runner=FlinkRunner``.

    Raises:
        RecsysError: the configuration, the data or an artifact is at fault; no half stage is left.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {name}", allow_abbrev=False)
    parser.add_argument("--config", type=Path, required=True, help="project file (TOML)")
    parser.add_argument("--workdir", type=Path, required=True, help="where stages are written")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="override a key")
    arguments, others = parser.parse_known_args(argv)
    if others and not takes_runner:
        raise ConfigError(f"{name} does not know {' '.join(others)}")
    project = Project(load_config(arguments.config, arguments.set), arguments.workdir)
    with lock_workdir(project.workdir):
        return build(project, others).path


def main(run: Callable[[], Path]) -> int:
    """Run a job as a process: print the stage's directory, or one line for an error of ours."""
    set_up_logging()
    try:
        print(run())
    except RecsysError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0
