"""Regions that a rule forbids, in the axes of a `Marginal`: tests of points, words and Python code of each.

Points are rows with one value per axis; a category or discrete action is given by its bin. Points and limits are
compared as float32, as observations are.
"""

import keyword
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scopil.marginal import Axis


@dataclass(frozen=True)
class Box:
    """Every axis lies between its limits. With one finite limit it is a half-line or half-plane."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def contains(self, points: Any) -> np.ndarray:
        p = np.asarray(points, np.float32)
        return np.all((p > np.asarray(self.low, np.float32)) & (p < np.asarray(self.high, np.float32)), axis=1)

    def words(self, axes: Sequence[Axis]) -> str:
        limits = {i: ends for i, ends in enumerate(zip(self.low, self.high)) if np.isfinite(ends).any()}
        one_sided = [i for i, ends in limits.items() if not np.isfinite(ends).all()]
        if len(limits) == 1 and one_sided:
            axis, ends = axes[one_sided[0]], limits[one_sided[0]]
            return _allowed(axis, *ends) + ("" if _bit(axis, *ends) is not None else " everywhere")
        if len(limits) == 1:
            ((i, ends),) = limits.items()
            return f"{axes[i].name} never {_between(*ends)}"
        if not one_sided:
            return f"outside the box {self.where(axes)}"
        said = one_sided[-1]
        where = " and ".join(_region(axes[i], *ends) for i, ends in limits.items() if i != said)
        return f"{where} → {_allowed(axes[said], *limits[said])}"

    def where(self, axes: Sequence[Axis]) -> str:
        """The region itself, in words; empty if it is everything."""
        ends = zip(axes, self.low, self.high)
        return ", ".join(_region(axis, *e) for axis, *e in ends if np.isfinite(e).any())

    def code(self, names: Sequence[str]) -> str:
        return " and ".join(_chain(n, *ends) for n, *ends in zip(names, self.low, self.high) if np.isfinite(ends).any())


@dataclass(frozen=True)
class Disc:
    """Nearer to the centre than the radius, in two axes."""

    axes: tuple[int, int]
    centre: tuple[float, float]
    radius: float

    def contains(self, points: Any) -> np.ndarray:
        away = np.asarray(points, np.float64)[:, list(self.axes)] - self.centre
        return np.hypot(*away.T) < self.radius

    def words(self, axes: Sequence[Axis]) -> str:
        return f"outside {self.where(axes)}"

    def where(self, axes: Sequence[Axis]) -> str:
        names = ", ".join(axes[i].name for i in self.axes)
        return f"the disc around ({names}) = ({', '.join(map(number, self.centre))}) of radius {number(self.radius)}"

    def code(self, names: Sequence[str]) -> str:
        (i, j), (x, y) = self.axes, self.centre
        return f"({names[i]} - {_value(x)}) ** 2 + ({names[j]} - {_value(y)}) ** 2 < {_value(self.radius)} ** 2"


@dataclass(frozen=True)
class Strip:
    """A weighted sum of two axes lies between two limits; with one limit it is an oblique half-plane."""

    axes: tuple[int, int]
    weights: tuple[float, float]
    low: float
    high: float

    def contains(self, points: Any) -> np.ndarray:
        at = np.asarray(points, np.float64)[:, list(self.axes)] @ np.asarray(self.weights)
        return (at > self.low) & (at < self.high)

    def _sum(self, names: Sequence[str], times: str, write: Any) -> str:
        (i, j), (a, b) = self.axes, self.weights
        first = names[i] if a == 1 else f"{write(a)}{times}{names[i]}"
        return f"{first} {'-' if b < 0 else '+'} {write(abs(b))}{times}{names[j]}"

    def words(self, axes: Sequence[Axis]) -> str:
        total = self._sum([axis.name for axis in axes], " ", number)
        if np.isfinite([self.low, self.high]).all():
            return f"{total} never {_between(self.low, self.high)}"
        return f"{total} {'≤' if np.isfinite(self.low) else '≥'} {number(min(self.low, self.high, key=abs))}"

    def where(self, axes: Sequence[Axis]) -> str:
        return f"{self._sum([axis.name for axis in axes], ' ', number)} {_between(self.low, self.high)}"

    def code(self, names: Sequence[str]) -> str:
        return _chain(self._sum(names, " * ", _value), self.low, self.high)


@dataclass(frozen=True)
class When:
    """A shape for some values of a category or discrete action."""

    axis: int
    bins: tuple[int, ...]
    shape: Box | Disc | Strip
    values: tuple[Any, ...]  # of all bins; None: any other value

    def contains(self, points: Any) -> np.ndarray:
        p = np.asarray(points)
        return np.isin(p[:, self.axis], self.bins) & self.shape.contains(p)

    def words(self, axes: Sequence[Axis]) -> str:
        named = [_plain(self.values[i]) for i in self.bins if self.values[i] is not None]
        other = " or ".join([*named, *(["any other value"] if len(named) < len(self.bins) else [])])
        axis, where = axes[self.axis], self.shape.where(axes)
        if axis.code == "action":
            return f"{axis.name} {other} never" + (f" where {where}" if where else "")
        if other in ("0", "1") and "=" in axis.name:
            limits = (0.0, math.inf) if other == "1" else (-math.inf, 1.0)
            rest = self.shape.words(axes).removesuffix(" everywhere")
            return f"{_region(axis, *limits)} → {rest}" if where else _allowed(axis, *limits)
        if not where:
            return f"{axis.name} never {other}"
        return f"{axis.name} = {other} → {self.shape.words(axes).removesuffix(' everywhere')}"

    where = words

    def code(self, names: Sequence[str]) -> str:
        other = any(self.values[i] is None for i in self.bins)
        listed = [v for i, v in enumerate(self.values) if v is not None and (i in self.bins) != other]
        found = f"{names[self.axis]} {'not in' if other else 'in'} ({''.join(f'{v!r}, ' for v in listed)[:-1]})"
        inner = self.shape.code(names)
        return f"{found} and {inner}" if inner else found


Part = Box | Disc | Strip | When


@dataclass(frozen=True)
class Union:
    parts: tuple[Part, ...]

    def contains(self, points: Any) -> np.ndarray:
        return np.any([part.contains(points) for part in self.parts], axis=0)

    def words(self, axes: Sequence[Axis]) -> str:
        first, *rest = self.parts
        if isinstance(first, Box) and len(rest) == 1 and isinstance(rest[0], Box):
            upper, lower = sorted((first, rest[0]), key=lambda box: box.low, reverse=True)
            axis = [i for i, end in enumerate(upper.low) if np.isfinite(end)]
            alone = [np.isfinite([box.low, box.high]).sum() == 1 for box in (upper, lower)]
            if len(axis) == 1 and all(alone) and np.isfinite(lower.high[axis[0]]):  # two half-planes leave an interval
                return f"{axes[axis[0]].name} {_between(lower.high[axis[0]], upper.low[axis[0]])} everywhere"
        return "; ".join(part.words(axes) for part in self.parts)

    def code(self, names: Sequence[str]) -> str:
        return " or ".join(f"({part.code(names)})" for part in self.parts)


Shape = Part | Union


def variables(axes: Sequence[Axis]) -> list[str]:
    """A Python name for each axis."""
    names: list[str] = []
    for axis in axes:
        name = re.sub(r"\W+", "_", axis.name, flags=re.ASCII).strip("_") or "value"
        name = f"v_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name
        taken = {"obs", "action", "next_obs", "np", "math", *names}
        names.append(name if name not in taken or name == axis.code else f"{name}_{len(names)}")
    return names


def number(value: float | int) -> str:
    return f"{value:.6g}".replace("-", "−")


def _value(value: float) -> str:
    return f"{value:.9g}"


def _plain(value: Any) -> str:
    return number(value) if isinstance(value, float | int) else str(value)


def _between(low: float, high: float) -> str:
    if math.isinf(high):
        return f"above {number(low)}"
    return f"below {number(high)}" if math.isinf(low) else f"between {number(low)} and {number(high)}"


def _bit(axis: Axis, low: float, high: float) -> bool | None:
    """Whether a one-sided range of a one-hot column (`gear=2`) holds 1; None for other columns and ranges."""
    alone = "=" in axis.name and math.isfinite(low) != math.isfinite(high)
    return math.isinf(high) if alone else None


def _region(axis: Axis, low: float, high: float) -> str:
    if (one := _bit(axis, low, high)) is None:
        return f"{axis.name} {_between(low, high)}"
    name, _, value = axis.name.rpartition("=")
    return f"{name} {'=' if one else '≠'} {value}"


def _allowed(axis: Axis, low: float, high: float) -> str:
    """What a one-sided forbidden range leaves."""
    if (one := _bit(axis, low, high)) is not None:
        return f" {'never' if one else 'always'} ".join(axis.name.rsplit("=", 1))
    return f"{axis.name} ≤ {number(low)}" if math.isinf(high) else f"{axis.name} ≥ {number(high)}"


def _chain(name: str, low: float, high: float) -> str:
    left = f"{_value(low)} < " if math.isfinite(low) else ""
    if left and math.isinf(high):
        return f"{name} > {_value(low)}"
    return f"{left}{name} < {_value(high)}"
