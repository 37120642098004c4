"""What the service is asked: models that hold its limits, which OpenAPI shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    WithJsonSchema,
    create_model,
)

from recsys_cg.config import ServingConfig
from recsys_cg.errors import SearchError
from recsys_cg.serving.answer import LONGEST_ID, USUAL_K, Request
from recsys_cg.serving.entries import EARLIEST_S, LATEST_S, HistoryEvent, parse_time
from recsys_cg.serving.plain import PlainReader

__all__ = ["HistoryItem", "Moment", "RequestModels", "to_request"]


def _check_time(value: str) -> str:
    try:
        parse_time(value)
    except SearchError as error:
        raise ValueError(str(error)) from error
    return value


def _check_number(value: object) -> object:
    """Refuse what is no number in JSON; pydantic would read ``true`` and ``"2"`` as integers."""
    if isinstance(value, bool | str):
        raise ValueError("input should be a number")
    return value


_WhenText = Annotated[str, AfterValidator(_check_time), WithJsonSchema({"type": "string", "format": "date-time"})]
_WhenNumber = Annotated[float, Field(ge=EARLIEST_S, le=LATEST_S, allow_inf_nan=False)]
Moment = Annotated[_WhenNumber, Strict()] | _WhenText
"""A time: seconds since 1970 or RFC 3339 text."""

_Whole = Annotated[int, BeforeValidator(_check_number)]
_MOST_COLUMNS = 256
_ID = Annotated[str, Field(max_length=LONGEST_ID)]


_ContextScalar = (
    Annotated[bool, Strict()] | Annotated[int, Strict()] | Annotated[float, Strict(), Field(allow_inf_nan=False)] | _ID
)
_Context = Annotated[dict[_ID, _ContextScalar | None], Field(max_length=64)]


class HistoryItem(BaseModel):
    """One thing the user did."""

    model_config = ConfigDict(extra="forbid")

    item: _ID = Field(description="item id")
    time: Moment | None = Field(None, description="when: seconds since 1970, or RFC 3339")
    event: _ID | None = Field(None, description="what: one of the release's event names; default: its first")


@dataclass(frozen=True)
class RequestModels:
    """The models of everything that is asked, with the limits of one configuration, which OpenAPI shows."""

    candidates: type[BaseModel]
    batch: type[BaseModel]
    similar: type[BaseModel]
    content: type[BaseModel]
    complementary: type[BaseModel]
    items: type[BaseModel]
    plain: PlainReader

    def read(self, body: bytes) -> Request:
        """Return the request of a ``CandidatesRequest``.

        Raises:
            pydantic.ValidationError: the body is none.
        """
        return self.plain.read(body) or to_request(self.candidates.model_validate_json(body))

    @classmethod
    def of(cls, config: ServingConfig) -> Self:
        """Return the models under the limits of ``config``."""
        forbid = ConfigDict(extra="forbid")
        most, usual = config.max_k, min(USUAL_K, config.max_k)
        history = Annotated[list[_ID | HistoryItem], Field(max_length=config.max_history)]
        single = create_model(
            "CandidatesRequest",
            __config__=forbid,
            __doc__="Candidates for a history, given or stored.",
            history=(history | None, Field(None, description="what the user did, oldest first: ids or objects")),
            user_id=(_ID | None, Field(None, description="whose stored history is used when none is given")),
            k=(_Whole, Field(usual, ge=1, le=most, description="candidates wanted")),
            exclude=(list[_ID], Field(default_factory=list, description="items never answered")),
            allow=(list[_ID] | None, Field(None, description="the only items that may be answered")),
            deny_seen=(
                bool | None,
                Field(None, strict=True, description="leave out what the user met; default: as measured"),
            ),
            at=(Moment | None, Field(None, description="time of the request; default now")),
            explain=(_Whole, Field(0, ge=0, le=10, description="nearest history items to give")),
            context=(
                _Context | None,
                Field(None, description="what is known of the request, by the names of features"),
            ),
        )
        batch = create_model(
            "BatchRequest",
            __config__=forbid,
            __doc__="Many requests at once, answered from one release.",
            requests=(list[single], Field(min_length=1, max_length=config.max_batch)),
        )
        similar = create_model(
            "SimilarQuery",
            __config__=forbid,
            item_id=(_ID, Field(description="item that others are asked for")),
            k=(int, Field(usual, ge=1, le=most, description="items wanted")),
            at=(_WhenNumber | _WhenText | None, Field(None, description="time of the request; default now")),
        )
        content = create_model(
            "ContentRequest",
            __config__=forbid,
            __doc__="Items nearest to one that the release need not have, by its row of the catalogue.",
            content=(
                dict[_ID, Any],
                Field(min_length=1, max_length=_MOST_COLUMNS, description="columns of the catalogue and their values"),
            ),
            k=(_Whole, Field(usual, ge=1, le=most, description="items wanted")),
            at=(Moment | None, Field(None, description="time of the request; default now")),
        )
        complementary = create_model(
            "ComplementaryQuery",
            __base__=similar,
            event=(_ID | None, Field(None, description="what the user did with it; default: the first event")),
        )
        items = create_model(
            "ItemsQuery",
            __config__=forbid,
            q=(str, Field(min_length=1, max_length=200, description="part of a title, or an item id")),
            limit=(int, Field(20, ge=1, le=50)),
        )
        plain = PlainReader(most_k=most, usual_k=usual, most_history=config.max_history)
        return cls(single, batch, similar, content, complementary, items, plain)


def to_request(message: Any) -> Request:
    """Return the lookup's request for a validated ``CandidatesRequest``."""
    history = message.history
    if history is not None:
        history = [
            entry
            if isinstance(entry, str)
            else HistoryEvent(entry.item, None if entry.time is None else parse_time(entry.time), entry.event)
            for entry in history
        ]
    return Request(
        history=history,
        user_id=message.user_id,
        k=message.k,
        exclude=message.exclude,
        allow=message.allow,
        deny_seen=message.deny_seen,
        at=message.at,
        explain=message.explain,
        context=message.context,
    )
