"""What is shown and what is clicked: the incumbent, its exact propensities, examination and relevance.

A slate has ``positions`` slots, filled independently. Slot p of a slate for user u in epoch t shows item i with

    P(i | u, p, t) = random_share / |A_t| + (1 - random_share) P(c_i | u, t) w_i^{g_p} / W^p_{c_i,t}

where ``A_t`` are the items there in epoch t, ``w`` is popularity, ``g_p`` the slot's greed,
``W^p_{c,t}`` the sum of ``w^{g_p}`` over the items of category c that are there, and

    P(c | u, t) proportional to exp(incumbent_taste <u, m_c>) sum_{j in A_t, c_j = c} w_j

with ``m_c`` the taste of category c: the incumbent knows what sells and which categories a user likes. What is
shown in slot p is looked at with probability ``p ** -examination_exponent`` and, looked at, clicked with

    relevance(u, i) = 1 / (1 + exp(-(relevance_bias + relevance_scale <u, v_i> + quality_i)))
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsys_cg.data.worlds.catalogue import Catalogue, make_catalogue
from recsys_cg.data.worlds.config import WorldConfig
from recsys_cg.data.worlds.draws import Shares
from recsys_cg.data.worlds.population import Population, make_population

__all__ = ["Epoch", "Slates", "World", "enter_epoch", "make_world", "show_slates"]

_CLICK_DELAY_MS = 30_000


@dataclass(frozen=True)
class World:
    """The parts of a world that do not change."""

    config: WorldConfig
    catalogue: Catalogue
    population: Population


@dataclass(frozen=True)
class Epoch:
    """What stays the same during one epoch.

    Attributes:
        number: the epoch, from 0.
        items: int64 [available], indexes of the items there, category by category.
        category: int32 [available], their categories.
        bounds: int64 [categories + 1], where each category begins in ``items``, and the end.
        mass: float32 [categories], log of the summed popularity of what is there.
        slots: for each slot, ``popularity ** greed`` over ``items``.
        users: activity of the users, zero for those who have not arrived.
    """

    number: int
    items: NDArray[np.int64]
    category: NDArray[np.int32]
    bounds: NDArray[np.int64]
    mass: NDArray[np.float32]
    slots: tuple[Shares, ...]
    users: Shares


@dataclass(frozen=True)
class Slates:
    """Slates shown; arrays are [slates] or [slates, positions].

    ``propensity`` is the probability with which the slot showed the item, whichever policy filled it;
    ``policy_propensity`` is that of the policy which did. ``time_ms`` is when the slate was shown, ``click_ms`` when
    a click in the slot came.
    """

    users: NDArray[np.int64]
    time_ms: NDArray[np.int64]
    items: NDArray[np.int64]
    is_random: NDArray[np.bool_]
    propensity: NDArray[np.float64]
    policy_propensity: NDArray[np.float64]
    is_clicked: NDArray[np.bool_]
    is_purchase: NDArray[np.bool_]
    click_ms: NDArray[np.int64]


def make_world(config: WorldConfig) -> World:
    """Draw the items and users of a world."""
    return World(config, make_catalogue(config), make_population(config))


def enter_epoch(world: World, number: int) -> Epoch:
    """Return what is there in epoch ``number``; every category has an item, and there is a user."""
    config, catalogue, population = world.config, world.catalogue, world.population
    is_there = (catalogue.first_epoch <= number) & (number < catalogue.end_epoch)
    items = np.flatnonzero(is_there)
    items = items[np.argsort(catalogue.category[items], kind="stable")]
    category, popularity = catalogue.category[items], catalogue.popularity[items]
    mass = np.log(np.bincount(category, weights=popularity, minlength=config.categories))
    return Epoch(
        number=number,
        items=items,
        category=category,
        bounds=np.searchsorted(category, np.arange(config.categories + 1)),
        mass=mass.astype(np.float32),
        slots=tuple(Shares(popularity**greed) for greed in config.greed),
        users=Shares(np.where(population.first_epoch <= number, population.activity, 0.0)),
    )


def show_slates(
    world: World,
    epoch: Epoch,
    count: int,
    rng: np.random.Generator,
) -> Slates:
    """Draw ``count`` slates of an epoch: to whom, when, what, and what was clicked."""
    config, catalogue = world.config, world.catalogue
    users = epoch.users.draw(count, rng)
    taste = world.population.factors[users]
    slots, is_random, propensity, policy_propensity = _fill_slots(world, epoch, taste, rng)
    items = epoch.items[slots]
    clickable = _relevance(config, catalogue, taste, items) * config.examination.astype(np.float32)
    shape = items.shape
    time_ms = config.start_ms + epoch.number * config.epoch_ms + rng.integers(0, config.slate_span_ms, size=count)
    delay_ms = rng.integers(1, _CLICK_DELAY_MS, size=shape)
    return Slates(
        users=users,
        time_ms=time_ms,
        items=items,
        is_random=is_random,
        propensity=propensity,
        policy_propensity=policy_propensity,
        is_clicked=rng.random(shape, dtype=np.float32) < clickable,
        is_purchase=rng.random(shape, dtype=np.float32) < config.purchase_rate,
        click_ms=time_ms[:, None] + delay_ms,
    )


def _fill_slots(
    world: World, epoch: Epoch, taste: NDArray[np.float32], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64]]:
    """Return per slot: index into ``epoch.items``, whether drawn uniformly, both propensities."""
    config = world.config
    shape = (len(taste), config.positions)
    chances = _category_chances(world, epoch, taste)
    drawn = _draw_categories(chances, rng.random(shape))
    point = rng.random(shape)
    is_random = rng.random(shape, dtype=np.float32) < config.random_share
    slots = rng.integers(0, len(epoch.items), size=shape)
    incumbent = np.empty(shape)
    for slot, shares in enumerate(epoch.slots):
        low, high = shares.sums[epoch.bounds[:-1]], shares.sums[epoch.bounds[1:]]
        chosen = drawn[:, slot]
        at = low[chosen] + point[:, slot] * (high - low)[chosen]
        found = shares.find(np.minimum(at, np.nextafter(high, 0.0)[chosen]))
        shown = np.where(is_random[:, slot], slots[:, slot], found)
        category = epoch.category[shown]
        within = (shares.sums[shown + 1] - shares.sums[shown]) / (high - low)[category]
        incumbent[:, slot] = chances[np.arange(len(taste)), category] * within
        slots[:, slot] = shown
    by_chance = 1.0 / len(epoch.items)
    propensity = config.random_share * by_chance + (1.0 - config.random_share) * incumbent
    return slots, is_random, propensity, np.where(is_random, by_chance, incumbent)


def _category_chances(world: World, epoch: Epoch, taste: NDArray[np.float32]) -> NDArray[np.float64]:
    logits = taste @ (world.config.incumbent_taste * world.catalogue.centroids.T) + epoch.mass
    weights = np.exp(logits - logits.max(axis=1, keepdims=True)).astype(np.float64)
    chances: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return chances


def _draw_categories(chances: NDArray[np.float64], point: NDArray[np.float64]) -> NDArray[np.int16]:
    """Draw one category a slot: count the categories whose running sum lies at or below the point."""
    drawn = np.zeros(point.shape, dtype=np.int16)
    for below in np.cumsum(chances[:, :-1].T, axis=0):
        drawn += point >= below[:, None]
    return drawn


def _relevance(
    config: WorldConfig, catalogue: Catalogue, taste: NDArray[np.float32], items: NDArray[np.int64]
) -> NDArray[np.float32]:
    affinity = np.einsum("nk,nsk->ns", taste, catalogue.factors[items])
    logits = config.relevance_bias + config.relevance_scale * affinity + catalogue.quality[items]
    chance: NDArray[np.float32] = 0.5 * (1.0 + np.tanh(0.5 * logits))
    return chance
