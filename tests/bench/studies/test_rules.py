"""The tasks of the study `rules`: dynamics, demonstrators, and violations counted a second time in NumPy."""

from pathlib import Path

import gymnasium as gym
import jax
import numpy as np
import pytest

from scopil.data.record import record
from scopil.envs.gym_env import open_env
from scopil.envs.jax_env import CompiledEnv
from scopil.eval.episodes import measure_demonstrations
from scopil.eval.measures import average, measure, measure_all
from scopil.eval.rules import Rules, load_rules
from scopil.user_code import load_object
from scopil_bench import results
from scopil_bench.studies.rules import ENVS, corridor, demonstrations
from scopil_bench.studies.rules.base import compiled, demonstrator_from_unseen_starts
from scopil_bench.studies.rules.study import STUDY
from scopil_bench.studies.rules.tasks import TASKS

OWN_TASK = Path(__file__).parents[3] / "examples" / "own_task"
# Whether a step breaks the rule, from observations before and after it and the action, one row per step.
BROKEN = {
    "speed": lambda o, a, n: np.hypot(n[:, 2], n[:, 3]) > 1,
    "zone": lambda o, a, n: (n[:, 0] >= -1) & (n[:, 0] <= 1) & (np.abs(n[:, 2]) > 0.5),
    "action": lambda o, a, n: (a == 3) & (o[:, 0] >= 8) & (o[:, 0] <= 14),
    "distance": lambda o, a, n: np.hypot(n[:, 2], n[:, 3]) < 1.2,
    "flag": lambda o, a, n: (n[:, 2] == 1) & (np.abs(n[:, 0]) <= 1) & (n[:, 1] <= 1.5),
    "free": lambda o, a, n: np.zeros(len(a), bool),
}


def careless(name):
    """A policy that breaks the rule now and then."""
    task, rng = TASKS[name], np.random.default_rng(0)
    n = getattr(task.action_space, "n", None)
    push = {"speed": 1, "zone": 1, "action": 3, "flag": 1}.get(name)
    if n is None:
        return lambda obs: np.clip(rng.normal([0.7, 0.0], 0.3), -1, 1)
    return lambda obs: push if rng.random() < 0.7 else int(rng.integers(n))


@pytest.mark.parametrize("name", TASKS)
def test_violations_agree_with_a_second_count(name):
    episodes = record(ENVS[name], careless(name), 4, seed=3).episodes
    counted = [measure(e)["violations"] for e in episodes]
    again = [BROKEN[name](e.observations[:-1], e.actions, e.observations[1:]).sum() for e in episodes]
    assert counted == again
    assert (sum(counted) > 0) == (name != "free")


@pytest.mark.parametrize("name", TASKS)
def test_demonstrators_keep_the_rule_from_unseen_starts(name):
    task = TASKS[name]
    episodes = demonstrator_from_unseen_starts(task, 300)
    measured = average(measure_all(episodes, compiled(task)))
    assert measured["violations"] == 0
    assert measured.get("reached", 1.0) == 1.0
    assert sum(BROKEN[name](e.observations[:-1], e.actions, e.observations[1:]).sum() for e in episodes) == 0


@pytest.mark.parametrize("name", ENVS)
def test_demonstrations_depend_on_the_seed_alone(name):
    shown = demonstrations(name)
    assert shown.digest == demonstrations(name).digest
    assert 30 <= len(shown) <= 40
    assert demonstrations(name, 3, seed=1).digest != demonstrations(name, 3, seed=2).digest
    rules = Rules.of(corridor.RULES) if name == "corridor" else None
    assert average(measure_demonstrations(shown, rules=rules))["violations"] == 0


@pytest.mark.parametrize("name", TASKS)
def test_demonstrators_vary_their_actions(name):
    task, obs = TASKS[name](), demonstrations(name).observations
    plain = jax.vmap(task.act)(obs)
    noisy = jax.vmap(task.act)(obs, jax.random.split(jax.random.key(0), len(obs)))
    changed = np.any(np.reshape(plain != noisy, (len(obs), -1)), axis=1).mean()
    assert 0.02 < changed < task.noise + 0.05


@pytest.mark.parametrize("name", TASKS)
def test_dynamics_depend_on_the_key_and_stay_in_the_space(name):
    env = open_env(ENVS[name])
    assert isinstance(env, CompiledEnv)
    assert env.time_limit == TASKS[name].max_steps <= 100
    state = env.reset_batch(jax.random.key(5), 3)
    rng, step = np.random.default_rng(0), jax.jit(env.step_batch)
    for number in range(40):
        n = getattr(env.action_space, "n", None)
        action = rng.uniform(-1, 1, (3, 2)).astype(np.float32) if n is None else rng.integers(n, size=3)
        (new, first, _), (_, again, _) = (step(state, action, jax.random.key(number)) for _ in range(2))
        assert np.array_equal(first.next_obs, again.next_obs)
        assert all(env.observation_space.contains(np.asarray(row)) for row in first.next_obs)
        state = new


def test_one_step_of_a_cart_by_hand():
    env = gym.make(ENVS["speed"])
    before, _ = env.reset(seed=0)
    after, reward, *_ = env.step(1)
    gained = after[2] - before[2]
    assert 0.2 <= gained <= 0.25
    np.testing.assert_allclose(after, [*(before[:2] + 0.5 * after[2:]), before[2] + gained, before[3]], atol=1e-6)
    assert reward == pytest.approx(-10 * np.hypot(after[0] - 4, after[1]), rel=1e-5)


def test_the_corridor_is_the_printed_one():
    printed = load_object(f"{OWN_TASK / 'my_env.py'}:Corridor", "")()
    expert, rules = load_object(f"{OWN_TASK / 'my_expert.py'}:act", ""), load_rules(str(OWN_TASK / "my_rules.py"))
    ours, rng = corridor.Corridor(), np.random.default_rng(0)
    for seed in range(5):
        (obs, _), (same, _) = ours.reset(seed=seed), printed.reset(seed=seed)
        for _ in range(30):
            assert all(np.array_equal(obs[part], same[part]) for part in ("place", "speed"))
            assert corridor.act(obs) == expert(obs)
            action, before = int(rng.integers(5)), obs
            (obs, *rest), (same, *others) = ours.step(action), printed.step(action)
            assert rest == others
            for name, rule in corridor.RULES.items():
                assert rule(before, action, obs) == rules.by_name[name](before, action, obs)


def test_the_study_has_every_task():
    assert list(STUDY.tasks) == list(ENVS) == list(STUDY.tables)
    assert results.demonstrator_measures(STUDY, "corridor")["Demonstrator, unseen starts"]["violations"] == 0
    assert STUDY.spec("full", STUDY.cells(["flag"])[0], 0, None).steps == 100_000
