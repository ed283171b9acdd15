"""`scopil certify`: bounds against brute force, coverage on known populations, refusals, the file and the page."""

import json
from dataclasses import asdict, replace
from fractions import Fraction
from math import comb

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest

import scopil
from scopil.algos.scopil_rho import Config
from scopil.audit import steps_of
from scopil.certify import FAMILIAR, FEWEST, _step_novelty, certify, novelty_bound, novelty_scores, rank_of, rule_bounds
from scopil.cli import main
from scopil.config import build
from scopil.data.dataset import Demonstrations, Episode
from scopil.errors import ConfigError, DatasetError
from scopil.eval.measures import clopper_pearson_upper
from scopil.losses.features import grid_of
from scopil.losses.marginals import Grid
from scopil_bench.cli.certify import as_json, page, statements
from scopil_bench.studies.rules import ENVS, demonstrations

NAMES = ("x", "y", "speed")
STEPS = 25


def walk(rng, fastest=1.0, start=0.0, cost=None) -> Episode:
    """x grows from a random start; y and the speed are drawn in every step."""
    speed, y = rng.uniform(0.2, fastest, STEPS + 1), rng.uniform(0.0, 1.0, STEPS + 1)
    x = start + rng.uniform() + np.cumsum(rng.uniform(0.0, 0.1, STEPS + 1))
    obs = np.stack([x, y, speed], axis=1).astype(np.float32)
    obs[0, 1:] = 0.5
    info = {} if cost is None else {"cost": (obs[:, 2] > cost).astype(np.float32)}
    return Episode(observations=obs, actions=(speed[1:] > 0.6).astype(np.int64), info=info)


def several(seed, count=30, **options) -> list[Episode]:
    rng = np.random.default_rng(seed)
    return [walk(rng, **options) for _ in range(count)]


def demos_of(seed, count=30) -> Demonstrations:
    space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    episodes = tuple(several(seed, count))
    return Demonstrations(
        episodes=episodes, observation_space=space, action_space=gym.spaces.Discrete(2), name="<walks>"
    )


@pytest.fixture(scope="module")
def demos() -> Demonstrations:
    return demos_of(100)


# --- bounds -----------------------------------------------------------------------------------------------------------


def binomial_cdf(k: int, n: int, p: Fraction) -> Fraction:
    return sum((comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1)), Fraction(0))


@pytest.mark.parametrize(("held_out", "level"), [(10, 0.95), (20, 0.95), (37, 0.9), (60, 0.99)])
def test_the_rank_is_the_largest_with_half_of_the_risk(held_out, level):
    """In exact fractions."""
    nine, half = Fraction(9, 10), (1 - Fraction(str(level))) / 2
    wanted = max(r for r in range(1, held_out + 1) if binomial_cdf(r - 1, held_out, nine) <= half)
    rank, risk = rank_of(held_out, level)
    assert rank == wanted
    assert risk == pytest.approx(float(binomial_cdf(rank - 1, held_out, nine)), rel=1e-9)


def test_the_two_risks_add_up_to_the_level():
    """At the bound, the worst policy (nothing between the threshold and the quantile) fails with probability α."""
    rng = np.random.default_rng(100)
    for hits in (0, 3, 17):
        held_out, scores = rng.random(20), np.repeat([2.0, -1.0], [hits, 40 - hits])
        found = novelty_bound(held_out, scores, 0.95)
        assert found.share.hits == hits
        assert found.threshold == sorted(held_out)[found.rank - 1]
        risk = float(binomial_cdf(found.rank - 1, 20, Fraction(9, 10)))
        by_chance = float(binomial_cdf(hits, 40, Fraction(found.share.bound)))
        assert risk + (1 - risk) * by_chance == pytest.approx(0.05, abs=1e-9)


def test_equal_scores_count_as_not_more_novel():
    found = novelty_bound(np.zeros(20), np.zeros(40), 0.95)
    assert found.share.hits == 0
    assert novelty_bound(np.zeros(20), np.full(40, np.inf), 0.95).share.bound == 1.0


def covered(policy, bound, held_out=20, episodes=60, sets=4000) -> float:
    """The share of sets in which the bound is at least the true share. Demonstrated scores are uniform in [0, 1].
    `policy` maps held-out scores to (scores of the policy, true share above 0.9)."""
    rng, holds = np.random.default_rng(100), 0
    for _ in range(sets):
        shown = rng.random(held_out)
        scores, true = policy(rng, shown, episodes)
        holds += bound(shown, scores) >= true
    return holds / sets


def corrected(shown, scores) -> float:
    return novelty_bound(shown, scores, 0.95).share.bound


def naive(shown, scores) -> float:
    """The empirical quantile is taken for the true one."""
    threshold = np.quantile(shown, FAMILIAR, method="inverted_cdf")
    return clopper_pearson_upper(int((scores > threshold).sum()), len(scores), 0.95)


def demonstrator(rng, shown, episodes):
    return rng.random(episodes), 1.0 - FAMILIAR


def just_above(rng, shown, episodes):
    """Two of five episodes are just above the true quantile, the others below everything: the hardest to see."""
    return np.where(rng.random(episodes) < 0.4, FAMILIAR + 1e-9, 0.0), 0.4


def beside_the_threshold(rng, shown, episodes):
    """A policy that knows the held-out scores: all of its episodes are at the threshold."""
    at = np.sort(shown)[rank_of(len(shown), 0.95)[0] - 1]
    return np.full(episodes, at), float(at > FAMILIAR)


@pytest.mark.parametrize("policy", [demonstrator, just_above, beside_the_threshold])
def test_the_bound_covers_the_true_share(policy):
    """Also if the policy was fitted to the held-out demonstrations. Three standard errors below 0.95: 0.94."""
    assert covered(policy, corrected) >= 0.94


def test_without_the_correction_the_bound_fails():
    assert covered(just_above, naive) < 0.85


def test_the_bound_is_not_empty():
    rng = np.random.default_rng(100)
    found = [novelty_bound(rng.random(500), rng.random(1000), 0.95).share.bound for _ in range(50)]
    assert np.median(found) < 0.2  # the true share is 0.1


def test_broken_rules_are_counted_by_episode():
    flags = {"fast": [0, 1, 1, 0], "near": [0, 0, 1, 0]}
    played = [
        Episode(
            observations=np.zeros((3, 1)),
            actions=np.zeros(2),
            info={f"cost_{name}": np.array([0, on[i], on[i]]) for name, on in flags.items()},
        )
        for i in range(4)
    ]
    found = rule_bounds(played, 0.95)
    assert found is not None
    assert {n: b.hits for n, b in found.each.items()} == {"fast": 2, "near": 1}
    assert found.any.hits == 2
    for bound in (found.any, *found.each.values()):
        assert float(binomial_cdf(bound.hits, 4, Fraction(bound.bound))) == pytest.approx(0.05)
    none = [replace(e, info={"cost": np.zeros(3)}) for e in played]
    clean = rule_bounds(none, 0.9)
    assert clean is not None
    assert clean.each == {}
    assert clean.any.bound == pytest.approx(1 - 0.1 ** (1 / 4))
    assert rule_bounds([replace(e, info={}) for e in played], 0.95) is None


# --- novelty ----------------------------------------------------------------------------------------------------------


def test_fast_episodes_are_novel_and_the_demonstrators_are_not(demos):
    own, fast = several(101, 20), several(102, 20, fastest=1.5)
    scores = novelty_scores([*own, *fast], demos, NAMES)
    assert (scores[20:] > np.quantile(scores[:20], FAMILIAR)).mean() >= 0.9
    assert scores[20:].mean() > 2 * scores[:20].mean()
    assert ((scores >= 0) & (scores <= 1)).all()


def test_a_score_does_not_depend_on_other_episodes(demos):
    """Otherwise the scores of held-out demonstrations and of the policy would not be exchangeable."""
    own, fast = several(101, 20), several(102, 20, fastest=1.5)
    together = novelty_scores([*own, *fast], demos, NAMES)
    np.testing.assert_allclose(novelty_scores([*fast, *own], demos, NAMES)[20:], together[:20], atol=1e-6)
    np.testing.assert_allclose(novelty_scores(own, demos, NAMES), together[:20], atol=1e-6)


def test_step_novelty_is_that_of_the_formulas(demos):
    """In float64 NumPy, for tables of y, of the action, and of the action at y. Only the bins are shared."""
    cfg = build(Config, {"features": ("y",)})
    steps = steps_of(several(109, 5, fastest=1.5), demos, NAMES, cfg)
    shown, v = steps.episode >= steps.played, steps.values
    fold = (steps.episode[shown] - steps.played) % cfg.folds
    f, novelty = steps.features, []
    for kind, sizes, columns in (
        (0, (768, 1), (0, f.none)),
        (0, (768, 1), (f.action, f.none)),
        (1, (96, 96), (f.before, f.action)),
    ):
        row = jnp.asarray([(*columns, f.none)], jnp.int32)
        grid = Grid(*(np.asarray(leaf)[0] for leaf in grid_of(row, kind, steps.ranges, cfg)))
        at = [
            np.clip(np.floor((v[:, c] - grid.low[i]) / grid.width[i]), 0, sizes[i] - 1).astype(int)
            for i, c in enumerate(columns)
        ]
        cube = np.zeros((cfg.folds, *sizes))
        for k in range(cfg.folds):
            np.add.at(cube[k], (at[0][shown][fold != k], at[1][shown][fold != k]), 1.0 / (fold != k).sum())
        for axis in range(2):
            apart = np.subtract.outer(np.arange(sizes[axis]), np.arange(sizes[axis]))
            blur = np.exp(-0.5 * (apart / max(grid.blur[axis], 1e-3)) ** 2)
            cube = np.moveaxis(np.tensordot(blur / blur.sum(0), cube, (1, axis + 1)), 0, axis + 1)
        u = 1 / np.prod([2 if c == f.action else n for c, n in zip(columns, sizes, strict=True)])
        ratio = np.log(1.1 * u / (cube + 0.1 * u))
        for k in range(cfg.folds):
            held_out = ratio[k][at[0][shown][fold == k], at[1][shown][fold == k]]
            ratio[k] -= max(np.quantile(held_out, cfg.quantile), 0)
        novelty.append(np.clip(ratio, 0, 1).mean(0)[at[0], at[1]])
    found = _step_novelty(steps, demos.action_space, cfg)
    np.testing.assert_allclose(found, np.mean(novelty, axis=0), atol=1e-4)
    assert found.std() > 0.01


def test_novelty_is_about_the_chosen_features(demos):
    fast = several(102, 20, fastest=1.5)
    calm = novelty_scores([*several(101, 20), *fast], demos, NAMES, features=("y",))
    assert abs(calm[:20].mean() - calm[20:].mean()) < 0.05


# --- certificates -----------------------------------------------------------------------------------------------------


def test_a_certificate_has_both_bounds(demos):
    lawful = certify(several(103, 40, cost=1.2), demos, NAMES)
    assert lawful.refused is None
    assert lawful.rules is not None
    assert lawful.novelty is not None
    assert lawful.rules.any.hits == 0
    assert lawful.rules.any.bound == pytest.approx(1 - 0.05 ** (1 / 40))
    assert lawful.novelty.held_out == 15
    assert lawful.novelty.share.bound < 1.0
    fast = certify(several(103, 40, fastest=1.5, cost=1.2), demos, NAMES)
    assert fast.rules is not None
    assert fast.novelty is not None
    assert fast.rules.any.bound == fast.novelty.share.bound == 1.0


def test_shifted_starts_are_refused_and_no_figure_is_given(demos):
    found = certify(several(104, 40, start=2.0, cost=1.2), demos, NAMES)
    assert found.refused is not None
    assert (found.rules, found.novelty) == (None, None)
    assert found.starts.components[0].component == "x"
    body = as_json(found, {})
    assert body["statements"] == [f"No certificate: {found.refused}."]


def test_too_few_demonstrations_give_no_figure():
    few = demos_of(105, FEWEST - 1)
    found = certify(several(106, 40, cost=1.2), few, NAMES)
    assert found.novelty is None
    assert found.rules is not None
    assert "19 demonstrations are too few" in found.missing["novelty"]
    assert not [line for line in statements(found) if line.startswith("Novelty") and "%" in line]
    nothing = certify(several(106, 40), few, NAMES)
    assert nothing.refused is not None
    assert "rules not known" in nothing.refused


def test_unknown_rules_have_no_figure(demos):
    found = certify(several(107, 40), demos, NAMES)
    assert found.rules is None
    assert found.refused is None
    (line,) = [s for s in statements(found) if s.startswith("Rules")]
    assert "%" not in line
    assert "not known" in line


def test_shares_are_rounded_up(demos):
    found = certify(several(103, 40, cost=1.2), demos, NAMES)
    assert found.rules is not None
    assert "at most 7.3 %" in statements(found)[0]
    assert found.rules.any.bound < 0.073


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (lambda e, d: certify(e, d, level=1.0), ConfigError, "level = 1; want a confidence between 0 and 1"),
        (lambda e, d: certify([], d), DatasetError, "no episodes of the policy"),
        (lambda e, d: certify(e, d, NAMES, features=["height"]), ConfigError, "height"),
        (
            lambda e, d: certify([replace(x, observations=x.observations[:, :2]) for x in e], d),
            DatasetError,
            r"shape \(2,\)",
        ),
    ],
)
def test_wrong_arguments_are_refused(demos, change, kind, said):
    with pytest.raises(kind, match=said):
        change(several(108), demos)


# --- the command ------------------------------------------------------------------------------------------------------

PUSH = "def act(obs):\n    return 1\n"
RULES = "def left(obs, action, next_obs):\n    return next_obs[0] < -10\n"
SCHEMA = {  # a change of these names breaks programs that read certificates: change FORMAT too
    "": "format refused statements assumptions not_stated level episodes demonstrations starts rules novelty missing "
    "source",
    "rules": "any each",
    "novelty": "share threshold rank held_out",
    "starts": "p compared components",
    "source": "policy demonstrations rules environment seed features made versions",
}


@pytest.fixture(scope="module")
def speed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certify")
    demonstrations("speed", 20, 100).save(folder / "demos.npz")
    demonstrations("speed", 12, 100).save(folder / "few.npz")
    agent = scopil.BC(ENVS["speed"], str(folder / "demos.npz"), seed=100)
    agent.learn(50)
    agent.policy.save(folder / "policy.safetensors")
    (folder / "push.py").write_text(PUSH)
    (folder / "rules.py").write_text(RULES)
    return folder


def options(**given) -> list[str]:
    all_options = {"demos": "demos.npz", "env": ENVS["speed"], "episodes": "14", "seed": "100"} | given
    return [word for name, value in all_options.items() for word in (f"--{name}", value)]


@pytest.mark.filterwarnings("error")
def test_the_command_writes_the_file_and_the_page(speed, monkeypatch, capsys):
    monkeypatch.chdir(speed)
    assert main(["certify", "policy.safetensors", *options(out="one.html")]) == 0
    said = capsys.readouterr().out
    assert "with 95 % confidence, at most" in said
    assert said.startswith("comparing 14 episodes with ")
    body = json.loads((speed / "one.json").read_text())
    for part, names in SCHEMA.items():
        assert [*(body[part] if part else body)] == names.split()
    assert body["format"] == "scopil certificate 1"
    assert body["source"]["demonstrations"]["sha256"] == scopil.load_demos(speed / "demos.npz").digest
    assert len(body["source"]["policy"]["sha256"]) == 64
    assert body["rules"]["any"]["hits"] <= body["episodes"] == 14
    text = (speed / "one.html").read_text()
    assert "default-src 'none'" in text
    for line in (*body["statements"], *body["assumptions"]):
        assert line in text
    assert main(["certify", "policy.safetensors", *options(out="two.html")]) == 0
    again = json.loads((speed / "two.json").read_text())
    assert {**again, "source": None} == {**body, "source": None}  # the seed determines the figures


def test_rules_of_a_file_are_counted_and_named(speed, monkeypatch, capsys):
    monkeypatch.chdir(speed)
    assert main(["certify", "push.py:act", *options(rules="rules.py", out="rules.html")]) == 0
    body = json.loads((speed / "rules.json").read_text())
    assert body["rules"]["each"]["left"]["hits"] == 0
    assert body["source"]["rules"]["name"] == "rules.py"


def test_a_refusal_is_written_without_figures(speed, monkeypatch, capsys):
    monkeypatch.chdir(speed)
    far = replace(
        scopil.load_demos("demos.npz"),
        episodes=tuple(
            replace(e, observations=np.clip(e.observations + np.array([2, 0, 0, 0], np.float32), -5, 5))
            for e in scopil.load_demos("demos.npz")
        ),
    )
    far.save(speed / "far.npz")
    assert main(["certify", "policy.safetensors", *options(demos="far.npz", out="no.html")]) == 1
    body = json.loads((speed / "no.json").read_text())
    assert (body["rules"], body["novelty"]) == (None, None)
    text = (speed / "no.html").read_text()
    assert "No certificate" in text
    assert "≤" not in text
    assert "obs[0]" in text


def test_names_on_the_page_are_escaped(demos):
    found = certify(several(103, 40, cost=1.2), demos, NAMES)
    source = {
        "policy": {"name": "<i>", "sha256": "0"},
        "demonstrations": {"name": demos.name, "episodes": 30, "sha256": "0"},
        "rules": {"name": "<u>", "sha256": "0"},
        "environment": "<s>",
        "seed": 0,
        "made": "now",
        "versions": {},
    }
    text = page(as_json(found, source))
    assert not [tag for tag in ("<i>", "<walks>", "<u>", "<s>") if tag in text]
    assert asdict(found)["episodes"] == 40


@pytest.mark.parametrize(
    ("policy", "given", "said"),
    [
        ("nothing.txt", {}, "nothing.txt: no such file"),
        ("push.py:act", {"episodes": "0"}, "--episodes 0; want at least 1"),
        ("push.py:act", {"level": "95"}, "--level 95; want a confidence between 0 and 1"),
        ("push.py:act", {"out": "page.pdf"}, "want a file name that ends in .html"),
        ("push.py:act", {"out": "kept.html"}, "a certificate is not replaced"),
        ("push.py:act", {"rules": "missing.py"}, "missing.py"),
        ("push.py:act", {"env": "CartPole-v1"}, "the environment wants"),
        ("push.py:act", {"features": "height"}, "height"),
    ],
)
def test_wrong_inputs_are_refused_in_one_line(speed, monkeypatch, capsys, policy, given, said):
    monkeypatch.chdir(speed)
    (speed / "kept.json").write_text("{}")
    before = sorted(p.name for p in speed.iterdir())
    assert main(["certify", policy, *options(**({"episodes": "4"} | given))]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert sorted(p.name for p in speed.iterdir() if p.suffix != ".pyc" and p.name != "__pycache__") == [
        n for n in before if n != "__pycache__"
    ]
