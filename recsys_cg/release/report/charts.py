"""Where marks go in the page's charts, in percent of the plot, so that the same drawing fits any width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Axis", "Curve", "Tick", "curve_points", "nice_axis", "trace"]


@dataclass(frozen=True)
class Tick:
    """A labelled place on an axis, ``at`` percent from its start."""

    at: float
    label: str


@dataclass(frozen=True)
class Axis:
    """A linear axis from ``low`` to ``high`` with ticks at round values."""

    low: float
    high: float
    ticks: tuple[Tick, ...]

    def place(self, value: float) -> float:
        """Return where ``value`` goes, in percent, kept on the axis."""
        if self.high <= self.low:
            return 50.0
        return round(min(max((value - self.low) / (self.high - self.low), 0.0), 1.0) * 100.0, 2)


@dataclass(frozen=True)
class Curve:
    """One line in a plot: a label, its points as SVG text, and the ends of its range for labels."""

    label: str
    points: str
    style: str = "other"


def nice_axis(low: float, high: float, *, count: int = 4, sign: bool = False) -> Axis:
    """Return an axis that holds [low, high], ends at round values and has about ``count`` steps of 1, 2 or 5 x 10^n.

    Args:
        low: finite; it may be above ``high``, and where they are equal the axis is widened around them.
        high: finite.
        count: wished number of steps.
        sign: label ticks with ``+`` and a minus sign.
    """
    low, high = min(low, high), max(low, high)
    if high == low:
        spread = max(abs(low) * 0.1, 0.01)
        low, high = low - spread, high + spread
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = min((factor * power for factor in (1.0, 2.0, 5.0, 10.0)), key=lambda size: abs(math.log(size / raw)))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    start, end = first * step, last * step
    ticks = []
    for number in range(first, last + 1):
        value = number * step
        label = f"{value:+.{decimals}f}" if sign and number else f"{value:.{decimals}f}"
        at = (value - start) / (end - start) * 100.0
        ticks.append(Tick(round(at, 2), label.replace("-", "\u2212")))
    return Axis(start, end, tuple(ticks))


def trace(xs: Sequence[float], ys: Sequence[float], x_axis: Axis, y_axis: Axis) -> str:
    """Return SVG polyline points in a 100 x 100 box, y upwards."""
    pairs = zip(xs, ys, strict=True)
    return " ".join(f"{x_axis.place(x):g},{round(100.0 - y_axis.place(y), 2):g}" for x, y in pairs)


def curve_points(values: Sequence[float | None]) -> list[tuple[int, float]]:
    """Return (position from 1, value) of the finite values."""
    return [(place, value) for place, value in enumerate(values, start=1) if value is not None and math.isfinite(value)]
