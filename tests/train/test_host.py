"""Runs on environments in plain Python: repeatable, resumable, and whole after whatever the environment does."""

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import scopil
from hosts import LIMIT, Walk, gives, raises, registered
from probes import SMALL
from scopil.cli import main
from scopil.demos.dataset import Demonstrations
from scopil.envs.host import HostEnv
from scopil.errors import DatasetError, EnvError
from scopil.train.checkpoint import read_arrays
from scopil.train.run import Run, RunSpec

STRETCH = 200


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch):
    monkeypatch.setattr("scopil.train.trainer.STRETCH", STRETCH)


@pytest.fixture
def walk_id():
    with registered(max_episode_steps=LIMIT) as name:
        yield name


def spec(env: str, **changes) -> RunSpec:
    fields = {"algorithm": "sac", "env": env, "steps": 600, "eval_every": 10**9, "checkpoint_every": STRETCH}
    return RunSpec(**(fields | {"config": dict(SMALL)} | changes))


def walk_demos(games: int = 3) -> Demonstrations:
    """Games that walk towards the middle."""
    walk, observations, actions = Walk(), [], []
    for seed in range(games):
        obs, _ = walk.reset(seed=seed)
        seen, done = [obs], []
        for _ in range(LIMIT):
            done.append(int(obs[0] < 0))
            obs, *_ = walk.step(done[-1])
            seen.append(obs)
        observations.append(np.stack(seen))
        actions.append(np.array(done))
    return Demonstrations.from_arrays(observations, actions, action_space=gym.spaces.Discrete(2))


def test_the_same_seed_gives_the_same_run(walk_id, tmp_path):
    runs = [
        Run.create(tmp_path / name, spec(walk_id, seed=seed)) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert all(run.train() for run in runs)
    a, b, c = (run.checkpoints.newest().read_bytes() for run in runs)
    assert a == b
    assert a != c


def test_a_run_goes_on_with_new_episodes_and_says_so(walk_id, tmp_path):
    run = Run.create(tmp_path / "run", spec(walk_id, config=SMALL | {"replay_size": 1024}))
    assert not run.train(lambda report: report.env_steps >= STRETCH)
    again = Run.open(run.folder)
    with pytest.warns(UserWarning, match=r"cannot hold what is inside test/Walk-v0: its episodes begin anew"):
        assert again.train()
    rows = again.metrics.rows()
    assert [row["env_steps"] for row in rows] == [200, 400, 600]
    arrays, _ = read_arrays(again.checkpoints.newest())
    np.testing.assert_array_equal(
        arrays[".env.obs"][:, 1], arrays[".env.steps"]
    )  # obs of the episode it says
    stored = arrays[".replay.rows"][:, 1]  # the clock at each step: every episode from its beginning
    after_end = np.flatnonzero(np.diff(stored) != 1) + 1
    np.testing.assert_array_equal(stored[after_end], 0)


@pytest.mark.filterwarnings("default:a checkpoint cannot hold")  # the command line prints it
@pytest.mark.parametrize(
    ("fault", "match"),
    [
        (raises(500), "ZeroDivisionError: the motor fell off"),
        (gives(500, obs=np.array([np.nan, 0.0])), "component 0 of an observation is nan"),
    ],
    ids=["raises", "nan"],
)
def test_a_fault_leaves_the_run_usable(fault, match, tmp_path, capsys):
    with registered(lambda: Walk(fault), max_episode_steps=LIMIT) as name:
        run = Run.create(tmp_path / "run", spec(name))
        good = {}
        with pytest.raises(EnvError, match=rf"{match}.*The checkpoint of step 400 is good.*--resume"):
            run.train(lambda report: good.update({report.env_steps: jax.device_get(report.state.learner)}))
        assert list(good) == [200, 400]
        agent = scopil.load(run.folder)
        assert agent.num_timesteps == 400
        for a, b in zip(jax.tree.leaves(agent.learner), jax.tree.leaves(good[400])):
            np.testing.assert_array_equal(a, b)
        assert main(["train", "--resume", str(run.folder)]) == 0  # 200 steps are left; it breaks after 500
        assert "begin anew" in " ".join(capsys.readouterr().out.split())
        assert Run.open(run.folder).finished


def test_a_fault_before_the_first_checkpoint(tmp_path):
    with registered(lambda: Walk(raises(100)), max_episode_steps=LIMIT) as name:
        run = Run.create(tmp_path / "run", spec(name))
        with pytest.raises(EnvError, match=r"the motor fell off.* has no checkpoint yet"):
            run.train()


def test_an_agent_survives_a_fault():
    agent = scopil.SAC(Walk(raises(500)), **SMALL)
    with pytest.raises(EnvError, match="the motor fell off"):
        agent.learn(600)
    assert agent.num_timesteps == 400
    agent.predict(np.zeros(2))
    agent.learn(100)
    assert agent.num_timesteps == 500


@pytest.mark.parametrize("algorithm", ["scopil", "ppo", "icrl", "bc"])
def test_every_kind_of_loop(algorithm, walk_id, tmp_path):
    config = {"hidden": [8]} | {
        "scopil": {"batch_size": 16, "replay_size": 512, "demo_batch_size": 8, "num_envs": 2},
        "bc": {"demo_batch_size": 8},
        "ppo": {"batch_size": 16, "num_envs": 2, "rollout_steps": 16},
        "icrl": {
            "batch_size": 16,
            "num_envs": 2,
            "rollout_steps": 16,
            "forward_steps": 64,
            "rollouts": 3,
            "backward_iters": 1,
        },
    }[algorithm]
    walk_demos_file = tmp_path / "demos.npz"
    scopil.demos.store.write(walk_demos(), walk_demos_file)
    demos = None if algorithm == "ppo" else str(walk_demos_file)
    made = spec(walk_id, algorithm=algorithm, demos=demos, steps=192, eval_every=1, config=config)
    run = Run.create(tmp_path / "run", made)
    assert run.train()
    row = run.metrics.rows()[-1]
    assert 1 <= row["eval/steps"] <= LIMIT
    assert 0 < row["eval/frequency"] <= 1
    assert "eval/reached" not in row
    assert row["episode/steps"] <= LIMIT


def test_an_oracle_is_refused(walk_id, tmp_path):
    with pytest.raises(EnvError, match="want an environment written in JAX"):
        Run.create(tmp_path / "run", spec(walk_id, algorithm="oracle-sac-lagrangian"))
    assert not (tmp_path / "run").exists()


def test_a_vector_environment_brings_its_number():
    agent = scopil.SAC(SyncVectorEnv([Walk] * 4), **SMALL)
    assert agent.config.num_envs == 4
    agent.learn(100)
    before = agent.num_timesteps
    assert agent.evaluate(games=6)["steps"] <= LIMIT  # on the same environments: there are no others
    agent.learn(100)
    assert agent.num_timesteps == before + 100


def test_two_agents_may_share_an_environment():
    walk = Walk()
    env = HostEnv(walk)
    one, other = scopil.SAC(env, **SMALL), scopil.SAC(env, seed=1, **SMALL)
    for agent in (one, other, one):
        agent.learn(50)
    assert [what for what, *_ in walk.log].count("step") == 3 * 50 + 2 * SMALL["batch_size"] - 2 * 16


def test_a_saved_policy_learns_on(walk_id, tmp_path):
    agent = scopil.SAC(walk_id, **SMALL).learn(100)
    agent.save(tmp_path / "policy.ckpt")
    again = scopil.load(tmp_path / "policy.ckpt")
    assert again.predict(np.array([0.5, 1.0]))[0] == agent.predict(np.array([0.5, 1.0]))[0]
    again.learn(50)
    assert again.num_timesteps == agent.num_timesteps + 50


def test_a_saved_policy_forgets_what_no_id_makes_again(walk_id, tmp_path):
    wrapped = gym.wrappers.TransformReward(gym.make(walk_id), lambda reward: 0.0)
    scopil.SAC(wrapped, **SMALL).save(tmp_path / "policy.ckpt")
    with pytest.raises(scopil.ScopilError, match="does not name its environment"):
        scopil.load(tmp_path / "policy.ckpt")


def test_demonstrations_that_do_not_fit(walk_id, tmp_path):
    rng = np.random.default_rng(0)
    wide = Demonstrations.from_arrays([rng.normal(size=(4, 3))], [np.array([0, 1, 0])])
    many = Demonstrations.from_arrays([rng.normal(size=(4, 2))], [np.array([0, 5, 0])])
    for demos in (wide, many):
        with pytest.raises(DatasetError, match=r"space .*; the environment"):
            scopil.SCOPIL(walk_id, demos, **SMALL)


def test_demonstrations_of_raw_observations_are_flattened():
    class Numbered(Walk):
        observation_space = gym.spaces.Discrete(4)
        action_space = gym.spaces.Discrete(2, start=1)

        def see(self):
            return int(np.clip(self.x, -2, 1)) + 2

        def step(self, action):
            assert action in (1, 2)
            return super().step(action - 1)

    demos = Demonstrations.from_arrays(
        [np.array([0, 1, 2, 3])], [np.array([2, 2, 1])], action_space=Numbered.action_space
    )
    agent = scopil.SCOPIL(Numbered(), demos, demo_batch_size=4, **SMALL)
    np.testing.assert_array_equal(agent._trainer.loop.demos.obs, np.eye(4)[:3])
    np.testing.assert_array_equal(agent._trainer.loop.demos.action, [1, 1, 0])
    agent.learn(50)
    assert agent.predict(3)[0] in (1, 2)
    assert all(set(g.actions) <= {1, 2} for g in agent.play(games=3))
