from __future__ import annotations

import subprocess
import sys

import pytest

import recsys_cg.serving
from recsys_cg.serving.lookup import CandidateLookup


def test_public_names_are_there_and_load_on_demand():
    assert recsys_cg.serving.CandidateLookup is CandidateLookup
    assert all(getattr(recsys_cg.serving, name).__name__ == name for name in recsys_cg.serving.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = recsys_cg.serving.nothing  # type: ignore[attr-defined]


def test_importing_the_package_loads_neither_grpc_nor_redis_nor_numpy():
    program = "import sys, recsys_cg.serving; print({'grpc', 'redis', 'numpy', 'fastapi'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
