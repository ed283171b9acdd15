"""Exported policies do what the agent does: compared with JAX in ONNX Runtime, and in a process without scopil."""

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
from scopil.agents import Agent
from scopil.core.normalise import Running
from scopil.errors import ConfigError, ScopilError

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

LOW, HIGH = np.array([-2.0, 0.0, 100.0], np.float32), np.array([1.0, 0.1, 300.0], np.float32)
NUMBERED = gym.spaces.Discrete(4, start=-1)
BOX = gym.spaces.Box(LOW, HIGH)
KINDS = {
    "sac": (scopil.SAC, NUMBERED, {}),
    "bc": (scopil.BC, NUMBERED, {}),
    "ppo": (scopil.PPO, NUMBERED, {}),
    "ppo, as it is": (scopil.PPO, NUMBERED, {"normalise_obs": False}),
    "icrl": (scopil.ICRL, NUMBERED, {}),
    "continuous sac": (scopil.SAC, BOX, {}),
    "continuous scopil": (scopil.SCOPIL, BOX, {}),
    "continuous scopil, as it is": (scopil.SCOPIL, BOX, {"normalise_obs": False}),
    "continuous bc": (scopil.BC, BOX, {}),
}


def walk(space: gym.Space) -> Walk:
    env = Walk()
    env.action_space = space
    return env


def shaken(agent: Agent) -> Agent:
    """Networks and statistics as training might leave them: no zeros, no ones, nothing symmetric."""
    rng = np.random.default_rng(3)

    def shake(leaf: Any) -> Any:
        return leaf + jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype)

    def seen(stats: Running | None) -> Running | None:
        if stats is None:
            return None
        return Running(jnp.float32([7.0, -300.0]), jnp.float32([1e-3, 4e4]), stats.number)

    state = agent.learner
    if hasattr(state, "nets"):
        nets = state.nets._replace(params=jax.tree.map(shake, state.nets.params))
        state = state._replace(nets=nets, obs_stats=seen(state.obs_stats))
    else:
        state = state._replace(actor=state.actor._replace(params=jax.tree.map(shake, state.actor.params)))
    if hasattr(state, "frame"):
        state = state._replace(frame=state.frame._replace(obs_stats=seen(state.frame.obs_stats)))
    agent._restored = (state, 1234)
    return agent


@pytest.fixture(scope="module", params=KINDS)
def agent(request) -> Agent:
    cls, space, config = KINDS[request.param]
    return shaken(cls(lambda: walk(space), seed=5, hidden=(16, 8), **config))


@pytest.fixture(scope="module")
def session(agent, tmp_path_factory) -> Any:
    path = scopil.export_onnx(agent, tmp_path_factory.mktemp("onnx") / "policy.onnx")
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


def width(agent: Agent) -> int:
    return 3 if isinstance(agent.env.action_space, gym.spaces.Box) else 4


def inputs(agent: Agent, rows: int) -> dict[str, np.ndarray]:
    """Ordinary observations and absurd ones."""
    rng = np.random.default_rng(rows)
    obs = rng.normal(size=(rows, 2)) * [3.0, 200.0] + [7.0, -300.0]
    obs[1::4] *= 1e6
    obs[2::4] = -obs[2::4] * 1e20
    obs[3::4] = 0.0
    shape = (rows, width(agent))
    noise = (
        rng.normal(size=shape)
        if isinstance(agent.env.action_space, gym.spaces.Box)
        else rng.gumbel(size=shape)
    )
    return {"obs": obs.astype(np.float32), "noise": noise.astype(np.float32)}


def in_jax(agent: Agent, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the trained policy says, by the functions that training uses."""
    pi = agent.algorithm.policy(agent.learner, jnp.asarray(given["obs"]))
    if isinstance(agent.env.action_space, gym.spaces.Box):
        sampled = pi.frame.out(pi.pi.at(jnp.asarray(given["noise"]))[0])
        found = {
            "action": pi.mode(),
            "sampled_action": sampled,
            "mean": pi.pi.mean,
            "std": jnp.exp(pi.pi.log_std),
        }
    else:
        drawn = np.argmax(np.asarray(pi.log_probs) + given["noise"], axis=-1)
        found = {"action": pi.mode() - 1, "sampled_action": drawn - 1, "logits": pi.log_probs}
    return {k: np.asarray(v) for k, v in found.items()}


def assert_alike(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert set(found) == set(wanted)
    for key, value in wanted.items():
        assert found[key].shape == value.shape, key
        if value.dtype.kind == "i":
            np.testing.assert_array_equal(found[key], value, err_msg=key)
        else:  # float32 sums in another order: compared on the scale of their row
            size = np.abs(value).max(axis=-1, keepdims=True)
            assert (np.abs(found[key] - value) <= 2e-5 * size + 1e-6).all(), key


@pytest.mark.parametrize("rows", [1, 7, 200])
def test_onnx_says_what_jax_says(rows, agent, session):
    given = inputs(agent, rows)
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, given)))
    assert names[:2] == ["action", "sampled_action"]
    assert_alike(found, in_jax(agent, given))
    if rows == 200:  # and the tests can tell actions apart
        assert len(np.unique(found["action"], axis=0)) > 1
        assert (found["action"] != found["sampled_action"]).any()


def test_onnx_plays_as_predict_does(agent, session):
    given = inputs(agent, 50)
    (action,) = session.run(["action"], given | {"noise": np.zeros((1, width(agent)), np.float32)})
    predicted = agent.predict(given["obs"])[0]
    np.testing.assert_allclose(action, predicted, rtol=2e-5, atol=1e-6)
    if isinstance(agent.env.action_space, gym.spaces.Box):
        assert ((action >= LOW) & (action <= HIGH)).all()
        assert (np.isin(action[:, 0], (LOW[0], HIGH[0]))).any()  # at a bound, exactly


def test_onnx_tells_where_it_comes_from(agent, session):
    said = session.get_modelmeta().custom_metadata_map
    assert said["algorithm"] == agent.algorithm.name
    assert (said["seed"], said["env_steps"], said["scopil_version"]) == ("5", "1234", scopil.__version__)
    assert [i.shape for i in session.get_inputs()] == [["batch", 2], ["noise_batch", width(agent)]]
    state = agent.learner
    stats = state.frame.obs_stats if hasattr(state, "frame") else getattr(state, "obs_stats", None)
    assert said["normalises_observations"] == str(stats is not None).lower()


def test_the_jax_program_says_what_jax_says(agent, tmp_path):
    path = scopil.export_jax(agent, tmp_path / "policy.jaxexport")
    program = jax_export.deserialize(bytearray(path.read_bytes()))
    for rows in (1, 7):
        given = inputs(agent, rows)
        found = {k: np.asarray(v) for k, v in program.call(given["obs"], given["noise"]).items()}
        assert_alike(found, in_jax(agent, given))
    said = json.loads((tmp_path / "policy.jaxexport.json").read_text())
    assert said["platforms"] == list(program.platforms) == ["cpu", "cuda", "rocm", "tpu"]
    assert set(said["outputs"]) == set(found)


def test_one_observation_is_answered_quickly():
    """In a process of its own, as users have it: pytest checks the types of every call here, which takes longer."""
    code = """
import time
import numpy as np
import scopil

for cls, env in ((scopil.SAC, "CartPole-v1"), (scopil.PPO, "CartPole-v1"), (scopil.SCOPIL, "Pendulum-v1")):
    agent = cls(env, seed=0)
    obs = np.zeros(agent.env.observation_space.shape, np.float32)
    for deterministic in (True, False):
        taken = []
        for _ in range(500):
            begun = time.perf_counter()
            agent.predict(obs, deterministic)
            taken.append(time.perf_counter() - begun)
        print(min(taken))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    best = [float(line) for line in out.stdout.split()]
    assert len(best) == 6
    print("predict, µs:", [round(1e6 * t, 1) for t in best])
    assert max(best) < 100e-6


@pytest.fixture(scope="module")
def numbered() -> Agent:
    return shaken(scopil.SAC(lambda: walk(NUMBERED), seed=5, hidden=(16, 8)))


def test_gumbel_noise_draws_from_the_policy(numbered, tmp_path):
    path = scopil.export_onnx(numbered, tmp_path / "policy.onnx")
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    n, rng = 20_000, np.random.default_rng(0)
    obs = np.tile(np.float32([[0.1, 0.2]]), (n, 1))
    drawn, logits = session.run(
        ["sampled_action", "logits"], {"obs": obs, "noise": rng.gumbel(size=(n, 4)).astype(np.float32)}
    )
    p = np.exp(logits[0].astype(np.float64))
    assert p.sum() == pytest.approx(1.0, abs=1e-6)
    counts = np.bincount(drawn + 1, minlength=4)
    assert float(((counts - n * p) ** 2 / (n * p)).sum()) < 16.3  # the 99.9 % point with 3 degrees of freedom
    assert np.count_nonzero(counts) > 1


def test_the_files_run_without_scopil(numbered, tmp_path):
    scopil.export_onnx(numbered, tmp_path / "policy.onnx")
    scopil.export_jax(numbered, tmp_path / "policy.jaxexport")
    code = """
import sys
sys.modules["scopil"] = sys.modules["equinox"] = None
import numpy as np, onnxruntime
obs, noise = np.float32([[0.1, 0.2], [30.0, -4.0]]), np.zeros((2, 4), np.float32)
session = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])
print(session.run(["action"], {"obs": obs, "noise": noise})[0].tolist())
assert "jax" not in sys.modules
import jax.export
program = jax.export.deserialize(bytearray(open("policy.jaxexport", "rb").read()))
print(program.call(obs, noise)["action"].tolist())
"""
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    predicted = numbered.predict(np.float32([[0.1, 0.2], [30.0, -4.0]]))[0].tolist()
    assert out.stdout.split("\n")[:2] == [str(predicted)] * 2


def test_the_same_policy_gives_the_same_file(numbered, tmp_path):
    files = [scopil.export_onnx(numbered, tmp_path / name).read_bytes() for name in ("a.onnx", "b.onnx")]
    assert files[0] == files[1]


def test_refusals(numbered, tmp_path, monkeypatch):
    for export in (scopil.export_onnx, scopil.export_jax):
        with pytest.raises(ConfigError, match="is a folder; want a file name"):
            export(numbered, tmp_path)
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "onnx.numpy_helper", None)
    with pytest.raises(ScopilError, match=r'pip install "scopil\[onnx\]"'):
        scopil.export_onnx(numbered, tmp_path / "policy.onnx")
    assert list(Path(tmp_path).iterdir()) == []
