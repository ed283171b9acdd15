"""Compare policies: paths from a chosen start on a Marble Maze tray, frames from one seed in other environments."""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from scopil.agent import Agent
from scopil.data import storage
from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.base import BatchEnv
from scopil.envs.gym_env import open_env
from scopil.envs.jax_env import make_env
from scopil.envs.marble_maze import MarbleParams
from scopil.envs.marble_maze.physics import HOLE_RADIUS, REACH
from scopil.envs.rollout import gym_episode
from scopil.errors import CheckpointError, ConfigError, ScopilError
from scopil.eval import starts as where
from scopil.eval.measures import breaks_a_rule, broken_rules, measure
from scopil.eval.rules import Rules, by_own_rules, with_rules
from scopil.nn.distributions import Categorical
from scopil_bench.images import write_gif, write_mp4
from scopil_studio import recorder, trays
from scopil_studio.paths import folders_with
from scopil_studio.policies import Played, open_policy
from scopil_studio.recording import jpeg
from scopil_studio.watching import open_run, set_path
from scopil_studio.worker import StudioConfig

MOST_POLICIES = 4
NEAR = 3  # demonstrations shown with a start
FRAMES = 400  # maximum per episode; of a longer episode, only every second, third, … frame is shown
STEPS = 2000  # maximum steps of a drawn episode
MAP_SIDE = 24  # starts along a side of the map
MAP_CHUNK = 64  # starts in one compiled call
_opened = lru_cache(maxsize=8)(open_env)


def tray(config: StudioConfig, env: str) -> Any:
    """Sizes and picture of the tray; `tray` is None if the environment is not a Marble Maze."""
    params = trays.tray_of(_opened(_playable(config, env)))
    if params is None:
        return {"tray": None}
    sizes, picture = trays.described(params)
    return {"tray": sizes, "type": "image/png"}, picture


def roll(config: StudioConfig, env: str, policies: list[str], start: list[float], demos: str = "") -> dict[str, Any]:
    """A greedy episode of each policy from `start` (x, y in px), and the demonstrations that start nearest to it."""
    found = _policies(config, env, policies)
    params, first = _params(found[0].env), np.array(start, np.float32)
    _opened(found[0].env).starts_at(first[None])  # raises if the start is off the tray or in the hole
    near, shown = [], _demonstrations(config, env, demos, [policy.agent for policy in found])
    if shown is not None:
        firsts = np.stack([trays.positions(e.observations[0]) for e in shown])
        for i in np.argsort(np.hypot(*(firsts - first).T), kind="stable")[:NEAR]:
            title = {"title": f"episode {i + 1} of {shown.name}"}
            near.append(replayed(config, env, shown.episodes[i], params) | title)
    return {"policies": [_rolled(name, policy, first) for name, policy in zip(policies, found)], "near": near}


def _rolled(name: str, policy: Played, start: np.ndarray) -> dict[str, Any]:
    agent = policy.agent
    (played,) = agent.play(start[None])
    played, unknown = _judged(policy.rules, agent.env, played)
    return {
        "name": name,
        "unknown": unknown,
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


def replayed(config: StudioConfig, env: str, episode: Episode, params: MarbleParams) -> dict[str, Any]:
    """The path of a recorded episode, from its observations."""
    path, rules = trays.positions(episode.observations), config.rules_for(env)
    judged = None if rules is None else with_rules([episode], rules)[0]
    return {
        "positions": path.tolist(),
        "tilts": trays.tilts(episode.observations).tolist(),
        "broken": (trays.violating(params, path) if judged is None else breaks_a_rule(judged)).tolist(),
    }


def starts_map(config: StudioConfig, env: str, policy: str, part: int) -> dict[str, Any]:
    """The policy's violations from one part of a grid of starts. Parts go from coarse to fine, so that the map fills
    evenly."""
    (chosen,) = _policies(config, env, [policy])
    grid = _grid(_params(chosen.env))
    parts = -(-len(grid) // MAP_CHUNK)
    if not 0 <= part < parts:
        raise ConfigError(f"part {part}; the map has parts 0 … {parts - 1}.")
    mine = grid[part * MAP_CHUNK : (part + 1) * MAP_CHUNK]
    played = chosen.agent.play(np.resize(mine, (MAP_CHUNK, 2)))[: len(mine)]
    judged = [_judged(chosen.rules, chosen.agent.env, episode) for episode in played]
    if unknown := judged[0][1]:
        raise ConfigError(f"rules not known: {unknown}")
    found = [measure(episode) for episode, _ in judged]
    return {
        "parts": parts,
        "cell": 2 * REACH / (MAP_SIDE - 1),
        "starts": mine.astype(float).tolist(),
        "violations": [m.get("avoidable", 0.0) for m in found],  # violations at the start itself do not count
        "reached": [episode.terminated for episode in played],
    }


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
    shown = [_drawn(policy, policy.act, seed) for policy in _policies(config, env, policies)]
    return _pictures(zip(policies, shown))


def replay(config: StudioConfig, name: str, mark: str) -> Any:
    """A recorded episode: its path on the tray, or frames from replaying its actions with its seed."""
    demos, index = recorder.find(set_path(config, name), mark)
    if demos.env_id is None:
        raise ConfigError(f"{name} has no id of an environment.")
    env = _opened(_playable(config, demos.env_id))
    episode = demos.episodes[index]
    params = trays.tray_of(env)
    if params is not None:
        return replayed(config, demos.env_id, episode, params)
    recorded = demos.about.get("recorded", [])
    at = index - (len(demos) - len(recorded))
    if at < 0:
        raise ConfigError("this episode cannot be played again: its seed is not known, since it was not recorded here.")
    actions = iter(episode.actions)
    shown = Played(env, _playable(config, demos.env_id), lambda: config.rules_for(str(demos.env_id)))
    return _pictures([(name, _drawn(shown, lambda obs: next(actions, None), int(recorded[at]["seed"])))])


def download(
    config: StudioConfig, kind: str, env: str, policies: list[str], start: list[float] | None = None, seed: int = 0
) -> tuple[dict[str, Any], bytes]:
    """The episodes as a file: gif or mp4 (policies side by side), or npz (arrays)."""
    if kind not in ("gif", "mp4", "npz"):
        raise ConfigError(f"kind {kind[:20]!r}; want gif, mp4 or npz.")
    found = _policies(config, env, policies)
    shown = [_drawn(policy, policy.act, seed, start, draw=kind != "npz") for policy in found]
    about = {"type": "application/octet-stream"}
    if kind == "npz":
        arrays = {f"{i}:{k}": np.asarray(s[k]) for i, s in enumerate(shown) for k in s if k not in ("frames", "about")}
        return about, storage.pack({"policies": np.array(policies)} | arrays)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"compare.{kind}")
        (write_mp4 if kind == "mp4" else write_gif)(file, _side_by_side([s["frames"] for s in shown]))
        return about, file.read_bytes()


def _drawn(policy: Played, act: Any, seed: int, start: list[float] | None = None, draw: bool = True) -> dict[str, Any]:
    """An episode played step by step, with its frames. `act` maps an observation to an action, or to None to stop."""
    made, spaces = make_env(policy.env, render_mode="rgb_array" if draw else None), policy.opened.spaces
    seen: list[np.ndarray] = []
    pictures: list[np.ndarray] = []

    def watch(obs: Any, info: dict[str, Any]) -> None:
        seen.append(spaces.to_stored(obs))
        if draw:
            pictures.append(np.asarray(made.render()))

    try:
        first = None if start is None else np.array(start, np.float32)
        played = gym_episode(made, act, seed, start=first, row=spaces.flatten, watch=watch, limit=STEPS)
    finally:
        made.close()
    (episode,) = by_own_rules(policy.opened, [played])
    judged, unknown = _judged(policy.rules, policy.opened, episode)
    known: dict[str, Any] = {"costs": breaks_a_rule(judged).astype(float).tolist()} if broken_rules(judged) else {}
    known["about"] = {"violations": measure(judged).get("violations"), "unknown": unknown}
    assert episode.rewards is not None
    rewards = episode.rewards.tolist()
    return {"observations": seen, "actions": episode.actions, "rewards": rewards, "frames": pictures} | known


def _judged(rules: Callable[[], Rules | None], env: BatchEnv, episode: Episode) -> tuple[Episode, str]:
    """The episode with the costs of the rules. If the rules may not run, or fail: without costs, and the reason."""
    try:
        found = rules()
        return (episode if found is None else with_rules([episode], found, env)[0]), ""
    except ConfigError as error:
        kept = {name: values for name, values in episode.info.items() if not name.startswith("cost")}
        return replace(episode, info=kept), str(error)


def _pictures(shown: Any) -> tuple[dict[str, Any], bytes]:
    about, pieces = [], []
    for name, episode in shown:
        every = -(-len(episode["frames"]) // FRAMES)
        mine = [jpeg(picture) for picture in episode["frames"][::every]]
        pieces += mine
        shared = {"rewards": episode["rewards"], "costs": episode.get("costs")} | episode["about"]
        about.append(shared | {"name": name, "every": every, "sizes": list(map(len, mine))})
    return {"policies": about, "type": "application/octet-stream"}, b"".join(pieces)


def _side_by_side(episodes: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Frames that show the same step of every episode. An episode that has ended keeps its last frame."""
    longest, tallest = max(map(len, episodes)), max(e[0].shape[0] for e in episodes)
    tall = [[np.pad(p, ((0, tallest - len(p)), (0, 0), (0, 0))) for p in e] for e in episodes]
    return [np.concatenate([e[min(t, len(e) - 1)] for e in tall], axis=1) for t in range(longest)]


def _policies(config: StudioConfig, env: str, names: list[str]) -> list[Played]:
    if not 1 <= len(names) <= MOST_POLICIES:
        raise ConfigError(f"{len(names)} policies; want 1 … {MOST_POLICIES}.")
    return [open_policy(config, env, name) for name in names]


def _playable(config: StudioConfig, env: str) -> str:
    """The name that opens the environment: the caller's, or that of a run by this user. Raises EnvError otherwise."""
    if not config.allows(env):
        for folder in folders_with(config.folder, "run.json"):
            with suppress(ScopilError, OSError):  # damaged or not signed
                if (run := open_run(config, folder)).spec.env == env:
                    return run.env_name()
    config.refuse_env(env)
    return env


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
