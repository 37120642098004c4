"""Commands of the main job: the whole way, or one stage of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from recsys_cg.cli.options import (
    DEFAULT_CONFIG,
    DEFAULT_WORKDIR,
    ConfigOption,
    JsonOption,
    SetOption,
    WorkdirOption,
    open_project,
)
from recsys_cg.cli.output import print_result

__all__ = ["register"]

RunnerOption = Annotated[
    list[str],
    typer.Option("--beam", help="A flag for Beam's runner; repeat it.", metavar="FLAG"),
]
ForceOption = Annotated[
    str | None, typer.Option("--force", help="Publish although a gate refuses; the reason is kept.", metavar="REASON")
]


def run(
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006 - typer copies it
    beam: RunnerOption = [],  # noqa: B006
    force: ForceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Walk the whole way: dataset, encoder, release, evaluation, gates, publish.

    A stage whose inputs and configuration did not change is skipped; a killed run resumes.

    Example: `recsys-cg run --config shop.toml --workdir work --set model.dim=64`
    """
    project = open_project(config, workdir, overrides)
    from recsys_cg.workflow.run import run as walk

    _print_published(walk(project, runner=beam, force=force), as_json=as_json)


def dataset(
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006
    beam: RunnerOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Build the dataset from interactions and catalogue, by Beam.

    Example: `recsys-cg dataset -c shop.toml -w work --beam=--runner=FlinkRunner`
    """
    project = open_project(config, workdir, overrides)
    from recsys_cg.artifacts import lock_workdir
    from recsys_cg.workflow import dataset as stage

    with lock_workdir(project.workdir):
        built = stage.build(project, beam)
    rows = built.manifest.info["rows"]
    text = f"{built.path}: {rows['kept']:,} of {rows['in']:,} rows kept, {built.manifest.info['items']:,} items"
    print_result(_stage_result(built), as_json=as_json, text=text)


def train(
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Train the two towers on the dataset, by TensorFlow Recommenders.

    Example: `recsys-cg train -c shop.toml -w work --set training.epochs=5`
    """
    project = open_project(config, workdir, overrides)
    from recsys_cg.artifacts import lock_workdir
    from recsys_cg.workflow import train as stage

    with lock_workdir(project.workdir):
        built = stage.build(project)
    recall = built.manifest.info["validation_recall"]
    shown = "no validation queries" if recall is None else f"validation recall {recall:.4f}"
    print_result(_stage_result(built), as_json=as_json, text=f"{built.path}: {shown}")


def index(
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Embed the catalogue and index it: the release, not yet published.

    Example: `recsys-cg index -c shop.toml -w work --set index.target_recall=0.95`
    """
    project = open_project(config, workdir, overrides)
    from recsys_cg.artifacts import lock_workdir
    from recsys_cg.workflow import index as stage

    with lock_workdir(project.workdir):
        built = stage.build(project)
    info = built.manifest.info
    text = f"{built.path}: {info['items']:,} items, {info['index']['kind']} index"
    print_result(_stage_result(built), as_json=as_json, text=text)


def evaluate(
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Measure the release through the index that will serve, beside baselines and the previous release.

    Example: `recsys-cg evaluate -c shop.toml -w work`
    """
    project = open_project(config, workdir, overrides)
    from recsys_cg.artifacts import lock_workdir
    from recsys_cg.workflow import evaluate as stage
    from recsys_cg.workflow.reporting import summary_of

    with lock_workdir(project.workdir):
        built = stage.build(project)
    print_result(_stage_result(built), as_json=as_json, text=summary_of(built.path))


def publish(
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006
    force: ForceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish the evaluated release if every gate passes; refuse it with exit code 3 if not.

    Example: `recsys-cg publish -c shop.toml -w work`
    """
    project = open_project(config, workdir, overrides)
    from recsys_cg.artifacts import lock_workdir
    from recsys_cg.workflow import publish as stage

    with lock_workdir(project.workdir):
        result = stage.publish(project, force=force)
    _print_published(result, as_json=as_json)


def refresh(
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006
    beam: RunnerOption = [],  # noqa: B006
    force: ForceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rebuild the release from the catalogue as it is now, with the encoder already published.

    New items get vectors through their content, delisted ones leave, changed ones are embedded again; nothing is
    trained. The new release is measured and gated like any other.

    Example: `recsys-cg refresh -c shop.toml -w work`
    """
    project = open_project(config, workdir, overrides)
    from recsys_cg.workflow.refresh import refresh as walk

    _print_published(walk(project, runner=beam, force=force), as_json=as_json)


def _stage_result(built: Any) -> dict[str, Any]:
    manifest = built.manifest
    return {
        "stage": manifest.kind,
        "path": str(built.path),
        "skipped": built.skipped,
        "digest": manifest.digest,
        "seconds": manifest.seconds,
        "info": manifest.info,
    }


def _print_published(result: Mapping[str, Any], *, as_json: bool) -> None:
    lines = [f"published {result['release']} (CURRENT)", *result["headlines"], f"report: {Path(result['report'])}"]
    print_result(result, as_json=as_json, text="\n".join(lines))


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (run, dataset, train, index, evaluate, publish, refresh):
        app.command(rich_help_panel="The main job")(command)
