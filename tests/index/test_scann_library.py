"""ScaNN is imported without TensorFlow, and nobody else notices; each case in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from recsys_cg.errors import EnvironmentMismatchError
from recsys_cg.index import scann_library

SEARCH = """
import numpy as np
found, _ = library.builder(np.eye(4, dtype=np.float32), 1, "dot_product").score_brute_force().build().search(
    np.eye(4, dtype=np.float32)[2])
assert found.tolist() == [2], found
"""


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_index_and_scann_loads_no_tensorflow() -> None:
    run(
        "import sys\n"
        "import recsys_cg.index.build, recsys_cg.index.load\n"
        "assert 'scann' not in sys.modules and 'scann_pybind' not in sys.modules\n"
        "before = list(sys.meta_path), list(sys.path)\n"
        "library = recsys_cg.index.scann_library.import_scann()\n"
        "assert 'tensorflow' not in sys.modules and 'scann' not in sys.modules\n"
        "assert (list(sys.meta_path), list(sys.path)) == before\n"
        "assert recsys_cg.index.scann_library.import_scann() is library\n" + SEARCH
    )


def test_tensorflow_can_be_imported_while_and_after_scann_is() -> None:
    """A stand-in for TensorFlow, found on the path, is refused to the importing thread only."""
    run(
        "import sys, tempfile, threading, pathlib\n"
        "folder = pathlib.Path(tempfile.mkdtemp()); (folder / 'tensorflow.py').write_text('marker = 1')\n"
        "sys.path.insert(0, str(folder))\n"
        "from recsys_cg.index.scann_library import _blocked_in_this_thread, import_scann\n"
        "seen = []\n"
        "def other():\n"
        "    import tensorflow\n"
        "    seen.append(tensorflow.marker)\n"
        "with _blocked_in_this_thread():\n"
        "    try:\n"
        "        import tensorflow\n"
        "        raise SystemExit('not blocked')\n"
        "    except ModuleNotFoundError: pass\n"
        "    thread = threading.Thread(target=other); thread.start(); thread.join()\n"
        "assert seen == [1]\n"
        "library = import_scann()\n"
        "import tensorflow\n"
        "assert tensorflow.marker == 1\n" + SEARCH
    )


def test_a_tensorflow_that_is_loaded_already_stays_and_its_ops_are_not_touched() -> None:
    """The stand-in has nothing that ScaNN's ops need: touching them would fail as a mismatched version does."""
    run(
        "import sys, types\n"
        "sys.modules['tensorflow'] = stand_in = types.ModuleType('tensorflow')\n"
        "from recsys_cg.index.scann_library import import_scann\n"
        "library = import_scann()\n"
        "assert sys.modules['tensorflow'] is stand_in\n" + SEARCH
    )


@pytest.mark.slow
def test_the_real_tensorflow_and_its_scann_ops_work_after_ours() -> None:
    run(
        "from recsys_cg.index.scann_library import import_scann\n"
        "library = import_scann()\n"
        "import numpy as np, scann, tensorflow\n"
        "assert scann.scann_ops.builder(np.eye(4, dtype=np.float32), 1, 'dot_product').score_brute_force()"
        ".build().search(np.eye(4, dtype=np.float32)[2])[0].numpy().tolist() == [2]\n" + SEARCH
    )


def test_an_import_that_fails_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ImportError("undefined symbol: _ZN3foo")

    monkeypatch.setattr(scann_library, "_loaded", [])
    monkeypatch.setattr(scann_library.importlib, "import_module", fail)
    with pytest.raises(EnvironmentMismatchError, match=r"undefined symbol: _ZN3foo.*pip install 'scann==1\.4\.2'"):
        scann_library.import_scann()
