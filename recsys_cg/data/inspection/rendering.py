"""A proposal as a commented TOML project file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from recsys_cg.config import Config, FeatureConfig, InteractionsConfig, ItemsConfig
from recsys_cg.data.inspection.proposal import Proposal
from recsys_cg.data.inspection.toml import as_toml

__all__ = ["render_config"]

_ALWAYS: Final = ("path", "format", "user", "item", "time", "time_unit")
_WIDEST: Final = 120


def render_config(proposal: Proposal, *, relative_to: Path | None = None) -> str:
    """Return a project file that `recsys_cg.config.load_config` accepts, every other key commented with its default.

    Args:
        proposal: what `inspect_sources` gave.
        relative_to: the folder that the file will lie in: local paths are written relative to it; None: absolute.
    """
    lines = [
        "# A recsys-cg project, proposed after a look at the first rows of your files. Check what is guessed.",
        "# Keys that are commented out show their defaults.",
        "",
        *_render_plain("project"),
        "",
        "[interactions]",
        *_render_source(proposal.interactions, "interactions", proposal, relative_to),
        "",
    ]
    if proposal.items is not None:
        lines += ["[items]", *_render_source(proposal.items, "items", proposal, relative_to), ""]
        for feature in proposal.items.features:
            lines += [*_render_feature(feature, proposal), ""]
        lines += [_as_comment(f"no feature: {column}: {why}") for column, why in proposal.skipped.items()]
        lines += [""] if proposal.skipped else []
    lines += [*_render_plain("impressions", commented=True), ""]
    for name in Config.model_fields:
        if name not in ("project", "interactions", "items", "impressions"):
            lines += [*_render_plain(name, proposal.settings), ""]
    return "\n".join(lines)


def _render_source(
    section: InteractionsConfig | ItemsConfig, name: str, proposal: Proposal, relative_to: Path | None
) -> Iterator[str]:
    for key, field in type(section).model_fields.items():
        value, comment = getattr(section, key), proposal.comments.get(f"{name}.{key}")
        if key == "path":
            value = _place(value, relative_to)
        if key == "features":
            continue
        if key in _ALWAYS or comment or value != _default(field):
            yield _line(key, value, comment)
        elif name == "interactions" and key in proposal.hints:
            yield f"# {_line(key, *proposal.hints[key])}"
        else:
            yield _line_of_default(key, field)


def _place(path: str, relative_to: Path | None) -> str:
    if "://" in path:
        return path
    absolute = Path(path).absolute()
    if relative_to is None:
        return str(absolute)
    relative = os.path.relpath(absolute, relative_to.absolute())
    return str(absolute) if relative.startswith(os.path.join("..", "..")) else relative  # noqa: PTH118


def _render_feature(feature: FeatureConfig, proposal: Proposal) -> Iterator[str]:
    yield "[[items.features]]"
    for key, field in FeatureConfig.model_fields.items():
        value = getattr(feature, key)
        if field.is_required() or value != field.default:
            yield _line(key, value, proposal.comments.get(f"items.features.{feature.name}") if key == "name" else None)


def _render_plain(
    name: str, settings: Mapping[str, tuple[Any, str]] | None = None, *, commented: bool = False
) -> Iterator[str]:
    """Render a section: defaults commented out, with what each key means; ``section.key`` of ``settings`` set."""
    section = _section_of(name)
    yield f"# [{name}] # optional" if commented else f"[{name}]"
    for key, field in section.model_fields.items():
        if settings and f"{name}.{key}" in settings:
            yield _line(key, *settings[f"{name}.{key}"])
        else:
            yield _line_of_default(key, field)


def _section_of(name: str) -> type[BaseModel]:
    annotation = Config.model_fields[name].annotation
    choices = [annotation, *get_args(annotation)]
    return next(one for one in choices if isinstance(one, type) and issubclass(one, BaseModel))


def _line_of_default(key: str, field: FieldInfo) -> str:
    if field.is_required():
        return f"# {_line(key, '...', field.description)}"
    default = _default(field)
    if default is None:
        return f"# {key} is not set" + (f": {field.description}" if field.description else "")
    return f"# {_line(key, default, field.description)}"


def _default(field: FieldInfo) -> Any:
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, list):
        return [entry.model_dump() if isinstance(entry, BaseModel) else entry for entry in value]
    return value


def _line(key: str, value: Any, comment: str | None) -> str:
    line = f"{key} = {as_toml(value)}"
    if not comment:
        return line
    return f"{line} {_as_comment(comment)}"[: max(_WIDEST, len(line))]


def _as_comment(text: str) -> str:
    return "# " + "".join(sign if sign.isprintable() else " " for sign in text)
