"""Features of the user: a function of one observation, in training, in words, in files, and whose code may run."""

import json
import math
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scopil
from made_marginals import marginal_of
from scopil.algos.scopil_rho import ALGORITHM, Config, chosen_features
from scopil.cli import main
from scopil.config import build
from scopil.data import storage
from scopil.envs.jax_env import CompiledEnv
from scopil.envs.spaces import Spaces
from scopil.errors import CheckpointError, ConfigError, ScopilError
from scopil.eval.rules import load_rules
from scopil.explain import explain_all
from scopil.losses.features import own_of
from scopil.marginal import Axis
from scopil.serialization import read_arrays
from scopil.train.run import Run, RunSpec, save_learner
from scopil_bench.runner import prepare
from scopil_studio.training_jobs import start
from scopil_studio.worker import StudioConfig
from toys import ARMS, REPLAY, SHOWN_ARM, TABLES, Arms, drive_demos, registered_toy

FEATURES = """
from own_helpers import FACTOR

def features(obs):
    return {"twice": FACTOR * obs[0], "late": obs[1] > 1}
"""
NAME, ENV = "own_features.py:features", "test/Own-v0"
SMALL: dict[str, Any] = REPLAY | TABLES | {
    "demo_batch_size": 8, "clone_steps": 5, "critics_first": 20, "refresh_every": 20, "enter_every": 1,
    "enter_level": 1e6, "features": NAME,
}  # fmt: skip


class Walk(Arms):
    """The action moves the first component."""

    def transition(self, state, action, rng, params=None):
        return state._replace(sign=state.sign + 0.5 * action, clock=state.clock + 1)


def walk_demos() -> scopil.Demonstrations:
    shown = [e.observations for e in drive_demos(12)]
    return scopil.Demonstrations.from_arrays(shown, [np.full(2, SHOWN_ARM)] * len(shown), action_space=ARMS)


def write_code(folder: Path, first: str = "") -> None:
    (folder / "own_features.py").write_text(first + FEATURES)
    (folder / "own_helpers.py").write_text("FACTOR = 2.0\n")


def spec(**changes: Any) -> RunSpec:
    every: Any = {"steps": 120, "eval_every": 120, "checkpoint_every": 60, "log_every": 60}
    return RunSpec(algorithm=ALGORITHM, env=ENV, demos="shown.npz", config=SMALL | changes, **every)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Iterator[Path]:
    """A folder with the code and a trained run `mine`, which was stopped and continued with its copy of the code."""
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch, registered_toy(CompiledEnv(Walk(), max_episode_steps=2), ENV):
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.chdir(folder)
        write_code(folder)
        storage.write(walk_demos(), folder / "shown.npz")
        assert not Run.create(folder / "mine", spec()).train(lambda status: True)
        (folder / "own_features.py").unlink()
        assert Run.open(folder / "mine").train()
        write_code(folder)
        yield folder
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


@pytest.fixture
def here(made, tmp_path, monkeypatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def labels(agent: Any) -> set[str]:
    return {axis.name for marginal in agent.marginals() for axis in marginal.axes}


# --- features ---------------------------------------------------------------------------------------------------------

BOX = gym.spaces.Box(-3, 3, (2,), np.float32)
SPACES = {
    "dict": gym.spaces.Dict(
        {"pose": BOX, "gear": gym.spaces.Discrete(3, start=1), "deep": gym.spaces.Dict({"x": BOX})}
    ),
    "tuple": gym.spaces.Tuple((BOX, gym.spaces.MultiBinary(3), gym.spaces.MultiDiscrete([2, 3]))),
    "matrix": gym.spaces.Box(0, 255, (2, 2, 1), np.uint8),
}


@pytest.mark.parametrize("name", SPACES)
def test_a_row_in_a_program_becomes_the_observation(name):
    codec = Spaces("env", SPACES[name], ARMS)
    SPACES[name].seed(0)
    for _ in range(5):
        obs = SPACES[name].sample()
        found = jax.jit(codec.unflatten_in_jax)(codec.flatten(obs))
        assert jax.tree.structure(found) == jax.tree.structure(codec.unflatten(codec.flatten(obs)))
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(obs), strict=True):
            np.testing.assert_array_equal(x, y)
            assert np.shape(x) == np.shape(y)


def test_state_numbers_of_a_compiled_environment():
    codec = Spaces("env", gym.spaces.Discrete(5), ARMS, compiled=True)
    assert int(jax.jit(codec.unflatten_in_jax)(jnp.eye(5)[3])) == 3


def compiled(obs: Any) -> dict[str, Any]:
    return {"high": obs["gear"] > 2, "far": jnp.hypot(obs["pose"][0], obs["pose"][1])}


def in_python(obs: Any) -> dict[str, Any]:
    return {"high": 1 if obs["gear"] > 2 else 0, "far": math.hypot(*obs["pose"])}


def test_functions_in_jax_and_in_python_give_the_same_features():
    space = SPACES["dict"]
    codec, rows = Spaces("env", space, ARMS), []
    space.seed(1)
    rows = np.stack([codec.flatten(space.sample()) for _ in range(50)])
    first, second = (own_of(function, codec.size, codec) for function in (compiled, in_python))
    assert (first.compiled, second.compiled) == (True, False)
    assert first.names == second.names == ("high", "far")
    found = jax.jit(second)(jnp.asarray(rows))
    np.testing.assert_allclose(jax.jit(first)(jnp.asarray(rows)), found, rtol=1e-6)
    np.testing.assert_allclose(first.on_host(rows), second.on_host(rows), rtol=1e-6)
    assert set(np.unique(found[:, 0])) == {0.0, 1.0}


def test_python_is_called_once_for_each_observation():
    calls = []
    own = own_of(lambda obs: {"x": math.floor(calls.append(1) or obs[0])}, 2)
    calls.clear()
    rows = jnp.asarray(np.resize(np.arange(6.0), (9_000, 2)), jnp.float32)  # more than one call of Python
    for _ in range(3):
        np.testing.assert_array_equal(jax.jit(own)(rows)[:, 0], rows[:, 0])
    assert len(calls) == 3


def test_the_function_in_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "rules.md").read_text()
    (code,) = re.findall(r"```py\n(# my_features.py\n.*?)```", page, re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    space = gym.spaces.Dict(dict.fromkeys(("person", "cart", "velocity"), BOX))
    codec = Spaces("env", space, ARMS)
    own = own_of(namespace["features"], codec.size, codec)
    assert own.compiled
    obs = {"person": [1.5, 2.0], "cart": [0.0, 0.0], "velocity": [1.0, 0.0]}
    row = codec.flatten({name: np.array(value, np.float32) for name, value in obs.items()})
    np.testing.assert_allclose(own.on_host(row[None]), [[2.5, 0.6]], rtol=1e-6)


def test_own_features_are_alone_or_beside_components():
    def chosen(*names: Any) -> tuple[str, ...]:
        cfg = build(Config, {"features": names})
        return chosen_features(("pose[0]", "pose[1]", "v"), 0, cfg, 3, None).names

    def own(obs: Any) -> dict[str, Any]:
        return {"far": obs[0]}

    assert chosen() == ("pose[0]", "pose[1]", "v", "|pose|")
    assert chosen(own) == ("far",)
    assert chosen("pose", own) == ("pose[0]", "pose[1]", "far")
    assert chosen(own, "2") == ("v", "far")
    assert build(Config, {"features": own}).features == (f"{__name__}:{own.__qualname__}",)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda obs: obs[0], "want a dict of numbers by name"),
        (lambda obs: {}, "returned nothing"),
        (lambda obs: {"x": obs}, "3 numbers as 'x'"),
        (lambda obs: {"v": obs[0]}, "give it another name"),
        (lambda obs: {"a at b": obs[0]}, "without ' at '"),
        (lambda obs: {"x": obs["pose"]}, r"test_own_features.py, line"),
        (lambda obs: {"x": jnp.sin(obs[0]) if obs[1] < 9 else 0.0}, "jnp.where"),
    ],
)
def test_functions_that_return_no_features_are_refused(function, said):
    with pytest.raises(ConfigError, match=said):
        chosen_features(("x[0]", "x[1]", "v"), 0, build(Config, {"features": function}), 3, None)


def test_two_functions_are_refused():
    cfg = build(Config, {"features": (compiled, in_python)})
    with pytest.raises(ConfigError, match="want one function"):
        chosen_features(("x",), 0, cfg, 1, None)


def test_features_that_are_not_finite_in_a_demonstration_are_refused():
    agent = scopil.SCOPILRho(
        CompiledEnv(Walk(), max_episode_steps=2), walk_demos(), **SMALL | {"features": lambda obs: {"x": 1 / obs[1]}}
    )
    with pytest.raises(ConfigError, match="x = inf in a demonstrated state"):
        agent.learn(10)


# --- training ---------------------------------------------------------------------------------------------------------


def test_constraints_are_on_own_features_and_say_so(here):
    agent = scopil.load("mine")
    assert agent.config.features == (NAME,)
    axes = [axis for marginal in agent.marginals() for axis in marginal.axes]
    own = [axis for axis in axes if axis.module]
    assert {axis.name for axis in own} & {"twice", "late"}
    assert {axis.name for axis in axes} <= {"twice", "late", "action"}
    assert all(axis.code in [f'own_features.features({o})["{axis.name}"]' for o in ("obs", "next_obs")] for axis in own)
    assert 0 <= float(agent.familiarity(np.array([0.5, 1.0], np.float32))) <= 1


def test_a_function_in_python_learns_the_same_as_a_compiled_one_in_a_stopped_run(here):
    far = 99.0

    def features(obs: Any) -> dict[str, Any]:
        if obs[0] > far:
            raise RuntimeError("far")
        return {"twice": 2 * obs[0], "late": 1 if obs[1] > 1 else 0}

    slow, fast = scopil.SCOPILRho(ENV, walk_demos(), **SMALL | {"features": features}).learn(120), scopil.load("mine")
    assert fast.num_timesteps == slow.num_timesteps
    for x, y in zip(jax.tree.leaves(slow.state), jax.tree.leaves(fast.state), strict=True):
        np.testing.assert_array_equal(x, y)
    fast.save("agent.safetensors")
    with pytest.raises(ConfigError, match="a file chose"):
        scopil.load("agent.safetensors")
    for given in ({"features": features}, {"trust_env": True}):
        options: Any = given
        assert labels(scopil.load("agent.safetensors", demos=walk_demos(), **options)) == labels(fast)

    far = 0.5  # the function fails in a program that is compiled already
    slow.state.features.own.seen.clear()
    with pytest.raises(ConfigError, match=r"features failed: RuntimeError: far \(.*test_own_features.py, line"):
        slow.learn(20)


# --- files ------------------------------------------------------------------------------------------------------------


def test_rules_call_the_function_which_is_copied_beside_them(here, monkeypatch, capsys):
    axis = Axis("twice", 'own_features.features(next_obs)["twice"]', module="own_features")
    agent = scopil.load("mine")
    agent.run = Run.open("mine")
    found = marginal_of(0, (axis,), lambda p: p[:, 0] > 1, [(0, 3)])
    found = replace(found, axes=(replace(found.axes[0], module=axis.module),))
    monkeypatch.setattr(agent, "rules", lambda beside: explain_all([found]))
    monkeypatch.setattr("scopil.cli.rules.load", lambda *_, **__: agent)
    assert main(["rules", "mine", "--out", "found/rules.py"]) == 0
    assert "twice ≤ 1 everywhere" in capsys.readouterr().out
    assert {file.name for file in Path("found").iterdir()} == {"rules.py", "own_features.py", "own_helpers.py"}
    (rule,) = load_rules("found/rules.py").by_name.values()
    assert [rule(None, 0, np.array([x, 0.0])) for x in (0.3, 0.7)] == [False, True]
    Path("found/own_helpers.py").write_text("FACTOR = 3.0\n")
    assert main(["rules", "mine", "--out", "found/rules.py"]) == 2
    assert "found/own_helpers.py differs" in capsys.readouterr().err


def test_export_leaves_familiarity_out_where_a_file_cannot_hold_it(here):
    pytest.importorskip("onnx")
    agent = scopil.load("mine")
    with pytest.warns(UserWarning, match="ONNX cannot hold the Python function own_features.features"):
        agent.policy.to_onnx("p.onnx", monitor=agent.monitor())
    import onnx  # pyright: ignore[reportMissingImports]

    assert "familiarity" not in [out.name for out in onnx.load("p.onnx").graph.output]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.policy.to_jax("p.jaxexport", monitor=agent.monitor())
    assert "familiarity" in json.loads(Path("p.jaxexport.json").read_text())["outputs"]


# --- whose code runs --------------------------------------------------------------------------------------------------


def evil(here: Path) -> str:
    return f"open({str(here / 'ran')!r}, 'w').close()\n"


def changed(here: Path) -> None:
    write_code(here / "mine" / "code" / "features", evil(here))


def a_module_changed(here: Path) -> None:
    (here / "mine/code/features/own_helpers.py").write_text(evil(here) + "FACTOR = 2.0\n")


def another_function_named(here: Path) -> None:
    (here / "evil.py").write_text(evil(here) + FEATURES)
    file = here / "mine" / "run.json"
    file.write_text(file.read_text().replace(NAME, "evil.py:features"))


def of_another_user(here: Path) -> None:
    write_code(here, evil(here))
    write_code(here / "mine" / "code" / "features", evil(here))
    (here / "config").rename(here / "another")


CASES = [
    (changed, "code/features/own_features.py has changed"),
    (a_module_changed, "code/features/own_helpers.py has changed"),
    (another_function_named, "your key did not sign it"),
    (of_another_user, "your key did not sign it"),
]


@pytest.mark.parametrize(("case", "said"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_features_from_others_do_not_run(case, said, here, capsys):
    case(here)
    for argv in (["evaluate", "mine", "--episodes", "1"], ["rules", "mine"], ["export", "mine", "--onnx", "p.onnx"]):
        assert main(argv) == 2
        line = capsys.readouterr().err
        assert said in line
        assert "--trust-env" in line
    (here / "mine" / "policy.safetensors").unlink()
    assert main(["resume", "mine"]) == 2
    assert not (here / "ran").exists()


def test_trust_and_own_functions_are_accepted(here):
    of_another_user(here)
    (here / "mine/code/features/own_features.py").write_text(FEATURES)
    (here / "mine/code/features/own_helpers.py").write_text("FACTOR = 2.0\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the original differs
        trusted = labels(scopil.load("mine", trust_env=True))
    assert trusted == labels(scopil.load("mine", features=lambda obs: {"twice": 2 * obs[0], "late": obs[1] > 1}))
    assert not (here / "ran").exists()


def test_a_policy_file_may_not_name_other_features_than_its_run(here):
    learner, (_, note) = scopil.load("mine").state, read_arrays(Path("mine/policy.safetensors"))
    note["config"]["features"] = ["json:loads"]
    save_learner(Path("mine/policy.safetensors"), ALGORITHM, learner, note)
    with pytest.raises(ScopilError, match="features = json:loads"):
        scopil.load("mine/policy.safetensors")


def test_the_original_may_change_but_not_for_a_plan(here):
    write_code(here, "# changed\n")
    with pytest.warns(UserWarning, match="differs from the copy"):
        assert labels(scopil.load("mine"))
    with pytest.raises(ConfigError, match=r"own_features.py:features has changed"):
        prepare(Path("mine"), spec())


def test_a_page_of_the_studio_names_no_code(here):
    config = StudioConfig(here)
    with pytest.raises(ConfigError, match="a page may not name code"):
        start(config, "new", "scopil-rho", ENV, options={"features": f"twice {NAME}"})


def test_a_damaged_setting_is_no_code(here):
    file = here / "mine" / "run.json"
    file.write_text(file.read_text().replace(f'"{NAME}"', "7"))
    with pytest.raises((CheckpointError, ConfigError)):
        scopil.load("mine")
