"""The project file that a simulated world brings along."""

from __future__ import annotations

from recsys_cg.data.worlds.config import WorldConfig

__all__ = ["render_project"]

_PROJECT = """\
# A simulated world, written by recsys-cg. Its parameters are in world.json, its truth in truth/.

[project]
name = "simulated-world"
seed = {seed}

[interactions]
path = "events"
format = "parquet"
time_unit = "ms"
event = "event"
event_weights = {{ click = 1.0, purchase = 3.0 }}

[items]
path = "items.parquet"
format = "parquet"
title = "title"
available_from = "available_from"
available_until = "available_until"
time_unit = "ms"

[[items.features]]
name = "title"
kind = "text"

[[items.features]]
name = "category"
kind = "categorical"

[[items.features]]
name = "tags"
kind = "categorical"
separator = "|"

[[items.features]]
name = "price"
kind = "numeric"
"""

_DENSE = """
[[items.features]]
name = "dense"
kind = "dense"
dim = {dim}
"""

_IMPRESSIONS = """
[impressions]
path = "impressions"
format = "parquet"
time_unit = "ms"
position = "position"
policy = "policy"
propensity = "propensity"
random = "random"
"""


def render_project(config: WorldConfig) -> str:
    """Return a project file, with paths relative to the world's folder."""
    text = _PROJECT.format(seed=config.seed % 2**31)
    if config.dense_dim:
        text += _DENSE.format(dim=config.dense_dim)
    if config.impressions > 0:
        text += _IMPRESSIONS
    return text
