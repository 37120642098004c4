"""What every test starts from: a clean environment and quiet native libraries."""

from __future__ import annotations

import os

import pytest

_OURS = ("RECSYS_CG_",)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(_OURS[0]):
            monkeypatch.delenv(name)
