"""The command's entry: every error becomes one line and an exit code.

With ``--json`` standard output ends with ``{"error": {"type", "message", "exit_code"}}``; a refusal adds its
``release`` and the page of its ``report``.
Exit codes: 0 done, 1 failed, 2 bad usage or configuration, 3 refused by a gate, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer

from recsys_cg import __version__
from recsys_cg.cli import lookup, releases, setup, stages
from recsys_cg.cli.output import accept_any_text, print_result, set_up_logging
from recsys_cg.errors import RecsysError

__all__ = ["app", "main"]

_INTERRUPTED = 130

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
    accept_any_text()
    sys.exit(_run(sys.argv[1:] if argv is None else list(argv)))


def _run(arguments: list[str]) -> int:
    try:
        result = app(args=arguments, prog_name="recsys-cg", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        return _explain(error, as_json="--json" in arguments)
    if result == _INTERRUPTED:  # typer turned the interrupt into this code and said nothing
        return _explain(KeyboardInterrupt(), as_json="--json" in arguments)
    return result if isinstance(result, int) else 0


def _explain(error: BaseException, *, as_json: bool) -> int:
    if os.environ.get("RECSYS_CG_DEBUG"):
        traceback.print_exception(error)
    code = 1
    match error:
        case RecsysError():
            message, code = str(error), error.exit_code
        case typer.TyperException():
            message, code = f"{error.format_message()} (--help shows how)", 2
        case KeyboardInterrupt() | typer.Abort():
            message, code = "interrupted; the same command resumes where it stopped", _INTERRUPTED
        case BrokenPipeError():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            message = "the reader of standard output went away"
        case OSError():
            message = f"{error.filename or 'the system'}: {error.strerror or error}"
        case MemoryError():
            message = "out of memory; smaller batches or a larger machine"
        case _:
            name = type(error).__name__
            message = f"a defect in recsys-cg: {name}: {error} (RECSYS_CG_DEBUG=1 shows where; please report it)"
    for line in message.splitlines() or [""]:
        print(f"recsys-cg: {line}", file=sys.stderr, flush=True)
    if as_json:
        with suppress(OSError):  # standard output may be what failed
            details = error.details if isinstance(error, RecsysError) else {}
            told = {"type": type(error).__name__, "message": message, "exit_code": code, **details}
            print_result({"error": told}, as_json=True, text="")
    return code
