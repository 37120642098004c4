"""Refuse runner flags that nobody knows: Beam itself leaves them out without a word."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Final

import grpc
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions, _BeamArgumentParser
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from recsys_cg.errors import ConfigError

__all__ = ["check_flags"]

_ANSWER_S: Final = 30.0


def check_flags(flags: Sequence[str]) -> None:
    """Refuse a flag that is an option neither of Beam nor of the job server at ``--job_endpoint``, which must answer.

    The options of an engine's job server are known by asking it, so one that Beam has yet to start cannot be asked:
    such an engine takes Beam's own options alone.

    Raises:
        ConfigError: a flag is unknown; the message names the nearest. Or a value does not fit its option.
    """
    parser = _parser()
    _, unknown = _parse(parser, flags)
    endpoint = PipelineOptions(list(flags)).view_as(PortableOptions).job_endpoint
    if unknown and endpoint and endpoint != "embed":
        for option in _ask(endpoint):
            _add(parser, option)
        _, unknown = _parse(parser, flags)
    if not unknown:
        return
    name = unknown[0].split("=", 1)[0]
    known = [option for action in parser._actions for option in action.option_strings]
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    raise ConfigError(f"runner flag {unknown[0]}: Beam has no such option{hint}")


def _parser() -> Any:
    parser = _BeamArgumentParser(allow_abbrev=False)
    for options in dict.fromkeys(PipelineOptions.__subclasses__()):
        options._add_argparse_args(parser)
    return parser


def _parse(parser: Any, flags: Sequence[str]) -> tuple[Any, list[str]]:
    try:
        known, unknown = parser.parse_known_args(list(flags))
    except SystemExit as error:  # the parser has printed which option and why
        raise ConfigError(f"Beam refuses the runner flags {list(flags)}") from error
    return known, unknown


def _ask(endpoint: str) -> Sequence[Any]:
    """Return the options that the job server describes; none when it describes none."""
    try:
        with grpc.insecure_channel(endpoint) as channel:
            stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
            answer = stub.DescribePipelineOptions(
                beam_job_api_pb2.DescribePipelineOptionsRequest(), timeout=_ANSWER_S, wait_for_ready=True
            )
    except grpc.RpcError:
        return ()
    return list(answer.options)


def _add(parser: Any, option: Any) -> None:
    """Add an option of the job server's, unless Beam has one of that name."""
    name = f"--{option.name}"
    if name in parser._option_string_actions:
        return
    is_boolean = option.type == beam_job_api_pb2.PipelineOptionType.BOOLEAN
    parser.add_argument(name, action="store_true" if is_boolean else "store")
