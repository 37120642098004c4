"""Commands that look candidates up, once or as a service."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from recsys_cg.cli.output import one_line, print_result
from recsys_cg.errors import ConfigError

if TYPE_CHECKING:
    from recsys_cg.serving.answer import Answer
    from recsys_cg.serving.lookup import CandidateLookup

__all__ = ["register"]

KOption = Annotated[int, typer.Option("--k", "-k", min=1, help="Length of the list.")]
ReleaseOption = Annotated[
    Path | None, typer.Option("--release", help="A release directory instead of a store.", metavar="DIR")
]


def lookup(
    history: Annotated[
        list[str], typer.Option("--history", "-H", help="Item the user met, oldest first; repeat it.", metavar="ITEM")
    ] = [],  # noqa: B006 - typer copies it
    user: Annotated[str | None, typer.Option("--user", "-u", help="User whose stored history is taken.")] = None,
    k: KOption = 10,
    exclude: Annotated[list[str], typer.Option("--exclude", help="Item never returned; repeat it.")] = [],  # noqa: B006
    context: Annotated[
        list[str],
        typer.Option(
            "--context", help="What is known of the request, e.g. device=mobile; repeat it.", metavar="KEY=VALUE"
        ),
    ] = [],  # noqa: B006
    store: StoreOption = None,
    release: ReleaseOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Look up candidates for a history or a user. A score is a similarity, not a probability.

    Example: `recsys-cg lookup --store work/store --history 50 --history 181 -k 5`
    """
    if history and user is not None:
        raise ConfigError("give --history or --user, not both")
    source = str(release) if release is not None else store_path(store, config, workdir, overrides)
    known = _parse_context(context)
    answer = _open(source).candidates(
        history=None if user is not None else history, user_id=user, k=k, exclude=exclude, context=known or None
    )
    print_result(_answer_result(answer), as_json=as_json, text=_answer_text(answer))


def similar(
    item: Annotated[str | None, typer.Argument(help="Item whose neighbours are wanted.")] = None,
    content: Annotated[
        Path | None,
        typer.Option(
            "--content",
            help="Instead of ITEM: its catalogue row, a JSON object; - is standard input.",
            metavar="FILE",
        ),
    ] = None,
    k: KOption = 10,
    store: StoreOption = None,
    release: ReleaseOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """List the items nearest to an item, through the same index; or to one that is in no index yet, by its content.

    Example: `recsys-cg similar --store work/store 50 -k 5`, or
    `echo '{"movie_title": "Toy Story 3", "class": "Animation"}' | recsys-cg similar --store work/store --content -`
    """
    if (item is None) == (content is None):
        raise ConfigError("give an item or --content FILE: one of the two")
    row = _read_content(content) if content is not None else {}
    source = str(release) if release is not None else store_path(store, config, workdir, overrides)
    opened = _open(source)
    answer = opened.similar_content(row, k=k) if item is None else opened.similar(item, k=k)
    print_result(_answer_result(answer), as_json=as_json, text=_answer_text(answer))


def complementary(
    item: Annotated[str, typer.Argument(help="Item that others are to go with.")],
    k: KOption = 10,
    event: Annotated[
        str | None, typer.Option("--event", help="What the user did with it; default: the release's first event.")
    ] = None,
    store: StoreOption = None,
    release: ReleaseOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """List the items that go with an item: what the query tower expects of a user who just met it.

    Where `similar` gives what resembles the item, this gives what users meet after it.

    Example: `recsys-cg complementary --store work/store 50 -k 5`
    """
    source = str(release) if release is not None else store_path(store, config, workdir, overrides)
    answer = _open(source).complementary(item, k=k, event=event)
    print_result(_answer_result(answer), as_json=as_json, text=_answer_text(answer))


def serve(
    host: Annotated[str | None, typer.Option(help="Address to bind; default from [serving].")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Worker processes.")] = 1,
    grpc_port: Annotated[
        int | None, typer.Option("--grpc-port", min=0, max=65535, help="Serve gRPC there as well; 0 picks a free one.")
    ] = None,
    histories: Annotated[
        str | None, typer.Option("--histories", help="Redis with fresh user histories.", metavar="redis://HOST:PORT")
    ] = None,
    trends: Annotated[
        str | None, typer.Option("--trends", help="Redis with what is trending.", metavar="redis://HOST:PORT")
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    workdir: WorkdirOption = DEFAULT_WORKDIR,
    overrides: SetOption = [],  # noqa: B006
) -> None:
    """Serve lookups over HTTP from the published release; a newly published one is picked up.

    Example: `recsys-cg serve --store work/store --port 8080`
    """
    from recsys_cg.config import ServingConfig, load_config
    from recsys_cg.serving.service import serve as run_service

    source = store_path(store, config, workdir, overrides)
    settings = ServingConfig() if store is not None else load_config(config, overrides).serving
    changes: dict[str, Any] = {
        "host": host,
        "port": port,
        "live_histories": histories,
        "live_trends": trends,
        "grpc_port": grpc_port,
    }
    settings = settings.model_copy(update={key: value for key, value in changes.items() if value is not None})
    run_service(source, settings, workers=workers)


def _read_content(path: Path) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        row = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--content {path}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ConfigError(f"--content {path}: give one JSON object, a row of the catalogue, not {type(row).__name__}")
    return row


def _parse_context(pairs: list[str]) -> dict[str, str]:
    context: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"--context {pair!r}: write KEY=VALUE, e.g. device=mobile")
        if context.setdefault(name.strip(), value) != value:
            raise ConfigError(f"--context {name.strip()} is given twice")
    return context


def _open(source: str) -> CandidateLookup:
    from recsys_cg.serving.lookup import CandidateLookup

    return CandidateLookup.open(source)


def _answer_result(answer: Answer) -> dict[str, Any]:
    return {
        "release": answer.release,
        "fallback": answer.fallback,
        "shortfall": answer.shortfall,
        "candidates": [
            {"item_id": one.item_id, "title": one.title, "similarity": one.score, "bucket": one.bucket}
            for one in answer.candidates
        ],
    }


def _answer_text(answer: Answer) -> str:
    head = f"release {answer.release}"
    if answer.fallback:
        head += f"; fallback to popularity: {answer.fallback.replace('_', ' ')}"
    if answer.shortfall:
        head += f"; {answer.shortfall} fewer than asked for were eligible"
    ids = [one_line(one.item_id) for one in answer.candidates]
    width = max(map(len, ids), default=0)
    rows = [
        f"{rank:>3}  {_similarity(one.score)}  {ids[rank - 1]:<{width}}  {one.bucket:<5}  "
        f"{one_line(one.title or '')}".rstrip()
        for rank, one in enumerate(answer.candidates, start=1)
    ]
    return "\n".join([head, *rows])


def _similarity(score: float | None) -> str:
    """Popular items of a fallback have no similarity."""
    return f"{'-':>7}" if score is None else f"{score:7.4f}"


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (lookup, similar, complementary, serve):
        app.command(rich_help_panel="Lookup")(command)
