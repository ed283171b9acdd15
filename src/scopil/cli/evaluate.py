"""`scopil evaluate RUN`: plays episodes of a policy, prints a table of measures and writes them to a JSON file."""

import json
import re
from pathlib import Path
from typing import Annotated, Literal

import tyro

from scopil.cli.options import RulesOption, TrustEnv, call, option
from scopil.cli.waiting import counting
from scopil.errors import ConfigError
from scopil.eval.measures import UNFAMILIAR, measure_all, warning, with_margin
from scopil.eval.rules import load_rules
from scopil.eval.tables import per_episode, print_margins, print_measures, rules_not_known, with_bounds
from scopil.files import write_atomically
from scopil.loading import load
from scopil.terminal import Console


def main(argv: list[str]) -> None:
    call(evaluate, "scopil evaluate", argv)


def evaluate(
    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(help="a run folder or a saved agent", metavar="RUN")],
    starts: Annotated[
        str, tyro.conf.arg(help="initial states: unseen, demonstrated or a file", metavar="STARTS")
    ] = "unseen",
    episodes: Annotated[
        int | None, option("number of episodes; default: 40 from unseen starts, or one per given start", "N")
    ] = None,
    policy: Annotated[
        Literal["greedy", "sampled"], tyro.conf.arg(help="act deterministically, or sample actions")
    ] = "greedy",
    seed: Annotated[int, tyro.conf.arg(help="seed of the unseen starts and of the sampled actions")] = 0,
    each: Annotated[bool, tyro.conf.arg(help="print the measures of every episode")] = False,
    rules: RulesOption = None,
    env: Annotated[str | None, option("a Gymnasium id; default: the environment of training", "ID")] = None,
    trust_env: TrustEnv = False,
    out: Annotated[
        Path | None, option("JSON file to write; default: in the folder of RUN, named after these options", "FILE")
    ] = None,
) -> None:
    """Play episodes of a policy and count violations."""
    if out is not None and out.is_dir():
        raise ConfigError(f"--out {out} is a folder; want a file name such as {out / 'measures.json'}.")
    counted = None if rules is None else load_rules(rules)
    agent = load(run, env, trust_env=trust_env)
    console = Console()
    with counting("episodes played", episodes, console) as advance:
        played = agent.play(
            starts, episodes, deterministic=policy == "greedy", seed=seed, rules=counted, progress=advance
        )
    judged = agent.watched(played)
    measures, warned = measure_all(judged, agent.env), warning(judged)
    agent.env.close()
    if episodes is not None and len(played) < episodes:
        console.print(f"a greedy policy repeats its episodes: each of the {len(played)} starts is played once")
    found = with_margin(measures)
    name = f"{agent.algorithm.title}, {policy}, {starts} starts ({len(measures)} episodes)"
    rows = per_episode(measures) if each else {}
    print_measures(rows | {name: with_bounds(found, len(measures))}, console=console)
    print_margins(measures, console)
    if unknown := rules_not_known({name: found}):
        console.print(unknown, soft_wrap=True)
    if warned:
        console.print(
            f"familiarity is below {UNFAMILIAR:g} in {warned['flagged, breaking a rule']:.0%} of the states that break "
            f"a rule and in {warned['flagged, lawful']:.1%} of the other states (AUC {warned['auc']:.3f})"
        )
    parts = [starts if starts in ("unseen", "demonstrated") else Path(starts).stem, policy]
    parts += [] if episodes is None else [f"{episodes}-episodes"]
    parts += [f"seed-{seed}"] if seed else []
    parts += [] if rules is None else [Path(rules.replace(":", "-")).name.replace(".py", "")]
    parts += [] if env is None else [re.sub(r"[^\w.=-]+", "-", env).strip("-")]
    target = out or (run if run.is_dir() else run.parent) / f"evaluation-{'-'.join(parts)}.json"
    used = counted or agent.rules_of_run()
    result = {"policy": policy, "rules": None if used is None else used.source, "starts": starts, "seed": seed}
    result |= {"mean": {k: m for k, (m, _) in found.items()}, "margin": {k: w for k, (_, w) in found.items() if w == w}}
    result |= {"familiarity": warned, "episodes": measures}
    write_atomically(target, json.dumps(result, indent=1).encode() + b"\n")
    console.print(f"written: {target}")
