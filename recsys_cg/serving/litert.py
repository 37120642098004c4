"""Load a LiteRT graph: the one place that imports LiteRT and says what a file that it cannot read means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recsys_cg.errors import ArtifactCorruptError, EnvironmentMismatchError

try:
    from ai_edge_litert.interpreter import Interpreter
except ImportError as error:  # pragma: no cover - a property of the installation
    raise EnvironmentMismatchError("serving needs LiteRT: pip install 'recsys-cg[serve]'") from error

__all__ = ["load_graph"]

_SIGNATURE = "serving_default"


def load_graph(content: bytes, source: Path) -> tuple[Any, Any]:
    """Return (interpreter of one thread, runner of its serving signature).

    Args:
        content: the bytes of a ``.tflite`` file.
        source: where they came from, for messages.

    Raises:
        ArtifactCorruptError: LiteRT cannot load them, or they have no such signature.
    """
    try:
        interpreter = Interpreter(model_content=content, num_threads=1)
        return interpreter, interpreter.get_signature_runner(_SIGNATURE)
    except (ValueError, RuntimeError) as error:
        raise ArtifactCorruptError(f"{source} cannot be loaded by LiteRT: {error}") from error
