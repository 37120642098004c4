"""The items of a simulated world: content, taste that the content partly tells, popularity, availability."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.data.worlds.config import WorldConfig
from recsys_cg.data.worlds.seeds import make_ids, stream

__all__ = ["Catalogue", "make_catalogue"]

_TAGS_OF_CATEGORY = 8
_MAX_TAGS = 3
_WORDS_EACH = 6
_ADJECTIVE_BITS = 4
_SYLLABLES = ("ba", "ké", "li", "mo", "ñu", "ra", "sø", "ti", "ву", "ze", "日", "pa", "lö", "ni", "ga", "ше", "du")


@dataclass(frozen=True)
class Catalogue:
    """Items by their index in the world, which says nothing of their popularity.

    Attributes:
        ids: string [items].
        factors: float32 [items, factors], taste; an inner product with a user's factors has variance about 1.
        quality: float32 [items], added to the logit of relevance.
        popularity: float64 [items], the incumbent's weight of an item, ``rank ** -zipf_exponent``.
        category: int32 [items].
        centroids: float32 [categories, factors], taste of a category: what the incumbent knows.
        first_epoch: int64 [items], first epoch in which the item is there (not below 0).
        end_epoch: int64 [items], first epoch in which it no longer is; a large number for permanent items.
        table: the catalogue as users of the world see it.
    """

    ids: pa.StringArray
    factors: NDArray[np.float32]
    quality: NDArray[np.float32]
    popularity: NDArray[np.float64]
    category: NDArray[np.int32]
    centroids: NDArray[np.float32]
    first_epoch: NDArray[np.int64]
    end_epoch: NDArray[np.int64]
    table: pa.Table


def make_catalogue(config: WorldConfig) -> Catalogue:
    """Draw the items of a world.

    An item's taste is ``sqrt(content_strength) c + sqrt(1 - content_strength) z``: ``c`` is the unit vector of its
    category and tags, ``z`` a draw of its own. The title holds a word of the category, one of a tag and one that
    tells the signs of four coordinates of ``z``; the price follows the category and the first coordinate of ``z``.
    """
    rng = stream(config.seed, "catalogue")
    category = _draw_categories(config, rng)
    centroids = _unit(rng.normal(size=(config.categories, config.factors)))
    tag_vectors = _unit(rng.normal(size=(config.tags, config.factors)))
    tags, tag_count = _draw_tags(config, rng, category)
    told = _unit(2.0 * centroids[category] + _mean_of_tags(tag_vectors, tags, tag_count))
    own = rng.normal(size=told.shape) / np.sqrt(config.factors)
    factors = np.sqrt(config.content_strength) * told + np.sqrt(1.0 - config.content_strength) * own
    popularity = np.power(rng.permutation(config.items) + 1.0, -config.zipf_exponent).astype(np.float64)
    first_epoch, end_epoch = _draw_availability(config, rng, category)
    ids = make_ids(config.item_prefix, config.items)
    columns = {
        "item_id": ids,
        "title": _write_titles(config, rng, category, tags[:, 0], own),
        "category": pa.array([f"category {c:02d}" for c in range(config.categories)]).take(pa.array(category)),
        "tags": _write_tags(config, tags, tag_count),
        "price": _draw_prices(config, rng, category, own[:, 0]),
        "available_from": _to_ms(config, first_epoch),
        "available_until": _to_ms(config, end_epoch),
    }
    if config.dense_dim:
        columns["dense"] = _draw_dense(config, rng, factors)
    log_popularity = np.log(popularity)
    spread = log_popularity.std() or 1.0
    return Catalogue(
        ids=ids,
        factors=factors.astype(np.float32),
        quality=(config.popularity_quality * (log_popularity - log_popularity.mean()) / spread).astype(np.float32),
        popularity=popularity,
        category=category,
        centroids=centroids.astype(np.float32),
        first_epoch=first_epoch,
        end_epoch=end_epoch,
        table=pa.table(columns),
    )


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    unit: NDArray[np.float64] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _draw_categories(config: WorldConfig, rng: np.random.Generator) -> NDArray[np.int32]:
    shares = rng.dirichlet(np.full(config.categories, 3.0))
    drawn = rng.choice(config.categories, size=config.items, p=shares)
    drawn[: config.categories] = np.arange(config.categories)
    return drawn.astype(np.int32)


def _draw_tags(
    config: WorldConfig, rng: np.random.Generator, category: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give each item one to three tags out of the eight of its category; an item may hold a tag once only."""
    eight = min(_TAGS_OF_CATEGORY, config.tags)
    of_category = np.stack([rng.choice(config.tags, size=eight, replace=False) for _ in range(config.categories)])
    most = min(_MAX_TAGS, eight)
    order = np.argsort(rng.random((config.items, eight)), axis=1)[:, :most]
    return of_category[category[:, None], order], rng.integers(1, most + 1, size=config.items)


def _mean_of_tags(
    vectors: NDArray[np.float64], tags: NDArray[np.int64], count: NDArray[np.int64]
) -> NDArray[np.float64]:
    held = np.arange(tags.shape[1]) < count[:, None]
    mean: NDArray[np.float64] = (vectors[tags] * held[:, :, None]).sum(axis=1) / count[:, None]
    return mean


def _draw_availability(
    config: WorldConfig, rng: np.random.Generator, category: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw first and end epoch; one item of each category is permanent, so that no category is ever empty."""
    lifetime = rng.geometric(min(1.0, 1.0 / config.mean_lifetime_epochs), size=config.items)
    arrival = rng.integers(1 - lifetime, config.epochs)
    permanent = rng.random(config.items) < config.permanent_share
    permanent[np.unique(category, return_index=True)[1]] = True
    first = np.where(permanent, 0, np.maximum(arrival, 0))
    return first, np.where(permanent, np.iinfo(np.int64).max, arrival + lifetime)


def _to_ms(config: WorldConfig, epoch: NDArray[np.int64]) -> pa.Array:
    """Return epochs as milliseconds, null where an item was there from the start or never leaves."""
    never = epoch == np.iinfo(np.int64).max
    milliseconds = config.start_ms + np.where(never, 0, epoch) * config.epoch_ms
    return pa.array(milliseconds, mask=never | (epoch == 0))


def _make_words(count: int) -> list[str]:
    """Return ``count`` different made-up words, not all of them ASCII.

    No syllable begins another one, so different sequences of syllables are different words.
    """
    base = len(_SYLLABLES)
    length = max(3, math.ceil(math.log(count, base)))
    scattered = (1607 * k % base**length for k in range(count))
    return ["".join(_SYLLABLES[number // base**place % base] for place in range(length)) for number in scattered]


def _write_titles(
    config: WorldConfig,
    rng: np.random.Generator,
    category: NDArray[np.int32],
    tag: NDArray[np.int64],
    own: NDArray[np.float64],
) -> pa.StringArray:
    adjectives = 2**_ADJECTIVE_BITS
    words = pa.array(_make_words(adjectives + _WORDS_EACH * (config.categories + config.tags)))
    adjective = (own[:, :_ADJECTIVE_BITS] > 0) @ (1 << np.arange(_ADJECTIVE_BITS))
    choice = rng.integers(0, _WORDS_EACH, size=(2, config.items))
    noun = adjectives + category * _WORDS_EACH + choice[0]
    theme = adjectives + (config.categories + tag) * _WORDS_EACH + choice[1]
    parts = [words.take(pa.array(index)) for index in (adjective, theme, noun)]
    return pc.utf8_capitalize(pc.binary_join_element_wise(*parts, " "))


def _write_tags(config: WorldConfig, tags: NDArray[np.int64], count: NDArray[np.int64]) -> pa.StringArray:
    names = pa.array([f"tag{t:03d}" for t in range(config.tags)])
    columns = [pa.array(tags[:, slot], mask=slot >= count) for slot in range(tags.shape[1])]
    texts = [names.take(column) for column in columns]
    return pc.binary_join_element_wise(*texts, "|", null_handling="skip")


def _draw_prices(
    config: WorldConfig, rng: np.random.Generator, category: NDArray[np.int32], own: NDArray[np.float64]
) -> pa.Array:
    level = rng.normal(3.0, 0.8, size=config.categories)[category]
    scaled = own * np.sqrt(config.factors)
    price = np.exp(level + 0.4 * scaled + 0.3 * rng.normal(size=config.items))
    return pa.array(np.round(price, 2), mask=rng.random(config.items) < config.missing_price)


def _draw_dense(config: WorldConfig, rng: np.random.Generator, factors: NDArray[np.float64]) -> pa.Array:
    projection = rng.normal(size=(config.factors, config.dense_dim)) / np.sqrt(config.factors)
    noisy = factors + config.dense_noise * rng.normal(size=factors.shape) / np.sqrt(config.factors)
    flat = (noisy @ projection).astype(np.float32).ravel()
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), config.dense_dim)
