"""Agents with the interface of Stable-Baselines3: predict, learn, save, load, and refusals.

Most tests run on a tiny environment with discrete actions and on one with continuous actions; agents share loops, so
that each program is traced and compiled once.
"""

import inspect
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scopil
from runs import untrained_run
from samples import small_set
from scopil import agent as agent_module
from scopil.agent import Agent
from scopil.algos.sac import ALGORITHM as SAC
from scopil.config import settings
from scopil.envs.gym_env import compile_env
from scopil.envs.jax_env import CompiledEnv
from scopil.envs.marble_maze import MarbleMaze
from scopil.errors import CheckpointError, ConfigError, DatasetError
from scopil.loading import policy_of
from scopil.registry import registered
from scopil.train import run as run_module
from scopil.train import trainer
from scopil.train.checkpoint import Checkpoints
from scopil.train.demo_data import demo_data
from scopil.train.loop import Loop, make_loop
from scopil.train.run import Run, RunSpec
from toys import BOX, REPLAY, registered_toy, toy, toy_demos

MAZE = "scopil/MarbleMaze-Simple-v0"
TINY: Any = REPLAY
KINDS = {"numbered": False, "continuous": True}
CLASSES = [
    getattr(scopil, name) for name in scopil.__all__
    if inspect.isclass(made := getattr(scopil, name)) and issubclass(made, Agent) and made is not Agent
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def ids():
    """The ids of the two toys; short chunks; one loop for all agents that could share one."""
    loops: dict[tuple[str, int], Loop] = {}
    envs = {kind: toy(continuous) for kind, continuous in KINDS.items()}

    def shared_loop(algorithm, env, demos):
        made = make_loop(algorithm, env, demos)  # refuses what it refuses; compiles nothing
        if env not in envs.values():
            return made
        complete = demos or "demo_batch" not in algorithm.wants
        return loops.setdefault((algorithm.name, id(env)), made) if complete else made

    with (
        pytest.MonkeyPatch.context() as patch,
        registered_toy(envs["numbered"], "test/numbered-v0") as numbered,
        registered_toy(envs["continuous"], "test/continuous-v0") as continuous,
    ):
        patch.setattr(trainer, "CHUNK", 500)
        patch.setattr(agent_module, "make_loop", shared_loop)
        patch.setattr(run_module, "make_loop", shared_loop)
        yield {"numbered": numbered, "continuous": continuous}


@pytest.fixture(scope="module", params=KINDS)
def kind(request) -> str:
    return request.param


def new_scopil(ids: dict[str, str], kind: str) -> scopil.SCOPIL:
    return scopil.SCOPIL(ids[kind], toy_demos(KINDS[kind]), seed=1, demo_batch_size=8, **TINY)


@pytest.fixture(scope="module")
def trained(ids, kind) -> Agent:
    return new_scopil(ids, kind).learn(1000)


@pytest.fixture(scope="module")
def observations() -> np.ndarray:
    return np.random.default_rng(0).uniform(-30, 30, (64, 2)).astype(np.float32)


def leaves(agent: Agent) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(agent.state)]


# --- classes ----------------------------------------------------------------------------------------------------


def test_every_algorithm_has_its_agent():
    assert {cls.algorithm.name for cls in CLASSES} == registered().keys()
    assert all(cls.__doc__ for cls in CLASSES)


@pytest.mark.parametrize("cls", CLASSES)
def test_signatures_show_every_setting_with_its_default(cls):
    shown = inspect.signature(cls).parameters
    assert list(shown)[:4] == ["env", "demos", "seed", "verbose"]
    wanted = {s.name: s.default for s in settings(cls.algorithm.config)}
    assert {n: p.default for n, p in shown.items() if n not in ("env", "demos", "seed", "verbose")} == wanted
    assert shown["learning_rate"].default == (1e-3 if cls is scopil.SCOPILRho else 3e-4)
    assert shown["learning_rate"].kind is inspect.Parameter.KEYWORD_ONLY


# --- predict -----------------------------------------------------------------------------------------------------


def test_greedy_predictions_are_the_policys_mode(trained, observations):
    wanted = np.asarray(trained.policy.act(jnp.asarray(observations)))
    batch, state = trained.predict(observations)
    assert state is None
    np.testing.assert_allclose(batch, wanted, rtol=1e-4, atol=1e-4)
    assert len(np.unique(batch, axis=0)) > 1
    for obs, action in zip(observations[:5], batch):
        one, _ = trained.predict(obs)
        np.testing.assert_allclose(one, action, rtol=1e-5)
        assert type(one) is int or BOX.contains(one)
    np.testing.assert_array_equal(trained.predict(observations[0].tolist())[0], trained.predict(observations[0])[0])
    assert len(trained.predict(np.zeros((0, 2)))[0]) == 0


def test_sampled_predictions_have_the_policys_distribution(trained, kind, observations):
    obs, n = observations[0], 20_000
    drawn, _ = trained.predict(np.tile(obs, (n, 1)), deterministic=False)
    if kind == "numbered":
        p = np.asarray(trained.policy.distribution(jnp.asarray(obs)).probs, np.float64)
        counts = np.bincount(drawn, minlength=3)
        assert float(((counts - n * p) ** 2 / (n * p)).sum()) < 13.8  # the 99.9 % point with 2 degrees of freedom
        assert np.count_nonzero(counts) > 1
    else:
        theirs = trained.policy.act(jnp.tile(jnp.asarray(obs), (n, 1)), jax.random.key(0))
        assert (drawn >= BOX.low).all()
        assert (drawn <= BOX.high).all()
        assert np.std(drawn) > 0.01
        for q in (0.1, 0.5, 0.9):
            np.testing.assert_allclose(np.quantile(drawn, q), np.quantile(theirs, q), atol=0.15)


def as_stable_baselines3_evaluates(model: Any, env: gym.Env, episodes: int = 4, copies: int = 2) -> list[float]:
    """`stable_baselines3.common.evaluation.evaluate_policy` without its wrappers: the same call of `predict` on a
    vector of environments, which begin again in the step that ends an episode."""
    envs = [env, *(gym.make(env.spec.id) for _ in range(copies - 1))]  # type: ignore[union-attr]
    observations = np.stack([e.reset(seed=i)[0] for i, e in enumerate(envs)])
    states, episode_starts = None, np.ones(copies, dtype=bool)
    rewards, running = [], np.zeros(copies)
    while len(rewards) < episodes:
        actions, states = model.predict(observations, state=states, episode_start=episode_starts, deterministic=True)
        for i, e in enumerate(envs):
            observations[i], reward, terminated, truncated, _ = e.step(actions[i])
            running[i] += reward
            episode_starts[i] = terminated or truncated
            if episode_starts[i]:
                rewards.append(float(running[i]))
                running[i], observations[i] = 0.0, e.reset()[0]
    return rewards


def test_stable_baselines3_can_evaluate_an_agent(trained, kind, ids):
    rewards = as_stable_baselines3_evaluates(trained, gym.make(ids[kind]))
    wanted = trained.evaluate(episodes=40)["reward"]
    assert np.mean(rewards) == pytest.approx(wanted, abs=0.5)
    assert len(rewards) == 4


SHAPES = [(), (1,), (3,), (2, 1), (2, 3, 2), (2, 2, 1)]


@pytest.mark.parametrize("odd", [*map(np.zeros, SHAPES), "abc", [[1, 2], [3]], None, {"obs": 1}], ids=repr)
def test_other_observations_are_refused(odd, trained):
    with pytest.raises(ConfigError, match="want one of Box"):
        trained.predict(odd)


# --- learn -------------------------------------------------------------------------------------------------------


def test_learning_twice_equals_learning_once(trained, ids, kind):
    parts = new_scopil(ids, kind)
    assert parts.num_timesteps == 0
    parts.predict(np.zeros(2))
    assert parts.num_timesteps == 0
    assert parts.learn(300) is parts
    assert parts.num_timesteps == 300
    parts.learn(700)
    assert parts.num_timesteps == trained.num_timesteps == 1000
    assert leaves(parts) == leaves(trained)


@pytest.mark.parametrize("steps", [-5, 0, 1.5, float("nan"), True])
def test_a_wrong_number_of_steps_is_refused(steps, trained):
    with pytest.raises(ConfigError, match="total_timesteps"):
        trained.learn(steps)
    assert trained.num_timesteps == 1000


def test_evaluations_while_learning_keep_the_best_and_stop_early(ids, tmp_path, monkeypatch):
    found = iter([(1.0, 0.0), (3.0, 0.0), (9.0, 2.0), (2.5, 0.0), (9.0, 0.0)])
    asked = []

    def evaluate(self, **how):
        asked.append(how)
        return dict(zip(("reward", "avoidable"), next(found)))

    monkeypatch.setattr(scopil.Agent, "evaluate", evaluate)
    agent = scopil.SAC(ids["numbered"], **TINY)
    evaluation = scopil.EvalCallback(
        every=200, episodes=3, rules="my_rules.py", best=tmp_path / "best.safetensors", patience=2
    )
    seen = []
    agent.learn(2000, callback=[lambda status: seen.append(status.env_steps), evaluation])
    assert [steps for steps, _ in evaluation.history] == [200, 400, 600, 800]  # violations count before reward
    assert agent.num_timesteps == 800
    assert evaluation.best_score == (0.0, 3.0)
    assert scopil.load(tmp_path / "best.safetensors").num_timesteps == 400
    assert {200, 400, 600, 800} <= set(seen)
    assert asked[0] == {"starts": "unseen", "episodes": 3, "deterministic": True, "seed": 1, "rules": "my_rules.py"}
    good = scopil.EvalCallback(every=100, until=lambda measures: measures["reward"] > 5)
    agent.learn(1000, callback=good)
    assert [steps for steps, _ in good.history] == [900]
    with pytest.raises(ConfigError, match="patience = 0; want at least 1"):
        scopil.EvalCallback(patience=0)


def test_predictions_follow_learning(ids, observations, capsys):
    agent = scopil.SAC(ids["numbered"], **TINY, learning_rate=0.05)

    def logits() -> np.ndarray:
        return np.asarray(agent.policy.distribution(jnp.asarray(observations)).log_probs)  # type: ignore[union-attr]

    outputs = [logits()]
    before = agent.predict(observations)[0]
    agent.learn(600)
    after = agent.predict(observations)[0]
    outputs.append(logits())
    np.testing.assert_array_equal(before, outputs[0].argmax(axis=1))
    np.testing.assert_array_equal(after, outputs[1].argmax(axis=1))
    assert np.abs(outputs[0] - outputs[1]).max() > 0.1

    called: list[int] = []
    stop_at_second = lambda status: called.append(status.env_steps) or len(called) == 2  # noqa: E731
    agent.learn(5000, progress_bar=True, callback=stop_at_second)
    assert called == [1000, 1500]  # chunks end at round numbers
    assert agent.num_timesteps == 1500
    assert "SAC  1,000/5,600 steps" in capsys.readouterr().out


def test_habits_of_stable_baselines3(ids, observations, tmp_path, capsys):
    agent = scopil.SAC(ids["numbered"], verbose=1, seed=2, **TINY)
    called: list[int] = []
    agent.learn(600, lambda status: called.append(status.env_steps), reset_num_timesteps=True)
    assert called == [500, 600]
    assert "SAC  500/600 steps" in capsys.readouterr().out
    agent.learn(200, callback=None, progress_bar=False, reset_num_timesteps=False)
    assert capsys.readouterr().out == ""
    with pytest.raises(ConfigError, match="the count continues"):
        agent.learn(200, reset_num_timesteps=True)

    agent.save(tmp_path / "sac")
    again = scopil.SAC.load(tmp_path / "sac")
    assert isinstance(again, scopil.SAC)
    np.testing.assert_array_equal(again.predict(observations)[0], agent.predict(observations)[0])
    with pytest.raises(CheckpointError, match="was made by sac, not by bc"):
        scopil.BC.load(tmp_path / "sac")

    weights = jax.device_get(agent.state)
    agent.set_env(toy(False))
    for a, b in zip(jax.tree.leaves(agent.state), jax.tree.leaves(weights)):
        np.testing.assert_array_equal(a, b)
    assert agent.learn(100, progress_bar=False).num_timesteps == 900
    with pytest.raises(ConfigError, match="action_space"):
        agent.set_env(ids["continuous"])


class Sb3Callback:  # not callable, as Stable-Baselines3's BaseCallback
    def on_step(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"callback": Sb3Callback()}, "want a function of a TrainStatus"),
        ({"callback": [Sb3Callback()]}, "want a function of a TrainStatus"),
        ({"callback": lambda locals_, globals_: False}, "takes other arguments; want a function of a TrainStatus"),
        ({"log_interval": 4}, "progress_bar=True"),
        ({"steps": 4}, "learn has no argument steps"),
    ],
)
def test_other_arguments_of_learn_are_refused_with_ours(arguments, match, ids):
    with pytest.raises(ConfigError, match=match):
        scopil.SAC(ids["numbered"], **TINY).learn(100, **arguments)


def test_iterations_longer_than_the_budget_are_announced(ids):
    agent = scopil.PPO(ids["numbered"], hidden=(8,), num_envs=2, rollout_steps=300, batch_size=50, epochs=1)
    with pytest.warns(UserWarning, match="it runs 600 steps instead of 400"):
        assert agent.learn(400).num_timesteps == 600


# --- environments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: MAZE,
        lambda: gym.make(MAZE),
        lambda: MarbleMaze(),
        lambda: CompiledEnv(MarbleMaze()),
        lambda: compile_env(MAZE),
    ],
    ids=["id", "gym", "FuncEnv", "CompiledEnv", "compile_env"],
)
def test_every_form_of_an_environment_is_taken(make):
    agent = scopil.SAC(make(), **TINY)
    assert isinstance(agent.env, CompiledEnv)
    assert isinstance(agent.env.env, MarbleMaze)
    assert agent.env.horizon == 200


# --- refusals ----------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_the_paper_and_depend_on_the_actions(ids):
    numbered, continuous = (scopil.SCOPIL(ids[kind]).config for kind in KINDS)
    paper = {"batch_size": 256, "demo_batch_size": 256, "learning_rate": 3e-4, "alpha_lr": 2e-3, "discount": 0.99}
    paper |= {"polyak": 0.005, "replay_size": 1_000_000, "multiplier_init": 1.05, "hidden": (32, 32)}
    assert {name: getattr(numbered, name) for name in paper} == paper
    assert continuous.hidden == (64, 64)
    assert (numbered.alpha_lr, continuous.alpha_lr) == (2e-3, 3e-4)
    assert numbered.target_entropy is continuous.target_entropy is None
    with pytest.raises(ConfigError, match="action_resolution = 0"):
        scopil.SCOPIL(ids["continuous"], action_resolution=0.0)


def test_demonstrations_that_do_not_fit_are_refused_at_once(ids):
    with pytest.raises(DatasetError, match=r"small: observation space .*the environment wants"):
        scopil.SCOPIL(ids["numbered"], small_set())
    with pytest.raises(DatasetError, match="action space"):
        scopil.SCOPIL(ids["numbered"], toy_demos(continuous=True))
    with pytest.raises(DatasetError, match=r"no demonstrations 'none\.npz'"):
        scopil.SCOPIL(ids["numbered"], "none.npz")


def shown(actions: np.ndarray, space: gym.Space) -> scopil.Demonstrations:
    obs = np.zeros((len(actions) + 1, 2), np.float32)
    return scopil.Demonstrations.from_arrays([obs], [actions], action_space=space)  # type: ignore[arg-type]


def test_demonstrated_actions_outside_the_box_are_refused():
    wide, env = gym.spaces.Box(-10.0, 10.0, (1,), np.float32), toy(continuous=True)
    with pytest.raises(DatasetError, match=r"component 0 of action 1 is 3\.5; .* \[-1, 3\]"):
        demo_data(shown(np.array([[0.0], [3.5]], np.float32), wide), env)
    inside = demo_data(shown(np.array([[0.0], [3.0]], np.float32), wide), env)
    np.testing.assert_array_equal(inside.transitions.action, [[0.0], [3.0]])


def test_numbered_actions_are_counted_from_the_spaces_start():
    env = toy(continuous=False)
    env.action_space = gym.spaces.Discrete(4, start=5)
    inside = shown(np.array([6, 8]), gym.spaces.Discrete(3, start=6))
    np.testing.assert_array_equal(demo_data(inside, env).transitions.action, [1, 3])
    for space in (gym.spaces.Discrete(7), gym.spaces.Discrete(4, start=4), gym.spaces.Discrete(4, start=6)):
        with pytest.raises(DatasetError, match="action space"):
            demo_data(shown(np.array([6]), space), env)


# --- save and load -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(trained, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "policy.safetensors"
    trained.save(path)
    return path


def test_a_loaded_agent_is_the_same(saved, trained, observations):
    again = scopil.load(saved)
    assert again.algorithm is trained.algorithm
    assert (again.seed, again.config, again.num_timesteps) == (1, trained.config, 1000)
    assert leaves(again) == leaves(again) == leaves(trained)
    np.testing.assert_array_equal(again.predict(observations)[0], trained.predict(observations)[0])
    policy = scopil.Policy.load(saved)
    np.testing.assert_array_equal(policy.act_numpy(observations), trained.predict(observations)[0])
    with pytest.raises(DatasetError, match="learns from demonstrations"):
        again.learn(100)
    measures = again.evaluate("unseen", 2)
    assert measures == trained.evaluate("unseen", 2)
    assert measures["steps"] == 2


def test_a_saved_policy_carries_its_statistics(saved, kind):
    stats = scopil.Policy.load(saved).normaliser
    if kind == "numbered":
        assert stats is None
    else:  # of a sign and of a clock that shows 0 and 1
        assert stats is not None
        np.testing.assert_allclose(stats.mean, [0.0, 0.5], atol=0.2)
        np.testing.assert_allclose(stats.var, [1.0, 0.25], atol=0.1)


def test_a_loaded_agent_learns_on(saved, trained, kind):
    again = scopil.load(saved, demos=toy_demos(KINDS[kind]))
    again.learn(500)
    assert again.num_timesteps == 1500
    assert leaves(again) != leaves(trained)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(again.state))


def test_loading_asks_for_an_environment_without_an_id(tmp_path):
    agent = scopil.SCOPIL(toy(continuous=False), **TINY)
    agent.save(tmp_path / "p.safetensors")
    with pytest.raises(CheckpointError, match=r"does not name its environment; give one"):
        scopil.load(tmp_path / "p.safetensors")
    assert leaves(scopil.load(tmp_path / "p.safetensors", env=toy(continuous=False))) == leaves(agent)


def test_a_policy_alone_is_no_agent(trained, tmp_path):
    trained.policy.save(tmp_path / "alone.safetensors")
    with pytest.raises(CheckpointError, match="holds a policy alone"):
        scopil.load(tmp_path / "alone.safetensors", env=trained.env)


def test_a_policy_for_another_environment_is_refused(saved, kind, ids):
    other = ids["continuous" if kind == "numbered" else "numbered"]
    with pytest.raises(CheckpointError, match="; the environment takes "):
        scopil.load(saved, env=other)
    with pytest.raises(CheckpointError, match="observations of 2 numbers; the environment's have 8"):
        scopil.load(saved, env=MAZE)


def test_a_run_folder_is_loaded_finished_or_not(ids, tmp_path, observations):
    spec = RunSpec(algorithm=SAC, env=ids["numbered"], seed=2, steps=1000, checkpoint_every=500, config=dict(TINY))
    run = Run.create(tmp_path / "run", spec)
    with pytest.raises(CheckpointError, match="no policy and no checkpoint yet"):
        scopil.load(run.folder)
    seen = []
    run.train(lambda status: seen.append(jax.device_get(status.state.learner)) or len(seen) == 1)
    half = scopil.load(run.folder)
    assert half.num_timesteps == 500
    assert leaves(half) == [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(seen[0])]
    run.train()
    whole = scopil.load(str(run.folder))
    assert whole.num_timesteps == 1000
    assert leaves(whole) != leaves(half)
    same = scopil.SAC(ids["numbered"], seed=2, **TINY).learn(1000)
    assert leaves(whole) == leaves(same)  # a run and an agent are the same training
    assert whole.predict(observations)[0].shape == (64,)
    policy, note, _ = policy_of(run.folder)
    np.testing.assert_array_equal(policy.act_numpy(observations), whole.predict(observations)[0])
    columns = json.loads(note.pop("columns"))
    assert columns == [f"obs[{i}]" for i in range(observations.shape[1])]
    assert note == {"algorithm": "sac", "env_id": ids["numbered"], "seed": "2", "env_steps": "1000"}


@pytest.fixture
def run(ids, tmp_path) -> Run:
    """An untrained run with demonstrations."""
    demos = str(tmp_path / "demos.npz")
    toy_demos(continuous=False).save(demos)
    return untrained_run(tmp_path / "run", "scopil", demos=demos, env=ids["numbered"], demo_batch_size=4)


def test_playing_a_run_builds_no_trainer_and_reads_no_checkpoint(run, monkeypatch):
    (run.folder / "checkpoints").mkdir()
    (run.folder / "checkpoints" / "000000001000.ckpt").write_bytes(b"would be passed over with a warning")

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("not needed to play")

    for owner in (agent_module, run_module):
        monkeypatch.setattr(owner, "Trainer", refuse)
    monkeypatch.setattr(Checkpoints, "read_newest", refuse)
    agent = scopil.load(run.folder)
    assert agent.demos is not None
    assert agent.predict(np.zeros(2))[0] in range(3)
    assert len(agent.play(episodes=3, deterministic=False)) == 3
    assert len(agent.play(episodes=3)) == 1  # they all begin in one state
    assert agent.evaluate(episodes=3, deterministic=False)["steps"] == 2
    shutil.rmtree(run.folder)
    assert agent.evaluate(episodes=3)["steps"] == 2  # nothing more is read


def test_given_rules_replace_the_reported_costs(trained):
    never = trained.evaluate(episodes=3, rules=lambda obs, action, next_obs: 0)
    always = trained.evaluate(episodes=3, rules=lambda obs, action, next_obs: {"a": 1, "b": obs[1]})
    assert never["violations"] == 0
    assert always["violations/a"] == 2
    assert always["violations/b"] == 1  # the clock shows 0, then 1


def test_networks_that_no_machine_holds():
    with pytest.raises(ConfigError, match="sac: the networks exceed all memory; lower hidden"):
        scopil.SAC(toy(continuous=False), hidden=(2**64,))


def test_a_saved_agent_finds_its_demonstrated_starts(tmp_path):
    shown = "marble-maze/simple-simulated-v1"
    agent = scopil.BC("scopil/MarbleMaze-Simple-v0", shown, hidden=(4,))
    agent.save(tmp_path / "bc.safetensors")
    loaded = scopil.load(tmp_path / "bc.safetensors")
    assert loaded.demos is None
    wanted = np.stack([e.observations[0] for e in agent.play("demonstrated")])
    np.testing.assert_array_equal(np.stack([e.observations[0] for e in loaded.play("demonstrated")]), wanted)

    mine = scopil.load_demos(shown).select(lambda e: e.total_reward < -14)
    agent = scopil.BC("scopil/MarbleMaze-Simple-v0", replace(mine, name="mine"), hidden=(4,))
    agent.save(tmp_path / "mine.safetensors")
    with pytest.raises(DatasetError, match="no demonstrations to take starts from"):
        scopil.load(tmp_path / "mine.safetensors").play("demonstrated")


def test_a_policy_file_in_its_run_folder_has_the_runs_demonstrations(run, tmp_path):
    agent = scopil.load(run.policy_file)
    assert agent.demos is not None
    assert agent.demos.digest == scopil.load_demos(tmp_path / "demos.npz").digest
    agent.save(run.folder / "other.safetensors")  # of an agent, not of the run
    again = scopil.load(run.folder / "other.safetensors")
    assert again.demos is None
    shutil.copy(run.policy_file, tmp_path / "moved.safetensors")
    assert scopil.load(tmp_path / "moved.safetensors").demos is None
