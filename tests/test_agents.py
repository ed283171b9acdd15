"""Agents in the habits of Stable-Baselines3: predict, learn, save, load, and clear words for every slip."""

import sys
import time
from pathlib import Path

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scopil
from samples import marble_games, small_set
from scopil import agents
from scopil.agents import AGENTS, Agent
from scopil.algos import ALGORITHMS
from scopil.envs.functional import CompiledEnv, compile_env
from scopil.errors import CheckpointError, ConfigError, DatasetError, EnvError
from scopil.studies.marble_maze import MarbleMaze
from scopil.train import run as run_module
from scopil.train import trainer
from scopil.train.loops import make_loop
from scopil.train.run import Run, RunSpec
from scopil.train.trainer import Loop

ENV = "scopil/MarbleMaze-Simple-v0"
TINY = {"hidden": (8,), "batch_size": 32, "replay_size": 2000}
DEMOS = marble_games(steps=12, games=3)


LOOPS: dict[tuple[str, bool], Loop] = {}


def shared_loop(algorithm, env, demos) -> Loop:
    """One loop for all agents here that could share one: its program is compiled once."""
    if not isinstance(env.env, MarbleMaze) or demos not in (None, DEMOS):
        return make_loop(algorithm, env, demos)
    key = (algorithm.name, algorithm.needs_demos)
    if key not in LOOPS or (algorithm.needs_demos and demos is None):
        LOOPS[key] = make_loop(algorithm, env, demos)
    return LOOPS[key]


@pytest.fixture(autouse=True, scope="module")
def quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "STRETCH", 500)
        patch.setattr(agents, "make_loop", shared_loop)
        patch.setattr(run_module, "make_loop", shared_loop)
        yield


@pytest.fixture(scope="module")
def trained(quick) -> Agent:
    return scopil.SCOPIL(ENV, DEMOS, seed=1, demo_batch_size=8, **TINY).learn(1000)


@pytest.fixture(scope="module")
def observations() -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (64, 8)).astype(np.float32)


def leaves(agent: Agent) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(agent.learner)]


# --- predict -------------------------------------------------------------------------------------------------------


def test_greedy_predictions_are_the_policys_mode(trained, observations):
    wanted = np.asarray(trained.algorithm.policy(trained.learner, jnp.asarray(observations)).mode())
    batch, state = trained.predict(observations)
    assert state is None
    np.testing.assert_array_equal(batch, wanted)
    singles = [trained.predict(obs)[0] for obs in observations]
    assert all(type(action) is int for action in singles)
    assert singles == wanted.tolist()
    assert trained.predict(observations[0].tolist())[0] == wanted[0]  # a list will do
    assert trained.predict(np.zeros((0, 8)))[0].shape == (0,)
    assert len(np.unique(wanted)) > 1


def test_sampled_predictions_have_the_policys_probabilities(trained, observations):
    obs, n = observations[0], 20_000
    p = np.exp(np.asarray(trained.algorithm.policy(trained.learner, jnp.asarray(obs)).log_probs, np.float64))
    drawn, _ = trained.predict(np.tile(obs, (n, 1)), deterministic=False)
    counts = np.bincount(drawn, minlength=9)
    chi_square = float(((counts - n * p) ** 2 / (n * p)).sum())
    assert chi_square < 26.1  # the 99.9 % point with 8 degrees of freedom
    assert np.count_nonzero(counts) > 1


def test_predict_is_quick(trained, observations):
    obs = observations[0]
    trained.predict(obs)
    best = min(_seconds(trained, obs) for _ in range(20))
    print(f"predict: {best * 1e6:.1f} µs", file=sys.stderr)
    assert best < 100e-6


def _seconds(agent: Agent, obs: np.ndarray, calls: int = 100) -> float:
    begun = time.perf_counter()
    for _ in range(calls):
        agent.predict(obs)
    return (time.perf_counter() - begun) / calls


@pytest.mark.parametrize("shape", [(), (7,), (9,), (2, 7), (2, 3, 8), (8, 1)])
def test_other_shapes_are_refused(shape, trained):
    with pytest.raises(ConfigError, match=r"observation of shape .*; want \(8,\) or a batch of these"):
        trained.predict(np.zeros(shape))


@pytest.mark.parametrize("junk", ["abc", [[1, 2], [3]], None, {"obs": 1}])
def test_what_is_no_array_is_refused(junk, trained):
    with pytest.raises(ConfigError, match="observation"):
        trained.predict(junk)


# --- learn -----------------------------------------------------------------------------------------------------


def test_learning_twice_is_learning_on(trained):
    parts = scopil.SCOPIL(ENV, DEMOS, seed=1, demo_batch_size=8, **TINY)
    assert parts.num_timesteps == 0
    parts.predict(np.zeros(8))
    assert parts.num_timesteps == 0  # looking is not training
    assert parts.learn(300) is parts
    assert parts.num_timesteps == 300
    parts.learn(700)
    assert parts.num_timesteps == trained.num_timesteps == 1000
    assert leaves(parts) == leaves(trained)


def test_predictions_follow_learning(observations):
    agent = scopil.SAC(ENV, **TINY, learning_rate=0.05)
    logits = [agent.algorithm.numpy_logits(agent.learner)(observations)]
    before = agent.predict(observations)[0]
    agent.learn(600)
    after = agent.predict(observations)[0]
    logits.append(agent.algorithm.numpy_logits(agent.learner)(observations))
    np.testing.assert_array_equal(before, logits[0].argmax(axis=1))
    np.testing.assert_array_equal(after, logits[1].argmax(axis=1))
    assert np.abs(logits[0] - logits[1]).max() > 0.1

    heard = []
    agent.learn(5000, callback=lambda report: heard.append(report.env_steps) or len(heard) == 2)
    assert heard == [1000, 1500]  # stretches end at round numbers; the second asked to stop
    assert agent.num_timesteps == 1500


def test_a_progress_bar_is_drawn_and_the_callback_still_heard(capsys):
    heard = []
    agent = scopil.SAC(ENV, **TINY)
    agent.learn(500, progress_bar=True, callback=lambda report: heard.append(report.metrics))
    assert len(heard) == 1
    out = capsys.readouterr().out
    assert "SAC" in out
    assert "500/500" in out


# --- environments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: ENV,
        lambda: gym.make(ENV),
        lambda: MarbleMaze(),
        lambda: CompiledEnv(MarbleMaze()),
        lambda: compile_env(ENV),
    ],
)
def test_every_form_of_an_environment_is_taken(make):
    agent = scopil.SAC(make(), **TINY)
    assert isinstance(agent.env, CompiledEnv)
    assert isinstance(agent.env.env, MarbleMaze)
    assert agent.env.horizon == 200


def test_an_unknown_environment_is_refused():
    with pytest.raises(EnvError, match="Nowhere"):
        scopil.SAC("Nowhere-v0")


# --- refusals ----------------------------------------------------------------------------------------------------


def test_an_unknown_keyword_gets_the_ones_there_are():
    with pytest.raises(ConfigError, match=r"sac has no gamma; it has .*discount.*learning_rate"):
        scopil.SAC(ENV, gamma=0.9)
    with pytest.raises(ConfigError, match=r"discount = 2; want a value in \[0, 1\]"):
        scopil.SAC(ENV, discount=2)


def test_demonstrations_that_do_not_fit_are_refused_at_once():
    with pytest.raises(DatasetError, match=r"small: observation space .*the environment wants"):
        scopil.SCOPIL(ENV, small_set())
    with pytest.raises(DatasetError, match=r"no demonstrations 'none\.npz'"):
        scopil.SCOPIL(ENV, "none.npz")


def test_without_demonstrations_one_plays_but_does_not_learn():
    agent = scopil.SCOPIL(ENV, **TINY)
    assert agent.predict(np.zeros(8))[0] in range(9)
    with pytest.raises(DatasetError, match="learns from demonstrations; give it some"):
        agent.learn(100)


def test_every_algorithm_has_its_agent():
    assert AGENTS.keys() == ALGORITHMS.keys()
    for cls in AGENTS.values():
        assert getattr(scopil, cls.__name__) is cls
        assert cls.__doc__


# --- save and load -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(trained, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "policy.ckpt"
    trained.save(path)
    return path


def test_a_loaded_agent_is_the_same(saved, trained, observations):
    again = scopil.load(saved)
    assert type(again) is scopil.SCOPIL
    assert (again.seed, again.config, again.num_timesteps) == (1, trained.config, 1000)
    assert leaves(again) == leaves(trained)
    np.testing.assert_array_equal(again.predict(observations)[0], trained.predict(observations)[0])
    with pytest.raises(DatasetError, match="learns from demonstrations"):
        again.learn(100)
    measures = scopil.load(saved, env=trained.env).evaluate("test", 2)  # shares the compiled player
    assert measures == trained.evaluate("test", 2)
    assert measures["steps"] > 0


def test_a_loaded_agent_learns_on(saved, trained):
    again = scopil.load(saved, demos=DEMOS)
    again.learn(500)
    assert again.num_timesteps == 1500
    assert leaves(again) != leaves(trained)
    assert all(
        np.isfinite(np.frombuffer(leaf, np.float32)).all() for leaf in leaves(again) if len(leaf) % 4 == 0
    )


def test_an_object_without_an_id_is_asked_for(tmp_path):
    agent = scopil.SCOPIL(MarbleMaze(), **TINY)
    agent.save(tmp_path / "p.ckpt")
    with pytest.raises(CheckpointError, match=r"does not name its environment; give one"):
        scopil.load(tmp_path / "p.ckpt")
    assert leaves(scopil.load(tmp_path / "p.ckpt", env=MarbleMaze())) == leaves(agent)


def test_damaged_and_foreign_files_are_refused(saved, tmp_path):
    data = saved.read_bytes()
    for name, spoiled in (("cut", data[:-10]), ("flipped", data[:300] + b"~" + data[301:]), ("empty", b"")):
        (tmp_path / name).write_bytes(spoiled)
        with pytest.raises(CheckpointError, match=name):
            scopil.load(tmp_path / name)
    with pytest.raises(CheckpointError, match="No such file"):
        scopil.load(tmp_path / "none.ckpt")
    with pytest.raises(CheckpointError, match="not a run folder"):
        scopil.load(tmp_path)


def test_a_policy_for_another_environment_is_refused(saved):
    with pytest.raises(CheckpointError, match="want float32"):
        scopil.load(saved, env="phys2d/CartPole-v1")


def test_a_run_folder_is_loaded_finished_or_not(tmp_path, observations):
    spec = RunSpec(
        algorithm="sac",
        env=ENV,
        seed=2,
        steps=1000,
        eval_every=10_000,
        checkpoint_every=500,
        config=dict(TINY),
    )
    run = Run.create(tmp_path / "run", spec)
    with pytest.raises(CheckpointError, match="no policy and no checkpoint yet"):
        scopil.load(run.folder)
    seen = []
    run.train(lambda report: seen.append(jax.device_get(report.state.learner)) or len(seen) == 1)
    half = scopil.load(run.folder)
    assert half.num_timesteps == 500
    assert leaves(half) == [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(seen[0])]
    run.train()
    whole = scopil.load(run.folder)
    assert whole.num_timesteps == 1000
    assert leaves(whole) != leaves(half)
    same = scopil.SAC(ENV, seed=2, **TINY).learn(1000)
    assert leaves(whole) == leaves(same)  # a run and an agent are the same training
    assert agents.load(str(run.folder)).predict(observations)[0].shape == (64,)
