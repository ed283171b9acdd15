"""Images: a task with a known answer, the replay, and policy files."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scopil
from scopil.errors import CheckpointError, ConfigError
from scopil.nn.nets import ConvNet
from scopil.policy import Policy
from scopil.serialization import as_tree, read_arrays, save_tree
from scopil.train import loop as loop_module

SMALL = {"hidden": (16,), "learning_rate": 2e-3}
SAC = SMALL | {"batch_size": 32, "replay_size": 1_000, "discount": 0.0, "target_entropy": 0.1}


class Spot(gym.Env):
    """A bright spot in a dark image; the right action is the quarter it is in."""

    observation_space = gym.spaces.Box(0, 255, (16, 16, 1), np.uint8)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return self.see(), {}

    def step(self, action):
        right, self.clock = action == self.quarter, self.clock + 1
        return self.see(), float(right), False, self.clock == 10, {}

    def see(self):
        y, x = self.np_random.integers(1, 15, 2)
        self.quarter, image = 2 * (y >= 8) + (x >= 8), np.zeros((16, 16, 1), np.uint8)
        image[y - 1 : y + 2, x - 1 : x + 2] = 255
        return image


def look(image):
    y, x = np.argwhere(image[..., 0] == 255).mean(0)
    return int(2 * (y >= 8) + (x >= 8))


@pytest.fixture(scope="module")
def cloned():
    agent = scopil.BC(Spot, scopil.record(Spot, look, episodes=30), demo_batch_size=64, **SMALL)
    return agent.learn(300)


def test_cloning_finds_the_spot(cloned):
    assert cloned.evaluate(episodes=20)["reward"] >= 9
    image, _ = Spot().reset(seed=3)
    assert cloned.predict(image, deterministic=True)[0] == look(image)


def test_a_policy_of_images_in_files(cloned, tmp_path):
    policy = cloned.policy
    assert isinstance(policy.network, ConvNet)
    policy.save(tmp_path / "policy.safetensors")
    rows = np.random.default_rng(0).integers(256, size=(5, 256)).astype(np.float32)
    pixels = jnp.asarray(rows)
    want = policy.network(pixels)
    np.testing.assert_array_equal(Policy.load(tmp_path / "policy.safetensors").network(pixels), want)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(policy.to_onnx(tmp_path / "policy.onnx"))
    (logits,) = session.run(["logits"], {"obs": rows, "noise": np.zeros((1, 4), np.float32)})
    np.testing.assert_allclose(logits, jax.nn.log_softmax(want), rtol=1e-4, atol=1e-5)


def test_the_replay_of_images_holds_bytes(tmp_path):
    agent = scopil.SAC(Spot, **SAC).learn(40)
    replay = agent._trainer.state.replay
    assert replay.pixels.shape == (1_000, 2 * 256)
    assert set(np.unique(replay.pixels[:72])) == {0, 255}
    file = tmp_path / "state.ckpt"
    save_tree(file, replay, {})
    assert file.stat().st_size < 100_000  # the unused part is not written
    again = as_tree(read_arrays(file)[0], replay, file)
    np.testing.assert_array_equal(again.pixels, replay.pixels)
    np.testing.assert_array_equal(again.rows, replay.rows)


@pytest.mark.parametrize("image", [[16, 16], [15, 16, 1], [256, 1, 1], [-16, -16, 1], "abc"])
def test_a_file_with_an_odd_image_is_refused(cloned, image, tmp_path, monkeypatch):
    form = cloned.policy.form() | {"image": image}
    monkeypatch.setattr(Policy, "form", lambda self: form)
    cloned.policy.save(tmp_path / "odd.safetensors")
    with pytest.raises(CheckpointError, match="holds no policy"):
        Policy.load(tmp_path / "odd.safetensors")


@pytest.mark.slow
def test_sac_finds_the_spot():
    assert scopil.SAC(Spot, **SAC).learn(2_000).evaluate(episodes=20)["reward"] >= 9


def test_bytes_count_as_bytes_before_training(monkeypatch):
    """CarRacing's million steps would be 221 GB of numbers, and are 55 GB of bytes."""
    monkeypatch.setattr(loop_module, "machine_memory", lambda: 8 * 10**9)
    Large = type("Large", (Spot,), {"observation_space": gym.spaces.Box(0, 255, (96, 96, 3), np.uint8)})
    with pytest.raises(ConfigError, match=r"replay_size = 1,000,000 steps .* need 55\.3 GB"):
        scopil.SAC(Large).learn(1)
