"""The parts of an algorithm: a config, a state, and three pure functions.

    init(key, spaces, cfg)          → state
    update(state, data, cfg, key)   → state, metrics
    policy(state)                   → Policy

`data` has the parts named in the algorithm's `wants`; all others are None.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from scopil.config import config
from scopil.data.dataset import DemoStarts, DemoTransitions
from scopil.errors import ConfigError, EnvError
from scopil.losses.familiarity import Monitor
from scopil.marginal import Marginal
from scopil.nn.heads import BoxHead, DiscreteHead, Head
from scopil.nn.nets import Image, convolves
from scopil.nn.normalise import RunningStats, new_stats
from scopil.policy import Policy
from scopil.types import PRNGKey, Transition

Metrics = dict[str, Float[Array, ""]]
Part = Literal[
    "replay", "newest", "rollout", "demo_batch", "demos", "demo_starts", "demo_episodes", "play", "true_cost"
]


class PaddedEpisodes(NamedTuple):
    """Whole episodes, padded to one length."""

    obs: Float[Array, "M T D"]
    action: Array  # (M, T) for discrete actions, (M, T, A) for continuous ones
    mask: Bool[Array, "M T"]  # true for the steps of the episode


class TrueCost(NamedTuple):
    """The cost that the environment reports. Only the oracles receive it: algorithms that serve as references."""

    batch: Array  # of the replay batch (B,), or of the rollout (T, N)
    newest: Array  # of the newest steps: (N,), or of the rollout (T, N)


class Data(NamedTuple):
    """The data of one update. The training loop fills the parts that the algorithm wants."""

    replay: Transition | None = None  # `batch_size` transitions, sampled from the last `replay_size` steps
    newest: Transition | None = None  # the newest step of all environments, every leaf (N, …)
    began: Bool[Array, " N"] | None = None  # with `newest`: whether that step is the first of its episode
    rollout: Transition | None = None  # the newest `rollout_steps` of all environments, every leaf (T, N, …)
    demo_batch: DemoTransitions | None = None  # `demo_batch_size` demonstrated steps, drawn with replacement
    demos: DemoTransitions | None = None  # all demonstrated steps
    demo_starts: DemoStarts | None = None  # initial states of demonstrated episodes
    demo_episodes: PaddedEpisodes | None = None  # all demonstrated episodes
    # (policy, key, count) → `count` whole episodes of the stochastic policy
    play: Callable[[Policy, PRNGKey, int], PaddedEpisodes] | None = None
    true_cost: TrueCost | None = None


class Curve(NamedTuple):
    """A metric to show: a panel in reports and in the studio, a number in the progress line."""

    metric: str  # a key of the metrics that `update` returns
    title: str  # heading of the panel, with the unit
    short: str = ""  # label in the progress line; empty: not in the progress line


class Spaces(NamedTuple):
    """The observations and actions that networks are built for."""

    obs_dim: int
    head: Head  # the number of discrete actions, or the bounds of continuous ones
    image: Image | None = None  # the axes of the image, if observations begin with its pixels
    columns: tuple[str, ...] = ()  # names of the observation's components
    codec: Any = None  # `env.spaces`: converts rows to the environment's observations


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """An algorithm, to pass to `scopil.Agent`, `RunSpec` or a study. Commands and run folders use its name."""

    name: str
    title: str  # the name in tables
    summary: str  # a few words for the list of algorithms
    config: type  # made by `scopil.config.config`
    init: Callable[[PRNGKey, Spaces, Any], Any]
    update: Callable[[Any, Data, Any, PRNGKey], tuple[Any, Metrics]]
    policy: Callable[[Any], Policy]
    wants: frozenset[Part]
    curves: tuple[Curve, ...] = ()  # in the order of the panels
    budget: int = 1_000_000  # environment steps of a full run
    # (state, data, cfg, key) → state, called once before the first step with `data.demos` and `data.demo_starts` only.
    prepare: Callable[[Any, Data, Any, PRNGKey], Any] | None = None
    preparing: str = ""  # what `prepare` does, for progress displays
    # state → the policy that collects data; None: `policy`.
    behaviour: Callable[[Any], Policy] | None = None
    # state → the environments (N,) whose episodes are stopped before the next step; None: episodes are never stopped.
    stops: Callable[[Any], Bool[Array, " N"]] | None = None
    # Whether the replay buffer begins with the demonstrated steps.
    replay_demos: bool = False
    # demonstrated steps → mask (M,) of the steps used for learning; None: all.
    demo_filter: Callable[[DemoTransitions], np.ndarray] | None = None
    # config → environment steps between resets of all environments; None: they are never reset together.
    restart_every: Callable[[Any], int] | None = None
    # (config, environment steps of a run) → a warning if the steps are too few to learn, else None.
    short_run: Callable[[Any, int], str | None] | None = None
    # (state, observations, actions) → the learned cost, if the algorithm learns one. Reports draw maps of it.
    learned_cost: Callable[[Any, Array, Array], Array] | None = None
    # (state, demos, config) → a monitor of the familiarity of states relative to the demonstrations.
    monitor: Callable[[Any, DemoTransitions, Any], Monitor] | None = None
    # (state, config) → lines for the user, before training and after it.
    remarks: Callable[[Any, Any], list[str]] | None = None
    # (state, demos, config, transitions of another policy or None) → the learned constraints, the largest multiplier
    # first. With another policy, their tables compare it with the demonstrations.
    marginals: Callable[[Any, DemoTransitions, Any, DemoTransitions | None], list[Marginal]] | None = None

    def __post_init__(self) -> None:
        if unknown := self.wants - set(get_args(Part)):
            raise ConfigError(f"{self.name} wants {', '.join(sorted(unknown))}; known: {', '.join(get_args(Part))}.")
        if "true_cost" in self.wants and self.wants.isdisjoint({"replay", "rollout"}):
            raise ConfigError(f"{self.name} wants true_cost without replay or rollout; add one of them.")
        if "newest" in self.wants and "replay" not in self.wants:
            raise ConfigError(f"{self.name} wants newest without replay; add replay, or use rollout instead.")
        if {"replay", "rollout"} <= self.wants:
            raise ConfigError(f"{self.name} wants both replay and rollout; want only one of them.")

    @property
    def needs_demos(self) -> bool:
        asked = any(part.startswith("demo") for part in self.wants)
        return asked or self.prepare is not None

    @property
    def steps_environment(self) -> bool:
        """False for algorithms that learn from demonstrations only."""
        return not self.wants.isdisjoint({"replay", "rollout"})


def stand_in(name: str, title: str) -> Algorithm:
    """A placeholder for an algorithm that is not installed. Its runs can be read, played and reported, not trained."""

    def refuse(*_: Any) -> Any:
        refuse_stand_in(made)

    made = Algorithm(
        name=name,
        title=title,
        summary="not installed here",
        config=_NoSettings,
        init=refuse,
        update=refuse,
        policy=refuse,
        wants=frozenset(),
    )
    return made


def is_stand_in(algorithm: Algorithm) -> bool:
    return algorithm.config is _NoSettings


def refuse_stand_in(algorithm: Algorithm) -> None:
    """Raise ConfigError if an algorithm is a stand-in (a placeholder)."""
    if is_stand_in(algorithm):
        raise ConfigError(
            f"{algorithm.name} is not a registered algorithm; pass the algorithm itself (Run.open(folder, algorithm), "
            f"scopil.load(path, algorithm=...)), or install the package that registers it."
        )


@config
class _NoSettings:
    """No settings."""


def spaces_of(observation_space: gym.Space, action_space: gym.Space, codec: Any = None) -> Spaces:
    """The spaces of an environment. `codec` (`env.spaces`) knows the image and the names of the components. Raises
    EnvError for spaces that are not supported."""
    if not isinstance(observation_space, gym.spaces.Box) or len(observation_space.shape) != 1:
        raise EnvError(f"observation space {observation_space}; want a Box with one axis.")
    size, image = observation_space.shape[0], getattr(codec, "image", None)
    columns = getattr(codec, "note", None) or [f"obs[{i}]" for i in range(size)]
    return Spaces(size, head_for(action_space), image if convolves(image) else None, tuple(columns), codec)


def new_obs_stats(spaces: Spaces, cfg: Any) -> RunningStats | None:
    """Statistics for normalising observations if `normalise_obs` is set. None for images: the network scales pixels."""
    return new_stats((spaces.obs_dim,)) if cfg.normalise_obs and spaces.image is None else None


def head_for(action_space: gym.Space) -> Head:
    if isinstance(action_space, gym.spaces.Discrete):
        return DiscreteHead(int(action_space.n), int(action_space.start))
    if not isinstance(action_space, gym.spaces.Box):
        raise EnvError(f"action space {action_space}; want Discrete, or a Box of real numbers with one axis.")
    low, high = action_space.low, action_space.high
    if len(action_space.shape) != 1 or not np.issubdtype(action_space.dtype, np.floating):
        raise EnvError(f"action space {action_space}; want a Box of real numbers with one axis.")
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise EnvError(
            f"action space {action_space}; want finite bounds, each low below its high. "
            f"gymnasium.wrappers.RescaleAction or ClipAction sets bounds."
        )
    return BoxHead(jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32))
