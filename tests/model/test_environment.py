from __future__ import annotations

import os
import subprocess
import sys

import pytest

from recsys_cg.errors import EnvironmentMismatchError
from recsys_cg.model import environment
from recsys_cg.model.environment import find_mismatches, installed_versions

FITTING = {"tensorflow": "2.20.0", "tf-keras": "2.20.1", "tensorflow-recommenders": "0.7.7"}


def test_fitting_versions_have_no_mismatch() -> None:
    assert find_mismatches(FITTING) == []
    assert find_mismatches({**FITTING, "tensorflow": "2.20.0rc1"}) == []
    assert find_mismatches(installed_versions()) == []


@pytest.mark.parametrize("version", ["2.21.0", "2.2.0", "2.200.1", "3.20.0"])
def test_another_tensorflow_is_named(version: str) -> None:
    assert find_mismatches({**FITTING, "tensorflow": version}) == [f"tensorflow is {version}; training needs 2.20"]


def test_a_missing_package_is_named() -> None:
    lines = find_mismatches({**FITTING, "tf-keras": None})
    assert lines == ["tf-keras is not installed; training needs 2.20"]


def test_the_error_ends_with_the_command_that_mends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "installed_versions", lambda: {**FITTING, "tensorflow-recommenders": "0.7.3"})
    with pytest.raises(EnvironmentMismatchError, match=r"is 0\.7\.3; training needs 0\.7\.7\. Mend: pip install "):
        environment.prepare()


def test_tensorflow_imported_with_keras_3_is_refused() -> None:
    code = (
        "import sys, types; sys.modules['tensorflow'] = types.ModuleType('tensorflow')\n"
        "from recsys_cg.model.environment import prepare\n"
        "from recsys_cg.errors import EnvironmentMismatchError\n"
        "try: prepare()\nexcept EnvironmentMismatchError as error: print(error)"
    )
    bare = {name: value for name, value in os.environ.items() if name != environment.LEGACY_KERAS}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=bare)
    assert "Keras 3 in force" in done.stdout
    assert "set TF_USE_LEGACY_KERAS=1" in done.stdout


def test_importing_the_package_loads_no_tensorflow() -> None:
    code = "import recsys_cg.model, recsys_cg.model.environment, sys; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
