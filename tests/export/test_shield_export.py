"""Exported policies with a shield take the shielded actions of the policy: in ONNX Runtime, without scopil, in JAX."""

import json
import os
import subprocess
import sys
from typing import Any

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export as jax_export

from scopil.nn.heads import DiscreteHead
from scopil.policy import Policy
from shields import act, distribution, shielded, states, with_limit

pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

RAW = ["raw_action", "raw_sampled_action", "intervened"]
ALONE = """
import sys
sys.modules["scopil"] = sys.modules["jax"] = None
import numpy as np, onnxruntime
given = dict(np.load("given.npz"))
session = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])
np.savez("found.npz", **dict(zip([o.name for o in session.get_outputs()], session.run(None, given))))
"""


def inputs(policy: Policy, rows: int = 1000) -> dict[str, Any]:
    rng, shape = np.random.default_rng(1), (rows, policy.head.num_actions)
    noise = rng.normal(size=shape) if policy.head.continuous else rng.gumbel(size=shape)
    return {"obs": states(policy, rows), "noise": noise.astype(np.float32)}


def run(policy: Policy, folder: Any, given: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], Any]:
    session = ort.InferenceSession(policy.to_onnx(folder / "policy.onnx"), providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, given))), session


@eqx.filter_jit
def sampled(policy: Policy, obs: Any, noise: Any) -> Any:
    pi: Any = policy.distribution(obs)
    return policy.head.to_env(policy.shielded(obs, pi.at(noise)[0]))


def in_jax(policy: Policy, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`action` and `sampled_action` by the functions that training uses."""
    obs = jnp.asarray(given["obs"])
    pi: Any = distribution(policy, obs)
    if isinstance(policy.head, DiscreteHead):
        drawn = np.argmax(np.asarray(pi.log_probs) + given["noise"], axis=-1)
        return {k: np.asarray(a) + 3 for k, a in {"action": act(policy, obs), "sampled_action": drawn}.items()}
    drawn = sampled(policy, obs, jnp.asarray(given["noise"]))
    return {"action": np.asarray(act(policy, obs)), "sampled_action": np.asarray(drawn)}


def assert_actions(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], raw: str = "") -> None:
    """Discrete actions are equal. A continuous action may differ if rounding puts a Q on the other side of the limit:
    one state of a thousand, at most."""
    for key, value in wanted.items():
        if value.dtype.kind == "i":
            np.testing.assert_array_equal(found[raw + key], value)
        else:
            far = np.abs(found[raw + key] - value).max(-1) > 1e-5
            assert far.mean() <= 1e-3, key


@pytest.mark.parametrize("kind", ["numbered", "box", "gaussian", "numbered-image", "box-image"])
def test_onnx_takes_the_actions_of_the_policy(kind, tmp_path):
    policy = shielded(kind)
    given = inputs(policy)
    found, session = run(policy, tmp_path, given)
    assert list(found)[:5] == ["action", "sampled_action", *RAW]
    assert_actions(found, in_jax(policy, given))
    assert_actions(found, in_jax(policy.unshielded(), given), "raw_")
    differs = (found["action"] != found["raw_action"]).reshape(1000, -1).any(-1)
    assert found["intervened"].dtype == bool
    np.testing.assert_array_equal(found["intervened"], differs)
    assert 0.3 < differs.mean() < 0.7
    limit = session.get_modelmeta().custom_metadata_map["shield_limit"]
    assert float(limit) == float(policy.shield.limit)  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize("kind", ["numbered", "box"])
def test_the_file_takes_the_actions_of_the_policy_without_scopil(kind, tmp_path):
    policy = shielded(kind)
    given = inputs(policy)
    policy.to_onnx(tmp_path / "policy.onnx")
    np.savez(tmp_path / "given.npz", **given)
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", ALONE], cwd=tmp_path, env=env, check=True)
    with np.load(tmp_path / "found.npz") as found:
        assert_actions(dict(found), in_jax(policy, given))


@pytest.mark.parametrize("kind", ["numbered", "box"])
def test_the_jax_program_has_the_outputs_of_onnx(kind, tmp_path):
    policy = shielded(kind)
    given = inputs(policy, 7)
    want, _ = run(policy, tmp_path, given)
    path = policy.to_jax(tmp_path / "policy.jaxexport")
    answer: Any = jax_export.deserialize(bytearray(path.read_bytes())).call(*given.values())
    assert set(answer) == set(want)
    for key, value in answer.items():
        assert value.shape == want[key].shape
        np.testing.assert_allclose(np.asarray(value), want[key], rtol=1e-5, atol=1e-5, err_msg=key)
    about = json.loads((tmp_path / "policy.jaxexport.json").read_text())
    assert set(about["outputs"]) == set(want)
    assert float(about["shield_limit"]) == float(policy.shield.limit)  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize("kind", ["numbered", "box"])
def test_an_infinite_limit_never_intervenes_and_no_shield_has_no_further_outputs(kind, tmp_path):
    policy = shielded(kind, np.inf)
    given = inputs(policy)
    found, session = run(policy, tmp_path, given)
    assert not found["intervened"].any()
    for key in ("action", "sampled_action"):
        np.testing.assert_array_equal(found[key], found[f"raw_{key}"])
    assert float(session.get_modelmeta().custom_metadata_map["shield_limit"]) == np.inf
    bare, session = run(policy.unshielded(), tmp_path, given)
    assert set(found) - set(bare) == set(RAW)
    assert "shield_limit" not in session.get_modelmeta().custom_metadata_map
    np.testing.assert_array_equal(bare["action"], found["action"])
    least, _ = run(with_limit(policy, -np.inf), tmp_path, given)  # in no state is any action within the limit
    assert_actions(least, in_jax(with_limit(policy, -np.inf), given))
