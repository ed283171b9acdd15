"""The Python API, in the habits of Stable-Baselines3:

agent = scopil.SCOPIL("scopil/MarbleMaze-Simple-v0", "marble-maze/simple-v1", seed=0)
agent.learn(100_000, progress_bar=True)
action, _ = agent.predict(obs, deterministic=True)
agent.save("policy.ckpt");  agent = scopil.load("policy.ckpt")
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scopil.algos import ALGORITHMS, choose
from scopil.algos.base import Algorithm, NumpyPolicy
from scopil.demos.store import load_demos
from scopil.envs.functional import id_of
from scopil.envs.host import AnyEnv, HostEnv, open_env
from scopil.errors import CheckpointError, ConfigError
from scopil.evaluate import protocol
from scopil.evaluate.games import Cost, Game, with_cost
from scopil.evaluate.metrics import Measures, average, measure
from scopil.train.checkpoint import load_tree, read_note, save_tree
from scopil.train.loops import make_loop
from scopil.train.run import Run, RunSpec
from scopil.train.trainer import Report, Trainer


class Agent:
    """A learner with its environment. `demos` is anything that `scopil.load_demos` takes. Every keyword after `seed` is
    a field of the algorithm's config."""

    algorithm: Algorithm  # of the class: for discrete actions; of an agent: for its environment's

    def __init__(self, env: AnyEnv, demos: Any = None, *, seed: int = 0, **config: Any):
        self.env = open_env(env)
        self.demos = None if demos is None else load_demos(demos, self.env)
        self.seed = seed
        self.algorithm = choose(self.algorithm.name, self.env.action_space)
        self.env_id = id_of(env)
        if isinstance(self.env, HostEnv) and self.env.num_envs is not None:
            config.setdefault("num_envs", self.env.num_envs)
        spec = RunSpec(algorithm=self.algorithm.name, env=self.env_id or "", seed=seed, config=config)
        self.config = spec.build_config(self.algorithm)
        # Without demonstrations one can play but not learn; `learn` says so.
        algorithm = replace(self.algorithm, needs_demos=self.algorithm.needs_demos and self.demos is not None)
        self._trainer = Trainer(make_loop(algorithm, self.env, self.demos), self.config, seed)
        self._untrained: Any = None  # the learner before training: to look at it makes no replay and no steps
        self._restored: tuple[Any, int] | None = (
            None  # a loaded learner and its steps, until training goes on
        )
        self._in_numpy: NumpyPolicy | None = None
        self._rng = np.random.default_rng(seed)

    @property
    def num_timesteps(self) -> int:
        """Environment steps made so far."""
        return self._trainer.env_steps if self._restored is None else self._restored[1]

    @property
    def learner(self) -> Any:
        """The algorithm's state: networks, optimisers, α, λ."""
        if self._restored is not None:
            return self._restored[0]
        if self._trainer.env_steps > 0:
            return self._trainer.state.learner
        if self._untrained is None:
            loop = self._trainer.loop
            first = jax.jit(lambda key, cfg: loop.init(key, cfg).learner)
            self._untrained = first(jax.random.key(self.seed), self.config)
        return self._untrained

    def learn(
        self,
        total_timesteps: int,
        *,
        progress_bar: bool = False,
        callback: Callable[[Report], bool | None] = lambda report: None,
    ) -> "Agent":
        """Train for `total_timesteps` further steps. `callback` hears of every stretch of a few thousand steps and
        may stop training by returning True."""
        if self.demos is None:
            make_loop(self.algorithm, self.env, None)  # refuses when demonstrations are needed
        until = self.num_timesteps + total_timesteps
        self._in_numpy = None
        if self._restored is not None:
            learner, steps = self._restored
            state = self._trainer.state  # replay and environment begin anew
            self._trainer.state = state._replace(learner=learner, env_steps=jnp.int32(steps))
            self._restored = None
        try:
            self._train(until, progress_bar, callback)
        except BaseException:
            if self._trainer.env_steps == 0:  # the state is lost, the learner of a moment ago is not
                self._restored = self._trainer.last_good
            raise
        return self

    def _train(self, until: int, progress_bar: bool, callback: Callable[[Report], bool | None]) -> None:
        if not progress_bar:
            return self._trainer.advance(until, callback)
        from scopil.train.progress import Progress

        with Progress(self.algorithm.title, until) as bar:
            self._trainer.advance(until, lambda report: bar(report) or callback(report))

    def predict(self, observation: Any, deterministic: bool = True) -> tuple[Any, None]:
        """The action for one observation or a batch of them. The second value is there for SB3's callers.

        Runs in NumPy: for one observation that is ten times faster than a call into a compiled program.
        """
        try:
            obs = self.env.flatten(observation)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"observation is not an array of numbers: {error}.") from error
        shape = self.env.observation_space.shape
        if obs.shape != shape and obs.shape[1:] != shape:
            raise ConfigError(f"observation of shape {obs.shape}; want {shape} or a batch of these.")
        policy = self._in_numpy = self._in_numpy or self.algorithm.in_numpy(self.learner)
        action = policy(obs, None if deterministic else self._rng)
        action = action + getattr(self.env.action_space, "start", 0)
        return (int(action) if action.ndim == 0 else action), None

    def play(
        self, starts: str = "test", games: int | None = None, *, deterministic: bool = True, seed: int = 0
    ) -> list[Game]:
        """Whole games from `train` (demonstrated) or `test` (fresh) starts."""
        demos = self.demos or protocol.demos_for(self.env_id)
        first = protocol.starts_from(starts, self.env, demos, games)
        play = protocol.player(self.env, self.algorithm, "greedy" if deterministic else "sampled")
        return play(self.learner, first, jax.random.key(seed))

    def evaluate(
        self, starts: str = "test", games: int | None = None, *, cost: Cost | None = None, **options: Any
    ) -> Measures:
        """The paper's measures, averaged over games. A step with `cost(obs, action, next_obs) > 0` is a violation;
        without `cost`, what the environment reports as one is."""
        played = self.play(starts, games, **options)
        return average([measure(game) for game in (with_cost(played, cost) if cost else played)])

    def save(self, path: str | Path) -> None:
        """Networks, optimisers and multipliers with everything needed to use them again; not the replay."""
        note = {"algorithm": self.algorithm.name, "env": self.env_id, "seed": self.seed}
        note |= {"config": asdict(self.config), "env_steps": self.num_timesteps}
        save_tree(Path(path), {"learner": self.learner}, note)

    def restore(self, path: str | Path) -> None:
        """Take the learner from a saved policy or a checkpoint; replay and environment begin anew."""
        learner, note = load_tree(Path(path), self._trainer.shape().learner, within="learner")
        self._restored, self._in_numpy = (learner, int(note.get("env_steps", 0))), None


def load(path: str | Path, env: AnyEnv | None = None, demos: Any = None) -> Agent:
    """An agent from `agent.save`, or from a run folder (its final policy, or its newest checkpoint).

    `env` is needed when the agent was trained on an object without an id; `demos` to learn on from a policy file
    with an algorithm that wants them (a run folder has its own).
    """
    path = Path(path)
    if path.is_dir():
        run = Run.open(path)
        if demos is None and run.demos_file.exists():
            demos = run.demos()
        path = run.newest_policy()
    note = read_note(path)
    if note.get("algorithm") not in AGENTS:
        raise CheckpointError(f"{path} was made by {note.get('algorithm')!r}; there are {', '.join(AGENTS)}.")
    if env is None and not note.get("env"):
        raise CheckpointError(f"{path} does not name its environment; give one: scopil.load(path, env=...).")
    agent = AGENTS[note["algorithm"]](
        note["env"] if env is None else env, demos, seed=note["seed"], **note["config"]
    )
    agent.restore(path)
    agent.env_id = agent.env_id or note.get("env")
    return agent


class SCOPIL(Agent):
    """Soft actor-critic under an imitation constraint (docs/algorithms/scopil.md)."""

    algorithm = ALGORITHMS["scopil"]


class SAC(Agent):
    """Soft actor-critic (docs/algorithms/sac.md; for continuous actions docs/algorithms/continuous.md)."""

    algorithm = ALGORITHMS["sac"]


class SDGD(Agent):
    """SCOPIL with a fixed multiplier."""

    algorithm = ALGORITHMS["s-dgd"]


class SEiC(Agent):
    """SCOPIL without entropy in the constraint."""

    algorithm = ALGORITHMS["s-eic"]


class SDGDEiC(Agent):
    """SCOPIL with a fixed multiplier and without entropy in the constraint."""

    algorithm = ALGORITHMS["s-dgd-eic"]


class PPO(Agent):
    """Proximal policy optimisation for discrete actions (docs/algorithms/ppo.md)."""

    algorithm = ALGORITHMS["ppo"]


class PPODGD(Agent):
    """PPO under SCOPIL's imitation constraint (docs/algorithms/ppo_dgd.md)."""

    algorithm = ALGORITHMS["ppo-dgd"]


class ICRL(Agent):
    """Inverse constrained reinforcement learning (docs/algorithms/icrl.md)."""

    algorithm = ALGORITHMS["icrl"]


class BC(Agent):
    """Behaviour cloning: demonstrations alone (docs/algorithms/bc.md)."""

    algorithm = ALGORITHMS["bc"]


class OraclePPOLagrangian(Agent):
    """PPO-Lagrangian that is told the true cost: a yardstick (docs/algorithms/ppo_lagrangian.md)."""

    algorithm = ALGORITHMS["oracle-ppo-lagrangian"]


class OracleSACLagrangian(Agent):
    """SAC-Lagrangian that is told the true cost: a yardstick (docs/algorithms/oracles.md)."""

    algorithm = ALGORITHMS["oracle-sac-lagrangian"]


AGENTS: dict[str, type[Agent]] = {
    cls.algorithm.name: cls
    for cls in (
        SCOPIL,
        SAC,
        SDGD,
        SEiC,
        SDGDEiC,
        PPO,
        PPODGD,
        ICRL,
        BC,
        OraclePPOLagrangian,
        OracleSACLagrangian,
    )
}
