"""Needle Master in plain NumPy and float64, sharing no code with scopil. Shapes are tested point by point: a path is a
dense row of points, and a point is in a polygon if the corners wind around it."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

WIDTH, HEIGHT, LIMIT = 1920.0, 1080.0, 100
POINTS = 2001  # per tick, in which the needle moves at most 75 px


class World(NamedTuple):
    """Boxes and bars are (4, 2) polygons; surfaces are (polygon, deep)."""

    boxes: list[np.ndarray]
    bars: list[np.ndarray]  # two per gate
    surfaces: list[tuple[np.ndarray, bool]]


def in_polygon(points: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """(N,): whether the angles to successive corners add up to a full turn."""
    to = corners[None] - points[:, None]
    angle = np.arctan2(to[..., 1], to[..., 0])
    turn = (np.roll(angle, -1, axis=1) - angle + np.pi) % (2 * np.pi) - np.pi
    return np.abs(turn.sum(axis=1)) > np.pi


def near(path: np.ndarray, corners: np.ndarray) -> bool:
    """Whether the rectangles around a path and a polygon overlap. It saves time."""
    return bool((path.min(0) <= corners.max(0)).all() and (path.max(0) >= corners.min(0)).all())


def tick(at: np.ndarray, heading: float, speed: float, turn: float, world: World) -> tuple[np.ndarray, float]:
    if any(in_polygon(at[None], corners)[0] for corners, _ in world.surfaces):
        turn = np.copysign(0.02, turn) if abs(turn) > 0.02 else turn / 2
    else:
        speed = min(max(speed, -75.0), 75.0)
    heading += turn
    return at + speed * np.array([np.cos(heading), np.sin(heading)]), heading


def middle_crossings(path: np.ndarray, box: np.ndarray, bars: list[np.ndarray]) -> np.ndarray:
    """The indices after which a dense path crosses the middle line of a gate between its bars. Corners 0 and 1 of a box
    are at the ends with bars."""
    height = box[1] - box[0]
    depth = box[2] - box[1]
    offset = path - box.mean(axis=0)
    u, w = offset @ depth / np.hypot(*depth), offset @ height / np.hypot(*height)
    opening = min(abs((bar - box.mean(axis=0)) @ height / np.hypot(*height)).min() for bar in bars)
    change = np.flatnonzero((u[:-1] < 0) != (u[1:] < 0))
    return change[np.abs(w[change]) < opening]


class Played(NamedTuple):
    positions: np.ndarray
    headings: np.ndarray
    passed: list[int]  # numbers of gates, in order
    costs: dict[str, np.ndarray]  # per step
    reward: float
    ended: bool


def play(world: World, start: np.ndarray, actions: np.ndarray, heading: float = 0.0) -> Played:
    """An episode, up to its end or its last action."""
    at, gate, passed, reward = np.array(start, float), 0, [], 0.0
    positions, headings = [at], [heading]
    costs: dict[str, list[bool]] = {"gate": [], "bar": [], "tissue": [], "turn": []}
    ended = False
    for number, action in enumerate(np.asarray(actions, float)):
        speed, turn = 75 * np.clip(action[0], -1, 1), np.clip(action[1], -1, 1) / 15
        before, missed, touched, deep = at, False, False, False
        for _ in range(5):
            if ended:
                break
            after, heading = tick(at, heading, speed, turn, world)
            path = at + np.linspace(0, 1, POINTS)[:, None] * (after - at)
            touched |= any(near(path, bar) and in_polygon(path, bar).any() for bar in world.bars)
            crossed = [
                g
                for g in range(gate, len(world.boxes))
                if len(middle_crossings(path, world.boxes[g], world.bars[2 * g : 2 * g + 2]))
            ]
            if crossed:
                missed |= crossed[0] > gate
                passed.append(crossed[0])
                gate = crossed[0] + 1
            elif gate < len(world.boxes) and after[0] > world.boxes[gate][:, 0].max() + 200:
                missed, gate = True, gate + 1
            deep |= any(d and in_polygon(after[None], corners)[0] for corners, d in world.surfaces)
            at = after
            ended = bool(at[0] >= WIDTH or at[0] < 0 or at[1] < 0 or at[1] > HEIGHT)
        if (ended or number + 1 >= LIMIT) and gate < len(world.boxes):
            missed = True
        reward += 10 * (at[0] - before[0]) / WIDTH - 0.05
        for name, broken in zip(costs, (missed, touched, deep, abs(speed * turn) > 1.5)):
            costs[name].append(broken)
        positions.append(at)
        headings.append(heading)
        if ended:
            break
    found = {name: np.array(column) for name, column in costs.items()}
    return Played(np.array(positions), np.array(headings), passed, found, reward, ended)


def read_world(path: Path) -> World:
    """A level's file, by key."""
    boxes, bars, surfaces, deep, x = [], [], [], False, np.zeros(0)
    for line in path.read_text().splitlines():
        key, value = line.split(": ")
        if key == "IsDeepTissue":
            deep = value == "true"
        elif key[-1] == "X":
            x = np.array(value.split(","), float)
        elif key[-1] == "Y":
            y = np.array(value.split(","), float)
            if key == "GateY":
                boxes.append(np.stack([x, y], 1))
            elif key == "SurfaceY":
                surfaces.append((np.stack([x, HEIGHT - y], 1), deep))
            else:
                bars.append(np.stack([x, y], 1))
    return World(boxes, bars, surfaces)


def write_world(world: World, path: Path) -> None:
    """The same file. `GatePos`, which repeats the gate in another frame, is zero."""

    def points(name: str, corners: np.ndarray) -> list[str]:
        return [f"{name}{axis}: {','.join(map(repr, column.tolist()))}" for axis, column in zip("XY", corners.T)]

    lines = ["Dimensions: 1920,1080", f"Gates: {len(world.boxes)}"]
    for number, box in enumerate(world.boxes):
        top, bottom = world.bars[2 * number : 2 * number + 2]
        lines += ["GatePos: 0.0,0.0,0.0", *points("Gate", box), *points("Top", top), *points("Bottom", bottom)]
    lines.append(f"Surfaces: {len(world.surfaces)}")
    for corners, deep in world.surfaces:
        turned = np.stack([corners[:, 0], HEIGHT - corners[:, 1]], 1)
        lines += [f"IsDeepTissue: {str(deep).lower()}", *points("Surface", turned)]
    path.write_text("\n".join(lines) + "\n")


def gate(x: float, y: float, turn: float, height: float) -> tuple[np.ndarray, list[np.ndarray]]:
    """Box and bars of a gate that is turned away from one that is passed horizontally. A bar's corners 0 and 1 are at
    its outer and inner side, as in the game's files."""
    w = height / 2 * np.array([np.sin(turn), np.cos(turn)])
    u = 0.6 * np.array([-w[1], w[0]])
    inner = w * (1 - 2 * 5 / 54)

    def quad(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.array([x, y]) + np.array([u + a, u + b, -u + b, -u + a])

    return quad(w, -w), [quad(w, inner), quad(-w, -inner)]


def world_of(gates: list[tuple[float, float, float, float]], surfaces: list[tuple[np.ndarray, bool]]) -> World:
    made = [gate(*one) for one in gates]
    return World([box for box, _ in made], [bar for _, bars in made for bar in bars], surfaces)


def write_recording(world: World, actions: np.ndarray, path: Path, start: tuple[float, float] = (96.0, 108.0)) -> None:
    """A game in the recordings' format: one row per tick of 20 ms, five ticks per action, until past the right edge."""
    at, heading, rows = np.array(start), 0.0, []
    for speed, turn in np.repeat(np.asarray(actions, float) * (75, 1 / 15), 5, axis=0):
        rows.append([20 * len(rows), *at, heading - np.pi, -speed, turn])
        at, heading = tick(at, heading, speed, turn, world)
        if at[0] > 2050:
            break
    np.savetxt(path, rows, delimiter=",", fmt=["%d"] + ["%.9g"] * 5)
