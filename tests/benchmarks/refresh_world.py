"""A simulated news portal: new articles every day, read for a few days, by readers who keep to their subjects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["FIRST_DAY", "write_portal"]

FIRST_DAY = datetime(2024, 5, 1, tzinfo=timezone(timedelta(hours=-3)))
_SUBJECTS, _NEW_A_DAY, _SESSIONS = 12, 6, 500


def write_portal(folder: Path, *, days: int, seed: int = 0) -> Path:
    """Write one Parquet file a day and return the folder.

    A session keeps to one subject nine times in ten and reads 2 to 8 articles of it; an article of age a days is read
    in proportion to 2^-a.
    """
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for day in range(days):
        begin = FIRST_DAY + timedelta(days=day)
        rows: dict[str, list[str] | list[int]] = {"user_id": [], "article_id": [], "timestamp_ms": []}
        for session in range(_SESSIONS):
            now = begin.timestamp() + rng.uniform(0, 86_000)
            home = int(rng.integers(_SUBJECTS))
            user = f"u{home}-{rng.integers(60)}" if session % 2 else f"d{day}s{session}"
            for _ in range(int(rng.integers(2, 9))):
                subject = home if rng.random() < 0.9 else int(rng.integers(_SUBJECTS))
                age = min(int(rng.geometric(0.5)) - 1, day)
                number = int(rng.integers(_NEW_A_DAY))
                values = (user, f"a{day - age}-{subject}-{number}", int(now * 1000))
                for column, value in zip(rows.values(), values, strict=True):
                    column.append(value)  # type: ignore[arg-type]
                now += rng.uniform(20, 200)
        name = begin.astimezone(UTC).date().isoformat()
        pq.write_table(pa.table(rows), folder / f"{name}.parquet")
    return folder
