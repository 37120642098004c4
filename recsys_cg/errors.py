"""Every error that recsys_cg raises on purpose, in one tree.

    RecsysError                        exit code 1 unless said otherwise
    ├── ConfigError                    the configuration or the command line is wrong (exit code 2)
    │   └── UnknownKeyError            a key that no section knows; names the nearest one that exists
    ├── EnvironmentMismatchError       installed versions cannot work together, or an extra is missing
    ├── DataError                      the user's data cannot be used
    │   ├── SourceError                a source is missing, empty, truncated or of another shape
    │   ├── TooManyRejectsError        the share of refused rows passed the declared limit
    │   └── ConservationError          rows in differ from rows kept plus rows accounted for (a defect)
    ├── ArtifactError                  a stage directory or a release cannot be trusted
    │   ├── ArtifactMissingError       a file that the manifest names is not there
    │   ├── ArtifactCorruptError       a file's bytes are not those that the manifest recorded
    │   ├── ArtifactFormatError        written by a newer format than this version reads
    │   └── EncoderMismatchError       encoder and index do not carry one encoder digest
    ├── EngineError                    the Beam engine that the flags name could not start or finish a job
    ├── WorkdirBusyError               another run holds the work directory
    ├── TrainingError                  training cannot go on
    │   ├── NonFiniteError             a NaN or an infinity in features, loss or weights
    │   └── RepresentationCollapseError  the embeddings lost their geometry
    ├── IndexBuildError                the vectors cannot be indexed
    ├── SearchError                    a search was asked for something impossible
    │   └── MetricMismatchError        vectors and index do not share one normalisation
    ├── StoreError                     the release store is missing, empty or contended
    │   └── ReleaseNotFoundError       no release of that name
    ├── ServiceError                   the lookup service refused, or did not answer in time
    └── GateRefusedError               the release was measured and refused (exit code 3)

The command line turns each into one line on standard error and the exit code above; a traceback is a defect.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ArtifactCorruptError",
    "ArtifactError",
    "ArtifactFormatError",
    "ArtifactMissingError",
    "ConfigError",
    "ConservationError",
    "DataError",
    "EncoderMismatchError",
    "EngineError",
    "EnvironmentMismatchError",
    "GateRefusedError",
    "IndexBuildError",
    "MetricMismatchError",
    "NonFiniteError",
    "RecsysError",
    "ReleaseNotFoundError",
    "RepresentationCollapseError",
    "SearchError",
    "ServiceError",
    "SourceError",
    "StoreError",
    "TooManyRejectsError",
    "TrainingError",
    "UnknownKeyError",
    "WorkdirBusyError",
]


class RecsysError(Exception):
    """Base of every error raised on purpose.

    ``exit_code`` is what the command line returns for it; ``details`` go into its JSON.
    """

    exit_code = 1
    details: Mapping[str, str] = types.MappingProxyType({})


class ConfigError(RecsysError):
    """The configuration or the command line is wrong."""

    exit_code = 2


class UnknownKeyError(ConfigError):
    """A configuration key that no section knows."""


class EnvironmentMismatchError(RecsysError):
    """The installed packages cannot do this: a wrong version, or an extra that is not installed."""


class DataError(RecsysError):
    """The user's data cannot be used."""


class SourceError(DataError):
    """A source is missing, empty, truncated, or lacks a column."""


class TooManyRejectsError(DataError):
    """More rows were refused than ``dataset.max_rejects`` allows."""


class ConservationError(DataError):
    """Rows were lost or made up between a job's input and its output."""


class ArtifactError(RecsysError):
    """A stage directory or a release cannot be trusted."""


class ArtifactMissingError(ArtifactError):
    """A file that the manifest names is not there."""


class ArtifactCorruptError(ArtifactError):
    """A file's bytes are not those that the manifest recorded."""


class ArtifactFormatError(ArtifactError):
    """The artifact was written in a newer format than this version reads."""


class EncoderMismatchError(ArtifactError):
    """An encoder and an index do not belong to each other."""


class EngineError(RecsysError):
    """The Beam engine that the runner flags name could not be started, or gave a job up."""


class WorkdirBusyError(RecsysError):
    """Another run holds the work directory."""


class TrainingError(RecsysError):
    """Training cannot go on."""


class NonFiniteError(TrainingError):
    """A NaN or an infinity appeared in features, loss or weights."""


class RepresentationCollapseError(TrainingError):
    """The embeddings lost their geometry: everything points the same way."""


class IndexBuildError(RecsysError):
    """The vectors cannot be indexed."""


class SearchError(RecsysError):
    """A search was asked for something impossible."""


class MetricMismatchError(SearchError):
    """Vectors and index do not share one normalisation."""


class StoreError(RecsysError):
    """The release store is missing, empty or contended."""


class ReleaseNotFoundError(StoreError):
    """No release of that name is in the store."""


class ServiceError(RecsysError):
    """The service could not be reached in time, or answered that it cannot answer.

    Attributes:
        status: HTTP status of the last answer, or None when there was none.
        request_id: the request's id in the service's log, or None.
    """

    def __init__(self, message: str, status: int | None = None, request_id: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.request_id = request_id


class GateRefusedError(RecsysError):
    """The release was measured and refused by a gate.

    Args:
        message: why, in words.
        details: of the refusal, such as ``release`` and where its ``report`` is kept.
    """

    exit_code = 3

    def __init__(self, message: str, details: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.details = dict(details or {})
