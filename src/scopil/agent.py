"""Agents: an algorithm with its environment and demonstrations; learn, predict, play, evaluate, save."""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scopil import sb3
from scopil.algos import sac
from scopil.algos.base import Algorithm, head_for, is_stand_in, spaces_of
from scopil.config import OWN_FEATURES, build, checked_seed, settings, with_code
from scopil.data.dataset import Demonstrations, Episode
from scopil.data.storage import load_demos
from scopil.envs.gym_env import AnyEnv, open_env
from scopil.envs.jax_env import id_of
from scopil.errors import ConfigError
from scopil.eval import starts as where
from scopil.eval.episodes import play_distinct
from scopil.eval.measures import Measures, average, measure_all
from scopil.eval.rules import Rules, with_rules
from scopil.losses import familiarity
from scopil.losses.familiarity import Monitor
from scopil.marginal import Marginal
from scopil.policy import NumpyPolicy, NumpyShielded, Policy
from scopil.train.demo_data import demo_data, flattened
from scopil.train.loop import Loop, make_loop
from scopil.train.run import Run, save_learner
from scopil.train.trainer import Trainer, TrainStatus, copied
from scopil.user_code import load_object

if TYPE_CHECKING:
    from scopil.explain import FoundRule

OTHER_STARTS = 1  # seed of unseen starts that `evaluate` does not use

Callback = Callable[[TrainStatus], bool | None]
_familiarity = jax.jit(familiarity.familiarity)


class Agent:
    """A learning algorithm together with its environment and demonstrations.

    Args:
        algorithm: for example `scopil.algos.scopil.ALGORITHM`, or a custom `scopil.Algorithm`.
        env: a Gymnasium id, an environment (its wrappers are kept), a vector environment, a function that makes one, or
            a JAX environment (`FuncEnv`).
        demos: anything that `scopil.load_demos` takes, or a function without arguments that returns it. The function is
            called when the demonstrations are first needed. An agent without demonstrations can play, and it can learn
            if its algorithm needs none.
        seed: seed of networks, environments, batches and sampled actions.
        verbose: 1: `learn` shows progress by default.
        **config: settings of the algorithm; `scopil.config.settings(algorithm.config)` lists them. Names of
            Stable-Baselines3 (`buffer_size`, `gamma`, …) are accepted for settings that mean the same.
    """

    def __init__(
        self, algorithm: Algorithm, env: AnyEnv, demos: Any = None, *, seed: int = 0, verbose: int = 0, **config: Any
    ):
        if not isinstance(algorithm, Algorithm):
            raise ConfigError(
                f"algorithm = {algorithm!r}; want a scopil.Algorithm. scopil.algos.find(name) gives a registered one."
            )
        if isinstance(env, str) and env.endswith("Policy"):
            raise ConfigError(f"env = {env!r}; want an environment. scopil chooses the network: leave {env!r} out.")
        self.algorithm, self.verbose = algorithm, verbose
        self.env = open_env(env)
        self.env_id = id_of(env)
        self._demos = demos if callable(demos) else None
        if self._demos is None:
            self.demos = None if demos is None else load_demos(demos, self.env)
        self._demos_name: str | None = None  # set if the agent was loaded from a file
        self.run: Run | None = None  # set if the agent was loaded from a run folder
        self.seed = checked_seed(seed)
        fixed = self.env.num_envs  # a vector environment has a fixed size
        if fixed is not None and any(s.name == "num_envs" for s in settings(algorithm.config)):
            config.setdefault("num_envs", fixed)
        config = with_code(config, lambda name: load_object(name, OWN_FEATURES))
        self.config = build(algorithm.config, config, head_for(self.env.action_space).continuous)
        trainable = not algorithm.needs_demos or (self._demos is None and self.demos is not None)
        if trainable and not is_stand_in(algorithm):  # this check compiles nothing
            self._loop.refuse_settings(self.config)
        self._loaded: LoadedLearner | None = None
        self._numpy: NumpyPolicy | None = None
        self._shield: NumpyShielded | None = None
        self._monitor: Monitor | None = None
        self._rng = np.random.default_rng(self.seed)

    @cached_property
    def demos(self) -> Demonstrations | None:
        """The demonstrations, read when first needed if the agent was loaded from a run folder."""
        return None if self._demos is None else load_demos(self._demos(), self.env)

    @cached_property
    def _loop(self) -> Loop:
        return make_loop(self.algorithm, self.env, self.demos if self.algorithm.needs_demos else None)

    @cached_property
    def _trainer(self) -> Trainer:
        return Trainer(self._loop, self.config, self.seed)

    @cached_property
    def _untrained(self) -> Any:
        return self._new_learner()

    def _new_learner(self) -> Any:
        """The untrained learner. Creating it needs no replay and no environment steps."""
        spaces = spaces_of(self.env.observation_space, self.env.action_space, self.env.spaces)
        key = jax.random.split(jax.random.key(self.seed), 3)[0]  # as in `Loop.init`
        return jax.jit(lambda key, cfg: self.algorithm.init(key, spaces, cfg))(key, self.config)

    @classmethod
    def load(cls, path: str | Path, env: AnyEnv | None = None, demos: Any = None, **options: Any) -> "Agent":
        """An agent from a file of `save` or a run folder; the arguments are those of `scopil.load`. The class of an
        algorithm (`scopil.SAC.load`) refuses agents of other algorithms."""
        from scopil.loading import load

        options = {"algorithm": getattr(cls, "algorithm", None)} | options
        agent = load(path, env, demos, **options)
        agent.__class__ = cls
        return agent

    def set_env(self, env: AnyEnv) -> None:
        """Continue in another environment with the same spaces, with new episodes and a new replay."""
        opened = open_env(env)
        for what in ("observation_space", "action_space"):
            found, wanted = getattr(opened, what), getattr(self.env, what)
            if found != wanted:
                raise ConfigError(f"set_env: {what} {found}; want {wanted}, as in {self.env_id or self.env.name}.")
        learner, steps = self.state, self.num_timesteps
        self.env, self.env_id = opened, id_of(env)
        for made in ("_loop", "_trainer"):
            self.__dict__.pop(made, None)
        self._loaded = LoadedLearner(lambda new: learner, steps) if steps else None

    @property
    def num_timesteps(self) -> int:
        """The number of environment steps trained so far."""
        if self._loaded is not None:
            return self._loaded.steps
        return self._trainer.env_steps if "_trainer" in self.__dict__ else 0

    @property
    def state(self) -> Any:
        """A copy of the algorithm's state: networks, optimisers, multipliers."""
        if self._loaded is not None:
            return self._loaded.learner(self._new_learner)
        if self.num_timesteps > 0:
            return copied(self._trainer.state.learner)  # training reuses the memory of its state
        return self._untrained

    @property
    def policy(self) -> Policy:
        """The policy that `predict` and `play` use."""
        loaded = None if self._loaded is None else self._loaded.policy
        return loaded if loaded is not None else self.algorithm.policy(self.state)

    def learn(
        self,
        total_timesteps: int | float,
        callback: Callback | Sequence[Callback] | Any = None,  # Any: others are refused below
        *,
        progress_bar: bool | None = None,
        reset_num_timesteps: bool = False,
        **other: Any,
    ) -> "Agent":
        """Train for further steps.

        Args:
            total_timesteps: environment steps, a whole number (1e5 is allowed). Algorithms with a replay update from
                the step on at which it holds one batch. BC plays no steps: it makes so many gradient steps. SCOPIL-ρ
                first trains a clone, which counts as no step.
            callback: one or several functions of a `TrainStatus` (env_steps, metrics, state), called after every chunk
                of a few thousand steps; returning True stops training. A callback with an attribute `every` is also
                called at multiples of `every` steps. If it has a method `begin`, `begin(agent)` is called before
                training. `scopil.EvalCallback` has both.
            progress_bar: whether to show progress, speed and a few metrics; default: if the agent is `verbose`.
            reset_num_timesteps: accepted for compatibility with Stable-Baselines3. The count of steps continues, so
                True is refused for a trained agent.
        """
        sb3.refuse(other, "learn")
        if reset_num_timesteps and self.num_timesteps:
            raise ConfigError("reset_num_timesteps = True; the count continues. Omit it, or make a new agent.")
        steps = _whole(total_timesteps)
        if steps is None or steps < 1:
            wanted = "at least 1" if steps is not None else "a whole number of steps"
            raise ConfigError(f"total_timesteps = {total_timesteps!r}; want {wanted}.")
        until = self.num_timesteps + steps
        callbacks = [callback] if callable(callback) else _callbacks(callback)
        for one in callbacks:
            _refuse_callback(one)
        every = [number for c in callbacks if (number := getattr(c, "every", None)) is not None]
        for one in callbacks:
            getattr(one, "begin", lambda agent: None)(self)
        trainer = self._trainer  # raises if the algorithm needs demonstrations and the agent has none
        if remark := self._loop.overshoot(self.config, steps):
            warnings.warn(remark, stacklevel=2)
        if self._loaded is not None:
            learner, steps = self.state, self.num_timesteps
            begun = trainer.state  # new replay, new episodes; the key below gives new random numbers
            key = jax.random.fold_in(begun.key, np.uint32(2**32 - 1))
            trainer.state = begun._replace(learner=learner, env_steps=jnp.int32(steps), key=key)
        self._loaded = None

        if progress_bar or (progress_bar is None and self.verbose):
            from scopil.train.progress import ProgressLines

            lines = ProgressLines(self.algorithm, until)
            callbacks.insert(0, lines)
            if trainer.env_steps == 0 and self.algorithm.preparing:
                lines.doing(self.algorithm.preparing)
        else:
            lines = nullcontext()

        def observe(status: TrainStatus) -> bool | None:
            self._numpy = self._shield = self._monitor = None  # they were made from an older policy
            stops = [one(status) for one in callbacks]  # all are called, even if the first stops training
            return any(stops)

        try:
            with lines:
                trainer.advance(until, observe, every=every)
        except BaseException:
            if trainer.env_steps == 0 and trainer.last_good is not None:  # the state is lost: keep the last learner
                kept, steps = trainer.last_good
                self._loaded = LoadedLearner(lambda new: kept, steps)
            raise
        finally:
            self._numpy = self._shield = self._monitor = None
        return self

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, None]:
        """The action for one observation or a batch of observations; the signature is that of Stable-Baselines3.

        Args:
            observation: an observation as the environment returns it, or a batch of them.
            state, episode_start: accepted for compatibility with recurrent policies; ignored.
            deterministic: take the most likely action instead of a sampled one.

        The network runs in NumPy. For one observation this is ten times faster than a compiled program.
        """
        obs = self._rows(observation)
        if self._numpy is None:
            self._numpy = self.policy.in_numpy()
        action = self._numpy(obs, None if deterministic else self._rng)
        return self.env.spaces.to_env(int(action) if action.ndim == 0 else action), None

    def shielded(self, observation: Any, action: Any) -> tuple[Any, bool]:
        """The action that the policy's shield lets pass in place of `action`, which is `action` itself if it is within
        the limit; and whether any action is within the limit. For one observation, in the environment's own form.
        Raises `ConfigError` if the policy has no shield."""
        if self._shield is None:
            self._shield = self.policy.shield_in_numpy()
        spaces, rows = self.env.spaces, self._rows(observation)
        given, space = spaces.to_learner(action), spaces.action
        odd = given.shape != space.shape or not np.isfinite(given).all()
        if odd or (given.ndim == 0 and not space.contains(given)):
            raise ConfigError(f"action {action!r}; want an action of {spaces.env_action}.")
        taken, within = self._shield(rows, given)
        same = np.array_equal(taken, given)
        return action if same else spaces.to_env(int(taken) if taken.ndim == 0 else taken), within

    def _rows(self, observation: Any) -> np.ndarray:
        """One observation, or a batch of observations, as rows for the networks."""
        wanted = f"want one of {self.env.spaces.env_observation}, or a batch of these"
        unfit = ConfigError(f"observation {_brief(observation)}; {wanted}.")
        try:
            obs = self.env.spaces.flatten(observation)
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise unfit from error
        if self.env.observation_space.shape not in (obs.shape, obs.shape[1:]):
            raise unfit
        return obs

    def familiarity(self, observation: Any) -> np.ndarray:
        """Familiarity of states, in [0, 1]: the share of held-out demonstrated states whose novelty is at least as
        high. Below 0.1 a state is more novel than nine of ten demonstrated states.

        Raises `ConfigError` if the algorithm learns no familiarity (SCOPIL-ρ does) or the agent has no demonstrations.
        """
        if (monitor := self.monitor()) is None:
            missing = "an algorithm that learns it: scopil.SCOPILRho"
            if self.algorithm.monitor is not None:
                missing = "its demonstrations" if self.demos is None else "training: novelty is relative to own steps"
            raise ConfigError(f"{self.algorithm.title} has no measure of familiarity; want {missing}.")
        obs = self._rows(observation)
        return np.asarray(_familiarity(monitor, jnp.atleast_2d(obs))).reshape(obs.shape[:-1])

    def monitor(self) -> Monitor | None:
        """The model behind `familiarity`, for `policy.to_onnx`; None if the agent has no such model yet."""
        if self.algorithm.monitor is None or self.demos is None or self.num_timesteps == 0:
            return None
        if self._monitor is None:
            # All demonstrated steps. The training loop uses only those that `Algorithm.demo_filter` keeps.
            self._monitor = self.algorithm.monitor(self.state, demo_data(self.demos, self.env).transitions, self.config)
        return self._monitor

    def marginals(self, beside: Sequence[Episode] = ()) -> list[Marginal]:
        """The learned constraints that are in, the largest multiplier first. With episodes of another policy, their
        tables compare these with the demonstrations, in place of what the learner visited. Raises `ConfigError` if the
        algorithm learns none (SCOPIL-ρ does) or the agent has no demonstrations."""
        if self.algorithm.marginals is None or self.demos is None:
            missing = (
                "its run folder, or its demonstrations: scopil.load(file, demos=…)"
                if self.algorithm.marginals
                else "an algorithm that learns them: scopil.SCOPILRho"
            )
            raise ConfigError(f"{self.algorithm.title} has no learned constraints; want {missing}.")
        shown = demo_data(self.demos, self.env, self.algorithm.demo_filter).transitions
        other = None
        if beside:
            rows = replace(flattened(self.demos, self.env), episodes=tuple(beside))
            other = demo_data(rows, self.env).transitions
        return self.algorithm.marginals(self.state, shown, self.config, other)

    def reward_seeking(self, steps: int, episodes: int = 200) -> list[Episode]:
        """Episodes of a policy that SAC trains on the reward alone, in this agent's environment. They break rules that
        the reward tempts to break, which makes them evidence for `rules`. For simulations only."""
        other = Agent(sac.ALGORITHM, self.env, seed=self.seed)
        other.learn(steps)
        return other.play("unseen", episodes, deterministic=False, seed=OTHER_STARTS)

    def rules(self, beside: Sequence[Episode] = ()) -> "list[FoundRule]":
        """The learned constraints that bound, in words and as code (docs/rules.md). Episodes `beside` of a policy that
        breaks the rules, such as one trained by SAC, are evidence that a careful learner does not have."""
        from scopil.explain import explain_all

        return explain_all(self.marginals(beside))

    def rules_of_run(self) -> Rules | None:
        """The rules of the run that the agent was loaded from; None if it has none."""
        return None if self.run is None else self.run.rules()

    def play(
        self,
        starts: str | np.ndarray = "unseen",
        episodes: int | None = None,
        *,
        deterministic: bool = True,
        seed: int = 0,
        rules: Any = None,
        progress: Callable[[int], None] = lambda ended: None,
    ) -> list[Episode]:
        """Play whole episodes.

        Args:
            starts: "unseen" (drawn by the environment, the same for every policy), "demonstrated", a file of starts, or
                an array of starts.
            episodes: number of episodes; default: 40 from unseen starts, or one from each demonstrated start. If
                there are fewer starts, they are reused; for a greedy policy only if the environment is random.
            deterministic: take the most likely action instead of a sampled one.
            seed: seed of sampled actions and of the unseen starts.
            rules: rules that define the violations: a function of (obs, action, next_obs), a dict of functions or
                `info` keys by name, or a file such as "my_rules.py". Default: the rules of the run that the agent was
                loaded from, or else the environment's rules or costs.
            progress: called with the number of episodes that have just ended.
        """
        rules = self.rules_of_run() if rules is None else rules
        demos = None
        if isinstance(starts, str) and starts == "demonstrated":
            demos = self.demos if self.demos is not None else where.demos_for(self.env_id, self._demos_name)
        first = where.starts_from(starts, self.env, demos, episodes, seed)
        mode = "greedy" if deterministic else "sampled"
        played = play_distinct(self.env, self.policy, first, jax.random.key(seed), mode, progress)
        return played if rules is None else with_rules(played, rules, self.env)

    def evaluate(
        self,
        starts: str = "unseen",
        episodes: int | None = None,
        *,
        deterministic: bool = True,
        seed: int = 0,
        rules: Any = None,
    ) -> Measures:
        """Means over episodes of reward, steps, violations (also per rule) and the environment's own measures. The
        arguments are those of `play`."""
        played = self.play(starts, episodes, deterministic=deterministic, seed=seed, rules=rules)
        return average(measure_all(self.watched(played), self.env))

    def watched(self, episodes: Sequence[Episode]) -> list[Episode]:
        """The episodes with the familiarity of their states in `info`, if the agent has learned a familiarity."""
        if self.monitor() is None:
            return list(episodes)
        shares = np.split(
            self.familiarity(np.concatenate([e.observations for e in episodes])),
            np.cumsum([len(e.observations) for e in episodes])[:-1],
        )
        return [replace(e, info=e.info | {"familiarity": share}) for e, share in zip(episodes, shares)]

    def save(self, path: str | Path) -> None:
        """Write policy, networks, optimisers, multipliers and settings, but no replay, to a file for `scopil.load`."""
        note = {
            "algorithm": self.algorithm.name,
            "title": self.algorithm.title,
            "env": self.env_id,
            "demos": self._demos_name if self.demos is None else self.demos.name,
            "seed": self.seed,
            "config": asdict(self.config),
            "env_steps": self.num_timesteps,
            "columns": self.env.spaces.note,
        }
        save_learner(Path(path), self.algorithm, self.state, note)

    def __repr__(self) -> str:
        env = self.env_id or self.env.name
        return f"{self.algorithm.title} on {env}, {self.num_timesteps:,} steps"


def _whole(number: Any) -> int | None:
    """The number if it is whole (1e5 is), else None."""
    if isinstance(number, bool) or not isinstance(number, Real) or number != number // 1:
        return None
    return int(float(number))


def _callbacks(given: Any) -> list[Any]:
    return [] if given is None else list(given) if isinstance(given, Sequence) else [given]


def _refuse_callback(callback: Any) -> None:
    """Raise unless the callback takes one argument, the TrainStatus."""
    wanted = "want a function of a TrainStatus (env_steps, metrics, state) that returns True to stop"
    if not callable(callback):
        raise ConfigError(f"callback = {callback!r}; {wanted}, or a list of such. scopil.EvalCallback evaluates.")
    try:
        inspect.signature(callback).bind(None)
    except TypeError:
        raise ConfigError(
            f"callback {getattr(callback, '__name__', callback)} takes other arguments; {wanted}."
        ) from None
    except ValueError:  # no readable signature
        pass


def _brief(observation: Any) -> str:
    """A short description of an observation."""
    if isinstance(observation, Mapping):
        return f"{{{', '.join(f'{key}: {_brief(value)}' for key, value in observation.items())}}}"
    return f"of shape {observation.shape}" if isinstance(observation, np.ndarray) else repr(observation)[:80]


class LoadedLearner(NamedTuple):
    """A learner that is not in the trainer: read from a file, or kept from before a failure."""

    learner: Callable[[Callable[[], Any]], Any]  # (function that makes a new learner) → this learner
    steps: int
    policy: Policy | None = None


def class_for(name: str, algorithm: Algorithm) -> type[Agent]:
    """A subclass of `Agent` for one algorithm, whose signature lists every setting as a keyword."""

    def init(self: Agent, env: AnyEnv, demos: Any = None, *, seed: int = 0, verbose: int = 0, **config: Any) -> None:
        Agent.__init__(self, algorithm, env, demos, seed=seed, verbose=verbose, **config)

    P = inspect.Parameter
    fixed = [P("env", P.POSITIONAL_OR_KEYWORD), P("demos", P.POSITIONAL_OR_KEYWORD, default=None)]
    given = [P("seed", P.KEYWORD_ONLY, default=0), P("verbose", P.KEYWORD_ONLY, default=0)]
    given += [P(s.name, P.KEYWORD_ONLY, default=s.default) for s in settings(algorithm.config)]
    body = {
        "algorithm": algorithm,
        "__init__": init,
        "__doc__": f"{algorithm.title}: {algorithm.summary}.",
        "__module__": "scopil",
        "__signature__": inspect.Signature([*fixed, *given]),
    }
    return type(name, (Agent,), body)
