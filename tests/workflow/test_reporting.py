from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from recsys_cg.workflow.reporting import Extras, read_extras, write_report


class Nothing:
    """A store without releases."""

    def releases(self) -> list[Any]:
        return []


class UnderTest:
    """What `Extras.of` asks of a release under test."""

    def __init__(self, path: Path) -> None:
        self.release = self
        self.path = path


def encoder(tmp_path: Path, later: list[bool]) -> Any:
    directory = tmp_path / "encoder"
    directory.mkdir()
    (directory / "training.json").write_text('{"epochs": []}', encoding="utf-8")
    if later:
        table = pa.table(
            {
                "anchor_titles": ['Alien, "the" first | B'] * len(later),
                "mined_item_id": [f"i{n}" for n in range(len(later))],
                "mined_title": ["Ünï"] * len(later),
                "score": [0.5] * len(later),
                "rank": list(range(1, len(later) + 1)),
                "later_interacted": later,
            }
        )
        pyarrow.csv.write_csv(table, directory / "mined_negatives.csv")
    return UnderTest(tmp_path)


def test_mined_negatives_are_kept_with_the_report_as_many_met_later_as_not(tmp_path: Path) -> None:
    extras = Extras.of(encoder(tmp_path, [False] * 40 + [True] * 3 + [False]), [])
    assert [row["mined_item_id"] for row in extras.mined] == [*(f"i{n}" for n in range(12)), "i40", "i41", "i42"]
    assert extras.mined[0] == {
        "anchor_titles": 'Alien, "the" first | B',
        "mined_item_id": "i0",
        "mined_title": "Ünï",
        "score": 0.5,
        "rank": 1,
        "later_interacted": False,
    }
    assert extras.mined[-1]["later_interacted"] is True
    store: Any = Nothing()
    write_report(tmp_path, {"release": "r"}, extras, store)
    assert read_extras(tmp_path) == extras
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8")) == {"release": "r"}


def test_a_release_without_mined_negatives_has_no_file_of_them(tmp_path: Path) -> None:
    extras = Extras.of(encoder(tmp_path, []), [{"user": "u"}])
    assert extras.mined == []
    store: Any = Nothing()
    write_report(tmp_path, {"release": "r"}, extras, store)
    assert not (tmp_path / "mined_negatives.json").exists()
    assert read_extras(tmp_path) == extras
