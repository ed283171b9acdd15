"""Compiled tasks with a rule that is not part of the reward, and their scripted demonstrators."""

from functools import lru_cache, partial
from typing import Any, ClassVar

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.experimental.functional import FuncEnv
from jaxtyping import Array, Bool, Float

from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.base import EnvState
from scopil.envs.jax_env import CompiledEnv
from scopil.eval.starts import unseen_starts
from scopil.types import PRNGKey, Transition

Bounds = tuple[float | int, float | int]  # low, high
SPREAD = 0.15  # standard deviation of the noise on a demonstrator's continuous actions


class RuleTask(FuncEnv):
    """A task whose state is its observation, a vector of floats.

    A subclass defines the methods of a `FuncEnv` (`initial`, `transition`, `reward`), the rule (`violated`), and two
    methods for its demonstrator: `lawful` tells whether an action is certain to keep the rule, and `score` ranks the
    lawful actions (the lowest score is the best).
    """

    title: ClassVar[str]
    rule: ClassVar[str]  # the rule in words; empty if the task has no rule
    max_steps: ClassVar[int] = 100
    demonstrations: ClassVar[int] = 40
    noise: ClassVar[float] = 0.1  # probability that the demonstrator tries a varied action
    has_goal: ClassVar[bool] = True

    def violated(self, before: Array, action: Array, after: Array) -> Bool[Array, ""]:
        """Whether a step breaks the rule."""
        return jnp.array(False)

    def arrived(self, state: Array) -> Bool[Array, ""]:
        return jnp.array(False)

    def lawful(self, state: Array, action: Array) -> Bool[Array, ""]:
        """Whether an action keeps the rule and allows later actions to keep it, for every random disturbance."""
        return jnp.array(True)

    def score(self, state: Array, action: Array) -> Float[Array, ""]:
        """The quantity that the demonstrator minimises over lawful actions."""
        raise NotImplementedError

    def candidates(self, state: Array) -> Array:
        """The actions that the demonstrator chooses from, one row each."""
        return jnp.arange(self.action_space.n)  # pyright: ignore[reportAttributeAccessIssue]

    def varied(self, action: Array, key: PRNGKey) -> Array:
        """A noisy form of the demonstrator's action."""
        return jax.random.randint(key, (), 0, self.action_space.n)  # pyright: ignore[reportAttributeAccessIssue]

    def act(self, obs: Array, key: PRNGKey | None = None) -> Array:
        """The demonstrator's action: the lawful action with the lowest score. With a key, a varied action replaces it
        with probability `noise` if the varied action is lawful."""
        options = self.candidates(obs)
        scores = jax.vmap(lambda a: self.score(obs, a) + 1e6 * ~self.lawful(obs, a))(options)
        best = options[jnp.argmin(scores)]
        if key is None:
            return best
        k_whether, k_what = jax.random.split(key)
        other = self.varied(best, k_what)
        return jnp.where((jax.random.uniform(k_whether) < self.noise) & self.lawful(obs, other), other, best)

    # --- the same for all tasks -----------------------------------------------------------------------------------

    def observation(self, state: Array, rng: Any = None, params: Any = None) -> Array:
        return state

    def terminal(self, state: Array, rng: Any = None, params: Any = None) -> Bool[Array, ""]:
        return self.arrived(state)

    def state_info(self, state: Array, params: Any = None) -> dict[str, Array]:
        return {"cost": jnp.float32(0.0)}

    def transition_info(self, state: Array, action: Array, next_state: Array, params: Any = None) -> dict[str, Array]:
        """`cost`: 1 if the step breaks the rule. Only evaluation and algorithms that want the true cost read it."""
        return {"cost": self.violated(state, action, next_state).astype(jnp.float32)}

    def measures(self, episode: Episode) -> dict[str, float]:
        return {"reached": float(episode.terminated)} if self.has_goal else {}


def box(*bounds: Bounds) -> gym.spaces.Box:
    """The space of vectors with one pair of bounds (low, high) per component."""
    low, high = np.array(bounds, np.float32).T
    return gym.spaces.Box(low, high, dtype=np.float32)


@lru_cache
def compiled(task: type[RuleTask], max_episode_steps: int | None = None) -> CompiledEnv:
    """The environment of a task. There is one object per task and time limit, so that programs are compiled once."""
    return CompiledEnv(task(), max_episode_steps=max_episode_steps or task.max_steps)


@partial(jax.jit, static_argnums=0)
def _played(env: CompiledEnv, starts: EnvState, key: PRNGKey) -> tuple[Transition, Float[Array, "T N"]]:
    """Steps of the noisy demonstrator and their costs. Episodes that end early are continued up to the time limit."""
    act, count = env.env.act, starts.steps.shape[0]  # pyright: ignore[reportAttributeAccessIssue]

    def step(state: EnvState, key: PRNGKey) -> tuple[EnvState, tuple[Transition, Array]]:
        k_act, k_step = jax.random.split(key)
        action = jax.vmap(act)(state.obs, jax.random.split(k_act, count))
        after, transition = env.advance_batch(state, action, k_step)
        return after, (transition, jax.vmap(env.step_info)(state.inner, action, after.inner)["cost"])

    return jax.lax.scan(step, starts, jax.random.split(key, env.horizon))[1]


def play_demonstrator(task: type[RuleTask], starts: EnvState, key: PRNGKey) -> list[Episode]:
    """Episodes of the noisy demonstrator from a batch of initial states."""
    t, costs = jax.device_get(_played(compiled(task), starts, key))
    lengths = (t.terminated | t.truncated).argmax(0) + 1
    return [
        Episode(
            observations=np.concatenate([t.obs[:1, i], t.next_obs[:steps, i]]),
            actions=t.action[:steps, i],
            rewards=t.reward[:steps, i],
            terminated=bool(t.terminated[steps - 1, i]),
            truncated=bool(t.truncated[steps - 1, i]),
            info={"cost": np.append(np.float32(0), costs[:steps, i])},
        )
        for i, steps in enumerate(lengths)
    ]


def demonstrator_from_unseen_starts(task: type[RuleTask], episodes: int) -> list[Episode]:
    """Episodes of the noisy demonstrator from the unseen starts used to evaluate policies."""
    return play_demonstrator(task, unseen_starts(compiled(task), episodes), jax.random.key(0))  # pyright: ignore[reportArgumentType]


def demonstrate(task: type[RuleTask], env_id: str, episodes: int | None = None, seed: int = 0) -> Demonstrations:
    """A set of demonstrations, determined by `seed`. Its starts are drawn independently of the unseen starts."""
    env, count = compiled(task), episodes or task.demonstrations
    k_starts, k_play = jax.random.split(jax.random.key(seed))
    return Demonstrations(
        episodes=tuple(play_demonstrator(task, env.reset_batch(k_starts, count), k_play)),
        observation_space=env.observation_space,  # pyright: ignore[reportArgumentType]
        action_space=env.action_space,  # pyright: ignore[reportArgumentType]
        name=f"rules/{task.__name__.lower()}",
        env_id=env_id,
        about={"by": f"{task.__module__}:{task.__name__}.act", "seed": seed},
    )
