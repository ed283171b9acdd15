"""Features of transitions against NumPy: components, norms, distances, categories, actions; and the bins over them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from reference import marginals_numpy as ref
from scopil.algos import scopil_rho
from scopil.losses import features as feature_set
from scopil.losses import marginals
from scopil.losses.features import (
    NONE,
    Derived,
    categories_of,
    distance_of_episodes,
    features_of,
    grid_of,
    grouped,
    limits,
    pairs,
    ranges_of,
    singles,
    triples,
)
from scopil.losses.marginals import HIGH, LOW, SHAPES

POSE = ["pose[0]", "pose[1]", "goal[0]", "goal[1]", "gear=0", "gear=1", "flag"]
NORMS = [("|pose|", (0, 1), ()), ("|goal|", (2, 3), ()), ("|pose − goal|", (0, 1), (2, 3))]
CFG = scopil_rho.Config()


def steps(rows: int, columns: int, actions: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The last component is a flag of three values, the one before it is constant."""
    rng = np.random.default_rng(seed)
    obs, after = (np.asarray(rng.normal(size=(rows, columns)), np.float32) for _ in range(2))
    for x in (obs, after):
        x[:, -1], x[:, -2] = rng.integers(3, size=rows) * 0.7, 2.0
    action = np.asarray(rng.uniform(-1, 1, (rows, actions)), np.float32) if actions else rng.integers(5, size=rows)
    return obs, action, after


def test_derived_features_follow_the_names_of_the_components():
    assert [tuple(d) for d in features_of(POSE, 0).derived] == NORMS
    # one part: neighbours may form a vector
    names = [d.name for d in features_of([f"obs[{i}]" for i in range(4)], 0).derived]
    assert names == ["|obs[0], obs[1]|", "|obs[1], obs[2]|", "|obs[2], obs[3]|"]
    assert features_of([f"obs[{i}]" for i in range(200)], 0).derived == ()
    assert features_of(["x", "y", "speed"], 0).derived == ()


def test_norms_and_distances():
    obs = np.asarray(np.random.default_rng(0).normal(size=(5, 4)), np.float32)
    np.testing.assert_allclose(Derived("", (0, 2))(jnp.asarray(obs)), np.hypot(obs[:, 0], obs[:, 2]), rtol=1e-6)
    wanted = np.hypot(obs[:, 0] - obs[:, 2], obs[:, 1] - obs[:, 3])
    np.testing.assert_allclose(Derived("", (0, 1), (2, 3))(jnp.asarray(obs)), wanted, rtol=1e-6)


@pytest.mark.parametrize("actions", [0, 2], ids=["discrete", "continuous"])
@pytest.mark.parametrize("chosen", [(), ("flag", "pose")], ids=["all", "chosen"])
def test_rows_equal_the_reference(chosen, actions):
    shown, new = steps(30, len(POSE), actions, 0), steps(20, len(POSE), actions, 1)
    new[2][:4, -1] = 0.3  # values of the flag that no demonstration has
    seen = np.concatenate([shown[0], shown[2]])
    values, few = categories_of(seen)
    f = features_of(POSE, actions, chosen)
    obs, action, after = (jnp.asarray(x) for x in new)
    got = f(obs, action, after, jnp.asarray(values))
    used = [0, 1, 6] if chosen else range(7)
    want = ref.features(*new, used, [] if chosen else [n[1:] for n in NORMS], seen)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    assert set(np.asarray(got[:4, f.action - 1]).tolist()) == {ref.UNSEEN}
    assert few.tolist() == [False] * 5 + [True, True]
    assert (values[:6] == NONE).all()  # a constant is no category
    width = 3 * len(used) + (0 if chosen else 3) + max(actions, 1) + 1
    assert got.shape[1] == f.none + 1 == width


def test_labels_name_every_column():
    f = features_of(["x", "y"], 0)
    assert [f.label(i) for i in range(f.none)] == ["x", "y", "x", "y", "x", "y", "action"]
    f = features_of(["x", "y"], 2)
    assert [f.label(i) for i in range(f.action, f.none)] == ["action[0]", "action[1]"]


@pytest.mark.parametrize(
    ("chosen", "used"),
    [
        (("goal[1]",), [3]),
        (("goal",), [2, 3]),
        (("0", "pose[0]"), [0]),
        (("6", "goal"), [2, 3, 6]),
        (("gear=1",), [5]),
        (("gear",), [4, 5]),
    ],
)
def test_features_by_name_by_part_and_by_number(chosen, used):
    assert list(features_of(POSE, 0, chosen).used) == used


def test_columns_of_a_one_hot_number_are_listed_together():
    assert grouped(["obs", *POSE, "mode[0]=-1"]) == ["obs", *POSE[:4], "gear=0 … gear=1", "flag", "mode[0]=-1"]


@pytest.mark.parametrize("name", ["speed", "7", "-1", "pose[2]", ""])
def test_unknown_features_are_refused(name):
    with pytest.raises(ValueError, match="the observation has pose, goal, flag"):
        features_of(POSE, 0, (name,))


def test_candidates_are_singles_pairs_limits_and_pairs_with_a_category():
    f = features_of(["x", "y", "flag"], 0)
    one = np.asarray(singles(f))
    assert one[:, 0].tolist() == [0, 1, 2, f.action]  # the discrete action by itself
    assert (one[:, 1:] == f.none).all()
    among = jnp.arange(3, dtype=jnp.int32)
    two = [tuple(row) for row in pairs(f, among)[:, :2].tolist()]
    assert two == [(0, 1), (0, 2), (1, 2)] + [(f.before + i, f.action) for i in range(3)]  # in the state before
    ordered = [tuple(row) for row in limits(f, among).tolist()]
    assert ordered == [(a, b, f.none) for a in range(3) for b in range(3) if a != b]
    three = triples(f, jnp.arange(2, dtype=jnp.int32), jnp.array([2], jnp.int32))
    assert three.tolist() == [[0, 1, f.category + 2]]
    assert len(triples(f, jnp.arange(2, dtype=jnp.int32), jnp.zeros(0, jnp.int32))) == 0
    assert len(singles(features_of(["x"], 2))) == 1  # no single continuous action


@pytest.mark.parametrize("actions", [0, 2], ids=["discrete", "continuous"])
def test_bins_cover_the_demonstrated_range_and_a_margin(actions):
    obs, action, after = steps(60, 4, actions, 0)
    f = features_of(["x", "y", "still", "flag"], actions)
    values, few = categories_of(np.concatenate([obs, after]))
    rows = f(jnp.asarray(obs), jnp.asarray(action), jnp.asarray(after), jnp.asarray(values))
    change = np.sqrt(np.mean((after - obs) ** 2, axis=0))
    episode = np.repeat(np.arange(6), 10)
    ranges, table = (
        ranges_of(f, rows, jnp.asarray(episode), jnp.asarray(change), few, 0.9),
        np.asarray(rows, np.float64),
    )
    four = jnp.arange(4, dtype=jnp.int32)
    for kind, candidates in enumerate(
        (singles(f), pairs(f, four), limits(f, four), triples(f, four[:2], jnp.array([3])))
    ):
        grid = jax.tree.map(np.asarray, grid_of(candidates, kind, ranges, CFG))
        for j, axes in enumerate(grid.feature):
            last = axes[0 if kind == 0 else 1]
            few_values = last in (2, 3, f.before + 2, f.before + 3)
            is_limit = kind in (0, 2) and last < f.category and not few_values
            assert grid.limit[j] == (LOW + HIGH if is_limit else 0)
            for axis, column in enumerate(axes):
                low, width, bins = (float(x[j, axis]) for x in (grid.low, grid.width, grid.bins))
                shown = table[:, column]
                if column >= f.category and (column < f.action or column == f.none or actions == 0):
                    assert (low, width) == (-0.5, 1.0)  # whole numbers
                    continue
                span = np.ptp(shown) or 1.0
                assert low == pytest.approx(shown.min() - 0.25 * span, rel=1e-5, abs=1e-5)
                assert width * bins == pytest.approx(1.5 * span, rel=1e-5)
                if axis == 2:
                    continue
                sigma = float(grid.blur[j, axis]) * width / span
                if column in (2, 3, f.before + 2, f.before + 3):  # few values: sharp
                    assert sigma == 0
                elif kind == 0 or (kind == 2 and axis == 1):  # the axis with the limit
                    step = change[column] if column < 4 else 0.0  # unknown for derived features
                    assert sigma == pytest.approx(np.clip(step / span, 0.0055, 0.012), rel=1e-4)
                else:
                    apart = ref.distance_of_episodes(shown, episode, 0.9) / span
                    assert sigma == pytest.approx(max(CFG.where_blur if kind == 2 else CFG.blur, apart), rel=1e-4)


def test_a_component_that_keeps_its_value_for_an_episode_has_more_blur():
    """x is everywhere in each episode; the load of an episode is one of 20 numbers."""
    rng = np.random.default_rng(0)
    episode, load = np.repeat(np.arange(20), 50), np.repeat(rng.uniform(size=20), 50)
    rows = np.stack([rng.uniform(size=1_000), load], axis=1)
    apart = [float(distance_of_episodes(jnp.asarray(x, jnp.float32), jnp.asarray(episode), 0.9)) for x in rows.T]
    np.testing.assert_allclose(apart, [ref.distance_of_episodes(x, episode, 0.9) for x in rows.T], atol=1e-5)
    assert apart[0] < 0.005 < 0.02 < apart[1]
    assert float(distance_of_episodes(jnp.arange(5.0), jnp.zeros(5, jnp.int32), 0.9)) == 0.0  # no other episode


def test_vectors_with_other_bounds_have_no_distance():
    """A position minus a velocity says nothing."""
    names, bounds = ["at[0]", "at[1]", "goal[0]", "goal[1]", "v[0]", "v[1]"], np.array([[-4.0] * 4 + [-1.0] * 2] * 2)
    derived = features_of(names, 0, bounds=bounds * np.array([[1], [-1]])).derived
    assert [d.name for d in derived if d.minus] == ["|at − goal|"]
    assert len([d for d in features_of(names, 0).derived if d.minus]) == 3


def test_a_value_beyond_the_margin_belongs_to_the_outermost_bin():
    f = features_of(["x", "y"], 0)
    rows: Any = jnp.asarray(np.random.default_rng(0).uniform(size=(50, f.none + 1)), jnp.float32)
    grid = grid_of(singles(f), 0, ranges_of(f, rows, jnp.arange(50), jnp.ones(2), np.zeros(2, bool), 0.9), CFG)
    far = jnp.full((1, f.none + 1), 1e9)
    assert marginals.cells_of(grid, far)[0, 0] == SHAPES[0][0] - 1
    assert marginals.cells_of(grid, -far)[0, 0] == 0


def test_columns_without_names_have_no_features():
    """Images: only a discrete action is left."""
    f = features_of((), 0)
    rows = f(jnp.ones((3, 5)), jnp.arange(3), jnp.ones((3, 5)), jnp.full((5, 4), NONE))
    assert rows.tolist() == [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]
    assert ranges_of(f, rows, jnp.arange(3), jnp.zeros(5), np.zeros(5, bool), 0.9).span.tolist() == [2.0, 1.0]
    assert feature_set.singles(f).tolist() == [[0, 1, 1]]
