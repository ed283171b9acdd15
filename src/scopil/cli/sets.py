"""What the verbs say about a set of demonstrations: its measures, its unlawful states, and whether it holds up."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import gymnasium as gym
import numpy as np

from scopil.cli.finding import Finding
from scopil.cli.numbers import numbers, range_of
from scopil.demos import store
from scopil.demos.dataset import Demonstrations
from scopil.envs.registration import IDS
from scopil.errors import ConfigError, DatasetError, EnvError
from scopil.files import unsealed

SAME = 1e-4  # a replay on another machine may differ by rounding; observations are of order one


def env_id_of(setting: str) -> str:
    if setting not in IDS:
        raise ConfigError(f"unknown setting {setting!r}; want one of {', '.join(IDS)}.")
    return IDS[setting]


def make_drawn(env_id: str) -> gym.Env:
    """An environment that renders into arrays."""
    try:
        return gym.make(env_id, render_mode="rgb_array")
    except (gym.error.Error, ImportError) as error:
        raise EnvError(f"environment {env_id!r}: {error}") from error


# --- measures -------------------------------------------------------------------------------------------------------


def replayable(demos: Demonstrations):
    """The compiled environment to replay `demos` on, or None when it is not one that can be put at a start."""
    from scopil.envs.functional import compile_env

    if demos.env_id is None or demos.starts is None:
        return None
    try:
        env = compile_env(demos.env_id)
    except EnvError:
        return None
    return env if hasattr(env.env, "initial_at") else None


def measures(demos: Demonstrations, games: Sequence | None) -> list[dict[str, float]]:
    """One dict a game; without a replay only what the set itself says."""
    from scopil.evaluate.metrics import measure

    if games is not None:
        return [measure(g) for g in games]
    told = [{"steps": float(len(e)), "reached": float(e.terminated)} for e in demos]
    if demos.episodes[0].rewards is None:
        return told
    return [{"reward": e.total_reward} | m for e, m in zip(demos, told)]


def unlawful(demos: Demonstrations, games: Sequence) -> str:
    """In words: how many states break which law, and how many of them are initial ones."""
    kinds = [name for name in games[0].info if name.startswith("cost_")]
    if not kinds:
        return "this environment reports no costs"
    counts = {k.removeprefix("cost_"): int(sum((g.info[k] > 0).sum() for g in games)) for k in kinds}
    first = int(sum(max(g.info[k][0] > 0 for k in kinds) for g in games))
    later = int(sum(np.any([g.info[k][1:] > 0 for k in kinds], axis=0).sum() for g in games))
    each = ", ".join(f"{kind} {count}" for kind, count in counts.items())
    return f"{each}; initial states {first}, later ones {later}, of {demos.pairs + len(demos)} states"


# --- checking -------------------------------------------------------------------------------------------------------


def findings(source: str, env_id: str | None = None) -> Iterator[Finding]:
    """Everything there is to say about a set; the first refusal (an exception) ends it."""
    demos = store.load_demos(source)
    yield Finding("format", _format(source))
    for said in demos.about.get("assumed", []):
        yield Finding("assumed", said, doubt=True)
    yield Finding("name", f"{demos.name}, environment {demos.env_id or 'not named'}")
    steps = [len(e) for e in demos]
    yield Finding("games", f"{len(demos)} with {demos.pairs} pairs, {min(steps)} to {max(steps)} steps each")
    yield from numbers(demos)
    yield Finding("rewards", _rewards(demos))
    yield Finding("ends", _ends(demos))
    if env_id is not None:
        yield _trainable(demos, env_id)
    yield from _against_env(demos)


def _trainable(demos: Demonstrations, env_id: str) -> Finding:
    """Asked of those who ask before training."""
    from scopil.demos.fit_to_env import fit
    from scopil.envs.host import open_env
    from scopil.train.loops import as_seen
    from scopil.train.offpolicy import demo_pairs

    env = open_env(env_id)
    try:
        demo_pairs(as_seen(fit(demos, env), env), env)
    except DatasetError as error:
        return Finding("environment", str(error), good=False)
    finally:
        env.close()
    return Finding("environment", f"fits {env_id}")


def _against_env(demos: Demonstrations) -> Iterator[Finding]:
    from scopil.evaluate.games import replay

    env = replayable(demos)
    starts = (
        "none given" if demos.starts is None else f"{len(np.unique(demos.starts, axis=0))} different ones"
    )
    yield Finding("starts", starts)
    if env is None:
        why = "it needs starts and an environment that can be put at them"
        yield Finding("replay", f"not possible: {why}")
        return
    for what in ("observation_space", "action_space"):
        found, wanted = getattr(demos, what), getattr(env, what)
        if found != wanted:
            yield Finding("spaces", f"{what} {found}; the environment has {wanted}", good=False)
            return
    try:
        games = replay(env, demos)
    except EnvError as error:
        yield Finding("replay", str(error), good=False)
        return
    yield compare(demos, games)
    yield Finding("unlawful", unlawful(demos, games))


def compare(demos: Demonstrations, games: Sequence) -> Finding:
    """The same actions from the same starts must show the same states, rewards and ends."""
    worst = 0.0
    for i, (e, g) in enumerate(zip(demos, games)):
        if g.steps != len(e):
            return Finding("replay", f"game {i} ends after {g.steps} steps; the set has {len(e)}", good=False)
        if (g.terminated, g.truncated) != (e.terminated, e.truncated):
            return Finding("replay", f"game {i} ends otherwise than the set says", good=False)
        apart = float(np.abs(g.observations - e.observations).max())
        if e.rewards is not None:
            apart = max(apart, float(np.abs(g.rewards - e.rewards).max()))
        if apart > SAME:
            return Finding("replay", f"game {i} differs by {apart:.2g}; want at most {SAME:g}", good=False)
        worst = max(worst, apart)
    return Finding("replay", "equal to the last bit" if worst == 0 else f"equal within {worst:.1g}")


def _format(source: str) -> str:
    if source.startswith("minari:"):
        return "Minari dataset"
    path = store.library().get(source, Path(source))
    if path.is_dir() or path.suffix == ".csv":
        return "tables, one file a game, no checksum"
    if unsealed(path.read_bytes()) is not None:
        return f"{store.FORMAT} version {store.VERSION}, checksum matches"
    return "plain .npz, no checksum"


def _rewards(demos: Demonstrations) -> str:
    if demos.episodes[0].rewards is None:
        return "none given"
    joined = np.concatenate([e.rewards for e in demos])  # type: ignore[arg-type]
    return f"{range_of(joined)}, all finite"


def _ends(demos: Demonstrations) -> str:
    done, late = sum(e.terminated for e in demos), sum(e.truncated for e in demos)
    neither = sum(not e.terminated and not e.truncated for e in demos)
    return f"{done} by the task, {late} by the clock, {neither} cut off"
