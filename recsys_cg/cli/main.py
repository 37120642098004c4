"""The command's entry: every error becomes one line and an exit code.

Exit codes: 0 done, 1 failed, 2 bad usage or configuration, 3 refused by a gate, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from recsys_cg import __version__
from recsys_cg.cli import lookup, releases, setup, stages
from recsys_cg.cli.output import set_up_logging
from recsys_cg.errors import RecsysError

__all__ = ["app", "main"]

app = typer.Typer(
    name="recsys-cg",
    help="Two-tower candidate generation: datasets, training, index, evaluation, releases, lookup.\n\n"
    "It generates candidates and does not rank: a score is a similarity, not a probability.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"recsys-cg {__version__}")
        raise typer.Exit


@app.callback()
def _start(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but warnings and results.")] = False,
) -> None:
    set_up_logging(quiet=quiet)


stages.register(app)
releases.register(app)
lookup.register(app)
setup.register(app)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(_run(sys.argv[1:] if argv is None else list(argv)))


def _run(arguments: list[str]) -> int:
    try:
        result = app(args=arguments, prog_name="recsys-cg", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        return _explain(error)
    return result if isinstance(result, int) else 0


def _explain(error: BaseException) -> int:
    if os.environ.get("RECSYS_CG_DEBUG"):
        traceback.print_exception(error)
    match error:
        case RecsysError():
            return _fail(str(error), error.exit_code)
        case typer.TyperException():
            return _fail(f"{error.format_message()} (--help shows how)", 2)
        case KeyboardInterrupt() | typer.Abort():
            return _fail("interrupted; the same command resumes where it stopped", 130)
        case BrokenPipeError():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        case OSError():
            return _fail(f"{error.filename or 'the system'}: {error.strerror or error}", 1)
        case MemoryError():
            return _fail("out of memory; smaller batches or a larger machine", 1)
    name = type(error).__name__
    return _fail(f"a defect in recsys-cg: {name}: {error} (RECSYS_CG_DEBUG=1 shows where; please report it)", 1)


def _fail(message: str, code: int) -> int:
    for line in message.splitlines() or [""]:
        print(f"recsys-cg: {line}", file=sys.stderr, flush=True)
    return code
