"""Evaluation of any retriever: metrics, protocol, baselines, debiasing, significance, drift. NumPy and Arrow only.

The baselines and the two-sample test also need SciPy, which they import when they run.
"""

from __future__ import annotations

from recsys_cg.evaluation.protocol import Evaluation, evaluate, evaluate_systems
from recsys_cg.evaluation.systems import System, TwoTowerSystem

__all__ = ["Evaluation", "System", "TwoTowerSystem", "evaluate", "evaluate_systems"]
