"""The project file: one TOML document, checked whole before any work starts.

Every section is a frozen pydantic model that refuses unknown keys. Relative paths of sources are relative to the
project file; the store's is relative to the work directory.
"""

from __future__ import annotations

from recsys_cg.config.data import (
    ContextConfig,
    DatasetConfig,
    FeatureConfig,
    ImpressionsConfig,
    InteractionsConfig,
    ItemsConfig,
    ProjectConfig,
)
from recsys_cg.config.model import IndexConfig, ModelConfig, NegativesConfig, TrainingConfig
from recsys_cg.config.project import Config, load_config
from recsys_cg.config.release import EvaluationConfig, GatesConfig, ServingConfig, StoreConfig

__all__ = [
    "Config",
    "ContextConfig",
    "DatasetConfig",
    "EvaluationConfig",
    "FeatureConfig",
    "GatesConfig",
    "ImpressionsConfig",
    "IndexConfig",
    "InteractionsConfig",
    "ItemsConfig",
    "ModelConfig",
    "NegativesConfig",
    "ProjectConfig",
    "ServingConfig",
    "StoreConfig",
    "TrainingConfig",
    "load_config",
]
