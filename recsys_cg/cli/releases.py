"""Commands that read and move what is published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recsys_cg.cli.options import (
    DEFAULT_CONFIG,
    DEFAULT_WORKDIR,
    ConfigOption,
    JsonOption,
    SetOption,
    StoreOption,
    WorkdirOption,
    store_path,
)
from recsys_cg.cli.output import print_result

__all__ = ["register"]


def releases(
    store: StoreOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006 - typer copies it
    as_json: JsonOption = False,
) -> None:
    """List the releases of a store, newest first, with their headline figures.

    Example: `recsys-cg releases --store work/store`
    """
    path = store_path(store, config, workdir, overrides)
    from recsys_cg.workflow.publish import list_releases

    rows = list_releases(path)
    lines = [_release_line(row) for row in rows] or [f"{path}: no release is published yet"]
    print_result({"releases": rows}, as_json=as_json, text="\n".join(lines))


def _release_line(row: dict[str, Any]) -> str:
    figures = "  ".join(f"{name} {value:.4f}" for name, value in row["figures"].items() if value is not None)
    marks = " ".join(mark for mark in ("current", "pinned") if row.get(mark))
    fault = f"cannot be used: {row['fault']}" if row.get("fault") else ""
    return "  ".join(part for part in (row["name"], row["created"], figures, marks, fault) if part)


def pin(
    release: Annotated[str, typer.Argument(help="Release that retention must keep.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; it is shown in the log.")] = "",
    remove: Annotated[bool, typer.Option("--remove", help="Give it back to retention.")] = False,
    store: StoreOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Keep a release whatever retention says, until the pin is removed.

    Example: `recsys-cg pin 20261129T192233Z-1a2b3c4d --reason "the audit of May" --store work/store`
    """
    path = store_path(store, config, workdir, overrides)
    from recsys_cg.release.store import Store

    if remove:
        Store(path).unpin(release)
    else:
        Store(path).pin(release, reason=reason)
    text = f"{release} is {'no longer pinned' if remove else 'pinned'}"
    print_result({"release": release, "pinned": not remove}, as_json=as_json, text=text)


def diff(
    old: Annotated[str, typer.Argument(help="Earlier release.")],
    new: Annotated[str, typer.Argument(help="Later release.")],
    store: StoreOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Show what changed between two releases: items, encoder, index, windows and figures.

    Example: `recsys-cg diff OLD NEW --store work/store --json`
    """
    path = store_path(store, config, workdir, overrides)
    import json

    from recsys_cg.release.diff import diff_releases
    from recsys_cg.release.store import Store

    found = diff_releases(Store(path), old, new)
    print_result(found, as_json=as_json, text=json.dumps(found, indent=1, ensure_ascii=False))


def history(
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML page to write.")] = Path("releases.html"),
    store: StoreOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Write one page over all releases of a store: their figures over time, and links to their reports.

    Example: `recsys-cg history --store work/store -o releases.html`
    """
    path = store_path(store, config, workdir, overrides)
    from recsys_cg.workflow.publish import write_history

    count = write_history(path, output)
    print_result({"page": str(output), "releases": count}, as_json=as_json, text=f"{output}: {count} release(s)")


def rollback(
    release: Annotated[str | None, typer.Argument(help="Release to serve; default: CURRENT's predecessor.")] = None,
    store: StoreOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Point CURRENT at an earlier release; running services pick it up.

    Example: `recsys-cg rollback --store work/store`
    """
    path = store_path(store, config, workdir, overrides)
    from recsys_cg.workflow.publish import roll_back

    result = roll_back(path, release)
    print_result(result, as_json=as_json, text=f"CURRENT is {result['release']} (was {result['previous']})")


def report(
    release: Annotated[str | None, typer.Argument(help="Release; default: CURRENT.")] = None,
    form: Annotated[Literal["summary", "markdown", "path"], typer.Option("--as", help="What to print.")] = "summary",
    store: StoreOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Show the evaluation report of a release: a summary, the Markdown, or where the HTML page is.

    Example: `recsys-cg report --store work/store --as path`
    """
    path = store_path(store, config, workdir, overrides)
    from recsys_cg.workflow.publish import read_report

    found = read_report(path, release)
    text = {"summary": found.summary, "markdown": found.markdown, "path": str(found.html_path)}[form]
    print_result(found.report, as_json=as_json, text=text)


def drift(
    against: Annotated[str | None, typer.Option("--against", help="Earlier release; default: the predecessor.")] = None,
    queries: Annotated[
        Path | None, typer.Option("--queries", help="Fresh lookup requests, one JSON object a line.", metavar="FILE")
    ] = None,
    form: Annotated[Literal["summary", "prometheus"], typer.Option("--format", help="What to write.")] = "summary",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to replace; default: standard output.")
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Measure how what is served drifts: against its predecessor, fresh requests, and time.

    Nothing is changed, and no gate judges. `--format prometheus` writes what a textfile collector reads.

    Example: `recsys-cg drift --store work/store --format prometheus -o /var/lib/node_exporter/recsys_cg.prom`
    """
    path = store_path(store, config, workdir, overrides)
    from recsys_cg.artifacts import write_text_atomically
    from recsys_cg.evaluation.exposition import render_prometheus
    from recsys_cg.workflow.drift import describe_drift, look_at_drift

    found = look_at_drift(path, against=against, requests=queries)
    text = render_prometheus(found).rstrip() if form == "prometheus" else describe_drift(found)
    if output is not None:
        write_text_atomically(output, text + "\n")
        text = f"{output}: drift of {found['release']}"
    print_result(found, as_json=as_json, text=text)


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (releases, rollback, report, history, diff, drift, pin):
        app.command(rich_help_panel="Releases")(command)
