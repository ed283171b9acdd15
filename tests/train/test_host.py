"""Runs on host environments: repeatable, resumable, and usable after a fault of the environment."""

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from jax.experimental import io_callback

import scopil
from hosts import LIMIT, OWN, Walk, gives, raises, registered
from probes import SMALL
from scopil import agent as agent_module
from scopil.algos.sac import ALGORITHM as SAC
from scopil.cli import main
from scopil.data.dataset import Demonstrations
from scopil.envs import host_call
from scopil.envs.base import BatchEnv
from scopil.envs.gym_env import HostEnv, open_env
from scopil.envs.jax_env import CompiledEnv
from scopil.errors import CheckpointError, ConfigError, DivergedError, EnvError
from scopil.registry import find
from scopil.serialization import read_arrays
from scopil.train import run as run_module
from scopil.train.demo_data import demo_data
from scopil.train.loop import make_loop
from scopil.train.run import Run, RunSpec
from toys import INVERSE, Throttle, toy_demos
from toys import ROLLOUT as TOY_ROLLOUT

CHUNK = 200
CONFIG: Any = SMALL | {"replay_size": 1024}
ZERO = jax.ShapeDtypeStruct((), jnp.float32)


def no_fault(walk: Walk) -> None:
    pass


class Current:
    """The present fault of `test/Walk-v0`."""

    fault: ClassVar[Callable[[Walk], None]] = staticmethod(no_fault)


@pytest.fixture(scope="module")
def walk_id():
    """The id of a walk, opened once, so that runs share their programs."""
    # Asked at every step: the first walk is made here, before a test says what goes wrong.
    with registered(lambda: Walk(lambda walk: Current.fault(walk)), max_episode_steps=LIMIT) as name:
        env = open_env(name)
        loops: dict[tuple[str, bool], Any] = {}

        def shared(algorithm, given, demos):
            made = make_loop(algorithm, given, demos)
            # There is one set of demonstrations: `walk_demos`.
            return made if given is not env else loops.setdefault((algorithm.name, demos is None), made)

        def opened(wanted):
            return env if wanted == name else open_env(wanted)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("scopil.train.trainer.CHUNK", CHUNK)
            for module in (run_module, agent_module):
                patch.setattr(module, "open_env", opened)
                patch.setattr(module, "make_loop", shared)
            yield name


@pytest.fixture(autouse=True)
def sound(walk_id):
    """Every test begins without a fault and with fresh environments."""
    yield
    Current.fault = no_fault
    run_module.open_env(walk_id).close()


def spec(env: str, **changes) -> RunSpec:
    fields: dict[str, Any] = {"algorithm": SAC, "env": env, "steps": 600, "eval_every": 10**9}
    return RunSpec(**fields | {"checkpoint_every": CHUNK, "config": dict(CONFIG)} | changes)


def walk_demos(episodes: int = 3) -> Demonstrations:
    """Episodes that walk towards the middle."""
    walk, observations, actions = Walk(), [], []
    for seed in range(episodes):
        obs, _ = walk.reset(seed=seed)
        seen, done = [obs], []
        for _ in range(LIMIT):
            done.append(int(obs[0] < 0))
            obs, *_ = walk.step(done[-1])
            seen.append(obs)
        observations.append(np.stack(seen))
        actions.append(np.array(done))
    return Demonstrations.from_arrays(observations, actions, action_space=gym.spaces.Discrete(2))


def test_a_resumed_run_starts_new_episodes_and_warns(walk_id, tmp_path):
    run = Run.create(tmp_path / "run", spec(walk_id))
    assert not run.train(lambda status: status.env_steps >= CHUNK)
    again = Run.open(run.folder)
    with pytest.warns(UserWarning, match="test/Walk-v0: its episodes restart"):
        assert again.train()
    rows = again.metrics.rows()
    assert [row["env_steps"] for row in rows] == [0, 200, 400, 600]
    arrays, _ = read_arrays(again.checkpoints.files()[-1])
    np.testing.assert_array_equal(arrays[".env.obs"][:, 1], arrays[".env.steps"])  # obs of the episode it says
    stored = arrays[".replay.rows"][:, 1]  # the clock at each step: every episode from its beginning
    after_end = np.flatnonzero(np.diff(stored) != 1) + 1
    np.testing.assert_array_equal(stored[after_end], 0)


@pytest.mark.filterwarnings("default:a checkpoint cannot hold")  # the command line prints it
@pytest.mark.parametrize(
    ("fault", "match"),
    [
        (raises(500), "ZeroDivisionError: the motor fell off"),
        (gives(500, obs=np.array([np.nan, 0.0])), r"obs\[0\] of an observation is nan"),
    ],
    ids=["raises", "nan"],
)
def test_a_fault_leaves_the_run_usable(fault, match, walk_id, tmp_path, capsys):
    Current.fault = fault
    run = Run.create(tmp_path / "run", spec(walk_id))
    good = {}
    with pytest.raises(EnvError, match=rf"{match}.*The checkpoint of step 400 is intact; continue: scopil resume"):
        run.train(lambda status: good.update({status.env_steps: jax.device_get(status.state.learner)}))
    assert list(good) == [200, 400]
    agent = scopil.load(run.folder)
    assert agent.num_timesteps == 400
    for a, b in zip(jax.tree.leaves(agent.state), jax.tree.leaves(good[400])):
        np.testing.assert_array_equal(a, b)
    assert main(["train", "--resume", str(run.folder)]) == 0  # 200 steps are left; it breaks after 500
    assert "restart" in " ".join(capsys.readouterr().out.split())
    assert Run.open(run.folder).finished


def test_a_slow_environment_stops_in_the_middle_of_a_chunk(walk_id, tmp_path, monkeypatch):
    monkeypatch.setattr("scopil.train.trainer.PIECE", 0.0)
    run = Run.create(tmp_path / "run", spec(walk_id))
    seen = []
    assert not run.train(between=lambda steps: seen.append(steps) or steps >= 250)
    assert seen[-1] == 250
    assert [row["env_steps"] for row in run.metrics.rows()] == [0, 200]
    assert [int(f.stem) for f in run.checkpoints.files()] == [200, 250]
    with pytest.warns(UserWarning, match="restart"):
        assert Run.open(run.folder).train()
    assert [row["env_steps"] for row in run.metrics.rows()] == [0, 200, 400, 600]


def test_a_chunk_in_pieces_gives_the_same_bytes_and_another_seed_does_not(walk_id, tmp_path, monkeypatch):
    runs = {}
    for name, seed, seconds in (("whole", 1, 1e9), ("pieces", 1, 0.0), ("other", 2, 1e9)):
        monkeypatch.setattr("scopil.train.trainer.PIECE", seconds)
        runs[name] = Run.create(tmp_path / name, spec(walk_id, seed=seed))
        assert runs[name].train()
    for name in ("policy.safetensors", "metrics.jsonl"):
        whole, pieces, other = ((run.folder / name).read_bytes() for run in runs.values())
        assert whole == pieces != other
    whole, pieces = (read_arrays(runs[name].checkpoints.files()[-1])[0] for name in ("whole", "pieces"))
    assert whole.keys() == pieces.keys()
    for name in whole.keys() - {".env.inner"}:  # which counts the resets of the shared environment
        np.testing.assert_array_equal(whole[name], pieces[name], err_msg=name)


@pytest.mark.filterwarnings("ignore:a checkpoint cannot hold")
@pytest.mark.parametrize("at", [200, 600])
def test_a_stopped_evaluation_is_made_when_the_run_continues(at, walk_id, tmp_path):
    run, looks = Run.create(tmp_path / "run", spec(walk_id, eval_every=200)), []

    def between(steps: int) -> bool:
        # True within the evaluation: no other call repeats its steps.
        looks.append(steps)
        return looks.count(at) > 1

    assert not run.train(between=between)
    before = list(range(200, at, 200))
    assert [row["env_steps"] for row in run.metrics.rows()] == [0, *before]
    assert [int(f.stem) for f in run.checkpoints.files()] == [*before, at][-2:]
    assert not run.finished
    assert run.steps_done == at
    again = Run.open(run.folder)
    assert again.train()
    assert again.best_file.exists()
    assert [row["env_steps"] for row in again.metrics.rows() if "eval/reward" in row] == [0, 200, 400, 600]


def test_a_learner_without_episodes_writes_the_same_metrics_if_it_was_stopped(walk_id, tmp_path, monkeypatch):
    monkeypatch.setattr("scopil.train.trainer.PIECE", 0.0)
    walk_demos().save(tmp_path / "demos.npz")
    config = {"hidden": (8,), "demo_batch_size": 8}
    how: Any = {"algorithm": find("bc"), "demos": str(tmp_path / "demos.npz"), "steps": 250, "eval_every": 200}
    whole = Run.create(tmp_path / "whole", spec(walk_id, config=config, **how))
    assert whole.train()
    for at in (1, 150, 200):
        stopped = Run.create(tmp_path / f"stopped-{at}", spec(walk_id, config=config, **how))
        assert not stopped.train(between=lambda steps, at=at: steps >= at)
        assert stopped.steps_done == at
        assert Run.open(stopped.folder).train()
        for name in ("metrics.jsonl", "policy.safetensors", "best.safetensors"):
            assert (whole.folder / name).read_bytes() == (stopped.folder / name).read_bytes()


def test_with_overlap_a_step_begins_before_the_update_and_ends_after_it(walk_id, monkeypatch):
    order: list[str] = []

    def update(state, data, cfg, key):
        state, metrics = SAC.update(state, data, cfg, key)
        zero = io_callback(lambda loss: order.append("update") or np.float32(0), ZERO, metrics["critic/loss"])
        return state, {name: value + zero for name, value in metrics.items()}

    for name in ("_begin", "_finish"):
        inner = getattr(HostEnv, name)
        monkeypatch.setattr(HostEnv, name, lambda *args, i=inner, n=name: order.append(n) or i(*args))
    agent = scopil.Agent(replace(SAC, update=update), HostEnv(Walk()), **CONFIG | {"overlap": True})
    agent.learn(20)
    assert order == ["_begin", "update", "_finish"] * (20 - CONFIG["batch_size"])


def test_with_overlap_training_is_the_same_as_in_turns_and_in_pieces_and_survives_a_fault(walk_id, monkeypatch):
    """In turns and in the same order: the update first, without the step that it does not have yet."""
    apart, agents, state = set(), {}, None
    for name, seconds in (("overlap", 1e9), ("turns", 0.0)):
        monkeypatch.setattr("scopil.train.trainer.PIECE", seconds)
        Current.fault = lambda walk: apart.add(threading.current_thread().name.startswith("scopil-step"))
        agent = scopil.SAC(HostEnv(Walk(lambda walk: Current.fault(walk))), **CONFIG | {"overlap": True})
        agents[name] = agent.learn(100)
        assert apart == {False, name == "overlap"}  # the first steps are without updates
        apart.clear()
        if name == "overlap":
            state = jax.device_get((agent.state, agent._trainer.state.replay))
            Current.fault = raises(150)
            with pytest.raises(EnvError, match="the motor fell off"):
                agent.learn(100)
            assert agent.num_timesteps == 100
            assert agent.learn(10).num_timesteps == 110
            for method in ("begin_batch", "finish_batch"):
                monkeypatch.setattr(HostEnv, method, getattr(BatchEnv, method))
    turns = jax.device_get((agents["turns"].state, agents["turns"]._trainer.state.replay))
    assert jax.tree.structure(state) == jax.tree.structure(turns)
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(turns)):
        np.testing.assert_array_equal(a, b)


def test_overlap_is_refused_if_the_learner_wants_the_newest_step(walk_id):
    for name in ("scopil-rho", "oracle-sac-lagrangian"):
        with pytest.raises(ConfigError, match=r"overlap = True; .* learns from the newest step"):
            scopil.Agent(find(name), walk_id, walk_demos(), overlap=True)


@pytest.mark.slow
@pytest.mark.parametrize("overlap", ["", "--overlap"])
def test_a_killed_run_resumed_twice_ends_in_the_same_bytes(overlap, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    argv = ["sac", "--env", "own.py:Own", "--out", "run", "--hidden", "8", "--batch-size", "32", "--steps", "2e4"]
    argv += ["--replay-size", "1000", "--checkpoint-every", "5000", *overlap.split()]
    child = subprocess.Popen([sys.executable, "-m", "scopil", "train", *argv], cwd=tmp_path)
    while not list((tmp_path / "run").glob("checkpoints/*.ckpt")):
        assert child.poll() is None
        time.sleep(0.001)
    child.kill()
    child.wait()
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    ends = []
    for name in ("run", "copy"):
        subprocess.run([sys.executable, "-m", "scopil", "resume", name], cwd=tmp_path, check=True)
        ends.append([(tmp_path / name / file).read_bytes() for file in ("policy.safetensors", "metrics.jsonl")])
    assert ends[0] == ends[1]


@pytest.mark.slow
@pytest.mark.parametrize("overlap", ["", "--overlap"])
def test_an_interrupt_is_answered_before_the_chunk_ends(overlap, tmp_path):
    """5 000 steps of this environment take two minutes."""
    (tmp_path / "slow.py").write_text(OWN.replace("pause = 0.0", "pause = 0.02"))
    argv = ["train", "sac", "--env", "slow.py:Own", "--out", "run", "--hidden", "8", "--batch-size", "32"]
    argv += overlap.split()
    child = subprocess.Popen(
        [sys.executable, "-m", "scopil", *argv, "--steps", "1e5"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    while " 0/" in child.stdout.readline():  # a line with a step: a piece is done
        pass
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=600)
    assert child.returncode == 130
    stopped = int(out.rpartition("stopped at step ")[2].split(",")[0])
    assert 0 < stopped < 4000
    assert [int(f.stem) for f in (tmp_path / "run" / "checkpoints").iterdir()] == [stopped]


def test_rewards_whose_sum_overflows_are_not_called_infinite(walk_id, tmp_path):
    Current.fault = lambda walk: vars(walk).update(reward=3e38)
    run = Run.create(tmp_path / "run", spec(walk_id))
    with pytest.raises(DivergedError, match=r"or rewards whose sum exceeds 3\.4e38"):
        run.train()


def test_a_fault_before_the_first_checkpoint(walk_id, tmp_path):
    Current.fault = raises(100)
    run = Run.create(tmp_path / "run", spec(walk_id))
    with pytest.raises(EnvError, match=r"the motor fell off.* has no checkpoint yet"):
        run.train()


def test_an_agent_survives_a_fault(walk_id):
    Current.fault = raises(500)
    agent = scopil.SAC(walk_id, **CONFIG)
    states = []
    with pytest.raises(EnvError, match="the motor fell off"):
        agent.learn(600, callback=lambda status: states.append(jax.device_get(status.state.learner)))
    assert agent.num_timesteps == 400
    for a, b in zip(jax.tree.leaves(agent.state), jax.tree.leaves(states[-1])):
        np.testing.assert_array_equal(a, b)
    agent.predict(np.zeros(2))
    agent.learn(100)
    assert agent.num_timesteps == 500


def test_a_jaxlib_with_another_foreign_function_interface_trains_to_the_same_bits(walk_id, monkeypatch):
    one, other = (scopil.SAC(HostEnv(Walk(lambda walk: Current.fault(walk))), **CONFIG) for _ in range(2))
    one.learn(100)
    monkeypatch.setattr(host_call, "VERSION", (host_call.VERSION[0] + 1, 0))
    host_call._is_direct.cache_clear()
    try:
        other.learn(100)
        assert not host_call._is_direct()
    finally:
        host_call._is_direct.cache_clear()
    for a, b in zip(jax.tree.leaves(one.state), jax.tree.leaves(other.state)):
        np.testing.assert_array_equal(a, b)
    Current.fault = raises(150)
    with pytest.raises(EnvError, match="the motor fell off"):
        other.learn(100)
    assert other.num_timesteps == 100


ROLLOUT = {"hidden": [4], "batch_size": 16, "num_envs": 2, "rollout_steps": 16, "epochs": 2}
REPLAY = {"hidden": [4], "batch_size": 16, "replay_size": 512, "num_envs": 2}


@pytest.mark.parametrize(
    ("algorithm", "config"),
    [
        ("scopil", REPLAY | {"demo_batch_size": 8}),
        ("icrl", ROLLOUT | {"forward_steps": 64, "rollouts": 3, "backward_iters": 1}),
        ("oracle-ppo-lagrangian", ROLLOUT),
    ],
)
def test_every_kind_of_learner(algorithm, config, walk_id, tmp_path):
    walk_demos().save(tmp_path / "demos.npz")
    demos = str(tmp_path / "demos.npz") if find(algorithm).needs_demos else None
    made = spec(walk_id, algorithm=find(algorithm), demos=demos, steps=192, eval_every=1, config=config)
    run = Run.create(tmp_path / "run", made)
    assert run.train()
    row = run.metrics.rows()[-1]
    assert 1 <= row["eval/steps"] <= LIMIT
    assert 0 < row["eval/frequency"] <= 1
    assert "eval/reached" not in row
    ended = [r["episode/steps"] for r in run.metrics.rows() if r.get("episode/steps") is not None]
    assert 1 <= max(ended) <= LIMIT
    if algorithm.startswith("oracle"):
        assert 0 < row["cost/mean"] < 1


def test_observations_after_the_end_of_an_episode_are_masked():
    """An action chosen at NaN is NaN, and a mask does not stop its gradient."""

    class Lost(Throttle):
        def observation(self, state, rng, params=None):
            return jnp.where(state.clock > 2, jnp.nan, super().observation(state, rng))

    loop = make_loop(find("icrl"), CompiledEnv(Lost(), max_episode_steps=4), toy_demos(continuous=True))
    cfg = loop.algorithm.config(**TOY_ROLLOUT, **INVERSE)
    policy = loop.algorithm.policy(loop.init_learner(jax.random.key(0), cfg))
    own = loop.play(policy, jax.random.key(1), 3)
    np.testing.assert_array_equal(own.mask, [[True, True, False, False]] * 3)
    assert np.isfinite(own.obs).all()
    assert np.isfinite(own.action).all()


class Silent(Walk):
    """A walk that reports no cost."""

    def info(self) -> dict[str, Any]:
        return {"x": self.x}


def test_an_oracle_wants_an_environment_that_reports_its_cost(tmp_path):
    with (
        registered(Silent, "test/Silent-v0", max_episode_steps=LIMIT) as name,
        pytest.raises(EnvError, match=r'environment reports none; want info\["cost"\]'),
    ):
        Run.create(tmp_path / "run", spec(name, algorithm=find("oracle-sac-lagrangian")))
    assert not (tmp_path / "run").exists()


def test_a_vector_environment_sets_num_envs():
    agent = scopil.SAC(SyncVectorEnv([Walk] * 4), **SMALL)
    assert agent.config.num_envs == 4
    agent.learn(100)
    before = agent.num_timesteps
    assert agent.evaluate(episodes=6)["steps"] <= LIMIT  # on the same environments: there are no others
    agent.learn(100)
    assert agent.num_timesteps == before + 100


def test_two_agents_may_share_an_environment(walk_id):
    walk = Walk()
    env = HostEnv(walk)
    one, other = scopil.SAC(env, **SMALL), scopil.SAC(env, seed=1, **SMALL)
    other._trainer.loop = one._trainer.loop  # compiled once
    for agent in (one, other, one):
        agent.learn(50)
    assert [what for what, *_ in walk.log].count("step") == 3 * 50


def test_the_id_of_a_wrapped_environment_is_not_saved(tmp_path):
    wrapped = gym.wrappers.TransformReward(Walk(), lambda reward: 0.0)
    scopil.SAC(wrapped, **SMALL).save(tmp_path / "policy.safetensors")
    with pytest.raises(CheckpointError, match="does not name its environment"):
        scopil.load(tmp_path / "policy.safetensors")


class Numbered(Walk):
    """Observations and actions are numbers, actions counted from 1."""

    observation_space: gym.Space = gym.spaces.Discrete(4)  # pyright: ignore[reportIncompatibleVariableOverride]
    action_space = gym.spaces.Discrete(2, start=1)

    def see(self):
        return int(np.clip(self.x, -2, 1)) + 2

    def step(self, action):
        assert action in (1, 2)
        return super().step(action - 1)


def test_demonstrations_of_raw_observations_are_flattened():
    demos = Demonstrations.from_arrays(
        [np.array([0, 1, 2, 3])], [np.array([2, 2, 1])], action_space=gym.spaces.Discrete(2, start=1)
    )
    agent = scopil.BC(Numbered(), demos, hidden=(4,), demo_batch_size=4)
    steps = demo_data(demos, agent.env).transitions
    np.testing.assert_array_equal(steps.obs, np.eye(4)[:3])
    np.testing.assert_array_equal(steps.next_obs, np.eye(4)[1:])
    np.testing.assert_array_equal(steps.action, [1, 1, 0])
    agent.learn(50)
    assert agent.predict(3)[0] in (1, 2)
    assert all(set(e.actions) <= {1, 2} for e in agent.play(episodes=3))


RULES = """
def left(obs, action, next_obs):
    assert next_obs[1] == obs[1] + 1  # of the same episode
    return obs[0] > 0 > next_obs[0] and action == 0

RULES = {"left": left, "far": "x_far"}
"""


class Far(Walk):
    def info(self) -> dict[str, Any]:
        return {"cost": 1.0, "x_far": float(self.x > 3)}


@pytest.mark.parametrize("num_envs", [1, 3])
def test_violations_while_learning_are_those_of_the_callers_rules(num_envs, tmp_path, monkeypatch):
    """Counted from the steps in the replay; a key of `info` counts too. The environment's own costs do not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_rules.py").write_text(RULES)
    with registered(Far, "test/Far-v0", max_episode_steps=LIMIT) as name:
        counts = []
        for rules in ("my_rules.py", None):
            config = dict(CONFIG) | {"num_envs": num_envs}
            run = Run.create(tmp_path / f"run-{rules}", spec(name, rules=rules, config=config))
            assert run.train()
            counts.append(sum(row.get("episode/violations", 0) for row in run.metrics.rows()))
    first = -(-run.config.batch_size // num_envs) * num_envs  # of the untrained policy
    x, _, action, _, after, *_ = read_arrays(run.checkpoints.files()[-1])[0][".replay.rows"][first:600].T
    assert counts == [((x > 0) & (after < 0) & (action == 0) | (after > 3)).sum(), len(x)]
    assert counts[0] > 20
