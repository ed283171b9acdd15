"""Names of Stable-Baselines3: accepted where they mean the same, else refused with ours."""

import math

import pytest

import scopil
from scopil.config import build
from scopil.envs.gym_env import open_env
from scopil.errors import ConfigError, EnvError
from scopil.registry import find

SAC, PPO, BC = (find(name).config for name in ("sac", "ppo", "bc"))


@pytest.mark.parametrize(
    ("config", "given", "wanted"),
    [
        (SAC, {"buffer_size": 500}, {"replay_size": 500}),
        (SAC, {"gamma": 0.9, "tau": 0.01}, {"discount": 0.9, "polyak": 0.01}),
        (SAC, {"gradient_steps": 2}, {"grad_steps": 2}),
        (SAC, {"learning_starts": 64, "batch_size": 64}, {"batch_size": 64}),
        (SAC, {"policy_kwargs": {"net_arch": [64, 32]}}, {"hidden": (64, 32)}),
        (SAC, {"policy_kwargs": {"net_arch": {"pi": [8], "qf": [8]}}}, {"hidden": (8,)}),
        (SAC, {"ent_coef": "auto"}, {}),
        (SAC, {"ent_coef": "auto_0.1"}, {"log_alpha_init": math.log(0.1)}),
        (SAC, {"ent_coef": 0.2}, {"log_alpha_init": math.log(0.2), "alpha_lr": 0.0}),
        (SAC, {"train_freq": 1, "target_update_interval": 1}, {}),
        (PPO, {"ent_coef": 0.01, "vf_coef": 1.0}, {"entropy_weight": 0.01, "value_weight": 1.0}),
        (PPO, {"n_steps": 128, "n_epochs": 3, "clip_range": 0.1}, {"rollout_steps": 128, "epochs": 3, "clip": 0.1}),
    ],
)
def test_names_with_the_same_meaning(config, given, wanted):
    assert build(config, given) == build(config, wanted)


@pytest.mark.parametrize(
    ("config", "given", "match"),
    [
        (SAC, {"learning_starts": 100}, "batch_size"),
        (SAC, {"buffer_size": 5, "replay_size": 5}, "replay_size is given twice"),
        (SAC, {"policy_kwargs": {"activation_fn": "relu"}}, "our hidden="),
        (SAC, {"policy_kwargs": {"net_arch": {"pi": [8], "qf": [4]}}}, "same layers"),
        (SAC, {"ent_coef": "much"}, "ent_coef = 'much'"),
        (SAC, {"train_freq": 4}, "grad_steps"),
        (SAC, {"device": "cuda"}, "JAX_PLATFORMS"),
        (SAC, {"gamma": 2}, r"discount = 2; want"),
        (BC, {"buffer_size": 5}, "unknown setting buffer_size"),
        (PPO, {"clip_range": lambda left: left}, "clip = .*; want a number"),
    ],
)
def test_names_without_an_equal_are_refused(config, given, match):
    with pytest.raises(ConfigError, match=match):
        build(config, given)


class DummyVecEnv:
    """Has the methods of Stable-Baselines3's VecEnv."""

    def step_async(self, actions):
        raise AssertionError


def test_an_environment_of_stable_baselines3_is_refused_with_gymnasiums():
    with pytest.raises(EnvError, match=r"DummyVecEnv .*gymnasium\.vector"):
        open_env(DummyVecEnv())


def test_the_name_of_a_policy_is_refused():
    with pytest.raises(ConfigError, match="leave 'MlpPolicy' out"):
        scopil.SAC("MlpPolicy", "CartPole-v1")


def test_evaluations_take_both_names():
    both = scopil.EvalCallback(eval_freq=7, n_eval_episodes=3), scopil.EvalCallback(every=7, episodes=3)
    assert both[0].every == both[1].every == 7
    assert both[0]._how == both[1]._how
    with pytest.raises(ConfigError, match="best= names the file"):
        scopil.EvalCallback(best_model_save_path="here")
    with pytest.raises(ConfigError, match="want a number of steps"):
        scopil.EvalCallback(DummyVecEnv())  # pyright: ignore[reportArgumentType]
