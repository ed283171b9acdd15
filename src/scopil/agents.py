"""The Python API, in the habits of Stable-Baselines3:

agent = scopil.SCOPIL("scopil/MarbleMaze-Simple-v0", "marble-maze/simple-v1", seed=0)
agent.learn(100_000, progress_bar=True)
action, _ = agent.predict(obs, deterministic=True)
agent.save("policy.safetensors");  agent = scopil.load("policy.safetensors")

`scopil.Agent(algorithm, env, demos)` is the same for an algorithm of your own.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from scopil import agent_settings as accepted
from scopil.algos import (
    ablations,
    bc,
    icrl,
    is_stand_in,
    ppo,
    ppo_dgd,
    ppo_lagrangian,
    registered,
    sac,
    sac_lagrangian,
    scopil,
    scopil_rho,
    stand_in,
)
from scopil.algos.base import Algorithm, head_for, spaces_of
from scopil.config import build, checked_seed, settings
from scopil.core import contrast
from scopil.core.contrast import Monitor
from scopil.core.heads import DiscreteHead, Head
from scopil.demos.dataset import Episode
from scopil.demos.store import load_demos
from scopil.envs.base import BatchEnv
from scopil.envs.functional import id_of
from scopil.envs.host import AnyEnv, HostEnv, open_env
from scopil.envs.trust import id_in_file
from scopil.errors import CheckpointError, ConfigError
from scopil.evaluate import starts as where
from scopil.evaluate.episodes import player
from scopil.evaluate.measures import Measures, average, measure_all
from scopil.evaluate.rules import with_rules
from scopil.files import is_line
from scopil.policy import NumpyPolicy, Policy, policy_from, read_policy
from scopil.train.demo_data import demo_data
from scopil.train.loop import make_loop
from scopil.train.run import Run, save_learner
from scopil.train.trainer import Trainer, TrainStatus
from scopil.treefile import as_tree, branch, read_arrays

Callback = Callable[[TrainStatus], bool | None]
_familiarity = jax.jit(contrast.familiarity)


class Agent:
    """A learner with its environment: train it, play it, save it.

    Args:
        algorithm: which learner, for example `scopil.algos.scopil.ALGORITHM` or one of your own.
        env: a Gymnasium id, an environment (its wrappers are kept), a vector environment, a function that makes one, or
            a JAX environment (`FuncEnv`).
        demos: anything that `scopil.load_demos` takes. Without demonstrations an agent can play, and learn if its
            algorithm needs none.
        seed: of networks, environments, batches and sampled actions.
        **config: settings of the algorithm; `scopil.config.settings(algorithm.config)` lists them.
    """

    def __init__(self, algorithm: Algorithm, env: AnyEnv, demos: Any = None, *, seed: int = 0, **config: Any):
        if not isinstance(algorithm, Algorithm):
            raise ConfigError(
                f"algorithm = {algorithm!r}; want a scopil.Algorithm. scopil.algos.find(name) gives a registered one."
            )
        self.algorithm = algorithm
        self.env = open_env(env)
        self.env_id = id_of(env)
        self.demos = None if demos is None else load_demos(demos, self.env)
        self.seed = checked_seed(seed)
        fixed = (
            self.env.num_envs if isinstance(self.env, HostEnv) else None
        )  # a vector environment has its size
        if fixed is not None and any(s.name == "num_envs" for s in settings(algorithm.config)):
            config.setdefault("num_envs", fixed)
        self.config = build(algorithm.config, config, head_for(self.env.action_space).continuous)
        trainable = self.demos is not None or not algorithm.needs_demos
        if trainable and not is_stand_in(algorithm):  # refuses what cannot be trained; compiles nothing
            make_loop(algorithm, self.env, self.demos).refuse_settings(self.config)
        self._outside: _Outside | None = (
            None  # a learner that is not in the trainer: loaded, or saved from a failure
        )
        self._numpy: NumpyPolicy | None = None
        self._monitor: Monitor | None = None
        self._rng = np.random.default_rng(self.seed)

    @cached_property
    def _trainer(self) -> Trainer:
        return Trainer(make_loop(self.algorithm, self.env, self.demos), self.config, self.seed)

    @cached_property
    def _untrained(self) -> Any:
        """The learner before training: looking at it makes no replay and no steps."""
        return self._new_learner()

    def _new_learner(self) -> Any:
        spaces = spaces_of(self.env.observation_space, self.env.action_space, self.env.image)
        key = jax.random.split(jax.random.key(self.seed), 3)[0]  # as `Loop.init` splits it
        return jax.jit(lambda key, cfg: self.algorithm.init(key, spaces, cfg))(key, self.config)

    @property
    def num_timesteps(self) -> int:
        """Environment steps made so far."""
        if self._outside is not None:
            return self._outside.steps
        return self._trainer.env_steps if "_trainer" in self.__dict__ else 0

    @property
    def state(self) -> Any:
        """A copy of the algorithm's state: networks, optimisers, multipliers."""
        if self._outside is not None:
            return self._outside.learner(self._new_learner)
        if self.num_timesteps > 0:
            return jax.tree.map(
                jnp.copy, self._trainer.state.learner
            )  # training reuses the memory of its own
        return self._untrained

    @property
    def policy(self) -> Policy:
        """What acts."""
        loaded = None if self._outside is None else self._outside.policy
        return loaded if loaded is not None else self.algorithm.policy(self.state)

    def learn(
        self,
        total_timesteps: int | float,
        *,
        progress_bar: bool = False,
        callback: Callback | Sequence[Callback] = (),
    ) -> "Agent":
        """Train for further steps.

        Args:
            total_timesteps: how many steps of the environment, a whole number (1e5 is one). Learning begins when the
                replay holds one batch.
            progress_bar: whether to show progress, speed and a few metrics.
            callback: one or several, called after every stretch of a few thousand steps with a `TrainStatus`
                (env_steps, metrics, state); returning True stops training. One with a number `every` is called at its
                multiples too, and one with a method `begin` gets this agent first: `scopil.EvalCallback` has both.
        """
        steps = _whole(total_timesteps)
        if steps is None or steps < 1:
            wanted = "at least 1" if steps is not None else "a whole number of steps"
            raise ConfigError(f"total_timesteps = {total_timesteps!r}; want {wanted}.")
        until = self.num_timesteps + steps
        callbacks = [callback] if callable(callback) else list(callback)
        if odd := [c for c in callbacks if not callable(c)]:
            raise ConfigError(f"callback = {odd[0]!r}; want a function of a TrainStatus, or a list of such.")
        every = [number for c in callbacks if (number := getattr(c, "every", None)) is not None]
        for one in callbacks:
            getattr(one, "begin", lambda agent: None)(self)
        trainer = self._trainer  # refuses an algorithm that needs demonstrations and has none
        if self._outside is not None:
            learner, steps = self.state, self.num_timesteps
            begun = trainer.state  # replay and environment begin anew, with random numbers of their own
            key = jax.random.fold_in(begun.key, np.uint32(2**32 - 1))
            trainer.state = begun._replace(learner=learner, env_steps=jnp.int32(steps), key=key)
        self._outside = None

        def observe(status: TrainStatus) -> bool | None:
            self._numpy = self._monitor = None  # of a policy that is out of date
            stops = [one(status) for one in callbacks]  # all of them, even where the first says stop
            return any(stops)

        try:
            self._advance(until, progress_bar, observe, every)
        except BaseException:
            if (
                trainer.env_steps == 0 and trainer.last_good is not None
            ):  # the state is lost; its learner is not
                kept, steps = trainer.last_good
                self._outside = _Outside(lambda new: kept, steps)
            raise
        finally:
            self._numpy = self._monitor = None
        return self

    def _advance(self, until: int, progress_bar: bool, observe: Callback, every: Sequence[int]) -> None:
        if not progress_bar:
            return self._trainer.advance(until, observe, every=every)
        from scopil.train.progress import ProgressLines

        with ProgressLines(self.algorithm.title, until) as lines:
            self._trainer.advance(until, lambda status: lines(status) or observe(status), every=every)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, None]:
        """The action for one observation or a batch of them, in the form of Stable-Baselines3.

        Args:
            observation: as the environment gives it, or a batch of such.
            state, episode_start: of recurrent policies; ours have none, and they are ignored.
            deterministic: take the likeliest action instead of a sampled one.

        Runs in NumPy: for one observation that is ten times faster than a call into a compiled program.
        """
        obs = self._rows(observation)
        if self._numpy is None:
            self._numpy = self.policy.in_numpy()
        action = self._numpy(obs, None if deterministic else self._rng)
        return self.env.as_taken(int(action) if action.ndim == 0 else action), None

    def _not_seen(self, observation: Any) -> str:
        wanted = f"want one of {self.env.given_space}, or a batch of these"
        return f"observation {_brief(observation)} is not one of the environment's; {wanted}."

    def _rows(self, observation: Any) -> np.ndarray:
        """One observation, or a batch of them, as networks see them."""
        try:
            obs = self.env.flatten(observation)
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise ConfigError(self._not_seen(observation)) from error
        shape = self.env.observation_space.shape
        if obs.shape != shape and obs.shape[1:] != shape:
            plain = isinstance(observation, np.ndarray)
            raise ConfigError(
                f"observation of shape {obs.shape}; want {shape} or a batch of these."
                if plain
                else self._not_seen(observation)
            )
        return obs

    def familiarity(self, observation: Any) -> np.ndarray:
        """How familiar a state is from the demonstrations, in [0, 1]: the share of held-out demonstrated states that
        look at least as strange. Below 0.1 a state is stranger than nine of ten demonstrated ones.

        For agents that learn it (SCOPIL-ρ), with their demonstrations.
        """
        if (monitor := self.monitor()) is None:
            learns = self.algorithm.monitor is not None
            missing = "its demonstrations" if learns else "an algorithm that learns it: scopil.SCOPILRho"
            raise ConfigError(f"{self.algorithm.title} cannot tell how familiar a state is; want {missing}.")
        obs = self._rows(observation)
        return np.asarray(_familiarity(monitor, jnp.atleast_2d(obs))).reshape(obs.shape[:-1])

    def monitor(self) -> Monitor | None:
        """What tells how familiar a state is, for `policy.to_onnx`; None for agents that cannot tell."""
        if self.algorithm.monitor is None or self.demos is None:
            return None
        if self._monitor is None:
            self._monitor = self.algorithm.monitor(self.state, demo_data(self.demos, self.env).transitions)
        return self._monitor

    def play(
        self,
        starts: str | np.ndarray = "unseen",
        episodes: int | None = None,
        *,
        deterministic: bool = True,
        seed: int = 0,
        rules: Any = None,
    ) -> list[Episode]:
        """Whole episodes.

        Args:
            starts: "unseen" (drawn by the environment, the same for everybody), "demonstrated", a file of starts, or an
                array of them.
            episodes: how many; default: 40 unseen ones, or one from each demonstrated start. Starts that are fewer are
                played again and again, but by a greedy policy only where that gives other episodes.
            deterministic: take the likeliest action instead of a sampled one.
            seed: of sampled actions, and of the unseen starts.
            rules: rules to count violations by, in place of what the environment reports: a function of (obs, action,
                next_obs), a dict of functions or `info` keys by name, or a file such as "my_rules.py".
        """
        demos = self.demos if self.demos is not None else where.demos_for(self.env_id)
        first = where.starts_from(starts, self.env, demos, episodes, seed)
        mode = "greedy" if deterministic else "sampled"
        played = player(self.env, mode)(self.policy, first, jax.random.key(seed))
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
        """The means over episodes of reward, steps, violations (of each rule too) and what else the environment
        measures. The arguments are those of `play`."""
        played = self.play(starts, episodes, deterministic=deterministic, seed=seed, rules=rules)
        return average(measure_all(self.watched(played), self.env))

    def watched(self, episodes: Sequence[Episode]) -> list[Episode]:
        """Episodes with the familiarity of their states in `info`, where the agent can tell it."""
        if self.monitor() is None:
            return list(episodes)
        shares = np.split(
            self.familiarity(np.concatenate([e.observations for e in episodes])),
            np.cumsum([len(e.observations) for e in episodes])[:-1],
        )
        return [replace(e, info=e.info | {"familiarity": share}) for e, share in zip(episodes, shares)]

    def save(self, path: str | Path) -> None:
        """Policy, networks, optimisers and multipliers, with everything needed to use them again; not the replay."""
        note = {
            "algorithm": self.algorithm.name,
            "title": self.algorithm.title,
            "env": self.env_id,
            "seed": self.seed,
        }
        note |= {"config": asdict(self.config), "env_steps": self.num_timesteps}
        save_learner(Path(path), self.algorithm, self.state, note)

    def __repr__(self) -> str:
        return f"{self.algorithm.title} on {self.env_id or self.env}, {self.num_timesteps:,} steps"


def _whole(number: Any) -> int | None:
    """A whole number, 1e5 among them; None for anything else."""
    if isinstance(number, bool) or not isinstance(number, Real) or number != number // 1:
        return None
    return int(float(number))


def _brief(observation: Any) -> str:
    """What was given, in a few words."""
    if isinstance(observation, Mapping):
        return f"{{{', '.join(f'{key}: {_brief(value)}' for key, value in observation.items())}}}"
    return f"array{observation.shape}" if isinstance(observation, np.ndarray) else repr(observation)[:80]


class _Outside(NamedTuple):
    """A learner that is not in a trainer."""

    learner: Callable[[Callable[[], Any]], Any]  # (what makes a new one) → it
    steps: int
    policy: Policy | None = None


def load(
    path: str | Path,
    env: AnyEnv | None = None,
    demos: Any = None,
    algorithm: Algorithm | None = None,
    *,
    trust_env: bool = False,
) -> Agent:
    """An agent from `agent.save`, or from a run folder (its final policy, or its newest checkpoint).

    Args:
        path: the file or folder.
        env: needed when the agent was trained on an environment without an id.
        demos: to go on learning from a saved agent whose algorithm needs demonstrations; a run folder has its own.
        algorithm: needed when the agent's algorithm is not a registered one.
        trust_env: import the module that the file names where its environment's id is `module:Id-v0`. It then runs the
            code of that module; name the environment yourself, as `env`, for files from others.
    """
    path, final = Path(path), True
    if path.is_dir():
        run = Run.open(path, algorithm)
        if demos is None and run.demos_file.exists():
            demos = run.demos()
        path, final = run.newest_policy(), run.finished
    arrays, note = read_arrays(path)
    name = note.get("algorithm")
    if name is None or "config" not in note:
        raise CheckpointError(f"{path} holds a policy alone; scopil.Policy.load(path) reads it.")
    _refuse_malformed(note, path)
    if algorithm is not None and algorithm.name != name:
        raise CheckpointError(f"{path} was made by {name}, not by {algorithm.name}.")
    if env is None and not note.get("env"):
        raise CheckpointError(f"{path} does not name its environment; give one: scopil.load(path, env=...).")
    algorithm = algorithm or registered().get(name)
    agent = Agent(
        algorithm or stand_in(name, note.get("title", name)),
        id_in_file(note["env"], path, trust_env) if env is None else env,
        demos,
        seed=note["seed"],
        **(note["config"] if algorithm is not None else {}),
    )
    policy = policy_from(arrays, note, path) if final else None
    if policy is not None:
        _refuse_other_spaces(policy, agent.env, path)
    agent.env_id = agent.env_id or note.get("env")
    learner = branch(arrays, "learner")
    agent._outside = _Outside(
        lambda new: as_tree(learner, jax.eval_shape(new), path), note.get("env_steps", 0), policy
    )
    return agent


def _refuse_malformed(note: dict[str, Any], path: Path) -> None:
    """What a file says of its agent, before any of it is used."""
    lines = (note.get(key) for key in ("algorithm", "title", "env"))
    counts = note.get("seed"), note.get("env_steps", 0)
    config = note["config"]
    if (
        not all(line is None or is_line(line) for line in lines)
        or not all(type(count) is int for count in counts)
        or not isinstance(config, dict)
        or not config.keys().isdisjoint(("self", "algorithm", "env", "demos", "seed"))
    ):
        raise CheckpointError(f"{path} is damaged: it names no algorithm, environment, seed and settings.")


def _refuse_other_spaces(policy: Policy, env: BatchEnv, path: Path) -> None:
    spaces = spaces_of(env.observation_space, env.action_space, env.image)
    found, wanted = policy.form()["sizes"][0], spaces.obs_dim
    if found != wanted:
        raise CheckpointError(
            f"{path} sees observations of {found} numbers; the environment's have {wanted}."
        )
    have, want = policy.head, spaces.head
    if str(_plain(have)) != str(_plain(want)):
        raise CheckpointError(
            f"{path} chooses {_actions(have)}; the environment takes {_actions(want)}: {env.action_space}."
        )


def _plain(head: Head) -> Any:
    """What two heads have to agree in."""
    if isinstance(head, DiscreteHead):
        return head.num_actions, head.start
    return np.asarray(head.low).tolist(), np.asarray(head.high).tolist()


def _actions(head: Head) -> str:
    if isinstance(head, DiscreteHead):
        return f"one of {head.num_actions} actions counted from {head.start}"
    low, high = _plain(head)
    return f"actions of {head.num_actions} components between {low} and {high}"


def policy_of(path: str | Path, *, trust_env: bool = False) -> tuple[Policy, dict[str, str]]:
    """The policy of a saved agent or a run, and a few words on where it comes from. No environment is opened where the
    policy is final."""
    path = Path(path)
    run = Run.open(path) if path.is_dir() else None
    if run is not None and not run.finished:
        agent = load(path, trust_env=trust_env)
        agent.env.close()
        policy, note = agent.policy, run.note() | {"env_steps": agent.num_timesteps}
    else:
        policy, note = read_policy(path if run is None else run.policy_file)
    kept = {"algorithm": "algorithm", "env": "env_id", "seed": "seed", "env_steps": "env_steps"}
    return policy, {name: str(note[key]) for key, name in kept.items() if note.get(key) is not None}


def monitor_of(path: str | Path, *, trust_env: bool = False) -> Monitor | None:
    """What tells how familiar a state is, of a run folder whose algorithm learns it; None of others."""
    if not Path(path).is_dir() or Run.open(Path(path)).spec.algorithm.monitor is None:
        return None
    agent = load(path, trust_env=trust_env)
    agent.env.close()
    return agent.monitor()


class _Named(Agent):
    """An agent whose algorithm is fixed by its class."""

    _algorithm: Algorithm

    def __init_subclass__(cls) -> None:
        """Tools that read signatures at run time see every setting."""
        P = inspect.Parameter
        fixed = [P("env", P.POSITIONAL_OR_KEYWORD), P("demos", P.POSITIONAL_OR_KEYWORD, default=None)]
        given = [P("seed", P.KEYWORD_ONLY, default=0)]
        given += [P(s.name, P.KEYWORD_ONLY, default=s.default) for s in settings(cls._algorithm.config)]
        cls.__signature__ = inspect.Signature([*fixed, *given])


class SCOPIL(_Named):
    """Soft actor-critic under an imitation constraint (docs/algorithms/scopil.md)."""

    _algorithm = scopil.ALGORITHM

    def __init__(
        self, env: AnyEnv, demos: Any = None, *, seed: int = 0, **config: Unpack[accepted.ScopilSettings]
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)


class SCOPILRho(_Named):
    """SCOPIL that also stays where the demonstrator is found (docs/algorithms/scopil_rho.md)."""

    _algorithm = scopil_rho.ALGORITHM

    def __init__(
        self, env: AnyEnv, demos: Any = None, *, seed: int = 0, **config: Unpack[accepted.ScopilRhoSettings]
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)


class SAC(_Named):
    """Soft actor-critic: reward alone (docs/algorithms/sac.md)."""

    _algorithm = sac.ALGORITHM

    def __init__(
        self, env: AnyEnv, demos: Any = None, *, seed: int = 0, **config: Unpack[accepted.SacSettings]
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)


class SDGD(SCOPIL):
    """SCOPIL with a fixed multiplier."""

    _algorithm = ablations.S_DGD


class SEiC(SCOPIL):
    """SCOPIL without entropy in the constraint."""

    _algorithm = ablations.S_EIC


class SDGDEiC(SCOPIL):
    """SCOPIL with a fixed multiplier and without entropy in the constraint."""

    _algorithm = ablations.S_DGD_EIC


class PPO(_Named):
    """Proximal policy optimisation: reward alone (docs/algorithms/ppo.md)."""

    _algorithm = ppo.ALGORITHM

    def __init__(
        self, env: AnyEnv, demos: Any = None, *, seed: int = 0, **config: Unpack[accepted.PpoSettings]
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)


class PPODGD(_Named):
    """PPO under SCOPIL's imitation constraint (docs/algorithms/ppo_dgd.md)."""

    _algorithm = ppo_dgd.ALGORITHM

    def __init__(
        self, env: AnyEnv, demos: Any = None, *, seed: int = 0, **config: Unpack[accepted.PpoDgdSettings]
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)


class ICRL(_Named):
    """Inverse constrained reinforcement learning (docs/algorithms/icrl.md)."""

    _algorithm = icrl.ALGORITHM

    def __init__(
        self, env: AnyEnv, demos: Any = None, *, seed: int = 0, **config: Unpack[accepted.IcrlSettings]
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)


class BC(_Named):
    """Behaviour cloning: demonstrations alone (docs/algorithms/bc.md)."""

    _algorithm = bc.ALGORITHM

    def __init__(
        self, env: AnyEnv, demos: Any = None, *, seed: int = 0, **config: Unpack[accepted.BcSettings]
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)


class OraclePPOLagrangian(_Named):
    """PPO-Lagrangian that sees the true cost: a yardstick (docs/algorithms/ppo_lagrangian.md)."""

    _algorithm = ppo_lagrangian.ORACLE

    def __init__(
        self,
        env: AnyEnv,
        demos: Any = None,
        *,
        seed: int = 0,
        **config: Unpack[accepted.PpoLagrangianSettings],
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)


class OracleSACLagrangian(_Named):
    """SAC-Lagrangian that sees the true cost: a yardstick (docs/algorithms/oracles.md)."""

    _algorithm = sac_lagrangian.ORACLE

    def __init__(
        self,
        env: AnyEnv,
        demos: Any = None,
        *,
        seed: int = 0,
        **config: Unpack[accepted.SacLagrangianSettings],
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)
