from __future__ import annotations

from typing import Any

import numpy as np

from recsys_cg.index.exact import ExactRetriever
from recsys_cg.workflow.duplicates import describe_duplicates


class Shelf:
    """What `describe_duplicates` asks of a release."""

    def __init__(self, degrees: list[float]) -> None:
        angles = np.radians(degrees)
        self.vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
        self.retriever = ExactRetriever(self.vectors)

    def __len__(self) -> int:
        return len(self.vectors)

    def describe(self, rows: np.ndarray) -> tuple[list[str], list[str | None], list[str]]:
        return [f"i{row}" for row in rows], [f"T{row}" for row in rows], []


def describe(degrees: list[float]) -> dict[str, Any]:
    shelf: Any = Shelf(degrees)
    return describe_duplicates(shelf)


def test_groups_of_items_that_all_but_coincide_are_named_closest_first() -> None:
    # 11.5 degrees are a similarity of 0.98: 0 and 5 and 10 hang together, 90 and 91 are closer, 170 is alone
    found = describe([0, 90, 5, 91, 10, 170])
    assert (found["items"], found["groups"], found["searched"], found["least_similarity"]) == (5, 2, 6, 0.98)
    closest, chain = found["examples"]
    assert closest["items"] == [{"item_id": "i1", "title": "T1"}, {"item_id": "i3", "title": "T3"}]
    assert abs(closest["similarity"] - np.cos(np.radians(1))) < 1e-6
    assert [item["item_id"] for item in chain["items"]] == ["i0", "i2", "i4"]
    assert (chain["size"], closest["size"]) == (3, 2)


def test_one_item_and_items_far_apart_have_no_duplicates() -> None:
    assert describe([0]) == {"least_similarity": 0.98, "searched": 1, "items": 0, "groups": 0, "examples": []}
    assert describe([0, 90])["groups"] == 0


def test_equal_vectors_are_one_group_whose_first_titles_are_shown() -> None:
    found = describe([30.0] * 9)
    assert (found["items"], found["groups"]) == (9, 1)
    assert len(found["examples"][0]["items"]) == 6
    assert found["examples"][0]["size"] == 9
    assert found["examples"][0]["similarity"] <= 1.0
