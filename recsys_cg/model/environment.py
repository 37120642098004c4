"""Check, before TensorFlow is imported, that the installed versions can work together.

TFRS 0.7.7 needs Keras 2, which ``tf-keras`` brings and ``TF_USE_LEGACY_KERAS=1`` selects; the variable is read once,
while TensorFlow is imported. ScaNN 1.4.2 is compiled against TensorFlow 2.20 and does not load beside another. Both
faults show late and far away, so they are looked for here, early, and named with the line that mends them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Final

from recsys_cg.errors import EnvironmentMismatchError

__all__ = ["LEGACY_KERAS", "REQUIREMENTS", "find_mismatches", "installed_versions", "prepare"]

LEGACY_KERAS: Final = "TF_USE_LEGACY_KERAS"
REQUIREMENTS: Final[Mapping[str, str]] = {
    "tensorflow": "2.20",
    "tf-keras": "2.20",
    "tensorflow-recommenders": "0.7.7",
}
"""Package -> the leading part of the version that training needs."""

_MEND: Final = "pip install 'tensorflow~=2.20.0' 'tf-keras~=2.20.0' 'tensorflow-recommenders==0.7.7'"


def installed_versions() -> dict[str, str | None]:
    """Return the installed version of each package of `REQUIREMENTS`, None where it is not installed."""
    versions: dict[str, str | None] = {}
    for name in REQUIREMENTS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def find_mismatches(versions: Mapping[str, str | None]) -> list[str]:
    """Return one line a package that is missing or of another version than `REQUIREMENTS`; empty when all fit."""
    lines = []
    for name, needed in REQUIREMENTS.items():
        found = versions.get(name)
        if found is None:
            lines.append(f"{name} is not installed; training needs {needed}")
        elif not re.match(rf"{re.escape(needed)}(\.|$|[^0-9.])", found):
            lines.append(f"{name} is {found}; training needs {needed}")
    return lines


def prepare() -> None:
    """Select Keras 2 and check versions; call before anything imports TensorFlow.

    Raises:
        EnvironmentMismatchError: a package is missing or of another version, or TensorFlow was already imported
            with Keras 3 in force. The message ends with the command that mends it.
    """
    mismatches = find_mismatches(installed_versions())
    if mismatches:
        raise EnvironmentMismatchError(f"training cannot run: {'; '.join(mismatches)}. Mend: {_MEND}")
    if os.environ.get(LEGACY_KERAS) not in ("1", "true", "True"):
        if "tensorflow" in sys.modules:
            raise EnvironmentMismatchError(
                "training cannot run: TensorFlow was imported with Keras 3 in force, and TFRS needs Keras 2. "
                f"Mend: set {LEGACY_KERAS}=1 before TensorFlow is imported, or import recsys_cg.model.frameworks first"
            )
        os.environ[LEGACY_KERAS] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Large tensors come and go every step; without a pool each is mapped and cleared by the kernel again.
    os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
    # Off by default where a processor has no AVX-512; a training step takes a fifth less with it on AVX2, too.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
