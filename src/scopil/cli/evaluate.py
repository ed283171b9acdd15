"""`scopil evaluate RUN`: the paper's measures, a game and on average, as a table and as JSON."""

import json
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from scopil.agents import Agent, load
from scopil.cli.options import named_function, option
from scopil.evaluate import protocol
from scopil.evaluate.games import with_cost
from scopil.evaluate.metrics import average, measure
from scopil.files import write_atomically
from scopil.report.tables import per_game, print_measures


def main(argv: list[str]) -> None:
    tyro.cli(evaluate, prog="scopil evaluate", args=argv, config=(tyro.conf.FlagCreatePairsOff,))


def evaluate(
    run: Annotated[
        tyro.conf.Positional[Path], tyro.conf.arg(help="a run folder or a saved policy", metavar="RUN")
    ],
    starts: Annotated[
        str | None, option("train, test or a file; default: train where that can be", "STARTS")
    ] = None,
    games: Annotated[int | None, option("how many; default: one a start", "N")] = None,
    policy: Annotated[Literal["greedy", "sampled"], tyro.conf.arg(help="how actions are chosen")] = "greedy",
    seed: Annotated[int, tyro.conf.arg(help="of the sampled actions")] = 0,
    each: Annotated[bool, tyro.conf.arg(help="print every game")] = False,
    cost: Annotated[
        str | None,
        option(
            "cost(obs, action, next_obs) to count violations by; default: the environment's", "MODULE:NAME"
        ),
    ] = None,
    out: Annotated[Path | None, option("JSON file; default: beside the run", "FILE")] = None,
) -> None:
    """Play games and count what the demonstrator would not have done."""
    agent: Agent = load(run)
    starts = starts or protocol.usual_starts(agent.env, agent.demos or protocol.demos_for(agent.env_id))
    law = None if cost is None else named_function(cost)
    played = agent.play(starts, games, deterministic=policy == "greedy", seed=seed)
    agent.env.close()
    measures = [measure(game) for game in (played if law is None else with_cost(played, law))]
    mean = average(measures)
    title = agent.algorithm.title
    name = f"{title}, {policy}, {starts} starts"
    rows = per_game(measures) if each else {}
    console = Console()
    print_measures(console, rows | {f"{name} ({len(measures)} games)": mean})
    where = Path(starts).stem if starts not in ("train", "test") else starts
    target = out or (run if run.is_dir() else run.parent) / f"evaluation-{where}-{policy}.json"
    result = {"policy": policy, "cost": cost, "starts": starts, "seed": seed, "mean": mean, "games": measures}
    write_atomically(target, json.dumps(result, indent=1).encode() + b"\n")
    console.print(f"written: {target}")
