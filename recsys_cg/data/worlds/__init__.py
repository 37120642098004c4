"""Simulated worlds: users with known taste, a known exposure policy, and the true relevance of every pair.

Logged data say what an incumbent showed as much as what users wanted. In a simulated world both are known, so that a
debiased estimate can be compared with the truth.
"""

from __future__ import annotations

from recsys_cg.data.worlds.config import WorldConfig
from recsys_cg.data.worlds.simulation import simulate_world
from recsys_cg.data.worlds.truth import Truth

__all__ = ["Truth", "WorldConfig", "simulate_world"]
