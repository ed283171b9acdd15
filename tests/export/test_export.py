"""Exported policies agree with the policy: in ONNX Runtime, as a JAX program, and in a process without scopil."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export as jax_export

import scopil
from hosts import Walk
from scopil.agent import LoadedLearner
from scopil.errors import ConfigError, ScopilError
from scopil.nn.heads import Head
from scopil.nn.nets import GaussianNet
from scopil.nn.normalise import RunningStats
from scopil.policy import Policy, _blank

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

LOW, HIGH = np.array([-2.0, 0.0, 100.0], np.float32), np.array([1.0, 0.1, 300.0], np.float32)
NUMBERED = gym.spaces.Discrete(4, start=-1)
BOX = gym.spaces.Box(LOW, HIGH)
KINDS: dict[str, tuple[Any, gym.Space, dict[str, Any]]] = {
    "sac": (scopil.SAC, NUMBERED, {}),
    "ppo": (scopil.PPO, NUMBERED, {}),
    "ppo, as it is": (scopil.PPO, NUMBERED, {"normalise_obs": False}),
    "icrl": (scopil.ICRL, NUMBERED, {}),
    "continuous scopil": (scopil.SCOPIL, BOX, {}),
    "continuous bc, as it is": (scopil.BC, BOX, {"normalise_obs": False}),
    "continuous ppo": (scopil.PPO, BOX, {}),  # one deviation for all states
    "continuous ppo-dgd, as it is": (scopil.PPODGD, BOX, {"normalise_obs": False}),
}
NOTE = {"algorithm": "some", "seed": "5"}


def walk(space: gym.Space) -> Walk:
    env = Walk()
    env.action_space = space
    return env


def shaken(cls: Any, space: gym.Space, config: dict[str, Any]) -> scopil.Agent:
    """An agent with perturbed weights: no zeros, no ones, no symmetry."""
    agent, rng = cls(lambda: walk(space), seed=5, hidden=(16, 8), **config), np.random.default_rng(3)

    policy = agent.policy
    size = 4.0 if isinstance(policy.network, GaussianNet) else 1.0  # large enough that actions reach their bounds

    def shake(leaf: Any) -> Any:
        return leaf + jnp.asarray(size * rng.normal(size=leaf.shape), leaf.dtype)

    stats = policy.normaliser
    if stats is not None:
        stats = RunningStats(jnp.float32([7.0, -300.0]), jnp.float32([1e-3, 4e4]), stats.samples)
    shaken = Policy(stats, jax.tree.map(shake, policy.network), policy.head)
    agent._loaded = LoadedLearner(lambda new: new(), 0, shaken)
    return agent


@pytest.fixture(scope="module", params=KINDS)
def agent(request) -> scopil.Agent:
    return shaken(*KINDS[request.param])


@pytest.fixture(scope="module")
def session(agent, tmp_path_factory) -> Any:
    path = agent.policy.to_onnx(tmp_path_factory.mktemp("onnx") / "policy.onnx", NOTE)
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


ROWS = 200


def inputs(head: Head, rows: int = ROWS) -> dict[str, np.ndarray]:
    """Observations of usual and of extreme size."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(ROWS, 2)) * [3.0, 200.0] + [7.0, -300.0]
    obs[1::4] *= 1e6
    obs[2::4] = -obs[2::4] * 1e20
    obs[3::4] = 0.0
    shape = (ROWS, head.num_actions)
    noise = rng.normal(size=shape) if head.continuous else rng.gumbel(size=shape)
    return {"obs": obs[:rows].astype(np.float32), "noise": noise[:rows].astype(np.float32)}


def in_jax(policy: Policy, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by the functions that training uses."""
    pi: Any = policy.distribution(jnp.asarray(given["obs"]))
    if policy.head.continuous:
        found = {
            "action": policy.act(jnp.asarray(given["obs"])),
            "sampled_action": policy.head.to_env(pi.at(jnp.asarray(given["noise"]))[0]),
            "mean": pi.mean,
            "std": jnp.exp(pi.log_std),
        }
    else:
        drawn = np.argmax(np.asarray(pi.log_probs) + given["noise"], axis=-1)
        found = {"action": pi.mode() - 1, "sampled_action": drawn - 1, "logits": pi.log_probs}
    return {k: np.asarray(v) for k, v in found.items()}


@pytest.fixture(scope="module")
def wanted(agent) -> dict[str, np.ndarray]:
    """The outputs for all inputs, computed once."""
    return in_jax(agent.policy, inputs(agent.policy.head))


def assert_alike(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    """The outputs equal the first rows of the wanted ones."""
    assert set(found) == set(wanted)
    for key, every in wanted.items():
        value = every[: len(found["action"])]
        assert found[key].shape == value.shape, key
        if value.dtype.kind == "i":
            np.testing.assert_array_equal(found[key], value, err_msg=key)
        else:  # float32 sums in another order: relative to the largest entry of the row
            size = np.abs(value).max(axis=-1, keepdims=True)
            assert (np.abs(found[key] - value) <= 2e-5 * size + 1e-6).all(), key


def test_onnx_gives_the_outputs_of_jax_and_the_actions_of_predict(agent, session, wanted):
    names = [output.name for output in session.get_outputs()]
    assert names[:2] == ["action", "sampled_action"]
    for rows in (1, 7, ROWS):
        given = inputs(agent.policy.head, rows)
        found = dict(zip(names, session.run(None, given)))
        assert len(found["action"]) == rows
        assert_alike(found, wanted)
    assert len(np.unique(found["action"], axis=0)) > 1  # the inputs distinguish actions
    assert (found["action"] != found["sampled_action"]).any()
    meta = session.get_modelmeta().custom_metadata_map
    assert (meta["algorithm"], meta["seed"], meta["scopil_version"]) == ("some", "5", scopil.__version__)
    assert meta["normalises_observations"] == str(agent.policy.normaliser is not None).lower()
    given = {"obs": given["obs"][:50], "noise": np.zeros((1, agent.policy.head.num_actions), np.float32)}
    (action,) = session.run(["action"], given)
    np.testing.assert_allclose(action, agent.predict(given["obs"])[0], rtol=2e-5, atol=1e-6)
    if agent.policy.head.continuous:
        assert ((action >= LOW) & (action <= HIGH)).all()
        assert (np.isin(action[:, 0], (LOW[0], HIGH[0]))).any()  # at a bound, exactly


def test_the_jax_program_gives_the_outputs_of_jax(agent, wanted, tmp_path):
    path = agent.policy.to_jax(tmp_path / "policy.jaxexport", NOTE)
    program = jax_export.deserialize(bytearray(path.read_bytes()))
    for rows in (1, 7):
        answer: Any = program.call(*inputs(agent.policy.head, rows).values())
        found = {k: np.asarray(v) for k, v in answer.items()}
        assert len(found["action"]) == rows
        assert_alike(found, wanted)
    about = json.loads((tmp_path / "policy.jaxexport.json").read_text())
    assert about["platforms"] == list(program.platforms) == ["cpu", "cuda", "rocm", "tpu"]
    assert set(about["outputs"]) == set(found)
    assert about["algorithm"] == "some"


def test_a_policy_that_sees_images_is_exported_for_any_number_of_them(tmp_path):
    form = {"sizes": [3 * 40 * 40, 16, 4], "activation": "relu", "fixed_std": False, "normalises": False}
    policy = _blank(form | {"start": 0, "image": [3, 40, 40]}, jax.random.key(1))
    path = policy.to_jax(tmp_path / "policy.jaxexport")
    program = jax_export.deserialize(bytearray(path.read_bytes()))
    for rows in (1, 3):
        obs = np.random.default_rng(0).integers(0, 256, (rows, 3 * 40 * 40)).astype(np.float32)
        answer: Any = program.call(obs, np.zeros((rows, 4), np.float32))
        np.testing.assert_array_equal(answer["action"], policy.act_numpy(obs))


@pytest.fixture(scope="module")
def numbered() -> Policy:
    return shaken(*KINDS["sac"]).policy


def test_the_files_run_without_scopil(numbered, tmp_path):
    first, again = (numbered.to_onnx(tmp_path / name).read_bytes() for name in ("policy.onnx", "again.onnx"))
    assert first == again
    numbered.to_jax(tmp_path / "policy.jaxexport")
    code = """
import sys
sys.modules["scopil"] = sys.modules["equinox"] = None
import numpy as np, onnxruntime
obs, noise = np.array([[0.1, 0.2], [30.0, -4.0]], np.float32), np.zeros((2, 4), np.float32)
session = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])
print(session.run(["action"], {"obs": obs, "noise": noise})[0].tolist())
assert "jax" not in sys.modules
import jax.export
program = jax.export.deserialize(bytearray(open("policy.jaxexport", "rb").read()))
print(program.call(obs, noise)["action"].tolist())
"""
    out = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    predicted = numbered.act_numpy(np.array([[0.1, 0.2], [30.0, -4.0]], np.float32)).tolist()
    assert out.stdout.split("\n")[:2] == [str(predicted)] * 2


def test_a_folder_and_a_missing_package_are_refused(numbered, tmp_path, monkeypatch):
    for export in (numbered.to_onnx, numbered.to_jax):
        with pytest.raises(ConfigError, match="is a folder"):
            export(tmp_path)
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "onnx.numpy_helper", None)
    with pytest.raises(ScopilError, match=r'pip install "scopil\[onnx\]"'):
        numbered.to_onnx(tmp_path / "policy.onnx")
    assert list(Path(tmp_path).iterdir()) == []
