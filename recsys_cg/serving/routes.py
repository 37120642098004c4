"""The endpoints of the service. Bodies are parsed and checked in one step, outside Python."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow.compute as pc
from fastapi import Request, Response
from pydantic_core import to_json

from recsys_cg.config import ServingConfig
from recsys_cg.serving.batching import Batcher, NotReadyError
from recsys_cg.serving.follower import Follower
from recsys_cg.serving.known import find_by_content, require_item
from recsys_cg.serving.lookup import CandidateLookup
from recsys_cg.serving.metrics import CONTENT_TYPE_LATEST, Metrics
from recsys_cg.serving.page import page_headers, page_html
from recsys_cg.serving.requests import RequestModels, to_request
from recsys_cg.serving.responses import render_batch, render_single

__all__ = ["Endpoints"]

_JSON = "application/json"


@dataclass(frozen=True)
class Endpoints:
    """What answers each path."""

    config: ServingConfig
    models: RequestModels
    follower: Follower
    batcher: Batcher
    metrics: Metrics

    async def candidates(self, request: Request) -> Response:
        """Return candidates for one user: given history, stored history, or popular items with the reason why."""
        started = time.perf_counter()
        asked = self.models.read(await request.body())
        return _json(await self.batcher.ask([asked], render_single(started)))

    async def candidates_batch(self, request: Request) -> Response:
        """Return candidates for many users, all from one release."""
        started = time.perf_counter()
        message: Any = self.models.batch.model_validate_json(await request.body())
        return _json(await self.batcher.ask([to_request(one) for one in message.requests], render_batch(started)))

    async def similar(self, request: Request) -> Response:
        """Return the items nearest to an item."""
        started = time.perf_counter()
        query: Any = self.models.similar.model_validate(dict(request.query_params))

        def answer(lookup: CandidateLookup) -> bytes:
            item_id = require_item(lookup, query.item_id)
            return render_single(started)([lookup.similar(item_id, query.k, at=query.at)])

        return _json(await self.batcher.call(answer))

    async def similar_content(self, request: Request) -> Response:
        """Return the items nearest to one that the release need not have, by its row of the catalogue."""
        started = time.perf_counter()
        message: Any = self.models.content.model_validate_json(await request.body())

        def answer(lookup: CandidateLookup) -> bytes:
            return render_single(started)([find_by_content(lookup, message.content, message.k, at=message.at)])

        return _json(await self.batcher.call(answer))

    async def complementary(self, request: Request) -> Response:
        """Return the items that go with an item."""
        started = time.perf_counter()
        query: Any = self.models.complementary.model_validate(dict(request.query_params))

        def answer(lookup: CandidateLookup) -> bytes:
            item_id = require_item(lookup, query.item_id)
            found = lookup.complementary(item_id, query.k, event=query.event, at=query.at)
            return render_single(started)([found])

        return _json(await self.batcher.call(answer))

    async def items(self, request: Request) -> Response:
        """Return items whose title contains a text or whose id it is, most popular first."""
        query: Any = self.models.items.model_validate(dict(request.query_params))
        return _json(await self.batcher.call(lambda lookup: _find_items(lookup, query.q, query.limit)))

    async def release(self) -> Response:
        """Describe the release that serves."""
        described = self.described()
        if described is None:
            raise NotReadyError
        return _json(to_json(described))

    def described(self) -> dict[str, Any] | None:
        """Return what is said of the release that serves; None while there is none."""
        lookup = self.follower.lookup
        return None if lookup is None else self._describe(lookup)

    def _describe(self, lookup: CandidateLookup) -> dict[str, Any]:
        release, refusal = lookup.release, self.follower.refusal
        created = release.manifest.created
        return {
            "release": release.name,
            "created": created,
            "age_s": round(max(0.0, time.time() - datetime.fromisoformat(created).timestamp()), 1),
            "items": len(release),
            "dim": release.encoder.contract.dim,
            "index": release.retriever.kind,
            "is_exact": release.retriever.is_exact,
            "events": list(release.events),
            "max_history": release.encoder.contract.max_history,
            "users": 0 if release.histories is None else len(release.histories),
            "encoder_digest": release.manifest.info["encoder_digest"],
            "max_k": self.config.max_k,
            "refused": None if refusal is None else refusal.why,
        }

    async def healthz(self) -> Response:
        """Say that the process answers."""
        return _json(to_json({"status": "ok", "why": None}))

    async def readyz(self) -> Response:
        """Say whether lookups are answered."""
        if self.follower.lookup is not None:
            return _json(to_json({"status": "ready", "why": None}))
        refusal = self.follower.refusal
        why = "loading" if refusal is None else refusal.why
        return Response(to_json({"status": "not ready", "why": why}), 503, {"Retry-After": "1"}, media_type=_JSON)

    async def expose(self) -> Response:
        """Return figures for Prometheus."""
        if self.follower.lookup is not None:
            self.metrics.observe_age(self.follower.lookup.release.manifest.created)
        return Response(self.metrics.expose(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def page(self) -> Response:
        """Return the page for people."""
        return Response(page_html(), media_type="text/html", headers=page_headers())


def _json(body: bytes) -> Response:
    return Response(body, media_type=_JSON)


def _find_items(lookup: CandidateLookup, text: str, limit: int) -> bytes:
    release = lookup.release
    hits = pc.indices_nonzero(
        pc.match_substring(release.titles.cast("string"), text, ignore_case=True).fill_null(False)
    )
    rows = release.popularity.sort(hits.to_numpy().astype(np.int32))[:limit]
    exact = lookup.find(text)
    if exact is not None:
        rows = np.concatenate([np.array([exact], np.int32), rows[rows != exact]])[:limit]
    found = zip(*release.describe(rows), strict=True)
    entries = [{"item_id": item_id, "title": title, "bucket": bucket} for item_id, title, bucket in found]
    return to_json({"release": release.name, "items": entries})
