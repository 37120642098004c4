"""The whole project file: reading, overriding, and errors that name the file and the key."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Self, Union, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError, model_validator

from recsys_cg.config.data import DatasetConfig, ImpressionsConfig, InteractionsConfig, ItemsConfig, ProjectConfig
from recsys_cg.config.model import IndexConfig, ModelConfig, TrainingConfig
from recsys_cg.config.release import EvaluationConfig, GatesConfig, ServingConfig, StoreConfig
from recsys_cg.config.section import Section
from recsys_cg.errors import ConfigError, UnknownKeyError

__all__ = ["Config", "load_config"]


class Config(Section):
    """A whole project file."""

    project: ProjectConfig = Field(default_factory=ProjectConfig)
    interactions: InteractionsConfig
    items: ItemsConfig | None = None
    impressions: ImpressionsConfig | None = None
    dataset: DatasetConfig = Field(default_factory=DatasetConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    index: IndexConfig = Field(default_factory=IndexConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    gates: GatesConfig = Field(default_factory=GatesConfig)
    serving: ServingConfig = Field(default_factory=ServingConfig)
    store: StoreConfig = Field(default_factory=StoreConfig)

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        baseline = self.gates.beat_baseline
        if baseline is not None and baseline not in self.evaluation.baselines:
            raise ValueError(f"gates.beat_baseline = {baseline!r} is not one of evaluation.baselines")
        if self.impressions is None and any(source.kind == "impressions" for source in self.model.negatives):
            raise ValueError("model.negatives declares impressions, and there is no [impressions] section to take from")
        features = self.items.features if self.items else []
        offered = [feature.name for feature in features if feature.kind == "categorical"]
        for name in self.evaluation.by:
            if name not in offered:
                known = ", ".join(offered) or "none"
                raise ValueError(f"evaluation.by: {name!r} is no categorical feature of [items]; there is: {known}")
        if self.evaluation.primary_k > self.serving.max_k:
            raise ValueError("evaluation.primary_k is above serving.max_k: the service could not answer it")
        return self

    def section(self, *names: str) -> dict[str, Any]:
        """Return the named sections as plain JSON values: what a stage's key and manifest record."""
        dumped = self.model_dump(mode="json")
        return {name: dumped[name] for name in names}


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read and check a project file.

    Args:
        path: the TOML file.
        overrides: ``section.key=value`` settings that win over the file. The value is read as TOML, and as a
            string where it is not valid TOML: ``model.dim=64``, ``index.kind=exact``.

    Raises:
        ConfigError: the file is missing, is not TOML, or holds a value that is wrong; every fault is listed with
            its file and key.
        UnknownKeyError: a key that no section knows; the nearest existing name is given.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; `recsys-cg init` writes one for your data") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{path}: is a directory, not a project file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read: it is not UTF-8 ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    for override in overrides:
        _apply_override(document, override)
    try:
        config = Config.model_validate(document)
    except ValidationError as error:
        raise _explain(path, error) from error
    return _anchor_paths(config, path.parent)


def _apply_override(document: dict[str, Any], override: str) -> None:
    name, separator, text = override.partition("=")
    keys = name.strip().split(".")
    if not separator or len(keys) < 2 or not all(keys):
        raise ConfigError(f"--set {override!r}: write section.key=value, e.g. model.dim=64")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    target = document
    for depth, key in enumerate(keys[:-1], start=1):
        target = target.setdefault(key, {})
        if not isinstance(target, dict):
            raise ConfigError(f"--set {override!r}: {'.'.join(keys[:depth])} is not a section")
    target[keys[-1]] = value


def _explain(path: Path, error: ValidationError) -> ConfigError:
    lines = []
    unknown = False
    for fault in error.errors():
        location = [str(part) for part in fault["loc"]]
        key = ".".join(location) or "(the whole file)"
        if fault["type"] == "extra_forbidden":
            unknown = True
            lines.append(f"{path}: {key}: unknown key{_suggest(location)}")
        else:
            message = fault["msg"].removeprefix("Value error, ")
            shown = "" if isinstance(fault["input"], Mapping | BaseModel) else f" (got {fault['input']!r})"
            lines.append(f"{path}: {key}: {message[:1].lower()}{message[1:]}{shown}")
    return (UnknownKeyError if unknown else ConfigError)("\n".join(lines))


def _suggest(location: Sequence[str]) -> str:
    known = _known_keys(Config, location[:-1])
    homes = [name for name, names in _all_keys() if location[-1] in names]
    if homes:
        return f"; it belongs in [{homes[0]}]"
    nearest = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.5)
    return f"; did you mean {nearest[0]!r}?" if nearest else f"; known here: {', '.join(sorted(known))}"


def _all_keys() -> Iterator[tuple[str, list[str]]]:
    for name in Config.model_fields:
        yield name, _known_keys(Config, [name])


def _known_keys(model: type[BaseModel], location: Sequence[str]) -> list[str]:
    for part in location:
        if part.isdigit():
            continue
        model = _section_of(model.model_fields[part].annotation) or model
    return list(model.model_fields)


def _section_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (list, Union, UnionType, Annotated):
        found = (_section_of(argument) for argument in get_args(annotation))
        return next((section for section in found if section), None)
    return None


def _anchor_paths(config: Config, folder: Path) -> Config:
    changes: dict[str, Any] = {}
    for name in ("interactions", "items", "impressions"):
        section = getattr(config, name)
        if section is not None and "://" not in section.path:
            changes[name] = section.model_copy(update={"path": str((folder / section.path).absolute())})
    return config.model_copy(update=changes)
