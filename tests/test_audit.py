"""`scopil audit`: a policy that differs is found, in order; the demonstrator's own episodes are not."""

import math
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

import scopil
from scopil import audit as module
from scopil.audit import audit
from scopil.cli import main
from scopil.data.dataset import Demonstrations, Episode
from scopil.errors import ConfigError, DatasetError
from scopil_bench.cli.audit import compared, page
from scopil_bench.studies.rules import ENVS, demonstrations

NAMES = ("x", "y", "speed")
STEPS = 25


def walk(rng, start, fastest=1.0, left=0.0) -> Episode:
    """x grows; y is drawn above `left`; the action is 1 where the speed is high."""
    speed = rng.uniform(0.2, fastest, STEPS + 1)
    x, y = start + np.cumsum(rng.uniform(0.0, 0.1, STEPS + 1)), rng.uniform(left, 1.0, STEPS + 1)
    obs = np.stack([x, y, speed], axis=1).astype(np.float32)
    obs[0] = [start, 0.5, 0.5]
    return Episode(observations=obs, actions=(speed[1:] > 0.6).astype(np.int64))


def several(seed, count=30, **options) -> list[Episode]:
    """Episodes from equally spaced starts, the same for all seeds."""
    rng = np.random.default_rng(seed)
    return [walk(rng, i / 30, **options) for i in range(count)]


@pytest.fixture(scope="module", autouse=True)
def few_exchanges():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EXCHANGES", 39)
        yield


@pytest.fixture(scope="module")
def demos() -> Demonstrations:
    space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    return Demonstrations(
        episodes=tuple(several(0)), observation_space=space, action_space=gym.spaces.Discrete(2), name="walks"
    )


FAST = several(1, fastest=1.4)


@pytest.fixture(scope="module")
def found(demos):
    return audit(FAST, demos, NAMES)


def test_a_faster_policy_is_found_and_how(found):
    first = found.findings[0]
    assert found.matched == 30
    assert first.name == "speed"
    assert first.interval[0] > 0
    assert first.interval[0] < first.gap < first.interval[1]
    assert first.t > found.bar
    assert first.p <= module.LEVEL
    assert first.share > 0.9
    assert first.share > first.demo_share
    assert first.steps > 5 * first.demo_steps
    (axis,) = first.marginal.axes
    middle = (axis.edges[1:] + axis.edges[:-1]) / 2
    assert first.marginal.novelty[(middle > 1.05) & (middle < 1.2)].mean() > 0.9
    assert first.marginal.novelty[(middle > 0.3) & (middle < 0.9)].mean() < 0.2
    assert first.marginal.own_novelty - first.marginal.demo_novelty == pytest.approx(first.gap)


def test_novel_steps_are_those_that_break_the_rule(found):
    novel = np.concatenate(found.findings[0].novel)
    fast = np.concatenate([e.observations[1:, 2] > 1.02 for e in FAST])
    assert novel[fast].mean() > 0.95
    assert novel[~fast].mean() < 0.2


def test_the_demonstrators_own_episodes_give_no_finding_but_rarely(demos):
    alarms = [bool(audit(several(100 + i), demos, NAMES, seed=i).findings) for i in range(5)]
    assert sum(alarms) <= 1


def test_the_larger_difference_comes_first_and_the_same_one_once(demos):
    """y leaves the demonstrated range in half of the steps, the speed in a tenth."""
    found = audit(several(2, fastest=1.1, left=-1.0), demos, NAMES).findings
    axes = [{axis.name for axis in f.marginal.axes} for f in found]
    assert "y" in axes[0]
    assert found[0].gap == max(f.gap for f in found)
    assert not [(a, b) for i, a in enumerate(axes) for b in axes[i + 1 :] if a <= b or b <= a]
    assert "y" in {f.name for f in found[0].further} | {found[0].name}


def test_struck_out_differences_are_left_out(demos):
    assert "speed" not in [f.name for f in audit(FAST, demos, NAMES, strike=["speed"]).findings]
    assert not [f for f in audit(FAST, demos, NAMES, features=["x", "y"]).findings if "speed" in f.name]


def test_own_features_are_compared(demos):
    found = audit(FAST, demos, features=lambda obs: {"twice": 2 * math.floor(100 * obs[2]) / 100})
    assert [finding.name for finding in found.findings] == ["twice"]


def test_only_episodes_from_demonstrated_starts_are_compared(demos):
    far = [replace(e, observations=e.observations + np.float32(50)) for e in several(3)]
    found = audit([*far, *FAST], demos, NAMES, features=["speed"])
    assert (found.episodes, found.matched) == (60, 30)
    assert not np.concatenate(found.findings[0].novel[:30]).any()
    assert np.concatenate(found.findings[0].novel[30:]).any()
    with pytest.raises(DatasetError, match="0 episodes that start near"):
        audit(far, demos, NAMES)


def test_scores_are_those_of_the_tables(demos):
    """The scores of half 0 by half 1 against losses/marginals.py, with thresholds over all folds set to 0 by q = 0."""
    import jax.numpy as jnp

    from scopil.algos.scopil_rho import Config
    from scopil.losses import marginals
    from scopil.losses.marginals import Sample

    cfg = replace(Config(), quantile=0.0)
    steps = module.steps_of(several(5, fastest=1.2), demos, NAMES, cfg)
    scores = module._scores(steps, module._groups(steps, cfg, np.random.default_rng(0)), cfg)
    values, number = jnp.asarray(steps.values), steps.episode
    mine = number < steps.played
    fold = jnp.asarray((number - steps.played) % cfg.folds, jnp.int32)
    for score, kind in ((scores[2], 0), (scores[-1], 2)):
        half = Sample(values, jnp.asarray(mine & (number % 2 == 1)))
        demos = Sample(values, jnp.asarray(~mine))
        made = marginals.tables(score.grid, jnp.array([kind]), demos, fold, half, half, cfg)
        novelty = marginals.look_up(made.novelty, marginals.cells_of(score.grid, values))
        scored = mine & (number % 2 == 0)
        np.testing.assert_allclose(score.novelty[scored], np.asarray(novelty)[scored, 0], atol=1e-4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda e, d: audit(e[:5], d), "want at least 10"),
        (lambda e, d: audit([replace(x, observations=x.observations[:, :2]) for x in e], d), r"shape \(2,\)"),
        (lambda e, d: audit(e, replace(d, episodes=d.episodes[:6])), "6 demonstrations; want at least 10"),
    ],
)
def test_episodes_that_cannot_be_compared_are_refused(demos, change, said):
    with pytest.raises(DatasetError, match=said):
        change(several(6), demos)


def test_an_unknown_feature_is_refused(demos):
    with pytest.raises(ConfigError, match="no feature height"):
        audit(several(6), demos, NAMES, strike=["height"])


# --- the command ------------------------------------------------------------------------------------------------------

PUSH = "def act(obs):\n    return 1\n\ndef fails(obs):\n    return 1 / 0\n"  # accelerates without end


@pytest.fixture(scope="module")
def speed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    demonstrations("speed", 20).save(folder / "demos.npz")
    agent = scopil.BC(ENVS["speed"], str(folder / "demos.npz"), seed=0)
    agent.learn(50)
    agent.save(folder / "agent.safetensors")
    agent.policy.save(folder / "policy.safetensors")
    agent.policy.to_onnx(folder / "policy.onnx")
    (folder / "push.py").write_text(PUSH)
    return folder


@pytest.mark.parametrize("policy", ["agent.safetensors", "policy.safetensors", "policy.onnx"])
def test_files_of_policies_play_the_same_episodes(speed, policy):
    demos = str(speed / "demos.npz")
    mine, shown, spaces, *_ = compared(str(speed / policy), ENVS["speed"], demos, 3)
    agent = scopil.load(speed / "agent.safetensors", ENVS["speed"])
    for one, other in zip(mine, agent.play("unseen", 3), strict=True):
        np.testing.assert_array_equal(one.observations[0], other.observations[0])
        assert agent.predict(one.observations[0])[0] == one.actions[0] == other.actions[0]
    assert len(shown) == 20
    assert spaces.columns == ["obs[0]", "obs[1]", "obs[2]", "obs[3]"]


def test_the_command_writes_a_page(speed, monkeypatch, capsys):
    monkeypatch.chdir(speed)
    options = ["--demos", "demos.npz", "--env", ENVS["speed"], "--episodes", "14", "--out", "page.html"]
    options += ["--features", "obs[2]", "obs[3]"]
    assert main(["audit", "--policy", "push.py:act", *options]) == 0
    said = capsys.readouterr().out
    assert "differs from the demonstrations" in said
    assert "obs[2] ≤ " in said  # the rule in words
    text = (speed / "page.html").read_text()
    assert text.count("data:image/png") >= 1
    assert "default-src 'none'" in text
    assert "obs[2]" in text


def test_names_on_the_page_are_escaped(demos):
    found = audit(FAST, demos, ("x", "y", "<b>"), features=["<b>"])
    assert "<b>" not in page(found, [None] * len(found.findings), "<i>", "walks", "scopil audit")


@pytest.mark.parametrize(
    ("policy", "more", "said"),
    [
        ("nothing.txt", (), "nothing.txt: no such file; want policy.onnx"),
        ("missing.onnx", (), "missing.onnx: no such file"),
        ("demos.npz.onnx", (), "is no ONNX graph"),
        ("push.py:walk", (), "push.py has no 'walk'"),
        ("push.py:fails", (), "ZeroDivisionError"),
        ("push.py:act", ("--episodes", "0"), "--episodes 0; want at least 1"),
        ("push.py:act", ("--out", "page.pdf"), "want a file name that ends in .html"),
        ("push.py:act", ("--env", "CartPole-v1"), "the environment wants"),
        ("push.py:act", (), "want at least 10"),
    ],
)
def test_wrong_inputs_are_refused_in_one_line(speed, monkeypatch, capsys, policy, more, said):
    monkeypatch.chdir(speed)
    (speed / "demos.npz.onnx").write_bytes(b"no graph")
    given = dict(zip(more[::2], more[1::2], strict=True))
    options = {"--demos": "demos.npz", "--env": ENVS["speed"], "--episodes": "4"} | given
    assert main(["audit", "--policy", policy, *(word for pair in options.items() for word in pair)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1
