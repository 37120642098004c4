"""What every section of the project file shares."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Fraction", "Positive", "Section"]

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A frozen section that refuses unknown keys, values of another type (``"16"`` or ``true`` for 16), NaN and inf."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=())
