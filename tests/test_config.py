"""Configs: refusals of `build`, defaults, leaves, tables."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scopil.algos.ppo import Config as Ppo
from scopil.algos.sac import Config as Sac
from scopil.algos.scopil import Config as Scopil
from scopil.config import build, check, config, markdown_table, setting, settings
from scopil.errors import ConfigError
from scopil.registry import registered


@config
class Small:
    rate: float = setting(0.5, "A rate.", low=0, high=1)
    bound: float | None = setting(None, "A bound.", low=-2, continuous=-1.0)
    count: int = setting(3, "A count.", low=1)
    widths: tuple[int, ...] = setting((4, 4), "Widths.", low=1, continuous=(8,))
    flag: bool = setting(False, "A switch.")
    free: float = setting(0.0, "Any number.")
    top: float = setting(0.0, "At most zero.", high=0)
    mode: Literal["slow", "fast"] = setting("slow", "A choice.")

    def problem(self) -> str | None:
        return "count 7 and flag exclude each other." if self.flag and self.count == 7 else None


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rate": 1.5}, r"rate = 1\.5; want a value in \[0, 1\]\."),
        ({"rate": float("nan")}, "rate = nan; want"),
        ({"bound": -3.0}, r"bound = -3; want at least -2\."),
        ({"top": 1.0}, r"top = 1; want at most 0\."),
        ({"count": 0}, r"count = 0; want at least 1\."),
        ({"widths": (4, 0)}, r"widths = \(4, 0\); want at least 1\."),
        ({"widths": ()}, r"widths = \(\); want a tuple of at least one value\."),
        ({"widths": (4.5,)}, r"widths = \(4\.5,\); want whole numbers\."),
        ({"count": 2.5}, r"count = 2\.5; want a whole number\."),
        ({"count": True}, r"count = True; want a whole number\."),
        ({"rate": "0.5"}, r"rate = '0\.5'; want a number\."),
        ({"flag": 1}, r"flag = 1; want True or False\."),
        ({"mode": "quick"}, r"mode = 'quick'; want slow or fast\."),
        ({"mode": 3}, r"mode = 3; want slow or fast\."),
        ({"mode": np.zeros(2)}, "mode = array.*; want slow or fast"),
        ({"mode": None}, r"mode = None; want a value\."),
        ({"rate": None}, r"rate = None; want a value\."),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(values, said):
    with pytest.raises(ConfigError, match=said) as caught:
        build(Small, values)
    assert caught.value.setting == next(iter(values))


@pytest.mark.parametrize(
    "values",
    [
        {"rate": 0},
        {"rate": 1.0},
        {"rate": np.float32(0.5)},
        {"rate": jnp.float32(0.5)},
        {"bound": None},
        {"count": np.int64(2)},
        {"free": float("inf")},
    ],
)
def test_values_at_the_ends_of_a_range_and_numbers_of_every_kind_are_taken(values):
    made = build(Small, values)
    assert all(getattr(made, name) == value for name, value in values.items())
    assert all(type(getattr(made, name)) in (int, float, type(None)) for name in values)  # as files hold them


def test_an_unknown_name_is_refused_with_a_suggestion():
    with pytest.raises(
        ConfigError, match=r"unknown setting widht; known: bound, count, .*widths\. Did you mean widths\?"
    ):
        build(Small, {"widht": (3,)})


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(ConfigError, match="exclude each other") as caught:
        build(Small, {"flag": True, "count": 7})
    assert caught.value.setting is None
    with pytest.raises(ConfigError, match="num_envs 3 × rollout_steps 10 is not a multiple of batch_size 64"):
        build(Ppo, {"num_envs": 3, "rollout_steps": 10})
    with pytest.raises(ConfigError, match="replay_size 300 is smaller than num_envs 400"):
        build(Sac, {"replay_size": 300, "num_envs": 400})
    with pytest.raises(ConfigError, match="replay_size 100 is smaller than batch_size 256"):
        build(Sac, {"replay_size": 100})


def test_the_defaults_follow_the_kind_of_actions():
    assert (build(Small, {}).widths, build(Small, {}).bound) == ((4, 4), None)
    other = build(Small, {"rate": 0.1}, continuous=True)
    assert (other.widths, other.bound, other.rate) == ((8,), -1.0, 0.1)
    assert build(Small, {"bound": None}, continuous=True).bound is None  # given beats default
    assert build(Small, {"widths": [5, 6]}).widths == (5, 6)
    assert build(Sac, {}, continuous=True).log_alpha_init == 0.0
    assert build(Scopil, {}, continuous=True).log_alpha_init == -2.3  # overrides the inherited default


@pytest.mark.parametrize("name", sorted(registered()))
def test_every_algorithm_has_defaults_that_pass_its_own_check(name):
    cls = registered()[name].config
    for continuous in (False, True):
        check(build(cls, {}, continuous))
    for one in settings(cls):
        assert one.about.endswith((".", ")")), one.name
        assert one.low < one.high


def test_real_numbers_are_leaves_and_all_else_is_structure():
    leaves = jax.tree_util.tree_leaves_with_path(Small(bound=1.0))
    assert {path[0].name for path, _ in leaves} == {"rate", "bound", "free", "top"}  # pyright: ignore[reportAttributeAccessIssue]
    assert jax.tree.structure(Small(rate=0.1)) == jax.tree.structure(Small(rate=0.2))
    assert jax.tree.structure(Small(count=4)) != jax.tree.structure(Small(count=5))
    assert jax.tree.structure(Small(mode="fast")) != jax.tree.structure(Small())
    assert hash(jax.tree.structure(Small())) is not None


def test_vmap_sweeps_a_real_number():
    cfg = dataclasses.replace(Small(), rate=jnp.array([0.1, 0.2, 0.3]))
    axes = dataclasses.replace(jax.tree.map(lambda _: None, Small()), rate=0)
    got = jax.jit(jax.vmap(lambda c: c.rate * c.count + c.free, in_axes=(axes,)))(cfg)
    np.testing.assert_allclose(got, [0.3, 0.6, 0.9], rtol=1e-6)


def test_the_table_for_the_docs():
    rows = markdown_table(Small).splitlines()
    assert rows[2] == "| `rate` | `0.5` | [0, 1] | A rate. |"
    assert rows[3] == "| `bound` | `None`, continuous actions `-1.0` | ≥ -2 | A bound. |"
    assert rows[6] == "| `flag` | `False` |  | A switch. |"
    assert rows[8] == "| `top` | `0.0` | ≤ 0 | At most zero. |"
    assert rows[9] == "| `mode` | `slow` | slow, fast | A choice. |"
    assert len(rows) == 2 + len(settings(Small))
