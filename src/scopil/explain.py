"""Words for learned constraints: the simplest region that explains a novelty table.

A cell of the table is forbidden if its smoothed novelty is at least `FORBIDDEN`, or if it lies beside such a cell and
no demonstrated transition is in it. Boxes (with open sides), discs and strips, for all or some values of a category,
are fitted to the learner's transitions in forbidden cells: these count for a shape, demonstrated transitions and the
learner's in other cells against it. Each cell counts with the square root of its transitions, and every number that
describes a shape costs the share `PER_NUMBER`. Edges move to the outermost demonstrated value. Shapes are added while
each has at least the share `GAIN` of the best one's score.

A shape is evidence of a rule only if the demonstrations would have entered it `EXPECTED` times had they been spread as
the learner's transitions are, and are in it at most `TOLERATED` times as often. Each demonstrated episode that does
enter it raises the number of expected visits that is wanted by `PER_ENTRY`.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import ndimage, optimize

from scopil.errors import ConfigError
from scopil.marginal import Axis, Marginal
from scopil.shapes import Box, Disc, Part, Shape, Strip, Union, When, variables
from scopil.terminal import printable

FORBIDDEN = 0.5
SMOOTH = 0.5  # σ in bins
PER_NUMBER = 0.02
GAIN = 0.12  # score of a further shape, as a share of the first's, at least
PARTS = 9
PURE = 0.7  # share of the weight in a shape that is forbidden, at least
EXPECTED, PER_ENTRY = 14.0, 4.0  # visits, and further ones for every demonstrated episode in a shape
TOLERATED = 0.1
SHOWN, UNSURE = 2.0, 0.5  # weight of demonstrated transitions, and in the score of the learner's in allowed cells
NEAR = 0.04  # an edge moves by at most this share of the axis
ANGLES = 24
STRICTNESS = (1.0, 3.0)  # of the search against what a shape should not hold
LEVELS, ISLANDS = (0.001, 0.2, 0.5), 3  # where the search for boxes and discs begins


@dataclass(frozen=True)
class FoundRule:
    """A learned constraint in words and as code. `shape` is the forbidden region in the marginal's axes."""

    sentence: str
    shape: Shape
    evidence: str
    marginal: Marginal

    def code(self, name: str = "") -> str:
        """A Python function (obs, action, next_obs) → bool; True if the rule is broken."""
        axes = self.marginal.axes
        names = variables(axes)
        about = printable(f"{self.sentence} ({self.evidence})").replace("\\", "\\\\").replace('"', "'")
        body = self.shape.code(names)
        used = [(n, _expression(a)) for n, a in zip(names, axes) if re.search(rf"\b{re.escape(n)}\b", body)]
        lines = [f"    {n} = {code}" for n, code in used if n != code]
        head = f'def {name or self.name}(obs, action, next_obs):\n    """{" ".join(about.split())}."""\n'
        return head + "".join(f"{line}\n" for line in lines) + f"    return bool({body})\n"

    @property
    def name(self) -> str:
        """The name of the function, from the axes that the shape uses."""
        names = variables(self.marginal.axes)
        body = self.shape.code(names)
        return "_".join(["keep", *(n for n in names if re.search(rf"\b{re.escape(n)}\b", body))])


def explain(marginal: Marginal) -> FoundRule | None:
    """The simplest region that explains a constraint's table; None if the evidence for a rule is too weak, or if the
    table has more than one category."""
    if 0 in (len(marginal.demo), len(marginal.own)) or sum(axis.edges is None for axis in marginal.axes) > 1:
        return None
    table = _Table(marginal)
    parts: list[Part] = []
    score = 0.0
    while len(parts) < PARTS:
        best = next((fit for fit in table.candidates(parts) if table.shows(fit.part, parts)), None)
        if best is None or best.score < GAIN * score:
            break
        parts, score = [*parts, best.part], max(score, best.score)
    if not parts:
        return None
    shape = parts[0] if len(parts) == 1 else Union(tuple(parts))
    return FoundRule(shape.words(marginal.axes), shape, _evidence(marginal, shape), marginal)


def explain_all(marginals: Iterable[Marginal]) -> list[FoundRule]:
    """The rules behind several constraints, without those that say the same."""
    found: dict[str, FoundRule] = {}
    for marginal in marginals:
        if (rule := explain(marginal)) is not None:
            found.setdefault(rule.sentence, rule)
    return list(found.values())


def rules_file(rules: Sequence[FoundRule]) -> str:
    """A Python file of rules, for `--rules`. Read it, and remove or edit what is no rule."""
    names: list[str] = []
    for rule in rules:
        same = sum(name == rule.name or name.startswith(f"{rule.name}_") for name in names)
        names.append(f"{rule.name}_{same + 1}" if same else rule.name)
    functions = [rule.code(name) for name, rule in zip(names, rules)]
    text = "\n\n".join(functions)
    own = sorted({axis.module for rule in rules for axis in rule.marginal.axes} - {""})
    imports = "".join(f"import {w}\n" for w in ("math", "numpy as np", *own) if f"{w.split()[-1]}." in text)
    table = "".join(f'    "{name}": {name},\n' for name in names)
    head = '"""Rules that scopil found in demonstrations. A function is true where its rule is broken."""\n'
    return "\n".join([head, imports + "\n" if imports else "", f"{text}\n", f"RULES = {{\n{table}}}\n"])


def _expression(axis: Axis) -> str:
    try:
        compile(axis.code, axis.name, "eval")
    except (SyntaxError, ValueError):
        raise ConfigError(f"axis {axis.name!r} has the code {axis.code!r}; want a Python expression.") from None
    return axis.code


def _evidence(marginal: Marginal, shape: Shape) -> str:
    inside = shape.contains(marginal.demo)
    episodes, there = (len(np.unique(marginal.demo_episode[use])) for use in (slice(None), inside))
    of = f"{there} of " if there else ""
    share = shape.contains(marginal.own).mean()
    percent = f"{100 * share:.2g}" if share < 0.1 else f"{100 * share:.0f}"
    where = "there"
    if isinstance(shape, Box) and np.isfinite([shape.low, shape.high]).sum() == 1:
        where = "above" if np.isfinite(shape.low).any() else "below"
    steps = f"{inside.sum():,} of {len(inside):,} demonstrated steps"
    return f"{steps} ({of}{episodes:,} episodes) {where}; {marginal.whose}: {percent} %"


class _Fit(NamedTuple):
    score: float
    part: Part


class _Table:
    """The transitions of a marginal, which of them lie in forbidden cells, and the search for shapes."""

    def __init__(self, marginal: Marginal):
        self.marginal, self.axes = marginal, marginal.axes
        self.numeric = [i for i, axis in enumerate(self.axes) if axis.edges is not None]
        self.kinds = [i for i, axis in enumerate(self.axes) if axis.edges is None]
        blur = [SMOOTH if axis.edges is not None else 0.0 for axis in self.axes]
        forbidden = ndimage.gaussian_filter(marginal.novelty.astype(float), blur, mode="nearest") >= FORBIDDEN
        self.forbidden = self._grown(forbidden)
        self.points = np.concatenate([marginal.own, marginal.demo]).astype(float)
        self.cell = tuple(self._bins(self.points).T)
        shown = np.arange(len(self.points)) >= len(marginal.own)
        weight = np.empty(len(self.points))  # the weights of a cell's n points sum to √n
        for use, factor in ((~shown, 1.0), (shown, SHOWN)):
            count = np.zeros(marginal.novelty.shape)
            np.add.at(count, tuple(c[use] for c in self.cell), 1.0)
            weight[use] = factor / np.sqrt(count[tuple(c[use] for c in self.cell)])
        inside = self.forbidden[self.cell] & ~shown
        self.gain = np.where(inside, weight, -weight)  # what a shape should hold counts for it, the rest against it
        self.worth = np.where(inside | shown, self.gain, UNSURE * self.gain)
        self.span = [float(a.edges[-1] - a.edges[0]) if a.edges is not None else 1.0 for a in self.axes]

    def _start(self, axis: int) -> float:
        edges = self.axes[axis].edges
        assert edges is not None
        return float(edges[0])

    def _grown(self, forbidden: np.ndarray) -> np.ndarray:
        """The forbidden cells and those beside them, up to demonstrated ones: blur hides the edge of a region."""
        if not self.numeric:
            return forbidden
        beside = ndimage.generate_binary_structure(forbidden.ndim, 1)
        for i in self.kinds:  # values of a category are not beside each other
            beside[(slice(None),) * i + ([0, 2],)] = False
        shown = np.zeros(forbidden.shape, bool)
        shown[tuple(self._bins(self.marginal.demo).T)] = True
        size = max(forbidden.shape[i] for i in self.numeric)
        if size > 192:  # bins that are much finer than the blur
            shown = ndimage.binary_dilation(shown, beside, size // 192)
        return ndimage.binary_dilation(
            forbidden, beside, math.ceil(NEAR * size), mask=forbidden | np.logical_not(shown)
        )

    def _bins(self, points: np.ndarray) -> np.ndarray:
        found = []
        for i, axis in enumerate(self.axes):
            values = points[:, i]
            at = values.astype(int) if axis.edges is None else np.searchsorted(axis.edges, values, "right") - 1
            found.append(np.clip(at, 0, self.marginal.novelty.shape[i] - 1))
        return np.stack(found, axis=1)

    # --- evidence --------------------------------------------------------------------------------------------------

    def _outside(self, parts: Sequence[Part]) -> np.ndarray:
        return ~np.any([np.zeros(len(self.points), bool), *(part.contains(self.points) for part in parts)], axis=0)

    def shows(self, part: Part, others: Sequence[Part] = ()) -> bool:
        """Whether the learner entered this region, the demonstrator avoided it, and the table forbids it. Transitions
        in other shapes and with other values of the category do not count."""
        among = self._outside(others)
        if isinstance(part, When) and self.numeric:
            among &= np.isin(self.points[:, part.axis], part.bins)
        inside, count = part.contains(self.points) & among, len(self.marginal.own)
        gain = self.gain[inside]
        if not inside[:count].any() or gain[gain > 0].sum() < PURE * np.abs(gain).sum():
            return False
        own, demo = inside[:count].sum() / among[:count].sum(), inside[count:].sum() / max(among[count:].sum(), 1)
        entered = len(np.unique(self.marginal.demo_episode[inside[count:]]))
        wanted = EXPECTED + PER_ENTRY * entered
        return bool(own * self._visits(among[count:]) >= wanted and demo <= TOLERATED * own)

    def _visits(self, use: np.ndarray) -> int:
        """Visits of demonstrated episodes to eighths of the axes. A region that holds a share p of the transitions
        has about p times as many visits."""
        demo = self.marginal.demo[use]
        coarse = [
            demo[:, i] if i in self.kinds else np.floor(8 * demo[:, i] / self.span[i]) for i in range(demo.shape[1])
        ]
        return len(np.unique(np.stack([self.marginal.demo_episode[use], *coarse], axis=1), axis=0))

    # --- candidates ------------------------------------------------------------------------------------------------

    def candidates(self, parts: Sequence[Part]) -> list[_Fit]:
        """Shapes to add to `parts`, best first."""
        left = self._outside(parts)
        found: list[Part] = []
        if not self.kinds:
            found += self._shapes(left)
        else:
            (axis,) = self.kinds
            values = self.axes[axis].values or ()
            found += self._shapes(left)
            for k in range(len(values)):
                found += [When(axis, (k,), part, values) for part in self._shapes(left & (self.cell[axis] == k))]
        value = lambda part: self._value(part, left)  # noqa: E731
        fits = [_Fit(value(part), part) for part in dict.fromkeys(map(self._sharp, found))]
        return sorted((self._widened(fit, value) for fit in fits), key=lambda fit: fit.score, reverse=True)

    def _value(self, part: Part, left: np.ndarray) -> float:
        inside = part.contains(self.points) & left
        return float(self.worth[inside].sum()) * (1 - PER_NUMBER * _numbers(part))

    def _widened(self, fit: _Fit, value: Callable[[Part], float]) -> _Fit:
        """The shape for further values of its category, where that scores higher."""
        if isinstance(fit.part, When):
            for k in range(len(fit.part.values)):
                assert isinstance(fit.part, When)
                more = replace(fit.part, bins=tuple(sorted({*fit.part.bins, k})))
                if len(more.bins) < len(more.values) and (found := value(more)) > fit.score:
                    fit = _Fit(found, more)
        return fit

    def _shapes(self, use: np.ndarray) -> Iterator[Any]:
        """Boxes, discs and strips over the axes that are numbers, from the transitions in `use`."""
        if not (self.gain[use] > 0).any():
            return
        if not self.numeric:
            yield Box((-math.inf,) * len(self.axes), (math.inf,) * len(self.axes))
            return
        cell = tuple(self.cell[i][use] for i in self.numeric)
        for strictness in STRICTNESS:
            gain = np.zeros([self.forbidden.shape[i] for i in self.numeric])
            np.add.at(gain, cell, np.where(self.gain[use] > 0, 1.0, strictness) * self.gain[use])
            yield from self._shapes_of(gain)
        if len(self.numeric) == 2:
            yield self._strip(use)

    def _shapes_of(self, gain: np.ndarray) -> Iterator[Box | Disc]:
        dense = ndimage.gaussian_filter(gain, [1.0 + n / 96 for n in gain.shape])
        islands = [island for level in LEVELS for island in _islands(dense, level * max(float(dense.max()), 0.0))]
        whole = tuple((0, n) for n in gain.shape)
        starts = [whole]
        for frame in map(_frame, islands) if gain.ndim > 1 else ():
            starts += [frame, *((*frame[:a], whole[a], *frame[a + 1 :]) for a in range(gain.ndim))]
        for start in dict.fromkeys(starts):
            yield self._box(gain, start)
        if len(self.numeric) == 2:
            i, j = self.numeric
            if 1 / 3 <= self.span[i] / self.span[j] <= 3:
                for island in islands:
                    yield from self._disc(gain, island)

    def _box(self, gain: np.ndarray, sides: tuple[tuple[int, int], ...]) -> Box:
        """Each axis in turn gets its best two sides around its middle, given the others'."""
        whole = tuple((0, n) for n in gain.shape)
        for _ in range(8):
            before = sides
            for a in range(gain.ndim):
                window = tuple(slice(None) if b == a else slice(*s) for b, s in enumerate(sides))
                rest = tuple(b for b in range(gain.ndim) if b != a)
                ends, _ = _interval(
                    gain[window].sum(rest), PER_NUMBER, None if sides[a] == whole[a] else sum(sides[a]) // 2
                )
                sides = (*sides[:a], ends, *sides[a + 1 :])
            if sides == before:
                break
        low, high = [-math.inf] * len(self.axes), [math.inf] * len(self.axes)
        for i, (first, last), n in zip(self.numeric, sides, gain.shape):
            edges = self.axes[i].edges
            assert edges is not None
            low[i] = float(edges[first]) if first > 0 else -math.inf
            high[i] = float(edges[last]) if last < n else math.inf
        return Box(tuple(low), tuple(high))

    def _disc(self, gain: np.ndarray, mark: np.ndarray) -> Iterator[Disc]:
        """The best disc near the marked cells. Its centre must lie within the demonstrated values."""
        i, j = self.numeric
        cell = [self.span[k] / n for k, n in zip((i, j), mark.shape)]
        at = lambda mask: [self._start(k) + c * (m + 0.5) for k, c, m in zip((i, j), cell, np.nonzero(mask))]  # noqa: E731
        (x, y), held = at(gain), gain[gain != 0]
        soft = 0.5 * math.sqrt(cell[0] * cell[1])
        radius = math.sqrt(mark.sum() * cell[0] * cell[1] / math.pi)

        def loss(p: np.ndarray) -> float:
            inside = 1 / (1 + np.exp(np.clip((np.hypot(x - p[0], y - p[1]) - p[2]) / soft, -50, 50)))
            return -float((held * inside).sum())

        start = np.array([*(values.mean() for values in at(mark)), radius])
        simplex = start + np.vstack([np.zeros(3), np.diag([0.3 * radius, 0.3 * radius, 0.2 * radius])])
        options = {"initial_simplex": simplex, "maxfev": 120, "xatol": soft / 20, "fatol": 1e-5}
        cx, cy, r = map(float, optimize.minimize(loss, start, method="Nelder-Mead", options=options).x)
        demo = self.marginal.demo
        if all(demo[:, k].min() <= c <= demo[:, k].max() for k, c in ((i, cx), (j, cy))):
            yield Disc((i, j), (cx, cy), abs(r))

    def _strip(self, use: np.ndarray) -> Strip:
        """The best strip over directions that are not those of the axes; directions are in units of the spans."""
        i, j = self.numeric
        x, y = self.points[use, i] / self.span[i], self.points[use, j] / self.span[j]
        bins = 2 * max(self.forbidden.shape)
        best, found = -math.inf, Strip((i, j), (1.0, 1.0), 0.0, 0.0)
        for angle in np.pi * np.arange(ANGLES) / ANGLES:
            a, b = math.cos(angle), math.sin(angle)
            if min(abs(a), abs(b)) < 0.3:
                continue
            at = a * x + b * y
            first, width = at.min(), max((at.max() - at.min()) / bins, 1e-9) * (1 + 1e-9)
            slot = ((at - first) / width).astype(int)
            (low, high), value = _interval(np.bincount(slot, self.gain[use], bins), PER_NUMBER)
            if value > best:
                scale = self.span[i] / a  # the first weight becomes 1
                ends = [(first + low * width) * scale, (first + high * width) * scale]
                ends = [ends[0] if low > 0 else -math.inf * scale, ends[1] if high < bins else math.inf * scale]
                best, found = value, Strip((i, j), (1.0, b / self.span[j] * scale), min(ends), max(ends))
        return found

    # --- edges -----------------------------------------------------------------------------------------------------

    def _sharp(self, part: Part) -> Part:
        """The shape with its edges at the outermost demonstrated values, in round numbers."""
        demo = self.marginal.demo.astype(float)
        if isinstance(part, When):
            return replace(part, shape=self._sharp_shape(part.shape, demo[np.isin(demo[:, part.axis], part.bins)]))
        return self._sharp_shape(part, demo)

    def _sharp_shape(self, part: Any, demo: np.ndarray) -> Any:
        if isinstance(part, Box):
            low, high = part.low, part.high
            for _ in range(2):  # an edge decides which values count for the others
                for i in self.numeric:
                    near = demo[Box(_put(low, i, -math.inf), _put(high, i, math.inf)).contains(demo), i]
                    low, high = (_put(e, i, _edge(near, e[i], d, self.span[i])) for e, d in ((low, 1), (high, -1)))
            return Box(low, high)
        if isinstance(part, Disc):
            return self._sharp_disc(part, demo[:, list(part.axes)])
        (i, j), weight = part.axes, _round(part.weights[1], 10 * _quantum(abs(part.weights[1])))
        at, span = demo[:, i] + weight * demo[:, j], self.span[i] + abs(weight) * self.span[j]
        low, high = (_edge(at, end, inward, span) for end, inward in ((part.low, 1), (part.high, -1)))
        return Strip((i, j), (1.0, weight), low, high)

    def _sharp_disc(self, disc: Disc, demo: np.ndarray) -> Disc:
        """The largest disc near this one that holds no more demonstrated values."""
        q, inside = _quantum(min(self.span[i] for i in disc.axes)), 0
        reach = NEAR * self.span[disc.axes[0]]
        demo = demo[np.hypot(*(demo - disc.centre).T) < disc.radius + 3 * reach]

        def size(centre: np.ndarray) -> float:
            away = np.sort(np.hypot(*(demo - centre).T))
            return float(min(away[inside] if inside < len(away) else math.inf, disc.radius + reach))

        def loss(centre: np.ndarray) -> float:
            moved = math.hypot(*(centre - disc.centre))
            return max(0.0, moved - reach) * 10 - size(centre)

        start = np.array(disc.centre)
        inside = int((np.hypot(*(demo - start).T) < 0.85 * disc.radius).sum())
        simplex = start + 0.5 * reach * np.array([[0, 0], [1, 0], [0, 1]])
        found = optimize.minimize(
            loss, start, method="Nelder-Mead", options={"initial_simplex": simplex, "maxfev": 80}
        ).x
        x, y = (_round(float(c), q) for c in found)
        return Disc(disc.axes, (x, y), _outward(size(np.array([x, y])), q, -1))


def _islands(height: np.ndarray, level: float) -> list[np.ndarray]:
    """The largest connected parts above a level, as masks."""
    found: Any = ndimage.label(height > level)
    marks, count = found
    sizes = ndimage.sum_labels(height, marks, np.arange(1, count + 1))
    return [marks == i + 1 for i in np.argsort(sizes)[::-1][:ISLANDS]]


def _frame(mask: np.ndarray) -> tuple[tuple[int, int], ...]:
    return tuple((int(at.min()), int(at.max()) + 1) for at in np.nonzero(mask))


def _interval(gain: np.ndarray, price: float, around: int | None = None) -> tuple[tuple[int, int], float]:
    """The first and last edge of the interval of bins with the largest sum, among those that hold the bin `around`.
    A side that is not the end of the axis lowers the sum by the share `price`."""
    n = len(gain)
    sums = np.concatenate([[0.0], np.cumsum(gain)])
    first, last = (np.arange(n + 1),) * 2 if around is None else (np.arange(around + 1), np.arange(around + 1, n + 1))
    value = (sums[last][None] - sums[first][:, None]) * (1 - price * ((first > 0)[:, None] * 1.0 + (last < n)[None]))
    value[first[:, None] >= last[None]] = -math.inf
    i, j = np.unravel_index(np.argmax(value), value.shape)
    return (int(first[i]), int(last[j])), float(value[i, j])


def _numbers(part: Part) -> int:
    """The numbers that describe a shape."""
    match part:
        case Box(low, high):
            return int(np.isfinite([low, high]).sum())
        case Disc():
            return 3
        case Strip(_, _, low, high):
            return 1 + int(np.isfinite([low, high]).sum())
        case When():
            return 1 + _numbers(part.shape)


def _edge(values: np.ndarray, edge: float, inward: int, span: float) -> float:
    """The edge of a forbidden region, moved to the demonstrated value nearest to its inside."""
    if math.isinf(edge):
        return edge
    beyond = inward * (values - edge)  # above 0: inside the region
    near = beyond[np.abs(beyond) <= NEAR * span]
    found = edge if len(near) == 0 else edge + inward * float(near.max())
    return _outward(found, _quantum(span), inward)


def _put(values: tuple[float, ...], i: int, value: float) -> tuple[float, ...]:
    return (*values[:i], value, *values[i + 1 :])


def _quantum(span: float) -> float:
    return 10.0 ** (math.floor(math.log10(span)) - 3)


def _round(value: float, quantum: float) -> float:
    return value if math.isinf(value) or quantum <= 0 else float(f"{round(value / quantum) * quantum:.9g}")


def _outward(value: float, quantum: float, inward: int) -> float:
    """A round number at or beyond a demonstrated value, so that the value stays allowed. Equal as float32 will do."""
    near = _round(value, quantum)
    if np.float32(near) == np.float32(value):
        return near
    steps = math.ceil(value / quantum) if inward > 0 else math.floor(value / quantum)
    return float(f"{steps * quantum:.9g}")
