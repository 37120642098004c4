"""What every section of the project file shares."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from recsys_cg.extensions import is_extension

__all__ = ["Fraction", "Positive", "Section", "one_of"]

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[int, Field(ge=1)]


def one_of(*names: str) -> AfterValidator:
    """Return the check that a value is one of ``names``, or names a part from outside as ``package.module:Name``."""
    return AfterValidator(partial(_check_name, names))


def _check_name(names: tuple[str, ...], value: str) -> str:
    if value not in names and not is_extension(value):
        known = f"one of {', '.join(names)}, or " if names else ""
        raise ValueError(f"write {known}a part of your own as 'package.module:Name'")
    return value


class Section(BaseModel):
    """A frozen section that refuses unknown keys, values of another type (``"16"`` or ``true`` for 16), NaN and inf."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=())
