"""The text file beside a shipped set, written from the set itself."""

import hashlib

from scopil.demos.dataset import Demonstrations
from scopil.studies.marble_maze.table1 import TABLE_1, Row, measure

_HOW = """{episodes} episodes of `{env_id}`, made by scopil's planner, not by people: a beam search over action
sequences on the true simulator (`scopil.studies.marble_maze.planner`). It keeps {clearance:g} px from every constraint
at every step (an episode that starts nearer moves away first), keeps its speed near {speed:g} px per update, and moves
the tray no more than it has to. Starts follow the environment's own distribution{but}.
To make the same set again:

    scopil demos generate {setting} --seed {seed} --out {file}
"""

_PAIRED = """
From each of {pairs} starts there are two episodes, one left and one right of the circle (episodes {first} to {last},
left first; `scopil.studies.marble_maze.sides.passing_side` defines the sides). These starts are the environment's own
that lie beyond the circle, at most {nearby:g} px from its centre, and whose longer way round is at most {detour:g}
times the shorter. The other {singles} episodes are unpaired: one from an ordinary start, one from the start that
violates a rule.
"""


def set_card(demos: Demonstrations, data: bytes) -> str:
    """The text beside a generated Marble Maze set whose file holds the bytes `data`."""
    about, file = demos.about, demos.name.rpartition("/")[2] + ".npz"
    pairs = about.get("paired_episodes", [])
    how = _HOW.format(
        episodes=len(demos),
        env_id=demos.env_id,
        clearance=about["planner"]["clearance"],
        speed=about["planner"]["speed"],
        but=", except for those that violate a rule"
        + (" and the choice of paired ones (below)" if pairs else ""),
        setting=about["setting"],
        seed=about["seed"],
        file=file,
    )
    if pairs:
        how += _PAIRED.format(
            pairs=len(pairs),
            first=pairs[0][0],
            last=pairs[-1][1],
            **about["paired_starts"],
            singles=len(demos) - 2 * len(pairs),
        )
    return "\n".join(
        [
            f"# {demos.name}\n",
            how,
            "## Figures\n",
            _table(measure(demos), TABLE_1[demos.name]),
            "## Violations\n",
            _violations(demos),
            "## File\n",
            f"`{file}`, {len(data)} bytes, sha256\n`{hashlib.sha256(data).hexdigest()}`\n",
            "Licence: MIT, as the package.",
            "",
        ]
    )


def _table(ours: Row, paper: Row) -> str:
    def cell(mean: float, std: float | None) -> str:
        return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"

    lines = [
        "| mean ± std over episodes | this set | the paper's people (Table 1) |",
        "|---|---|---|",
        f"| state–action pairs | {ours.pairs} | {paper.pairs} |",
    ]
    for what, key in (("reward, normalised", "reward"), ("length, px", "length"), ("steps", "steps")):
        cells = [cell(getattr(row, key), getattr(row, f"{key}_std")) for row in (ours, paper)]
        lines.append(f"| {what} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines) + "\n"


def _violations(demos: Demonstrations) -> str:
    starts = demos.about["violating_starts"]
    assert demos.starts is not None
    places = "; ".join(
        f"episode {i} at ({x:.1f}, {y:.1f})" for i, (x, y) in zip(starts, demos.starts[starts])
    )
    only = "violation is an initial state" if len(starts) == 1 else "violations are initial states"
    return f"The only {only}, just inside a circle and left on the first step:\n{places}.\n"
