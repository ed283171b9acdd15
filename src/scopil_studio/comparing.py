"""Policies from one start, side by side: on a tray from wherever it was clicked, elsewhere by seed, as frames."""

import io
import tempfile
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from scopil.agent import Agent
from scopil.data import editing, storage
from scopil.data.dataset import Demonstrations, Episode
from scopil.data.record import row_of
from scopil.envs.base import BatchEnv, cost_of
from scopil.envs.gym_env import open_env
from scopil.envs.jax_env import make_env
from scopil.envs.marble_maze import MarbleParams
from scopil.envs.marble_maze.constraint_map import cost_grid
from scopil.envs.marble_maze.physics import HOLE_RADIUS, REACH
from scopil.errors import CheckpointError, ConfigError
from scopil.eval import starts as where
from scopil.eval.measures import measure
from scopil.eval.rules import load_rules, with_rules
from scopil.images import write_gif, write_mp4
from scopil.loading import load
from scopil.nn.distributions import Categorical
from scopil.serialization import read_note
from scopil.train.run import Run
from scopil_studio import trays
from scopil_studio.places import inside, refuse_outside
from scopil_studio.recording import jpeg
from scopil_studio.watching import RUN_FILES, set_path
from scopil_studio.worker import Setting, broken

MOST_POLICIES = 4
NEAR = 3  # demonstrations shown beside a start
FRAMES = 400  # of an episode at most; of longer ones every second, third, … is shown
STEPS = 2000  # of an episode that is drawn, at most
MAP_SIDE = 24  # starts a side of the map
MAP_CHUNK = 64  # starts in one compiled call
COST_SIDE = 41
_ROWS = 256  # observations in one compiled call


# --- on a tray ----------------------------------------------------------------------------------------------------


def tray(setting: Setting, env: str) -> Any:
    """Sizes and picture of a tray; `tray` is null for an environment that has none."""
    setting.refuse_env(env)
    params = trays.tray_of(_opened(env))
    if params is None:
        return {"tray": None}
    sizes, picture = trays.described(params)
    return {"tray": sizes, "type": "image/png"}, picture


def roll(setting: Setting, env: str, policies: list[str], start: list[float], demos: str = "") -> dict[str, Any]:
    """An episode of each policy from exactly `start`, greedy, and the demonstrations that begin near it."""
    agents = _agents(setting, env, policies)
    params, first = _params(env), np.array(start, np.float32)
    where.states_at(_opened(env), first[None])  # refuses a start that is not on the tray, or in the hole
    shown = _demonstrations(setting, env, demos, agents)
    return {
        "policies": [_rolled(setting, name, agent, first) for name, agent in zip(policies, agents)],
        "near": [] if shown is None else _near(setting, shown, params, first),
    }


def _rolled(setting: Setting, name: str, agent: Agent, start: np.ndarray) -> dict[str, Any]:
    (played,) = agent.play(start[None], rules=setting.rules)
    return {"name": name, "title": agent.algorithm.title} | _path(played) | _thoughts(agent, played)


def _path(played: Episode) -> dict[str, Any]:
    return {
        "positions": played.info["position"].astype(float).tolist(),
        "tilts": trays.tilts(played.observations).tolist(),
        "actions": played.actions.tolist(),
        "broken": broken(played).tolist(),
        "terminated": played.terminated,
        "measures": measure(played),
    }


def _thoughts(agent: Agent, played: Episode) -> dict[str, Any]:
    """What the policy would do in every state but the last, and how familiar the states are to it."""
    seen = played.observations[:-1]
    rows = np.zeros((-(-len(seen) // _ROWS) * _ROWS, *seen.shape[1:]), np.float32)
    rows[: len(seen)] = seen  # whole batches: one compiled program for episodes of any length
    pi = agent.policy.distribution(jnp.asarray(rows))
    chances = np.asarray(pi.probs)[: len(seen)].round(4).tolist() if isinstance(pi, Categorical) else None
    familiar, why = None, "learns no familiarity"
    try:
        if agent.monitor() is not None:
            familiar = agent.familiarity(rows)[: len(seen)].round(4).tolist()
    except CheckpointError:  # its policy plays all the same
        why = "no familiarity: its learner is of another version"
    return {"chances": chances, "familiarity": familiar, "unfamiliar": why}


def _near(setting: Setting, demos: Demonstrations, params: MarbleParams, start: np.ndarray) -> list[dict[str, Any]]:
    firsts = np.stack([trays.positions(e.observations[0]) for e in demos])
    order = np.argsort(np.hypot(*(firsts - start).T), kind="stable")[:NEAR]
    return [replayed(setting, demos.episodes[i], params) | {"title": f"episode {i + 1} of {demos.name}"} for i in order]


def replayed(setting: Setting, episode: Episode, params: MarbleParams) -> dict[str, Any]:
    """The path of a recorded episode, from what it observed."""
    path = trays.positions(episode.observations)
    judged = None if setting.rules is None else with_rules([episode], load_rules(setting.rules))[0]
    return {
        "positions": path.tolist(),
        "tilts": trays.tilts(episode.observations).tolist(),
        "broken": (trays.broken(params, path) if judged is None else broken(judged)).tolist(),
        "terminated": episode.terminated,
    }


def starts_map(setting: Setting, env: str, policy: str, part: int) -> dict[str, Any]:
    """Violations that the policy makes from the starts of one part of a grid. The parts come from coarse to fine, so
    that the map fills evenly."""
    (agent,) = _agents(setting, env, [policy])
    grid = _grid(_params(env))
    parts = -(-len(grid) // MAP_CHUNK)
    if not 0 <= part < parts:
        raise ConfigError(f"part {part}; the map has parts 0 … {parts - 1}.")
    mine = grid[part * MAP_CHUNK : (part + 1) * MAP_CHUNK]
    played = agent.play(np.resize(mine, (MAP_CHUNK, 2)), rules=setting.rules)[: len(mine)]
    found = [measure(episode) for episode in played]
    return {
        "parts": parts,
        "cell": 2 * REACH / (MAP_SIDE - 1),
        "starts": mine.astype(float).tolist(),
        "violations": [m.get("avoidable", 0.0) for m in found],  # without those of the start itself
        "reached": [episode.terminated for episode in played],
    }


def cost_map(setting: Setting, policy: str) -> dict[str, Any]:
    """The learned cost over the tray, its mean over actions; null where the algorithm learns none."""
    folder = inside(setting.folder, policy)
    cost = Run.open(folder).learned_cost() if folder.is_dir() else None
    if cost is None:
        return {"cost": None}
    env = Run.open(folder).spec.env
    return {"cost": cost_grid(cost, _params(env), COST_SIDE).mean(-1).round(4).tolist(), "reach": REACH}


@lru_cache(maxsize=8)
def _grid(params: MarbleParams) -> np.ndarray:
    """Starts on a grid, none in the hole; every part of the order covers the tray."""
    line = np.linspace(-REACH, REACH, MAP_SIDE, dtype=np.float32)
    x, y = (axis.ravel() for axis in np.meshgrid(line, line))
    level = np.zeros(len(x), int)
    column, row = (axis.ravel() for axis in np.meshgrid(np.arange(MAP_SIDE), np.arange(MAP_SIDE)))
    for every in (2, 4, 8):
        level += (column % every == 0) & (row % every == 0)
    order = np.argsort(-level, kind="stable")
    grid = np.stack([x, y], axis=1)[order]
    return grid[np.hypot(*(grid - np.array(params.hole, np.float32)).T) > HOLE_RADIUS + 1.0]


# --- anywhere -----------------------------------------------------------------------------------------------------


def frames(setting: Setting, env: str, policies: list[str], seed: int) -> tuple[dict[str, Any], bytes]:
    """An episode of each policy from the same seed, as pictures: their sizes in bytes, then the pictures themselves."""
    shown = [_drawn(setting, env, _acting(agent), seed) for agent in _agents(setting, env, policies)]
    return _pictures(zip(policies, shown))


def replay(setting: Setting, name: str, mark: str) -> Any:
    """A recorded episode again: its path on a tray, or pictures of its actions played again from its seed."""
    path = set_path(setting, name)
    demos = storage.read(path)
    found = [i for i, episode in enumerate(demos) if editing.mark_of(episode) == mark]
    if not found or demos.env_id is None:
        raise ConfigError(f"{name} has no such episode, or does not name its environment.")
    setting.refuse_env(demos.env_id)
    episode = demos.episodes[found[0]]
    params = trays.tray_of(_opened(demos.env_id))
    if params is not None:
        return replayed(setting, episode, params)
    recorded = demos.about.get("recorded", [])
    at = found[0] - (len(demos) - len(recorded))
    if at < 0:
        raise ConfigError("this episode was not recorded here: its seed is not known, so it cannot be played again.")
    actions = iter(episode.actions)
    return _pictures(
        [(name, _drawn(setting, demos.env_id, lambda obs: next(actions, None), int(recorded[at]["seed"])))]
    )


def download(
    setting: Setting, kind: str, env: str, policies: list[str], start: list[float] | None = None, seed: int = 0
) -> tuple[dict[str, Any], bytes]:
    """What is shown, as a file: gif or mp4 (policies side by side), or npz (the episodes' arrays)."""
    if kind not in ("gif", "mp4", "npz"):
        raise ConfigError(f"kind {kind[:20]!r}; want gif, mp4 or npz.")
    agents = _agents(setting, env, policies)
    shown = [_drawn(setting, env, _acting(agent), seed, start, draw=kind != "npz") for agent in agents]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"compare.{kind}")
        if kind == "npz":
            buffer = io.BytesIO()
            np.savez_compressed(buffer, **_arrays(policies, shown))  # pyright: ignore[reportArgumentType]
            file.write_bytes(buffer.getvalue())
        else:
            (write_mp4 if kind == "mp4" else write_gif)(file, _side_by_side([s["frames"] for s in shown]))
        return {"type": "application/octet-stream"}, file.read_bytes()


Acting = Callable[[Any], Any]  # observation → action, or None to stop


def _acting(agent: Agent) -> Acting:
    return lambda obs: agent.predict(obs, deterministic=True)[0]


def _drawn(
    setting: Setting, env: str, act: Acting, seed: int, start: list[float] | None = None, draw: bool = True
) -> dict[str, Any]:
    """An episode, step by step, with its pictures."""
    made = make_env(env, render_mode="rgb_array" if draw else None)
    try:
        options = None if start is None else {"start": np.array(start, np.float32)}
        obs, info = made.reset(seed=seed, options=options)
        seen, actions, rewards = [row_of(obs, made.observation_space)], [], []
        given = _for_rules(obs)
        costs = [0.0 if setting.judge else cost_of(info) or 0.0]
        pictures = [np.asarray(made.render())] if draw else []
        while len(actions) < STEPS and (action := act(obs)) is not None:
            obs, reward, terminated, truncated, info = made.step(action)
            seen.append(row_of(obs, made.observation_space))
            before, given = given, _for_rules(obs)
            actions.append(np.array(action))
            rewards.append(float(reward))
            judged = setting.judge and setting.judge(before, actions[-1], given, info)
            costs.append((cost_of(info) or 0.0) if judged is None else judged)
            pictures += [np.asarray(made.render())] if draw else []
            if terminated or truncated:
                break
    finally:
        made.close()
    return {"observations": seen, "actions": actions, "rewards": rewards, "costs": costs, "frames": pictures}


def _for_rules(obs: Any) -> np.ndarray:
    """A copy of an observation as rules see it: one by names, or of several parts, as the one entry of an array."""
    if not isinstance(obs, Mapping | tuple):
        return np.array(obs)
    held = np.empty((), object)
    held[()] = deepcopy(obs)
    return held


def _pictures(shown: Any) -> tuple[dict[str, Any], bytes]:
    about, pieces = [], []
    for name, episode in shown:
        every = -(-len(episode["frames"]) // FRAMES)
        mine = [jpeg(picture) for picture in episode["frames"][::every]]
        pieces += mine
        about.append(
            {k: episode[k] for k in ("rewards", "costs")}
            | {"name": name, "every": every, "sizes": list(map(len, mine))}
        )
    return {"policies": about, "type": "application/octet-stream"}, b"".join(pieces)


def _side_by_side(episodes: list[list[np.ndarray]]) -> list[np.ndarray]:
    """All in step; one that has ended rests."""
    longest, tallest = max(map(len, episodes)), max(e[0].shape[0] for e in episodes)
    tall = [[np.pad(p, ((0, tallest - len(p)), (0, 0), (0, 0))) for p in e] for e in episodes]
    return [np.concatenate([e[min(t, len(e) - 1)] for e in tall], axis=1) for t in range(longest)]


def _arrays(names: list[str], shown: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    kept = ("observations", "actions", "rewards", "costs")
    return {f"{i}:{k}": np.asarray(s[k]) for i, s in enumerate(shown) for k in kept} | {"policies": np.array(names)}


# --- policies and environments ------------------------------------------------------------------------------------


def _agents(setting: Setting, env: str, names: list[str]) -> list[Agent]:
    setting.refuse_env(env)
    if not 1 <= len(names) <= MOST_POLICIES:
        raise ConfigError(f"{len(names)} policies; want 1 … {MOST_POLICIES}.")
    agents = [_agent(setting, name) for name in names]
    if other := [name for name, agent in zip(names, agents) if agent.env_id != env]:
        raise ConfigError(f"{other[0]} was trained on another environment than {env}.")
    return agents


def _agent(setting: Setting, name: str) -> Agent:
    path = inside(setting.folder, name)
    if path.is_dir():
        refuse_outside(setting.folder, *(path / file for file in RUN_FILES))
        changed = Run.open(path).newest_policy()
    else:
        changed = path
    return _loaded(path, changed.stat().st_mtime_ns, setting.envs)


@lru_cache(maxsize=8)
def _loaded(path: Path, changed: int, envs: tuple[str, ...]) -> Agent:
    """Read once for every state of the file. Environments that name code are those that the caller has named."""
    names = (Run.open(path).note() if path.is_dir() else read_note(path)).get("env")
    return load(path, trust_env=names in envs)


@lru_cache(maxsize=8)
def _opened(env: str) -> BatchEnv:
    return open_env(env)


def _params(env: str) -> MarbleParams:
    params = trays.tray_of(_opened(env))
    if params is None:
        raise ConfigError(f"{env} has no tray to start on; compare its policies by seed.")
    return params


def _demonstrations(setting: Setting, env: str, name: str, agents: list[Agent]) -> Demonstrations | None:
    """The set that was named, or that a policy learned from, or that is shipped for the environment."""
    if name:
        demos = storage.read(set_path(setting, name))
        if demos.env_id not in (env, None):
            raise ConfigError(f"{name} holds episodes of {demos.env_id}, not of {env}.")
        return demos
    return next((agent.demos for agent in agents if agent.demos is not None), where.demos_for(env))


VERBS: dict[str, Callable[..., Any]] = {
    "tray": tray,
    "roll": roll,
    "starts_map": starts_map,
    "cost_map": cost_map,
    "frames": frames,
    "replay": replay,
    "download": download,
}
