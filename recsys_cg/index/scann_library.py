"""The edge to ScaNN's native code: its import without TensorFlow, and the calls that build, save and load a tree.

ScaNN's package imports TensorFlow where that is installed (six seconds, 600 MB, and a crash where the versions
differ), though its pybind interface needs NumPy and protobuf only.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from recsys_cg.errors import EnvironmentMismatchError

__all__ = ["VERSION", "import_scann"]

VERSION = "1.4.2"
"""The release of ScaNN whose behaviour this package was measured with."""

_PYBIND = "scann.scann_ops.py.scann_ops_pybind"
_BLOCKED = ("tensorflow", "scann.scann_ops.py.scann_ops")
_lock = threading.Lock()
_CC_FOLDER = str(Path("scann", "scann_ops", "cc", "python"))
_loaded: list[ModuleType] = []


def import_scann() -> ModuleType:
    """Return ScaNN's pybind module, imported once, without loading TensorFlow and without hiding it from others.

    While the import runs, this thread alone is told that TensorFlow does not exist; other threads may import it.
    ``sys.modules`` holds no trace of that afterwards: ``import scann`` by somebody else runs in full.

    Raises:
        EnvironmentMismatchError: ScaNN is not installed, has no wheel for this platform, or cannot be loaded here.
    """
    with _lock:
        if not _loaded:
            try:
                _loaded.append(_import_without_tensorflow())
            except Exception as error:
                raise EnvironmentMismatchError(
                    f"ScaNN cannot be imported ({type(error).__name__}: {error}); "
                    f"install it on Linux with: pip install 'scann=={VERSION}'"
                ) from error
        return _loaded[0]


def _import_without_tensorflow() -> ModuleType:
    had_package = "scann" in sys.modules
    path_before = list(sys.path)
    with _blocked_in_this_thread():
        module = importlib.import_module(_PYBIND)
    # ScaNN appends a folder of its own, which nothing needs once its library is loaded.
    sys.path[:] = [entry for entry in sys.path if entry in path_before or not entry.endswith(_CC_FOLDER)]
    if not had_package:
        # The package was executed without its TensorFlow half: whoever imports it next gets the whole of it.
        sys.modules.pop("scann", None)
    return module


class _Blocker:
    """A finder that refuses `_BLOCKED` to one thread."""

    def __init__(self, thread: int) -> None:
        self._thread = thread

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        del path, target
        if name in _BLOCKED and threading.get_ident() == self._thread:
            # Without ``name=``: `from package import name` would swallow the error if it carried it.
            raise ModuleNotFoundError(f"{name} is kept out while ScaNN is imported")
        return None


@contextmanager
def _blocked_in_this_thread() -> Iterator[None]:
    blocker = _Blocker(threading.get_ident())
    sys.meta_path.insert(0, blocker)
    try:
        yield
    finally:
        sys.meta_path.remove(blocker)
