"""SVG drawings of the report: strips of dots, training curves, trays with episodes. Colours are classes of page.css.

The page's script shows and hides parts of the drawings, and draws the episodes of other runs on a tray.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from scopil_bench.report.page import anchor

Number = float | int
BEND = 0.1  # violations per episode: a bent axis is nearly linear below this value and logarithmic above
COLOURS = 7  # classes k0 … k6; methods beyond the seventh have dashed lines
# Titles of methods with a colour of their own, which is the same on every page.
FIXED = {"SCOPIL-ρ": 0, "SCOPIL": 1, "SAC": 2, "BC": 3, "PPO": 4, "GAIL-SAC": 5, "ICRL": 6}
TRAY = 400  # SVG units per side
STRIP = 140  # width of a strip of dots


class Axis(NamedTuple):
    """Maps values to [0, 1]. A bent axis makes 0, 0.1 and 100 violations legible on one scale."""

    low: Number
    high: Number
    bent: bool = False

    def at(self, value: Number) -> float:
        low, high, value = (_bend(v) if self.bent else v for v in (self.low, self.high, value))
        return float(np.clip((value - low) / (high - low), 0.0, 1.0))

    def ticks(self) -> list[float]:
        if self.bent:
            found = [t for t in (0.0, 0.1, 1.0, 10.0, 100.0, 1000.0) if t <= self.high]
            return [*found, 3 * found[-1]] if 3 * found[-1] <= self.high else found
        step = _nice((self.high - self.low) / 4)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]


def _bend(value: Number) -> float:
    return math.asinh(value / BEND)


def _nice(raw: float) -> float:
    power = 10.0 ** math.floor(math.log10(raw))
    return next(m for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9)) * power


def axis_for(values: Sequence[Number], violations: bool) -> Axis:
    """An axis that covers all values. An axis of violations is bent and starts at 0."""
    finite = [v for v in values if math.isfinite(v)]
    if violations:
        return Axis(0.0, max([1.0, *finite]) * 1.15, bent=True)
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    pad = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return Axis(low - pad, high + pad)


def colours_of(titles: Sequence[str]) -> list[int]:
    """A colour for each method of a page. `SAC, steps=5` has the colour of SAC, unless another method has it."""
    wanted = [FIXED.get(title.partition(",")[0]) for title in titles]
    taken = {i: n for n, i in reversed(list(enumerate(wanted))) if i is not None}  # colour → the first that wants it
    free = (i for i in count() if i not in taken)
    return [i if i is not None and taken[i] == n else next(free) for n, i in enumerate(wanted)]


def legend(titles: Mapping[str, str], colours: Mapping[str, int]) -> str:
    """The colours of methods and their titles."""
    keys = (f'<span><i class="key {colour(colours[m])}"></i>{escape(title)}</span>' for m, title in titles.items())
    return f'<div class="controls">{"".join(keys)}</div>'


def colour(i: int) -> str:
    return f"k{i % COLOURS}" + " dashed" * (i >= COLOURS)


def number(value: Number) -> str:
    """The label of a number on an axis."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e3 else f"{value:.4g}".replace("-", "−")


class Dot(NamedTuple):
    value: Number
    title: str
    to: str = ""  # link to the run: `#id`


def strip(dots: Sequence[Dot], interval: tuple[float, float] | None, axis: Axis, kind: str) -> str:
    """One dot per seed, and the interval as a bar behind the dots."""
    width, height, edge = STRIP, 24, 8
    x = lambda value: f"{edge + (width - 2 * edge) * axis.at(value):.1f}"  # noqa: E731
    parts = [f'<path class="tick" d="M{x(t)} 2v20"/>' for t in axis.ticks()]
    if interval is not None:
        parts.append(f'<path class="bar" d="M{x(interval[0])} 12H{x(interval[1])}"/>')
    for dot in dots:
        circle = f'<circle cx="{x(dot.value)}" cy="12" r="4"><title>{escape(dot.title)}</title></circle>'
        parts.append(anchor(dot.to, circle) if dot.to else circle)
    name = escape("; ".join(dot.title for dot in dots), quote=True)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg class="strip {kind}" {size} role="img" aria-label="{name}">{"".join(parts)}</svg>'


def strip_axis(axis: Axis) -> str:
    """The numbers above a column of strips."""
    width, edge = STRIP, 8
    texts = "".join(
        f'<text x="{edge + (width - 2 * edge) * axis.at(t):.1f}" y="11">{number(t)}</text>' for t in axis.ticks()
    )
    size = f'viewBox="0 0 {width} 14" width="{width}" height="14"'
    return f'<svg class="strip scale" {size} aria-hidden="true">{texts}</svg>'


def chart(panel: Mapping[str, Any], colours: Mapping[str, int], title_of: Mapping[str, str], seeds: bool = True) -> str:
    """Draw a panel of `views.panels`: for each method the mean over seeds, a band of one standard deviation and, if
    `seeds`, one line per seed."""
    width, height, left, right, top, bottom = 420, 210, 44, 18, 10, 26
    lines = panel["methods"]
    known = [(m, s) for one in lines.values() for m, s in zip(one["mean"], one["std"]) if m is not None]
    ends = [end for m, s in known for end in (m - s, m + s)]
    bent = panel["metric"].startswith("eval/violations")
    y_axis = axis_for([max(e, 0.0) for e in ends] if bent else ends, bent)
    x_axis = Axis(0.0, max(max(one["steps"]) for one in lines.values()) or 1.0)

    def x(step: Number) -> str:
        return f"{left + (width - left - right) * x_axis.at(step):.1f}"

    def y(value: Number) -> str:
        return f"{top + (height - top - bottom) * (1 - y_axis.at(value)):.1f}"

    def line(steps: Sequence[Number], values: Sequence[Number | None]) -> str:
        points = [f"{x(s)} {y(v)}" for s, v in zip(steps, values) if v is not None]
        return f"M{'L'.join(points)}" + "h.01" * (len(points) == 1)  # a single point is drawn as a dot

    parts = []
    for t in y_axis.ticks():
        parts.append(f'<path class="tick" d="M{left} {y(t)}H{width - right}"/>')
        parts.append(f'<text class="y" x="{left - 6}" y="{float(y(t)) + 4:.1f}">{number(t)}</text>')
    ticks = x_axis.ticks()
    for t in ticks:
        kind, unit = ("x last", " steps") if t == ticks[-1] else ("x", "")
        parts.append(f'<path class="tick" d="M{x(t)} {height - bottom}v4"/>')
        parts.append(f'<text class="{kind}" x="{x(t)}" y="{height - 8}">{number(t)}{unit}</text>')
    for name, one in lines.items():
        kind, steps = colour(colours[name]), one["steps"]
        inner = ""
        if len(one["seeds"]) > 1:
            there = [(s, m, d) for s, m, d in zip(steps, one["mean"], one["std"]) if m is not None]
            above = [f"{x(s)} {y(m + d)}" for s, m, d in there]
            below = [f"{x(s)} {y(m - d)}" for s, m, d in reversed(there)]
            inner += f'<path class="band" d="M{"L".join(above + below)}z"/>'
        inner += f'<path class="mean" d="{line(steps, one["mean"])}"/>'
        for seed, values in one["seeds"].items() if seeds else ():
            inner += f'<path class="seed" data-seed="{escape(seed)}" d="{line(steps, values)}"/>'
        parts.append(
            f'<g class="{kind}" data-method="{escape(name)}"><title>{escape(title_of[name])}</title>{inner}</g>'
        )
    label = escape(f"{panel['title']} against environment steps")
    box = f'data-left="{left}" data-right="{width - right}" data-steps="{x_axis.high:g}"'
    return (
        f'<figure class="chart"><figcaption>{escape(panel["title"])}</figcaption>'
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}" {box}>{"".join(parts)}'
        f'<path class="cursor"/></svg></figure>'
    )


def backgrounds(trays: Mapping[str, Mapping[str, Any]], ids: Mapping[str, str]) -> str:
    """The empty tray of every setting, and the marker for states on paths. Each appears once per page."""
    images = "".join(
        f'<image id="{ids[setting]}" width="{TRAY}" height="{TRAY}" href="{escape(view["background"])}"/>'
        for setting, view in trays.items()
    )
    size = 'viewBox="-4 -4 8 8" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse"'
    dot = f'<marker id="state" class="state" {size}><circle r="2.6"/></marker>'
    return f'<svg class="hidden" width="0" height="0" aria-hidden="true"><defs>{dot}{images}</defs></svg>'


def tray(background: str, view: Mapping[str, Any], title: str) -> str:
    """The episodes of one run on a tray: a path with one dot per state and one red square per violation."""
    broken = "".join(f"M{int(x)} {int(y)}h.01" for x, y, *_ in view["broken"])  # printers drop lines of length 0
    return (
        f'<svg class="tray" viewBox="0 0 {TRAY} {TRAY}" role="img" aria-label="{escape(title)}">'
        f'<use href="#{background}"/><path class="path" d="{escape(view["paths"])}"/>'
        f'<path class="broken" d="{broken}"/></svg>'
    )
