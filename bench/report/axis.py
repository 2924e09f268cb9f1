"""Axes: which values are drawn where, and at which values a tick stands. Linear, or by the logarithm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Scale = Literal["linear", "log2", "log"]
"""``log2``: ticks at powers of two; ``log``: ticks at 1, 2 and 5 times powers of ten."""

MOST_MAGNITUDE = 1e15
"""What is larger (or, on a logarithmic axis, smaller than its inverse) has the wrong unit for a plot."""
LEAST_SPAN = 1e-6
"""Over the values themselves: what is closer together is one value to an axis."""
PIXELS_PER_TICK = 62
MOST_LOGARITHMIC_TICKS = 11
LEAST_DIGITS, MOST_DIGITS = -5, 7


@dataclass(frozen=True)
class Axis:
    """Values from ``least`` to ``most`` lie between the pixels ``begin`` and ``end``. ``ticks``: ascending."""

    scale: Scale
    least: float
    most: float
    ticks: Sequence[float]
    begin: float
    end: float

    def place(self, value: float) -> float:
        """The pixel of a value. Values outside the axis lie outside its pixels."""
        least, most = self._even(self.least), self._even(self.most)
        return self.begin + (self._even(value) - least) / (most - least) * (self.end - self.begin)

    def labels(self) -> list[str]:
        """The ticks as text: on a linear axis all with as many decimals as the finest of them needs."""
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else 1.0
        if self.scale == "linear" and (step >= 10.0**LEAST_DIGITS and max(map(abs, self.ticks)) < 10.0**MOST_DIGITS):
            decimals = next(digits for digits in range(18) if abs(round(step, digits) - step) < 1e-6 * step)
            return [f"{tick:,.{decimals}f}" if abs(tick) > step / 2 else "0" for tick in self.ticks]
        labels = [number(tick) for tick in self.ticks]
        return labels if len(set(labels)) == len(labels) else [f"{tick:,.15g}" for tick in self.ticks]

    def _even(self, value: float) -> float:
        return value if self.scale == "linear" else math.log(value)


def axis(
    scale: Scale, values: Sequence[float], begin: float, end: float, *, most: float | None = None, zero: bool = False
) -> Axis:
    """An axis with room for ``values``, which ends at ticks, or at ``most``.

    ``zero``: a linear axis includes 0. Without it, it does so where the values are not far from 0.

    Raises:
        ValueError: ``most`` has no place on such an axis, or nothing lies below it.
    """
    if most is not None:
        check_value(most, scale, "the end of the axis")
    if scale == "linear":
        least, greatest, ticks = _linear(values, abs(end - begin), most, zero)
    else:
        least, greatest, ticks = _logarithmic(scale, values, most)
    if least >= greatest:
        raise ValueError(f"the axis would end at {greatest:g}, and begin at {least:g}; give a greater end or none")
    return Axis(scale, least, greatest, [tick for tick in ticks if tick <= greatest * (1 + 1e-9)], begin, end)


def check_value(value: float, scale: Scale, of: str) -> float:
    """``value``, if it has a place on such an axis.

    Raises:
        ValueError: it is no finite number, beyond all measure, or not above 0 on a logarithmic axis; ``of`` is whose.
    """
    if not math.isfinite(value):
        raise ValueError(f"{of}: {value} is no finite number and has no place in a plot; leave it out")
    if scale != "linear" and value <= 0:
        raise ValueError(f"{of}: {value:g} has no place on a logarithmic axis, which needs values above 0")
    if abs(value) > MOST_MAGNITUDE or (scale != "linear" and value < 1 / MOST_MAGNITUDE):
        raise ValueError(f"{of}: {value:g} is too large or too small for a plot; give it in another unit")
    return float(value)


def number(value: float, significant: int = 3) -> str:
    """As few digits as tell it: ``significant`` ones at most (all those before the point), thousands apart."""
    if value == 0 or not math.isfinite(value):
        return str(value) if value else "0"
    magnitude = math.floor(math.log10(abs(value)))
    if not LEAST_DIGITS <= magnitude < MOST_DIGITS:
        digits, _, power = f"{value:.{significant}g}".partition("e")
        return f"{digits}e{int(power)}" if power else digits
    text = f"{value:,.{max(0, significant - 1 - magnitude)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def exact(value: float) -> str:
    """All digits that it was given with, as of what a publication prints: 132.44, 15,700."""
    return f"{value:,}".removesuffix(".0")


def _linear(
    values: Sequence[float], pixels: float, most: float | None, zero: bool
) -> tuple[float, float, Sequence[float]]:
    least, greatest = min(values), max(values) if most is None else most
    close = greatest - least <= LEAST_SPAN * max(abs(least), abs(greatest))
    if zero or close or 0 <= least <= greatest - least or 0 <= -greatest <= greatest - least:
        least, greatest = min(least, 0.0), greatest if most is not None else max(greatest, 0.0)
    if greatest - least < 1 / MOST_MAGNITUDE and most is None:
        greatest = least + 1.0
    if least >= greatest:
        return least, greatest, []
    step = _step((greatest - least) / max(2.0, pixels / PIXELS_PER_TICK))
    numbers = range(math.floor(least / step + 1e-9), math.ceil(greatest / step - 1e-9) + 1)
    ticks = [number * step for number in numbers]
    return min(least, ticks[0]), max(greatest, ticks[-1]) if most is None else most, ticks


def _step(least: float) -> float:
    """The least of 1, 2, 2.5 and 5 times powers of ten that is not below ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(digit * power for digit in (1, 2, 2.5, 5, 10) if digit * power >= least * (1 - 1e-9))


def _logarithmic(scale: Scale, values: Sequence[float], most: float | None) -> tuple[float, float, Sequence[float]]:
    """Ends and ticks, fewer where there are too many. A single value has room on both sides."""
    base, digits = (2.0, (1,)) if scale == "log2" else (10.0, (1, 2, 5))
    first, last = min(values), max(values) if most is None else most
    if most is not None and first >= last:
        return first, last, []
    powers = range(math.floor(_log(first, base)) - 1, math.ceil(_log(last, base)) + 2)
    ticks = [digit * base**power for power in powers for digit in digits]
    begin = max(index for index, tick in enumerate(ticks) if tick <= first * (1 + 1e-9))
    end = min(index for index, tick in enumerate(ticks) if tick >= last * (1 - 1e-9))
    if begin == end and most is None:
        begin, end = begin - 1, end + 1
    least, greatest = min(first, ticks[begin]), max(last, ticks[end]) if most is None else most
    ticks = ticks[begin : end + 1]
    if len(ticks) > MOST_LOGARITHMIC_TICKS:
        ticks = [tick for tick in ticks if abs(_log(tick, base) - round(_log(tick, base))) < 1e-9]
    return least, greatest, ticks[:: -(-len(ticks) // MOST_LOGARITHMIC_TICKS)]


def _log(value: float, base: float) -> float:
    return math.log2(value) if base == 2 else math.log10(value)
