"""`scopil demos`: list, show, record, generate, correct, check, export and import demonstrations; estimate how many
suffice; read people's games of Needle Master."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.table import Table

from scopil.cli.options import EnvKwargs, MaxSteps, RulesOption, TrustEnv, call, env_name, option
from scopil.cli.waiting import counting
from scopil.config import checked_seed
from scopil.data import storage
from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.naming import setting_id
from scopil.errors import ConfigError, DatasetError, EnvError
from scopil.terminal import Console, say
from scopil.user_code import load_object
from scopil_bench.cli import demo_checks
from scopil_bench.cli.enough import enough

Source = Annotated[
    tyro.conf.Positional[str],
    tyro.conf.arg(help="a shipped set, a .npz, a folder of .csv or minari:ID", metavar="NAME"),
]
Out = Annotated[Path, tyro.conf.arg(help="file to write, .npz", metavar="FILE")]


def main(argv: list[str]) -> int | None:
    commands = {"list": list_sets, "show": show, "record": record, "generate": generate, "check": check}
    commands |= {"export": export, "import": import_, "enough": enough, "needle-master": needle_master}
    # The studio has the keyboard and the window; it imports this package, so this package finds it by name.
    commands["correct"] = import_module("scopil_studio.correct").correct
    about = "Sets of demonstrations: the shipped ones, your own files, and Minari's."
    return call(commands, "scopil demos", argv, description=about)


def list_sets() -> None:
    """The sets that come with scopil."""
    table = Table(box=None, pad_edge=False)
    for column in ("name", "episodes", "pairs", "steps"):
        table.add_column(column, justify="left" if column == "name" else "right", no_wrap=True)
    table.add_column("environment")
    for name, path in storage.library().items():
        demos = storage.read(path)
        steps = demos.statistics()["steps"]
        table.add_row(name, str(len(demos)), str(demos.pairs), f"{steps:.1f}", demos.env_id)
    _console().print(table)
    say("\nFor more about a set: scopil demos show NAME. To load one in Python: scopil.load_demos(NAME).")


def show(
    name: Source,
    plot: Annotated[
        Path | None, option(help="also draw all episodes from above (png, pdf, svg)", metavar="FILE")
    ] = None,
    rules: RulesOption = None,
    trust_env: TrustEnv = False,
) -> None:
    """Statistics of a set, and its violations."""
    given = _rules(rules)
    _print_set(storage.load_demos(name), plot, given, trust_env)


def _print_set(demos: Demonstrations, plot: Path | None = None, rules: Any = None, trust_env: bool = False) -> None:
    from scopil.eval.episodes import replay

    env = demo_checks.replay_env(demos, trust_env)
    draw = None if plot is None else _drawing(demos, env, plot)
    episodes = None if env is None else replay(env, demos)
    console = _console()
    console.print(f"{demos.name}  ({demos.env_id or 'no environment named'})", style="bold")
    for key, value in demos.about.items():
        console.print(f"  {key}: {_brief(value)}", soft_wrap=True)
    console.print()
    console.print(_statistics(demos, None if env is None else env.hook("measures"), episodes))
    terminated = 100 * np.mean([e.terminated for e in demos])
    console.print(f"{terminated:.0f} % of the episodes were terminated by the task")
    if episodes is None:
        console.print(f"not replayed: {demo_checks.why_no_replay(demos, trust_env)}", soft_wrap=True)
    else:
        console.print(f"violations: {demo_checks.count_violations(episodes)}", soft_wrap=True)
    if rules is not None:
        judged = demo_checks.judge(demos, demo_checks.known_env(demos, None, trust_env), rules)
        console.print(f"by {rules.source}: {demo_checks.rule_counts(judged, rules)}")
    if draw is not None:
        draw(episodes)
        console.print(f"drawn: {plot}", soft_wrap=True)


def _brief(value: Any) -> Any:
    """A value of `about` on one line. A list of dicts (players) is shown as its length and its values' ranges."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    if isinstance(value, list) and len(value) > 1 and all(isinstance(v, dict) for v in value):
        ranges = (f"{k} {min(v[k] for v in value)} to {max(v[k] for v in value)}" for k in value[0])
        return f"{len(value)}: {', '.join(ranges)}"
    return value


def _drawing(demos: Demonstrations, env: Any, plot: Path) -> Callable[[Any], None]:
    """The function that draws episodes into `plot`. Raises before any episode is played if drawing is impossible."""
    from scopil.eval.pictures import check_ending, save_panels

    check_ending(plot)
    draw = None if env is None else env.drawing()
    if env is None or draw is None:
        raise EnvError(f"--plot cannot draw {demos.name}; want starts and an environment with draw_episodes.")
    title = f"{demos.name}: {len(demos)} episodes"
    return lambda episodes: save_panels(plot, draw, {title: episodes})


def _statistics(
    demos: Demonstrations, further: Callable[[Episode], dict[str, float]] | None, episodes: Sequence[Episode] | None
) -> Table:
    """Reward, steps and the environment's own measures of each episode."""
    table = Table(box=None, pad_edge=False, show_edge=False)
    for column in ("", "mean", "std", "min", "max"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for what, count in {"episodes": len(demos), "pairs": demos.pairs}.items():
        table.add_row(what, str(count), "", "", "")
    rewarded = demos.episodes[0].rewards is not None
    measured = {"reward": [e.total_reward for e in demos]} if rewarded else {}
    measured["steps"] = [float(len(e)) for e in demos]
    rows = [] if further is None or episodes is None else [further(e) for e in episodes]
    measured |= {key: [row[key] for row in rows] for key in (rows[0] if rows else ())}
    for key, values in measured.items():
        table.add_row(f"{key} per episode", *(f"{f(values):.2f}" for f in (np.mean, np.std, np.min, np.max)))
    return table


def record(
    env: Annotated[str, tyro.conf.arg(help="a Gymnasium id, or FILE.py:CLASS", metavar="ID")],
    policy: Annotated[
        str, tyro.conf.arg(help="the expert: FILE.py:FUNCTION, from observation to action", metavar="FILE.py:NAME")
    ],
    out: Out,
    episodes: Annotated[int, tyro.conf.arg(help="number of episodes", metavar="N")] = 50,
    seed: Annotated[int, tyro.conf.arg(help="seed of the first episode", metavar="S")] = 0,
    env_kwargs: EnvKwargs = (),
    max_episode_steps: MaxSteps = None,
    rules: RulesOption = None,
) -> None:
    """Record episodes of a scripted expert into a file."""
    if episodes < 1:
        raise ConfigError(f"--episodes {episodes}; want at least 1.")
    checked_seed(seed)
    _refuse_unwritable(out)
    expert, given = load_object(policy, "--policy my_expert.py:act"), _rules(rules)
    from scopil.data import record as recording  # imports JAX

    name = env_name(env, env_kwargs, max_episode_steps)
    with counting("episodes recorded", episodes) as advance:
        demos = recording.record(name, expert, episodes, seed=seed, name=out.stem, progress=lambda done: advance(1))
    storage.write(demos, out)
    _print_set(demos, rules=given, trust_env=True)  # the caller has named the environment
    say(f"written: {out}")


def generate(
    setting: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(help="simple, multiple or two-modes", metavar="SETTING")
    ],
    out: Out,
    seed: Annotated[int, tyro.conf.arg(help="the same seed gives the same episodes", metavar="S")] = 0,
    episodes: Annotated[int, tyro.conf.arg(help="number of episodes", metavar="N")] = 40,
) -> None:
    """Write a Marble Maze set played by a planner (a second or two per episode)."""
    setting_id(setting)
    checked_seed(seed)
    if episodes < 1:
        raise ConfigError(f"--episodes {episodes}; want at least 1.")
    _refuse_unwritable(out)
    from scopil_bench.marble_maze import generate as planner

    with counting("episodes played", episodes) as advance:
        demos = planner.generate(setting, seed, episodes, progress=lambda done, total: advance(1))
    storage.write(demos, out)
    _print_set(demos)
    say(f"written: {out}")


def needle_master(
    data: Annotated[
        tyro.conf.Positional[Path], tyro.conf.arg(help="folder of environment_….txt and trial_….csv", metavar="DIR")
    ],
    out: Out,
    left_out: Annotated[tuple[int, ...], option("levels without demonstrations: --left-out 1 5 8", "N")] = (),
) -> None:
    """Write people's games of Needle Master as a set, and print how often people break each rule."""
    _refuse_unwritable(out)
    from scopil_bench.studies.needle_master import people

    demos = people.demonstrations(data.absolute(), left_out)
    storage.write(demos, out)
    _print_set(demos, trust_env=True)  # the caller has named the folder
    say(f"written: {out}")


def _refuse_unwritable(out: Path) -> None:
    """Raise before the work starts if `out` is a folder or has the ending of another format."""
    storage.refuse_ending(out)
    if out.is_dir():
        raise DatasetError(f"--out {out} is a folder; want a file name such as {out / 'mine.npz'}.")


def check(
    source: Source,
    env: Annotated[str | None, option(help="also check whether it fits this environment", metavar="ID")] = None,
    rules: RulesOption = None,
    trust_env: TrustEnv = False,
) -> int:
    """Check a set: content, assumptions, alignment, replay. Exit code 2 if a check fails."""
    failed = []
    for result in demo_checks.run_checks(source, env, trust_env, _rules(rules)):
        say(f"{result.mark:<5}{result.what:<13}{result.text}", flush=True)
        failed += [] if result.ok else [result.what]
    if failed:
        raise DatasetError(f"{source}: failed: {', '.join(failed)}.")
    return 0


def export(
    file: Source,
    minari: Annotated[str, tyro.conf.arg(help="(namespace/)name-v0", metavar="ID")],
    overwrite: Annotated[bool, option(help="replace a dataset of that id")] = False,
) -> None:
    """Write a set as a local Minari dataset, without loss of data."""
    from scopil.data.minari import to_minari

    demos = storage.load_demos(file)
    folder = to_minari(demos, minari, overwrite=overwrite)
    say(f"{minari}: {len(demos)} episodes, {demos.pairs} pairs in {folder}")


def import_(
    source: Source,
    out: Out,
    env: Annotated[str | None, option(help="the environment of the recording; sets the spaces", metavar="ID")] = None,
    name: Annotated[str | None, option(help="a new name for the set", metavar="NAME")] = None,
) -> None:
    """Convert tables, plain arrays or a Minari dataset into a file with a checksum."""
    _refuse_unwritable(out)
    demos = storage.load_demos(source)
    was = demos.digest
    if env is not None:  # convert the episodes to the environment's spaces and check them again
        from scopil.data.fit_to_env import fit_to_env, into_spaces  # imports JAX

        fitted = fit_to_env(demos, env)
        demos = replace(into_spaces(demos, env) if fitted is demos else fitted, env_id=env)
    if name is not None:
        demos = replace(demos, name=name)
    if "source" in demos.about:  # the source has another format without a checksum
        demos = replace(demos, about=demos.about | {"source_sha256": was})
    storage.write(demos, out)
    for sentence in demos.about.get("assumed", []):
        say(f"assumed: {sentence}")
    say(f"{out}: {len(demos)} episodes, {demos.pairs} pairs, {demos.observation_space}, {demos.action_space}")


def _rules(name: str | None) -> Any:
    if name is None:
        return None
    from scopil.eval.rules import load_rules  # imports JAX

    return load_rules(name)


def _console() -> Console:
    return Console(highlight=False)
