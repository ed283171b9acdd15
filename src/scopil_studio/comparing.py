"""Compare policies: paths from a chosen start on a Marble Maze tray, frames from one seed in other environments."""

import tempfile
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from scopil.agent import Agent
from scopil.data import storage
from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.base import cost_of
from scopil.envs.gym_env import open_env
from scopil.envs.jax_env import make_env
from scopil.envs.marble_maze import MarbleParams
from scopil.envs.marble_maze.physics import HOLE_RADIUS, REACH
from scopil.envs.marble_maze.plots import cost_grid
from scopil.envs.spaces import Spaces
from scopil.errors import CheckpointError, ConfigError
from scopil.eval import starts as where
from scopil.eval.measures import breaks_a_rule, measure
from scopil.eval.rules import load_rules, with_rules
from scopil.loading import load
from scopil.nn.distributions import Categorical
from scopil.serialization import read_note
from scopil.train.run import Run
from scopil_bench.images import write_gif, write_mp4
from scopil_studio import recorder, trays
from scopil_studio.listing import plain
from scopil_studio.paths import inside, refuse_outside
from scopil_studio.recording import jpeg
from scopil_studio.watching import RUN_FILES, set_path
from scopil_studio.worker import StudioConfig

MOST_POLICIES = 4
NEAR = 3  # demonstrations shown with a start
FRAMES = 400  # maximum per episode; of a longer episode, only every second, third, … frame is shown
STEPS = 2000  # maximum steps of a drawn episode
MAP_SIDE = 24  # starts along a side of the map
MAP_CHUNK = 64  # starts in one compiled call
COST_SIDE = 41
_opened = lru_cache(maxsize=8)(open_env)


def tray(config: StudioConfig, env: str) -> Any:
    """Sizes and picture of the tray; `tray` is None if the environment is not a Marble Maze."""
    config.refuse_env(env)
    params = trays.tray_of(_opened(env))
    if params is None:
        return {"tray": None}
    sizes, picture = trays.described(params)
    return {"tray": sizes, "type": "image/png"}, picture


def roll(config: StudioConfig, env: str, policies: list[str], start: list[float], demos: str = "") -> dict[str, Any]:
    """A greedy episode of each policy from `start` (x, y in px), and the demonstrations that start nearest to it."""
    agents = _agents(config, env, policies)
    params, first = _params(env), np.array(start, np.float32)
    _opened(env).starts_at(first[None])  # raises if the start is off the tray or in the hole
    near, shown = [], _demonstrations(config, env, demos, agents)
    if shown is not None:
        firsts = np.stack([trays.positions(e.observations[0]) for e in shown])
        for i in np.argsort(np.hypot(*(firsts - first).T), kind="stable")[:NEAR]:
            title = {"title": f"episode {i + 1} of {shown.name}"}
            near.append(replayed(config, shown.episodes[i], params) | title)
    return {"policies": [_rolled(config, name, agent, first) for name, agent in zip(policies, agents)], "near": near}


def _rolled(config: StudioConfig, name: str, agent: Agent, start: np.ndarray) -> dict[str, Any]:
    (played,) = agent.play(start[None], rules=config.rules)
    return {
        "name": name,
        "title": agent.algorithm.title,
        "positions": played.info["position"].astype(float).tolist(),
        "tilts": trays.tilts(played.observations).tolist(),
        "actions": played.actions.tolist(),
        "broken": breaks_a_rule(played).tolist(),
        "measures": measure(played),
    } | _by_state(agent, played)


def _by_state(agent: Agent, played: Episode) -> dict[str, Any]:
    """Action probabilities and familiarity in every state but the last."""
    seen = played.observations[:-1]
    rows = trays.whole_batches(seen)
    pi = agent.policy.distribution(jnp.asarray(rows))
    chances = np.asarray(pi.probs)[: len(seen)].round(4).tolist() if isinstance(pi, Categorical) else None
    familiar, why = None, "no familiarity learned"
    try:
        if agent.monitor() is not None:
            familiar = agent.familiarity(rows)[: len(seen)].round(4).tolist()
    except CheckpointError:  # the policy can still be played
        why = "no familiarity: the learner's state is of another version"
    return {"chances": chances, "familiarity": familiar, "unfamiliar": why}


def replayed(config: StudioConfig, episode: Episode, params: MarbleParams) -> dict[str, Any]:
    """The path of a recorded episode, from its observations."""
    path = trays.positions(episode.observations)
    judged = None if config.rules is None else with_rules([episode], load_rules(config.rules))[0]
    return {
        "positions": path.tolist(),
        "tilts": trays.tilts(episode.observations).tolist(),
        "broken": (trays.violating(params, path) if judged is None else breaks_a_rule(judged)).tolist(),
    }


def starts_map(config: StudioConfig, env: str, policy: str, part: int) -> dict[str, Any]:
    """The policy's violations from one part of a grid of starts. Parts go from coarse to fine, so that the map fills
    evenly."""
    (agent,) = _agents(config, env, [policy])
    grid = _grid(_params(env))
    parts = -(-len(grid) // MAP_CHUNK)
    if not 0 <= part < parts:
        raise ConfigError(f"part {part}; the map has parts 0 … {parts - 1}.")
    mine = grid[part * MAP_CHUNK : (part + 1) * MAP_CHUNK]
    played = agent.play(np.resize(mine, (MAP_CHUNK, 2)), rules=config.rules)[: len(mine)]
    found = [measure(episode) for episode in played]
    return {
        "parts": parts,
        "cell": 2 * REACH / (MAP_SIDE - 1),
        "starts": mine.astype(float).tolist(),
        "violations": [m.get("avoidable", 0.0) for m in found],  # violations at the start itself do not count
        "reached": [episode.terminated for episode in played],
    }


def cost_map(config: StudioConfig, policy: str) -> dict[str, Any]:
    """The learned cost over the tray, averaged over actions; None if the algorithm learns no cost."""
    folder = inside(config.folder, policy)
    cost = Run.open(folder).learned_cost() if folder.is_dir() else None
    if cost is None:
        return {"cost": None}
    env = Run.open(folder).spec.env
    return {"cost": cost_grid(cost, _params(env), COST_SIDE).mean(-1).round(4).tolist(), "reach": REACH}


@lru_cache(maxsize=8)
def _grid(params: MarbleParams) -> np.ndarray:
    """Starts (N, 2) on a grid, outside the hole, ordered from a coarse grid to a fine one."""
    line = np.arange(MAP_SIDE)
    cells = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    level = sum((cells % every == 0).all(-1).astype(int) for every in (2, 4, 8))
    grid = np.linspace(-REACH, REACH, MAP_SIDE, dtype=np.float32)[cells[np.argsort(-level, kind="stable")]]
    return grid[np.hypot(*(grid - np.array(params.hole, np.float32)).T) > HOLE_RADIUS + 1.0]


def frames(config: StudioConfig, env: str, policies: list[str], seed: int) -> tuple[dict[str, Any], bytes]:
    """One episode per policy, all from the same seed. Returns the sizes of the frames in bytes, and the frames."""
    shown = [_drawn(config, env, _greedy(agent), seed) for agent in _agents(config, env, policies)]
    return _pictures(zip(policies, shown))


def replay(config: StudioConfig, name: str, mark: str) -> Any:
    """A recorded episode: its path on the tray, or frames from replaying its actions with its seed."""
    demos, index = recorder.find(set_path(config, name), mark)
    if demos.env_id is None:
        raise ConfigError(f"{name} has no id of an environment.")
    config.refuse_env(demos.env_id)
    episode = demos.episodes[index]
    params = trays.tray_of(_opened(demos.env_id))
    if params is not None:
        return replayed(config, episode, params)
    recorded = demos.about.get("recorded", [])
    at = index - (len(demos) - len(recorded))
    if at < 0:
        raise ConfigError("this episode cannot be played again: its seed is not known, since it was not recorded here.")
    actions = iter(episode.actions)
    return _pictures([(name, _drawn(config, demos.env_id, lambda obs: next(actions, None), int(recorded[at]["seed"])))])


def download(
    config: StudioConfig, kind: str, env: str, policies: list[str], start: list[float] | None = None, seed: int = 0
) -> tuple[dict[str, Any], bytes]:
    """The episodes as a file: gif or mp4 (policies side by side), or npz (arrays)."""
    if kind not in ("gif", "mp4", "npz"):
        raise ConfigError(f"kind {kind[:20]!r}; want gif, mp4 or npz.")
    agents = _agents(config, env, policies)
    shown = [_drawn(config, env, _greedy(agent), seed, start, draw=kind != "npz") for agent in agents]
    about = {"type": "application/octet-stream"}
    if kind == "npz":
        arrays = {f"{i}:{k}": np.asarray(s[k]) for i, s in enumerate(shown) for k in s if k != "frames"}
        return about, storage.pack({"policies": np.array(policies)} | arrays)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"compare.{kind}")
        (write_mp4 if kind == "mp4" else write_gif)(file, _side_by_side([s["frames"] for s in shown]))
        return about, file.read_bytes()


def _greedy(agent: Agent) -> Any:
    return lambda obs: agent.predict(obs, deterministic=True)[0]


def _drawn(
    config: StudioConfig, env: str, act: Any, seed: int, start: list[float] | None = None, draw: bool = True
) -> dict[str, Any]:
    """An episode played step by step, with its frames. `act` maps an observation to an action, or to None to stop."""
    made = make_env(env, render_mode="rgb_array" if draw else None)
    try:
        options = None if start is None else {"start": np.array(start, np.float32)}
        obs, info = made.reset(seed=seed, options=options)
        stored = Spaces(env, made.observation_space, made.action_space).to_stored
        seen, actions, rewards = [stored(obs)], [], []
        given = deepcopy(obs)  # an environment may change its own array
        costs = [0.0 if config.step_cost else cost_of(info)]
        pictures = [np.asarray(made.render())] if draw else []
        while len(actions) < STEPS and (action := act(obs)) is not None:
            obs, reward, terminated, truncated, info = made.step(action)
            seen.append(stored(obs))
            before, given = given, deepcopy(obs)
            actions.append(np.array(action))
            rewards.append(float(reward))
            judged = config.step_cost and config.step_cost(before, actions[-1], given, info)
            costs.append(cost_of(info) if judged is None else judged)
            pictures += [np.asarray(made.render())] if draw else []
            if terminated or truncated:
                break
    finally:
        made.close()
    known = {} if set(costs) == {None} else {"costs": [cost or 0.0 for cost in costs]}  # else no rule is known
    return {"observations": seen, "actions": actions, "rewards": rewards, "frames": pictures} | known


def _pictures(shown: Any) -> tuple[dict[str, Any], bytes]:
    about, pieces = [], []
    for name, episode in shown:
        every = -(-len(episode["frames"]) // FRAMES)
        mine = [jpeg(picture) for picture in episode["frames"][::every]]
        pieces += mine
        shared = {"rewards": episode["rewards"], "costs": episode.get("costs")}
        about.append(shared | {"name": name, "every": every, "sizes": list(map(len, mine))})
    return {"policies": about, "type": "application/octet-stream"}, b"".join(pieces)


def _side_by_side(episodes: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Frames that show the same step of every episode. An episode that has ended keeps its last frame."""
    longest, tallest = max(map(len, episodes)), max(e[0].shape[0] for e in episodes)
    tall = [[np.pad(p, ((0, tallest - len(p)), (0, 0), (0, 0))) for p in e] for e in episodes]
    return [np.concatenate([e[min(t, len(e) - 1)] for e in tall], axis=1) for t in range(longest)]


def _agents(config: StudioConfig, env: str, names: list[str]) -> list[Agent]:
    config.refuse_env(env)
    if not 1 <= len(names) <= MOST_POLICIES:
        raise ConfigError(f"{len(names)} policies; want 1 … {MOST_POLICIES}.")
    agents = [_agent(config, name) for name in names]
    if other := [name for name, agent in zip(names, agents) if agent.env_id != env]:
        raise ConfigError(f"{other[0]} was trained on another environment; want {env}.")
    return agents


def _agent(config: StudioConfig, name: str) -> Agent:
    path = inside(config.folder, name)
    refuse_outside(config.folder, path, *(path / file for file in RUN_FILES))
    file = Run.open(path).newest_policy() if path.is_dir() else plain(path)
    return _loaded(path, file.stat().st_mtime_ns, config.envs)


@lru_cache(maxsize=8)
def _loaded(path: Path, changed: int, envs: tuple[str, ...]) -> Agent:
    """The agent, read once per version of its file. `envs` names the environments that may import code."""
    names = (Run.open(path).note() if path.is_dir() else read_note(path)).get("env")
    return load(path, trust_env=names in envs)


def _params(env: str) -> MarbleParams:
    params = trays.tray_of(_opened(env))
    if params is None:
        raise ConfigError(f"{env} has no tray; compare its policies by seed.")
    return params


def _demonstrations(config: StudioConfig, env: str, name: str, agents: list[Agent]) -> Demonstrations | None:
    """The set called `name`. If `name` is empty: the demonstrations of a policy, or the environment's built-in set."""
    if name:
        demos = storage.read(set_path(config, name))
        if demos.env_id not in (env, None):
            raise ConfigError(f"{name} holds episodes of {demos.env_id}; want {env}.")
        return demos
    return next((agent.demos for agent in agents if agent.demos is not None), where.demos_for(env))
