"""Choose the engine of a job by its flags."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from recsys_cg.errors import ConfigError

__all__ = ["open_pipeline"]


@contextmanager
def open_pipeline(flags: Sequence[str]) -> Iterator[beam.Pipeline]:
    """Give a pipeline that runs when the block ends.

    Without ``--runner`` the job runs in this process (Beam's FnApiRunner, which also takes
    ``--direct_running_mode=multi_processing --direct_num_workers=N``): no server is started, and nothing is
    downloaded. With ``--runner=FlinkRunner``, ``SparkRunner`` or ``DataflowRunner`` the other flags are that engine's.

    Raises:
        ConfigError: Beam refuses the flags.
    """
    named = any(flag == "--runner" or flag.startswith("--runner=") for flag in flags)
    try:
        options = PipelineOptions(list(flags))
        pipeline = beam.Pipeline(options=options) if named else beam.Pipeline(FnApiRunner(), options=options)
    except (ValueError, SystemExit, ImportError) as error:
        raise ConfigError(f"Beam refuses the runner flags {list(flags)}: {error}") from error
    with _quiet_beam(), pipeline:
        yield pipeline


@contextmanager
def _quiet_beam() -> Iterator[None]:
    logger = logging.getLogger("apache_beam")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
