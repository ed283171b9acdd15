"""Levels of Needle Master: gates and tissue, read from the game's files or generated from a seed.

The screen is 1920 × 1080 px, y downwards. A gate is a rectangle with a bar at two opposite ends; the needle passes
between the bars. The files give surfaces with y upwards.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from scopil.errors import DatasetError, EnvError, refused_as

WIDTH, HEIGHT = 1920.0, 1080.0
_NOWHERE = (-1e5, -1e5)  # all corners of a surface that does not exist
_FILE = re.compile(r"environment_(\d+)\.txt")
# Proportions of the gates in the game's files.
_GATE_DEPTH, _BAR = 0.6, 5 / 54  # of the gate's height


class Gate(NamedTuple):
    """A gate by its own axes: u leads through it, w from bar to bar."""

    centre: tuple[float, float]
    axis: tuple[float, float]  # unit vector of w
    half_depth: float  # along u
    half_height: float  # along w, bars included
    opening: float  # half of the distance between the bars


class Surface(NamedTuple):
    """Tissue. In deep tissue the needle does harm."""

    corners: Sequence[tuple[float, float]]
    deep: bool


class Level(NamedTuple):
    name: str
    gates: tuple[Gate, ...]
    surfaces: tuple[Surface, ...]


class LevelArrays(NamedTuple):
    """Levels as arrays of equal shapes, for compiled programs. After its last gate, each level has the screen's right
    edge in place of a gate. A surface that does not exist lies far away."""

    gates: Int[Array, "*L"]  # the number of gates
    centre: Float[Array, "*L G 2"]
    axis: Float[Array, "*L G 2"]
    half_depth: Float[Array, "*L G"]
    half_height: Float[Array, "*L G"]
    opening: Float[Array, "*L G"]
    corners: Float[Array, "*L S V 2"]
    deep: Bool[Array, "*L S"]


EXIT = Gate((WIDTH, HEIGHT / 2), (0.0, 1.0), 0.0, HEIGHT / 2, HEIGHT / 2)


def as_arrays(levels: Sequence[Level]) -> LevelArrays:
    gates = 1 + max(len(level.gates) for level in levels)
    surfaces = max(1, *(len(level.surfaces) for level in levels))
    corners = max([3, *(len(s.corners) for level in levels for s in level.surfaces)])
    rows = []
    for level in levels:
        every = [*level.gates, *[EXIT] * (gates - len(level.gates))]
        tissue = [*level.surfaces, *[Surface([_NOWHERE], False)] * (surfaces - len(level.surfaces))]
        shapes = [[*s.corners, *[s.corners[-1]] * (corners - len(s.corners))] for s in tissue]
        columns = [np.array(column, np.float32) for column in zip(*every)]
        rows.append((len(level.gates), *columns, np.array(shapes, np.float32), np.array([s.deep for s in tissue])))
    return LevelArrays(*(jnp.asarray(np.stack(column)) for column in zip(*rows)))


# --- from files -------------------------------------------------------------------------------------------------------


def read_levels(folder: str | Path) -> dict[int, Level]:
    """The levels in a folder of `environment_<number>.txt`, by number. Raises DatasetError."""
    found = {int(m[1]): path for path in Path(folder).glob("environment_*.txt") if (m := _FILE.fullmatch(path.name))}
    if not found:
        raise DatasetError(f"{folder} has no levels; want a folder of Needle Master files such as environment_1.txt.")
    return {number: read_level(found[number]) for number in sorted(found)}


def read_level(path: Path) -> Level:
    with refused_as(DatasetError, path):
        lines = iter(path.read_text(encoding="utf-8").splitlines())
        if (size := _numbers(lines, "Dimensions")) != [WIDTH, HEIGHT]:
            raise ValueError(f"a screen of {size}; want {WIDTH:g} × {HEIGHT:g}")
        gates = tuple(_read_gate(lines) for _ in range(_count(lines, "Gates")))
        surfaces = tuple(_read_surface(lines) for _ in range(_count(lines, "Surfaces")))
        return Level(path.stem.removeprefix("environment_"), gates, surfaces)


def _read_gate(lines: Iterator[str]) -> Gate:
    _numbers(lines, "GatePos")  # the same gate, in another frame
    box, top, bottom = (_points(lines, name) for name in ("Gate", "Top", "Bottom"))
    if len(box) != 4 or len(top) != 4:
        raise ValueError(f"a gate with {len(box)} corners; want 4")
    # Corners 0 and 1 are at the ends with the bars. A bar's corners 0 and 1 are at its outer and inner side.
    height, depth, bar = (np.hypot(*side) for side in (box[1] - box[0], box[2] - box[1], top[1] - top[0]))
    if not np.allclose(box[0] - box[1] + box[2] - box[3], 0.0, atol=1e-2) or not 0 < 2 * bar < height:
        raise ValueError("a gate that is not a rectangle with two bars")
    if not np.allclose(top.mean(0) + bottom.mean(0), 2 * box.mean(0), atol=1e-2):
        raise ValueError("bars that do not lie opposite each other")
    axis = (box[1] - box[0]) / height
    return Gate(_pair(box.mean(0)), _pair(axis), float(depth) / 2, float(height) / 2, float(height) / 2 - float(bar))


def _read_surface(lines: Iterator[str]) -> Surface:
    deep = _field(lines, "IsDeepTissue") == "true"
    corners = _points(lines, "Surface")
    return Surface([_pair((x, HEIGHT - y)) for x, y in corners], deep)


def _points(lines: Iterator[str], name: str) -> np.ndarray:
    return np.array([_numbers(lines, f"{name}X"), _numbers(lines, f"{name}Y")]).T


def _numbers(lines: Iterator[str], name: str) -> list[float]:
    numbers = [float(number) for number in _field(lines, name).split(",")]
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} is not finite")
    return numbers


def _count(lines: Iterator[str], name: str) -> int:
    if not 0 <= (count := int(_field(lines, name))) <= 100:
        raise ValueError(f"{name}: {count}; want at most 100")
    return count


def _field(lines: Iterator[str], name: str) -> str:
    found, _, value = next(lines, "").partition(": ")
    if found != name:
        raise ValueError(f"line {found!r}; want {name}")
    return value.strip()


def _pair(point: Sequence[float] | np.ndarray) -> tuple[float, float]:
    return float(point[0]), float(point[1])


# --- generated --------------------------------------------------------------------------------------------------------


def generate_levels(count: int, seed: int) -> dict[int, Level]:
    """Levels 1 to `count`. A level depends on its number and the seed only."""
    if count < 1:
        raise EnvError(f"{count} levels; want at least 1.")
    return {number: generate_level(number, seed) for number in range(1, count + 1)}


def generate_level(number: int, seed: int) -> Level:
    """One to three gates from left to right, in a third of the levels a strip of tissue, and in another third deep
    tissue below the gates."""
    rng = np.random.default_rng([seed, number])
    count = int(rng.integers(1, 4))
    places = 420 + (1500 - 420) * (np.arange(count) + rng.uniform(0.2, 0.8, count)) / count
    gates = tuple(_gate((x, rng.uniform(250, 700)), rng.uniform(200, 380 - 50 * count), rng) for x in places)
    return Level(str(number), gates, _surfaces(gates, ("none", "tissue", "deep")[number % 3], rng))


def _gate(centre: tuple[float, float], height: float, rng: np.random.Generator) -> Gate:
    """A gate that is turned by up to 40 degrees from one that is passed horizontally."""
    turn = rng.uniform(-0.7, 0.7)
    axis = float(np.sin(turn)), float(np.cos(turn))
    return Gate(_pair(centre), axis, _GATE_DEPTH * height / 2, height / 2, height / 2 - _BAR * height)


def _surfaces(gates: Sequence[Gate], kind: str, rng: np.random.Generator) -> tuple[Surface, ...]:
    if kind == "none":
        return ()
    if kind == "tissue":
        left = rng.uniform(200, 600)
        right = left + rng.uniform(300, 800)
        return (Surface([(left, 0.0), (right, 0.0), (right, HEIGHT), (left, HEIGHT)], False),)
    lowest = max(gate.centre[1] + np.hypot(gate.half_depth, gate.half_height) for gate in gates)
    top = [(float(x), float(rng.uniform(lowest + 30, HEIGHT - 20))) for x in np.linspace(0, WIDTH, 5)]
    return (Surface([*top, (WIDTH, HEIGHT), (0.0, HEIGHT)], True),)
