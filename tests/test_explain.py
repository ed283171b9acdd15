"""Rules in words, from tables of known rules."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from made_marginals import ACTION, FLAG, SPEED, X, Y, marginal_of, nothing
from scopil.cli import main
from scopil.data.dataset import Episode
from scopil.errors import ConfigError
from scopil.eval.rules import load_rules
from scopil.explain import FoundRule, explain, explain_all, rules_file
from scopil.marginal import Axis, Marginal
from scopil.shapes import Box, Disc, Strip, Union, When


def found(marginal: Marginal) -> FoundRule:
    rule = explain(marginal)
    assert rule is not None
    return rule


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("snap", [lambda p: p, lambda p: np.round(2 * p) / 2], ids=["numbers", "steps of a half"])
def test_a_limit_everywhere(seed, snap):
    rule = found(marginal_of(seed, (SPEED,), lambda p: p[:, 0] > 1, [(0, 3)], snap=snap))
    assert isinstance(rule.shape, Box)
    assert rule.shape.low[0] == pytest.approx(1, rel=0.02)
    assert rule.sentence == f"speed ≤ {rule.shape.low[0]:g} everywhere"
    assert rule.evidence.startswith("0 of 1,200 demonstrated steps (40 episodes) above")
    assert not rule.shape.contains(rule.marginal.demo).any()


def test_a_limit_everywhere_is_said_of_one_axis_of_two():
    rule = found(marginal_of(0, (X, SPEED), lambda p: p[:, 1] > 1, [(0, 12), (0, 3)]))
    assert rule.sentence == "speed ≤ 1 everywhere"


def test_an_interval():
    rule = found(marginal_of(0, (X,), lambda p: (p[:, 0] < 0.2) | (p[:, 0] > 0.7)))
    assert rule.sentence == "x between 0.2 and 0.7 everywhere"


@pytest.mark.parametrize("seed", [0, 1])
def test_a_limit_in_a_part_of_the_space(seed):
    rule = found(marginal_of(seed, (X, SPEED), lambda p: (p[:, 0] > 0.4) & (p[:, 0] < 0.6) & (p[:, 1] > 0.22)))
    assert isinstance(rule.shape, Box)
    assert (rule.shape.low[0], rule.shape.high[0], rule.shape.low[1]) == pytest.approx((0.4, 0.6, 0.22), rel=0.1)
    assert np.isinf(rule.shape.high[1])
    assert "→ speed ≤ 0.2" in rule.sentence


def iou(rule: FoundRule, region: Callable[[np.ndarray], np.ndarray], grid: np.ndarray) -> float:
    """Intersection over union of a rule's shape and another region, on a grid of points."""
    mine, theirs = rule.shape.contains(grid), region(grid)
    return (mine & theirs).sum() / (mine | theirs).sum()


@pytest.mark.parametrize("seed", [0, 1])
def test_a_disc(seed):
    region = lambda p: np.hypot(p[:, 0] + 2, p[:, 1] - 31) < 49  # noqa: E731
    rule = found(marginal_of(seed, (X, Y), region, [(-160, 160), (-160, 160)]))
    disc = rule.shape.parts[0] if isinstance(rule.shape, Union) else rule.shape
    assert isinstance(disc, Disc)
    assert np.hypot(disc.centre[0] + 2, disc.centre[1] - 31) < 0.06 * 320
    assert disc.radius == pytest.approx(49, rel=0.1)
    grid = np.stack(np.meshgrid(*2 * [np.linspace(-160, 160, 65)]), -1).reshape(-1, 2)
    assert iou(rule, region, grid) > 0.7
    assert iou(rule, rule.shape.contains, grid) == 1


def test_two_discs():
    rule = found(
        marginal_of(
            1,
            (X, Y),
            lambda p: (
                (np.hypot(p[:, 0] - 0.25, p[:, 1] - 0.3) < 0.15) | (np.hypot(p[:, 0] - 0.7, p[:, 1] - 0.7) < 0.18)
            ),
        )
    )
    assert isinstance(rule.shape, Union)
    assert [type(part) for part in rule.shape.parts] == [Disc, Disc]


def test_an_oblique_edge():
    rule = found(marginal_of(0, (X, Y), lambda p: p[:, 0] + p[:, 1] > 1.3))
    assert isinstance(rule.shape, Strip)
    assert (rule.shape.weights[1], rule.shape.low) == pytest.approx((1, 1.3), rel=0.05)


def test_a_box_while_a_flag_is_set():
    box = lambda p: (p[:, 0] > 0.3) & (p[:, 0] < 0.6) & (p[:, 1] > 0.4) & (p[:, 1] < 0.8)  # noqa: E731
    rule = found(marginal_of(0, (X, Y, FLAG), lambda p: (p[:, 2] == 1) & box(p)))
    assert rule.sentence.startswith("flag = 1 → outside the box x between ")
    grid = np.stack(np.meshgrid(*2 * [np.linspace(0, 1, 41)], [0, 1]), -1).reshape(-1, 3)
    assert iou(rule, lambda p: (p[:, 2] == 1) & box(p), grid) > 0.75


def test_actions():
    rule = found(marginal_of(0, (X, ACTION), lambda p: (p[:, 1] == 3) & (p[:, 0] > 8) & (p[:, 0] < 14), [(0, 20)]))
    assert rule.sentence.startswith("action 3 never where x between ")
    assert isinstance(rule.shape, When)
    assert isinstance(rule.shape.shape, Box)
    assert (rule.shape.shape.low[0], rule.shape.shape.high[0]) == pytest.approx((8, 14), rel=0.05)
    never = found(marginal_of(0, (ACTION,), lambda p: p[:, 0] == 3))
    assert never.sentence == "action 3 never"


def test_nothing_is_said_where_there_is_no_rule():
    kinds = ((X,), (X, Y), (X, ACTION), (X, Y, FLAG))
    said = [rule.sentence for i in range(20) if (rule := explain(marginal_of(i, kinds[i % 4], nothing)))]
    assert len(said) <= 1, said


def test_without_transitions_of_the_learner_nothing_is_said():
    marginal = marginal_of(0, (SPEED,), lambda p: p[:, 0] > 0.5)
    assert explain(replace(marginal, own=marginal.own[:0])) is None


INF = float("inf")
SHAPES = [
    Box((0.4, 0.22, -INF), (0.6, INF, INF)),
    Disc((0, 1), (0.5, -0.25), 0.3),
    Strip((0, 1), (1.0, -0.7), 0.1, INF),
    Strip((0, 1), (1.0, 0.7), 0.1, 0.4),
    When(2, (1, 3), Box((0.4, -INF, -INF), (0.6, INF, INF)), (0, 1, 2, None)),
    When(2, (2,), Disc((0, 1), (0.5, -0.25), 0.3), (0, 1, 2, None)),
    Union((Box((-INF, -INF, -INF), (0.1, INF, INF)), When(2, (0,), Box(3 * (-INF,), 3 * (INF,)), (0, 1, 2, None)))),
]


def rule_of(shape, names=("x", "pose[1]", "kind")) -> FoundRule:
    codes = ("next_obs[0]", "next_obs[1]", "action")
    axes = tuple(Axis(name, code) for name, code in zip(names, codes))
    some = np.zeros((1, 3))
    marginal = Marginal(axes, np.zeros((1, 1, 1)), 1.0, 0.0, 0.0, 0.0, some, np.zeros(1, int), some)
    return FoundRule(shape.words(axes), shape, "evidence", marginal)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: type(s).__name__)
def test_code_agrees_with_the_shape(shape):
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.uniform(-1, 1, (500, 2)), rng.integers(0, 4, 500)]).astype(np.float32)
    space: dict = {}
    exec(rule_of(shape).code("rule"), space)
    said = [space["rule"](None, int(p[2]), p) for p in points]  # the value of a bin is its number, 3: any other
    assert said == shape.contains(points).tolist()
    assert 0 < sum(said) < 500


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (Box((0.2, -INF, -INF), (INF, INF, INF)), "gear never 2"),
        (Box((-INF, -INF, -INF), (0.9, INF, INF)), "gear always 2"),
        (Box((0.2, 0.5, -INF), (INF, INF, INF)), "gear = 2 → x ≤ 0.5"),
        (Box((-INF, 0.5, -INF), (0.9, 0.7, INF)), "x between 0.5 and 0.7 → gear always 2"),
        (When(2, (1,), Box(3 * (-INF,), 3 * (INF,)), (0, 1, None)), "mode[0] never -1"),
        (When(2, (0,), Box((-INF, 0.5, -INF), 3 * (INF,)), (0, 1, None)), "mode[0] ≠ -1 → x ≤ 0.5"),
    ],
)
def test_a_one_hot_column_is_said_as_the_value_of_its_number(shape, words):
    axes = [Axis(name, "next_obs[0]") for name in ("gear=2", "x", "mode[0]=-1")]
    assert shape.words(axes) == words


def test_a_file_of_rules_is_read_by_the_option_rules(tmp_path):
    odd = rule_of(SHAPES[0], ('a"""b\\', "c\nd\x1b", "class"))
    file = tmp_path / "rules.py"
    file.write_text(rules_file([rule_of(SHAPES[0]), rule_of(SHAPES[1]), odd]), encoding="utf-8")
    rules = load_rules(str(file))
    assert len(rules.by_name) == 3
    assert rules.about["keep_x_pose_1"].startswith("x between 0.4 and 0.6 → pose[1] ≤ 0.22")
    for rule in (rules.by_name["keep_x_pose_1"], [*rules.by_name.values()][2]):
        assert rule(None, 0, np.array([0.5, 0.3], np.float32)) is True
        assert rule(None, 0, np.array([0.5, 0.2], np.float32)) is False


def test_an_axis_with_statements_in_place_of_an_expression_is_refused():
    rule = rule_of(SHAPES[0])
    axes = (replace(rule.marginal.axes[0], code="0; import os"), *rule.marginal.axes[1:])
    with pytest.raises(ConfigError, match="want a Python expression"):
        replace(rule, marginal=replace(rule.marginal, axes=axes)).code()


def test_the_command(tmp_path, monkeypatch, capsys):
    speed = marginal_of(0, (SPEED,), lambda p: p[:, 0] > 1, [(0, 3)])
    bound = [speed, speed, marginal_of(0, (X,), nothing)]
    env, config = SimpleNamespace(close=lambda: None), SimpleNamespace()
    agent = SimpleNamespace(rules=lambda beside: explain_all(bound), env=env, config=config, run=None)
    monkeypatch.setattr("scopil.cli.rules.load", lambda run, **_: agent)
    file = tmp_path / "rules.py"
    assert main(["rules", "run", "--out", str(file)]) == 0
    first, written = capsys.readouterr().out.splitlines()  # what is said once is not said again
    assert first.startswith("speed ≤ 1 everywhere (0 of 1,200 demonstrated steps (40 episodes) above; the learner")
    assert str(file) in written
    assert [*load_rules(str(file)).by_name] == ["keep_speed"]
    bound.clear()
    assert main(["rules", "run"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("no rule found")
    assert "--contrast" in said


def test_a_policy_that_seeks_reward_is_trained_as_evidence(monkeypatch, capsys):
    asked = []
    speed = marginal_of(0, (SPEED,), lambda p: p[:, 0] > 1, [(0, 3)])
    episode = Episode(observations=np.zeros((2, 1), np.float32), actions=np.zeros(1, np.int64))
    agent = SimpleNamespace(
        rules=lambda beside: explain_all([speed] if beside else []),
        reward_seeking=lambda steps, episodes: asked.append((steps, episodes)) or [episode],
        env=SimpleNamespace(close=lambda: None),
    )
    monkeypatch.setattr("scopil.cli.rules.load", lambda run, **_: agent)
    assert main(["rules", "run", "--contrast", "2000"]) == 0
    assert asked == [(2000, 200)]
    assert "speed ≤ 1 everywhere" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [["--contrast", "0"], ["--contrast", "10", "--beside", "other"]])
def test_wrong_evidence_is_refused(wrong, capsys):
    assert main(["rules", "run", *wrong]) == 2
    assert "want" in capsys.readouterr().err
