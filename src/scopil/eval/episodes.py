"""Whole episodes: a policy plays, or demonstrations are replayed. Both are judged by the environment's own rules."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.base import Advance, BatchEnv, EnvState, Mode, Seeds
from scopil.errors import EnvError
from scopil.eval.measures import Measures, measure_all
from scopil.eval.rules import Rules, by_own_rules, own_rules, with_rules
from scopil.eval.starts import can_replay
from scopil.policy import Policy
from scopil.types import PRNGKey


def play(
    env: BatchEnv,
    policy: Policy,
    starts: Any,
    key: PRNGKey,
    mode: Mode = "greedy",
    advance: Advance = lambda ended: None,
) -> list[Episode]:
    """Play episodes with `env.play` and judge them by the environment's own rules."""
    played = env.play(policy, starts, key, mode, advance)
    return by_own_rules(env, played if policy.shield is None else _with_interventions(played, policy, mode))


def _with_interventions(episodes: list[Episode], policy: Policy, mode: Mode) -> list[Episode]:
    """The episodes with `intervened` in `info`: whether the shield changed the action that led to a state. For sampled
    actions: whether it changes another sample."""
    acts, found = (policy.in_numpy(), policy.unshielded().in_numpy()), []
    for i, episode in enumerate(episodes):
        obs = np.asarray(episode.observations[:-1], np.float32)
        taken, raw = (act(obs, None if mode == "greedy" else np.random.default_rng(i)) for act in acts)
        changed = (taken != raw).reshape(len(obs), -1).any(-1)
        found.append(replace(episode, info=episode.info | {"intervened": np.append(0.0, changed)}))
    return found


def play_distinct(
    env: BatchEnv,
    policy: Policy,
    starts: Any,
    key: PRNGKey,
    mode: Mode = "greedy",
    advance: Advance = lambda ended: None,
) -> list[Episode]:
    """Like `play`, but without repeated episodes: if the list of starts repeats and a greedy policy would play the same
    episodes again, only one period of the list is played."""
    if mode == "sampled" or isinstance(starts, Seeds) or (period := _period(starts)) == len(starts.steps):
        return play(env, policy, starts, key, mode, advance)
    # The first start is played twice, to find out whether the environment itself is random.
    index = np.array([*range(period), 0])
    *episodes, again = play(env, policy, jax.tree.map(lambda leaf: leaf[index], starts), key, mode, advance)
    one = episodes[0]
    same = np.array_equal(one.observations, again.observations) and np.array_equal(one.actions, again.actions)
    return episodes if same else play(env, policy, starts, key, mode, advance)


def _period(starts: EnvState) -> int:
    """The smallest p such that start i + p equals start i. A start that was demonstrated twice counts twice."""
    leaves = [
        np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)
        for leaf in jax.tree.leaves(starts)
    ]
    count = len(starts.steps)
    rows = [b"".join(leaf[i].tobytes() for leaf in leaves) for i in range(count)]
    return next(p for p in range(1, count + 1) if rows[p:] == rows[: count - p])


def replay(env: BatchEnv, demos: Demonstrations) -> list[Episode]:
    """Play the demonstrated actions again from the demonstrated starts in a JAX environment with `initial_at`."""
    if demos.starts is None:
        raise EnvError(f"{demos.name} does not record its starts, so it cannot be replayed.")
    longest = max(len(e) for e in demos)
    actions = np.stack([np.resize(e.actions, (longest, *e.actions.shape[1:])) for e in demos])
    played = env.replay(env.starts_at(demos.starts), actions)
    return by_own_rules(env, [cut(episode, len(shown)) for episode, shown in zip(played, demos)])


def cut(episode: Episode, steps: int) -> Episode:
    """The first steps of an episode: a demonstration may stop before the environment would."""
    steps = min(steps, len(episode))
    whole = steps == len(episode)
    assert episode.rewards is not None
    return Episode(
        observations=episode.observations[: steps + 1],
        actions=episode.actions[:steps],
        rewards=episode.rewards[:steps],
        terminated=whole and episode.terminated,
        truncated=whole and episode.truncated,
        info={k: v[: steps + 1] for k, v in episode.info.items()},
    )


def demonstrated(demos: Demonstrations, env: BatchEnv | None = None, rules: Rules | None = None) -> list[Episode]:
    """The demonstrated episodes, judged by `rules` or else by the environment's own rules.

    They are replayed if possible. Otherwise they are judged as recorded; rules on an `info` key that was not recorded
    are left out."""
    if env is not None and can_replay(demos, env):
        played = replay(env, demos)
        return played if rules is None else with_rules(played, rules, env)
    rules = rules or (None if env is None else own_rules(env))
    known = None if rules is None else rules.known_to(demos.episodes)
    return list(demos.episodes) if known is None else with_rules(demos.episodes, known, env or demos)


def measure_demonstrations(
    demos: Demonstrations, env: BatchEnv | None = None, rules: Rules | None = None
) -> list[Measures]:
    """Measures of each demonstrated episode; the reward is left out if any episode was recorded without it."""
    rows = measure_all(demonstrated(demos, env, rules), env if can_replay(demos, env) else None)
    if all("reward" in row for row in rows):
        return rows
    return [{name: value for name, value in row.items() if name != "reward"} for row in rows]
