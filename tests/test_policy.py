"""Policies: distribution, act and act_numpy agree; files are read back bit for bit, or refused."""

import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

import shields
from scopil import serialization
from scopil.errors import CheckpointError
from scopil.files import seal
from scopil.nn.heads import BoxHead, DiscreteHead
from scopil.nn.nets import MLP, GaussianNet, orthogonal_mlp
from scopil.nn.normalise import RunningStats
from scopil.policy import Policy
from scopil.serialization import save_tree

OBS = 3


def make(kind: str) -> Policy:
    """Discrete or continuous, with and without statistics."""
    key = jax.random.key(0)
    stats = RunningStats(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.5, 2.0, 9.0]), jnp.float32(40.0))
    box = BoxHead(jnp.array([-1.0, 0.0]), jnp.array([3.0, 0.5]))
    if kind == "numbered":
        return Policy(None, MLP((OBS, 6, 4), key), DiscreteHead(4))
    if kind == "numbered-from-3":
        return Policy(stats, orthogonal_mlp((OBS, 6, 5, 4), key, 1.0), DiscreteHead(4, start=3))
    if kind == "box":
        return Policy(None, MLP((OBS, 6, 4), key), box)
    if kind == "box-normalised":
        return Policy(stats, MLP((OBS, 6, 4), key), box)
    return Policy(stats, GaussianNet(orthogonal_mlp((OBS, 6, 2), key, 1.0), jnp.array([-0.3, 0.4])), box)


KINDS = ("numbered", "numbered-from-3", "box", "box-normalised", "gaussian")


@pytest.fixture(scope="module")
def policies() -> dict[str, Policy]:
    return {kind: make(kind) for kind in KINDS}


@pytest.fixture(scope="module")
def obs() -> np.ndarray:
    return np.random.default_rng(0).normal(1.0, 3.0, (40, OBS)).astype(np.float32)


def start_of(policy: Policy) -> int:
    return policy.head.start if isinstance(policy.head, DiscreteHead) else 0


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_actions_are_the_mode_in_jax_and_in_numpy_for_any_leading_axes(kind, policies, obs):
    policy = policies[kind]
    greedy = np.asarray(policy.act(jnp.asarray(obs)))
    np.testing.assert_array_equal(greedy, policy.head.to_env(policy.distribution(jnp.asarray(obs)).mode()))
    np.testing.assert_allclose(policy.act_numpy(obs), greedy + start_of(policy), rtol=1e-5, atol=1e-5)
    assert len(np.unique(greedy, axis=0)) > 1
    if policy.head.continuous:
        assert (greedy >= [-1.0, 0.0]).all()
        assert (greedy <= [3.0, 0.5]).all()
    shaped = policy.act(jnp.asarray(obs.reshape(4, 10, OBS)))
    np.testing.assert_allclose(np.asarray(shaped).reshape(greedy.shape), greedy, rtol=1e-5, atol=1e-6)
    one = policy.act_numpy(obs[7])
    assert isinstance(one, np.ndarray)
    assert one.shape == greedy.shape[1:]
    np.testing.assert_allclose(one, greedy[7] + start_of(policy), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_actions_have_the_distribution_in_jax_and_in_numpy(kind, policies, getkey):
    """Frequencies, or means and deviations before tanh, of 20 000 draws in one state."""
    policy, draws = policies[kind], 20_000
    state = np.tile(np.array([0.5, 1.0, -2.0], np.float32), (draws, 1))
    pi: Any = policy.distribution(jnp.asarray(state[:1]))
    in_jax = np.asarray(jax.jit(lambda p, o, k: p.act(o, k))(policy, jnp.asarray(state), getkey()))
    in_numpy = policy.in_numpy()(state, np.random.default_rng(0)) - start_of(policy)
    for drawn in (in_jax, in_numpy):
        if isinstance(policy.head, DiscreteHead):
            share = np.bincount(drawn, minlength=4) / draws
            np.testing.assert_allclose(share, np.exp(pi.log_probs)[0], atol=0.015)
        else:
            unit = np.asarray(policy.head.to_learner(jnp.asarray(drawn)))
            u = np.arctanh(np.clip(unit, -1 + 1e-7, 1 - 1e-7))
            std = np.exp(pi.log_std)[0]
            np.testing.assert_allclose(u.mean(0), pi.mean[0], atol=0.05)
            np.testing.assert_allclose(u.std(0), std, rtol=0.05)


def test_the_normaliser_is_part_of_the_policy(policies, obs):
    policy = policies["box-normalised"]
    seen = (obs - np.array([1.0, 2.0, 3.0])) / np.sqrt(np.array([0.5, 2.0, 9.0]) + 1e-8)
    bare = eqx.tree_at(lambda p: p.normaliser, policy, None, is_leaf=lambda x: x is None)
    want = bare.act(jnp.asarray(np.clip(seen, -10, 10), jnp.float32))
    np.testing.assert_allclose(policy.act(jnp.asarray(obs)), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [*KINDS, *(f"shielded {kind}" for kind in shields.KINDS)])
def test_a_saved_policy_comes_back_bit_for_bit(kind, policies, tmp_path):
    shield, _, name = kind.rpartition(" ")
    policy, path = shields.shielded(name, 0.3) if shield else policies[kind], tmp_path / "policy.safetensors"
    policy.save(path, {"by": "a test"})
    again = Policy.load(path)
    assert jax.tree.structure(again) == jax.tree.structure(policy)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(policy), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    note = serialization.read_note(path)
    assert note["by"] == "a test"
    again.save(tmp_path / "again", {"by": "a test"})
    assert (tmp_path / "again").read_bytes() == path.read_bytes()  # equal policies, equal files


def test_a_policy_is_found_beside_a_learner_and_read_by_the_safetensors_library(policies, tmp_path):
    policy = policies["gaussian"]
    save_tree(tmp_path / "agent", {"policy": policy, "learner": jnp.ones(5)}, {"form": policy.form()})
    jax.tree.map(np.testing.assert_array_equal, Policy.load(tmp_path / "agent"), policy)
    arrays = load_safetensors((tmp_path / "agent").read_bytes()[: -len(seal(b""))])
    np.testing.assert_array_equal(arrays["['policy'].network.log_std"], np.array([-0.3, 0.4], np.float32))


def test_damaged_and_foreign_files_are_refused_by_name(policies, tmp_path):
    policies["box"].save(tmp_path / "whole")
    whole, files = (tmp_path / "whole").read_bytes(), {}
    for at in (20, len(whole) // 2, len(whole) - 10):
        files[f"damaged-{at}"] = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    foreign = save_safetensors({"weights": np.ones(3, np.float32)})
    metadata = {"scopil": json.dumps({"format": "scopil-checkpoint-1", "note": {}})}
    old = save_safetensors({"weights": np.ones(3, np.float32)}, metadata)
    files |= {"cut": whole[:-1], "bare": foreign, "sealed": foreign + seal(foreign), "old": old + seal(old)}
    files |= {"text": b"hello" + seal(b"hello")}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    save_tree(tmp_path / "checkpoint", {"learner": jnp.ones(3)}, {"steps": 5})
    for name in (*files, "checkpoint", "missing"):
        with pytest.raises(CheckpointError, match=name):
            Policy.load(tmp_path / name)


FORMS = [{"sizes": [3]}, {"sizes": [3, 0, 4]}, {"sizes": [3, 1 << 40, 4]}, {"sizes": "many"}, {"activation": "gelu"}]
FORMS += [{"start": "four"}, {"sizes": [3, 7, 4]}, {"normalises": True}, {"fixed_std": True}]


@pytest.mark.parametrize("changes", FORMS)
def test_a_form_that_is_invalid_or_does_not_fit_the_arrays_is_refused(changes, policies, tmp_path):
    policy = policies["numbered"]
    save_tree(tmp_path / "odd", {"policy": policy}, {"form": policy.form() | changes})
    with pytest.raises(CheckpointError, match="odd"):
        Policy.load(tmp_path / "odd")


CRITIC = {"sizes": [3, 6, 4], "activation": "relu"}
SHIELDS = [None, [], "open", {}, CRITIC | {"activation": "gelu"}, CRITIC | {"image": [1, 1, 3]}]
SHIELDS += [
    CRITIC | {"sizes": sizes} for sizes in ([3, 6, 5], [4, 6, 4], [3, 4], [3, 1 << 40, 4], [3, 6, 6, 4], "many")
]


@pytest.mark.parametrize("form", SHIELDS)
def test_the_form_of_a_shield_that_is_invalid_or_does_not_fit_is_refused(form, tmp_path):
    policy = shields.shielded("numbered", 0.3)
    save_tree(tmp_path / "odd", {"policy": policy}, {"form": policy.form() | {"shield": form}})
    with pytest.raises(CheckpointError, match="odd") as error:
        Policy.load(tmp_path / "odd")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("with_arrays", [True, False])
def test_a_shield_needs_both_its_form_and_its_arrays(with_arrays, tmp_path):
    policy = shields.shielded("numbered", 0.3)
    saved, form = (policy, policy.unshielded()) if with_arrays else (policy.unshielded(), policy)
    save_tree(tmp_path / "odd", {"policy": saved}, {"form": form.form()})
    with pytest.raises(CheckpointError, match="shield"):
        Policy.load(tmp_path / "odd")
