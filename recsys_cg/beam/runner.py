"""Choose the engine of a job by its flags."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import apache_beam as beam
from apache_beam import pipeline as pipeline_module
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from grpc import RpcError

from recsys_cg.beam.flags import check_flags
from recsys_cg.errors import ConfigError, EngineError

__all__ = ["open_pipeline"]

_CONNECT_S: Final = 5.0
_ERRNO: Final = re.compile(r"\[[Ee]rrno (\d+)\]")


@contextmanager
def open_pipeline(flags: Sequence[str]) -> Iterator[beam.Pipeline]:
    """Give a pipeline that runs when the block ends.

    Without ``--runner`` the job runs in this process (Beam's FnApiRunner, which also takes
    ``--direct_running_mode=multi_processing --direct_num_workers=N``): no server is started, and nothing is
    downloaded. With ``--runner=FlinkRunner``, ``SparkRunner`` or ``DataflowRunner`` the other flags are that engine's.

    Raises:
        ConfigError: Beam refuses the flags or does not know one of them, or no job server answers at
            ``--job_endpoint``.
        EngineError: the engine that ``--runner`` names could not be started, or gave the job up; or a worker in this
            process could not read or write, e.g. because the disk is full.
    """
    named = any(flag == "--runner" or flag.startswith("--runner=") for flag in flags)
    try:
        options = PipelineOptions(list(flags))
        pipeline = beam.Pipeline(options=options) if named else beam.Pipeline(FnApiRunner(), options=options)
        _check_job_server(options.view_as(PortableOptions).job_endpoint)
        check_flags(flags)
    except (ValueError, SystemExit, ImportError) as error:
        raise ConfigError(f"Beam refuses the runner flags {list(flags)}: {error}") from error
    with (
        _quiet_beam(),
        _as_in_a_script(),
        _translate_failures(flags) if named else _translate_system_errors(),
        pipeline,
    ):
        yield pipeline


def _check_job_server(endpoint: str | None) -> None:
    """Refuse a job server that does not answer: Beam itself would wait for it without a word."""
    if not endpoint or endpoint == "embed":
        return
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"no job server answers at --job_endpoint={endpoint} ({error}); start one, or give HOST:PORT of another"
        ) from error


@contextmanager
def _translate_failures(flags: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except SystemExit as error:  # Beam's parser has printed what it misses
        raise ConfigError(f"Beam refuses the runner flags {list(flags)}") from error
    except (RuntimeError, ValueError, OSError, RpcError) as error:
        raise EngineError(f"the engine of {' '.join(flags)} did not finish the job: {error}") from error


@contextmanager
def _translate_system_errors() -> Iterator[None]:
    """Beam wraps what the system refused to a worker in errors of its own, and keeps its number in their text."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        number = _ERRNO.search(str(error))
        if number is None:
            raise
        reason = os.strerror(int(number[1]))
        raise EngineError(f"the job could not read or write its files in the work directory: {reason}") from error


@contextmanager
def _as_in_a_script() -> Iterator[None]:
    """Let a job in a notebook be the job that a script runs.

    In IPython, Beam would put the cell's number into every label, keep its temporary folder, and load its data frames
    for that, which cannot be imported beside pandas 3.
    """
    notebook = pipeline_module.alter_label_if_ipython, pipeline_module.is_in_ipython
    pipeline_module.alter_label_if_ipython = lambda *_: None
    pipeline_module.is_in_ipython = lambda: False
    try:
        yield
    finally:
        pipeline_module.alter_label_if_ipython, pipeline_module.is_in_ipython = notebook


@contextmanager
def _quiet_beam() -> Iterator[None]:
    logger = logging.getLogger("apache_beam")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # a failure is raised, too, and told in one line
    try:
        yield
    finally:
        logger.setLevel(level)
