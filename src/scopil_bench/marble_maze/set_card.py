"""The text file beside a shipped set, written from the set itself."""

import hashlib
from statistics import median
from typing import TYPE_CHECKING

from scopil.data.dataset import Demonstrations
from scopil_bench.marble_maze.table1 import Row, measure, published

if TYPE_CHECKING:
    from scopil_bench.marble_maze.predictability import Predictability

_HOW = """{episodes} episodes of `{env_id}`, made by scopil's planner, not by people: a beam search over action
sequences on the true simulator (`scopil_bench.marble_maze.planner`). It keeps {clearance:g} px from every constraint
at every step (an episode that starts nearer moves away first), keeps its speed near {speed:g} px per update, and moves
the tray no more than it has to. Starts follow the environment's own distribution{but}.
To make the same set again:

    scopil demos generate {setting} --seed {seed} --out {file}
"""

_PEOPLE = """{episodes} episodes of `{env_id}`, made by a model of {players} players, not by people
(`scopil_bench.marble_maze.simulated_players`; docs/marble_maze.md has the model). Each player follows a plan of its own
taste, reacts late, holds keys, slips, mends and corrects by its own habits, and never does what could no longer be put
right. {again} Starts follow the environment's own distribution{but}.
The set's `about` has every player's habits (`players`) and who played which episode (`played_by`). To make the same set
again:

    scopil demos generate {setting} --player people --seed {seed} --out {file}
"""

_NOISE = """{all:.1f} % of the steps were not what the player itself wanted
({own}), and {back:.1f} % took such a key back.
Cloning is `scopil.BC` with 5000 gradient steps on 32 episodes, judged by the negative log-likelihood of the other 8:
means over five such folds. Keys drawn evenly would have 2.20 nats per step. The careful planner is asked anew in every
state, so that differences of taste count as well as mistakes.

"""

_PAIRED = """
From each of {pairs} starts there are two episodes, one left and one right of the circle (episodes {first} to {last},
left first; `scopil_bench.marble_maze.sides.passing_side` defines the sides). These starts are the environment's own
that lie beyond the circle, at most {nearby:g} px from its centre, and whose longer way round is at most {detour:g}
times the shorter. The other {singles} episodes are unpaired: one from an ordinary start, one from the start that
violates a rule.
"""


def set_card(demos: Demonstrations, data: bytes) -> str:
    """The text beside a set of the planner whose file holds the bytes `data`."""
    about = demos.about
    how = _HOW.format(
        episodes=len(demos),
        env_id=demos.env_id,
        clearance=about["planner"]["clearance"],
        speed=about["planner"]["speed"],
        but=_but(demos),
        setting=about["setting"],
        seed=about["seed"],
        file=_file(demos),
    )
    return _card(demos, data, how, [])


def people_card(demos: Demonstrations, data: bytes, found: "Predictability", planner: "Predictability") -> str:
    """The text beside a set of people: `found` in it, and in the planner's set of the same setting."""
    about = demos.about
    again = ", ".join(f"{why}: {count}" for why, count in about["played_again"].items())
    how = _PEOPLE.format(
        episodes=len(demos),
        env_id=demos.env_id,
        players=len(about["players"]),
        but=_but(demos),
        setting=about["setting"],
        seed=about["seed"],
        file=_file(demos),
        again=f"Attempts that were given up and played again: {again}."
        if again
        else "No episode had to be played again.",
    )
    return _card(
        demos, data, how, ["## Habits\n", _habits(demos), "## How predictable\n", _noise(demos, found, planner)]
    )


def _card(demos: Demonstrations, data: bytes, how: str, more: list[str]) -> str:
    pairs = demos.about.get("paired_episodes", [])
    if pairs:
        how += _PAIRED.format(
            pairs=len(pairs),
            first=pairs[0][0],
            last=pairs[-1][1],
            **demos.about["paired_starts"],
            singles=len(demos) - 2 * len(pairs),
        )
    paper = published(demos.env_id)
    assert paper is not None
    return "\n".join(
        [
            f"# {demos.name}\n",
            how,
            "## Figures\n",
            _table(measure(demos), paper),
            *more,
            "## Violations\n",
            _violations(demos),
            "## File\n",
            f"`{_file(demos)}`, {len(data)} bytes, sha256\n`{hashlib.sha256(data).hexdigest()}`\n",
            "Licence: MIT, as the package.",
            "",
        ]
    )


def _file(demos: Demonstrations) -> str:
    return demos.name.rpartition("/")[2] + ".npz"


def _but(demos: Demonstrations) -> str:
    paired = " and the choice of paired ones (below)" if demos.about.get("paired_episodes") else ""
    return f", except for those that violate a rule{paired}"


def _habits(demos: Demonstrations) -> str:
    players = demos.about["players"]
    lines = ["| habit | lowest | median | highest |", "|---|---|---|---|"]
    for name in players[0]:
        values = sorted(p[name] for p in players)
        lines.append(f"| {name} | {values[0]:g} | {median(values):.3g} | {values[-1]:g} |")
    return "\n".join(lines) + "\n"


def _noise(demos: Demonstrations, found: "Predictability", planner: "Predictability") -> str:
    shares = {kind: 100 * count / demos.pairs for kind, count in demos.about["keys"].items()}
    unplanned = {kind: share for kind, share in shares.items() if kind not in ("wish", "taken back")}
    own = ", ".join(f"{kind} {share:.1f} %" for kind, share in unplanned.items())
    rows = {
        "steps with another action than the careful planner's choice in that state, %": "differing",
        "the same, where the tray ends up otherwise (at its stop a key may be let go), %": "differing_tilt",
        "cloning, nats per step on held-out episodes": "nll",
        "cloning, nats per step on the 32 episodes it was given": "train_nll",
        "held-out steps where cloning's most likely action was taken, %": "accuracy",
    }
    lines = ["| | this set | the planner's set |", "|---|---|---|"]
    ranges = ("{:.2f} to {:.2f}".format(*one.nll_range) for one in (found, planner))
    last = f"| the same, over folds | {' | '.join(ranges)} |"
    for what, key in rows.items():
        cells = (getattr(one, key) for one in (found, planner))
        show = (f"{100 * v:.1f}" if what.endswith("%") else f"{v:.2f}" for v in cells)
        lines += [f"| {what} | {' | '.join(show)} |", *([last] if key == "nll" else [])]
    return (
        _NOISE.format(all=sum(unplanned.values()), own=own, back=shares.get("taken back", 0.0))
        + "\n".join(lines)
        + "\n"
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
    places = "; ".join(f"episode {i} at ({x:.1f}, {y:.1f})" for i, (x, y) in zip(starts, demos.starts[starts]))
    only = "violation is an initial state" if len(starts) == 1 else "violations are initial states"
    return f"The only {only}, just inside a circle and left on the first step:\n{places}.\n"
