from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from recsys_cg.errors import StoreError
from recsys_cg.release.names import check_name, is_name, name_release


def test_a_name_is_the_utc_time_and_the_start_of_the_key() -> None:
    at = datetime(2026, 11, 29, 20, 22, 33, 999_999, tzinfo=timezone(timedelta(hours=1)))
    assert name_release("1a2b3c4d5e6f", at) == "20261129T192233Z-1a2b3c4d"
    assert name_release("1a2b3c4d5e6f", datetime(2026, 1, 2)) == "20260102T000000Z-1a2b3c4d"
    assert name_release("ab", None) <= f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-ab"


@pytest.mark.parametrize("text", ["a", "20261129T192233Z-1a2b3c4d", "r.1_2-3", "x" * 100])
def test_names_that_may_be_used(text: str) -> None:
    assert check_name(text) == text


@pytest.mark.parametrize("text", ["", ".", "..", "a/..", "a\\b/", " a", "a ", "a\n", "é", "x" * 101])
def test_names_that_may_not(text: str) -> None:
    assert not is_name(text)
    with pytest.raises(StoreError, match="no release name"):
        check_name(text)
