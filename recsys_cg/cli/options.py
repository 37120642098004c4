"""Options that several commands share, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recsys_cg.errors import ConfigError

if TYPE_CHECKING:
    from recsys_cg.workflow.project import Project

__all__ = ["ConfigOption", "JsonOption", "SetOption", "StoreOption", "WorkdirOption", "open_project", "store_path"]

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="Project file (TOML).", metavar="FILE", show_default=True)
]
WorkdirOption = Annotated[
    Path, typer.Option("--workdir", "-w", help="Where stages and releases are written.", metavar="DIR")
]
SetOption = Annotated[
    list[str], typer.Option("--set", help="Override a key of the project file.", metavar="SECTION.KEY=VALUE")
]
JsonOption = Annotated[bool, typer.Option("--json", help="End standard output with one JSON object.")]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="Release store; instead of --config and --workdir.", metavar="DIR"),
]

DEFAULT_CONFIG = Path("recsys-cg.toml")
DEFAULT_WORKDIR = Path("work")


def open_project(config: Path, workdir: Path, overrides: list[str]) -> Project:
    """Read the project file; a wrong one raises before anything is written."""
    from recsys_cg.config import load_config
    from recsys_cg.workflow.project import Project

    return Project(load_config(config, overrides), workdir)


def store_path(store: str | None, config: Path, workdir: Path, overrides: list[str]) -> str:
    """Return the store that a reading command means: ``--store``, else the project's."""
    if store is not None:
        if config != DEFAULT_CONFIG or overrides:
            raise ConfigError("--store names the store by itself: leave out --config and --set")
        return store
    if config == DEFAULT_CONFIG and not config.exists():
        raise ConfigError(f"give --store DIR, or --config FILE with --workdir DIR ({config} is not here)")
    return open_project(config, workdir, overrides).store_path
