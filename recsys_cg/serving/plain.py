"""The short way into the service for what is asked thousands of times a second: a history, a list length, a user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from recsys_cg.serving.answer import Request
from recsys_cg.serving.entries import HistoryColumns, read_columns

__all__ = ["LONGEST_ID", "PlainReader"]

LONGEST_ID = 4096
"""Characters of an id at most."""

_FIELDS = frozenset({"history", "k", "user_id"})
_ABSENT = object()


@dataclass(frozen=True)
class PlainReader:
    """Read plain bodies of requests column by column, in a fifth of the time that the models take.

    It reads what the models of `recsys_cg.serving.requests` would read, as they would, or nothing: whatever it does not
    know, and whatever there may be an objection to, is left to them.

    Attributes:
        most_k: longest list.
        usual_k: list length where a request names none.
        most_history: entries of a history at most.
    """

    most_k: int
    usual_k: int
    most_history: int

    def read(self, body: bytes) -> Request | None:
        """Return the request of a body; None: the models have to read it."""
        try:
            message = orjson.loads(body)
        except orjson.JSONDecodeError:
            return None
        if type(message) is not dict or not message.keys() <= _FIELDS:
            return None
        user_id, k = message.get("user_id"), message.get("k", self.usual_k)
        is_plain = type(k) is int and 1 <= k <= self.most_k and (user_id is None or _are_ids([user_id]))
        history: Any = self._read_history(message.get("history")) if is_plain else _ABSENT
        return None if history is _ABSENT else Request(history=history, user_id=user_id, k=k)

    def _read_history(self, given: Any) -> Any:
        """Return a history as a lookup takes it; `_ABSENT`: the models have to read it."""
        if given is None or (type(given) is list and len(given) <= self.most_history and _are_ids(given)):
            return given
        if type(given) is not list or len(given) > self.most_history:
            return _ABSENT
        columns: HistoryColumns | None = read_columns(given)
        if columns is None or not _are_ids(columns.items):
            return _ABSENT
        return columns if _are_ids([event for event in columns.events if event is not None]) else _ABSENT


def _are_ids(values: Sequence[Any]) -> bool:
    """Say whether all are texts that may be ids."""
    return set(map(type, values)) <= {str} and max(map(len, values), default=0) <= LONGEST_ID
