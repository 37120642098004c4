from __future__ import annotations

import pytest

from recsys_cg.errors import StoreError
from recsys_cg.release.names import check_name, is_name


@pytest.mark.parametrize("text", ["a", "20261129T192233Z-1a2b3c4d", "r.1_2-3", "x" * 100])
def test_names_that_may_be_used(text: str) -> None:
    assert check_name(text) == text


@pytest.mark.parametrize("text", ["", ".", "..", "a/..", "a\\b/", " a", "a ", "a\n", "é", "x" * 101])
def test_names_that_may_not(text: str) -> None:
    assert not is_name(text)
    with pytest.raises(StoreError, match="no release name"):
        check_name(text)
