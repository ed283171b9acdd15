"""Tables, thresholds and Welch's t against NumPy in float64; a planted hole; familiarity from tables."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from reference import marginals_numpy as ref
from scopil.algos import scopil_rho
from scopil.losses import marginals
from scopil.losses.familiarity import Monitor, familiarity
from scopil.losses.features import features_of
from scopil.losses.marginals import CELLS, HIGH, LOW, SHAPES, Grid, Means, Sample

TAIL = 0.0973  # no ratio of small counts: a share that equals it would be decided by rounding
CFG = scopil_rho.Config(folds=4, quantile=0.7, background=0.1, tail=TAIL)
made_tables = jax.jit(marginals.tables, static_argnums=6)
NEAR: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
# of every kind of table: two grids over the columns 0–2 (numbers), 3 (a whole number), 4 (constant) and 5 (one bin)
AXES = {
    0: [[(0, -3.0, 0.011, 4.3)], [(4, 0.0, 0.01, 0.0)]],
    1: [[(0, -3.0, 0.07, 1.3), (1, -2.0, 0.05, 2.9)], [(2, -0.5, 1.0, 0.0), (3, -0.5, 1.0, 0.0)]],
    2: [[(1, -2.0, 0.1, 1.1), (0, -3.0, 0.04, 1.7)], [(3, -0.5, 1.0, 0.0), (2, -0.5, 0.02, 2.2)]],
    3: [[(0, -3.0, 0.15, 1.3), (1, -2.0, 0.1, 2.0), (3, -0.5, 1.0, 0.0)], [(1, -2.0, 0.1, 0.7), (4, 0.0, 0.1, 1.1)]],
}


def tables(grid: Grid, kind: int, *samples: Any) -> marginals.Tables:
    return made_tables(grid, jnp.full(len(grid.feature), kind), *samples)


def axes_of(kind: int) -> list[list[ref.Axis]]:
    none = (5, -0.5, 1.0, 0.0)
    whole = [[*axes, none, none][:3] for axes in AXES[kind]]
    return [[ref.Axis(a[0], a[1], a[2], bins, a[3]) for a, bins in zip(axes, SHAPES[kind])] for axes in whole]


def grid_of(all_axes: list[list[ref.Axis]], ends: str = "") -> Grid:
    def each(name: str, number: int = 3) -> Any:
        return [[getattr(a, name) for a in axes[:number]] for axes in all_axes]

    integers = (jnp.asarray(each(name), jnp.int32) for name in ("column", "bins"))
    column, bins = integers
    low, width, blur = (jnp.array(x) for x in (each("low"), each("width"), each("sigma", 2)))
    return Grid(column, low, width, bins, blur, jnp.full(len(all_axes), ENDS[ends]))


def sample(rows: int, seed: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of six columns, a fifth of them not in use; some lie outside the bins."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(shift, 1.0, (rows, 3))
    rest = np.stack([rng.integers(5, size=rows), np.full(rows, 0.3), np.zeros(rows)], axis=1)
    return np.asarray(np.concatenate([numbers, rest], axis=1), np.float32), rng.random(rows) < 0.8


def as_sample(rows: tuple[np.ndarray, np.ndarray]) -> Sample:
    return Sample(jnp.asarray(rows[0]), jnp.asarray(rows[1]))


FOLDS = {
    "unequal": np.repeat([0, 1, 2, 3], [3, 40, 7, 30]),
    "an empty one": np.repeat([0, 1, 3], [20, 30, 30]),
    "a single one": np.full(80, 2),
}


LIMITED = {0: 0, 2: 1}  # of the kinds that have a limit: its axis
ENDS = {"": 0, "low": LOW, "high": HIGH, "low high": LOW + HIGH}


@pytest.mark.parametrize("folds", FOLDS)
@pytest.mark.parametrize(
    ("kind", "limit"), [*((kind, "") for kind in AXES), *((kind, ends) for kind in LIMITED for ends in ENDS if ends)]
)
def test_tables_equal_the_reference(kind, limit, folds):
    demos, own, newest, fold = sample(80, 0), sample(60, 1, 0.7), sample(50, 2, 0.4), FOLDS[folds]
    all_axes = axes_of(kind)
    sides = as_sample(own), as_sample(newest)
    made = tables(grid_of(all_axes, limit), kind, as_sample(demos), jnp.asarray(fold), *sides, CFG)
    assert made.ratio.shape == (2, 4, CELLS)
    for j, axes in enumerate(all_axes):
        want = ref.table(axes, demos, fold, own, newest, 4, 0.7, 0.1, LIMITED[kind] if limit else None, TAIL, limit)
        size = want.novelty.size
        np.testing.assert_allclose(made.ratio[j, :, :size], (want.f.reshape(4, -1) - want.tau[:, None]), **NEAR)
        np.testing.assert_allclose(made.novelty[j, :size], want.novelty.ravel(), **NEAR)
        np.testing.assert_allclose(made.demo[:, j], want.demo, **NEAR)
        assert (
            j == 1
            or limit == "low"
            or (want.novelty.max() > 0.2 and (limit or folds == "a single one" or (want.tau > 0).any()))
        )
        found = marginals.look_up(made.novelty, marginals.cells_of(grid_of(all_axes), jnp.asarray(newest[0])))
        np.testing.assert_allclose(found[:, j], [want.novelty[ref.cell(row, axes)] for row in newest[0]], **NEAR)


@pytest.mark.parametrize("q", [0.0, 0.3, 0.7, 1.0])
def test_quantiles_equal_numpys(q):
    """Of negative and positive values, zeros of both signs, a single value, and none."""
    values = np.asarray(np.random.default_rng(0).normal(size=(4, 50)), np.float32)
    values[0, :4] = 0.0, -0.0, 0.0, -0.0
    use = np.random.default_rng(1).random((4, 50)) < 0.6
    use[2], use[3] = np.arange(50) == 7, False
    got = marginals.quantile(jnp.asarray(values), jnp.asarray(use), q)
    np.testing.assert_allclose(got, [*(np.quantile(v[u], q) for v, u in zip(values[:3], use)), 0.0], atol=1e-6)


def test_without_transitions_nothing_is_novel():
    axes, nothing = axes_of(1), np.zeros(50, bool)
    demos, other = sample(80, 0), (sample(50, 1)[0], nothing)
    fold = jnp.arange(80) % 4
    made = tables(grid_of(axes), 1, as_sample(demos), fold, as_sample(other), as_sample(other), CFG)
    assert float(made.novelty.max()) == 0.0
    assert np.isfinite(made.ratio).all()


@pytest.mark.parametrize("kind", AXES)
def test_a_density_sums_to_one(kind):
    """Also where a blur reaches beyond the outermost bins."""
    rows = jnp.asarray(sample(60, 1, shift=2.5)[0])
    grid = grid_of(axes_of(kind))
    for j, cells in enumerate(marginals.cells_of(grid, rows).T):
        one = jax.tree.map(lambda leaf, j=j: leaf[j], grid)
        np.testing.assert_allclose(marginals.density(one, SHAPES[kind], cells, jnp.ones((60, 1))).sum(), 1.0, rtol=1e-4)


def test_a_held_out_demonstration_costs_something_with_probability_one_minus_q_at_most():
    """B and A are other draws of the demonstrator's transitions: what is left is chance."""
    demos, own, newest = (Sample(jnp.asarray(sample(600, s)[0]), jnp.ones(600, bool)) for s in range(3))
    fold = jnp.arange(600) % 4
    made, all_cells = (
        tables(grid_of(axes_of(1)[:1]), 1, demos, fold, own, newest, replace(CFG, rare=rare)) for rare in (0.5, 1.0)
    )
    assert float((all_cells.demo > 0).mean()) == pytest.approx(0.3, abs=0.02)
    assert float((made.demo > 0).mean()) <= 0.32


def test_what_is_common_is_not_novel():
    """The demonstrator takes the second of four actions in a quarter of the steps and never the last. The learner takes
    the second more often, and the last."""
    none, sides = (5, -0.5, 1.0, 0.0), []
    for seed, shares in enumerate(((0.6, 0.25, 0.15, 0), (0.3, 0.65, 0, 0.05))):
        rows = sample(600, seed)[0]
        rows[:, 3] = np.random.default_rng(seed).choice(4, 600, p=shares)
        sides.append(Sample(jnp.asarray(rows), jnp.ones(600, bool)))
    demos, own = sides
    axes = [ref.Axis(a[0], a[1], a[2], bins, a[3]) for a, bins in zip([(3, -0.5, 1.0, 0.0), none, none], SHAPES[0])]
    for rare, free in ((0.2, True), (1.0, False)):
        made = tables(grid_of([axes]), 0, demos, jnp.arange(600) % 4, own, own, replace(CFG, quantile=0.0, rare=rare))
        assert (float(made.novelty[0, 1]) == 0.0) == free
        assert float(made.novelty[0, 3]) > 0.5


def two_features(rows: int, seed: int, hole: tuple[float, float] | None, thin: tuple[float, float] | None) -> Sample:
    """Uniform on the unit square, without a disc around `hole`, and with half as much in the one around `thin`."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(4 * rows, 2))
    for centre, kept in ((hole, 0.0), (thin, 0.5)):
        if centre is not None:
            x = x[(np.hypot(*(x - np.array(centre)).T) > 0.15) | (rng.random(len(x)) < kept)]
    values = np.concatenate([x[:rows], np.zeros((rows, 1))], axis=1)
    return Sample(jnp.asarray(values, jnp.float32), jnp.ones(rows, bool))


def test_a_planted_hole_is_found_and_a_planted_non_hole_is_not():
    hole, other = (0.3, 0.6), (0.7, 0.3)
    demos = two_features(1_500, 0, hole, None)
    own, newest = two_features(6_000, 1, None, other), two_features(4_000, 2, None, None)
    grid = Grid(
        jnp.array([[0, 1, 2]]), jnp.array([[-0.25, -0.25, -0.5]]), jnp.array([[1 / 64, 1 / 64, 1.0]]),
        jnp.array([SHAPES[1]]), jnp.array([[2.9, 2.9]]), jnp.zeros(1, jnp.int32),
    )  # fmt: skip
    made = tables(grid, 1, demos, jnp.arange(1_500) % 4, own, newest, CFG)
    at = np.stack(np.meshgrid(*[(np.arange(96) + 0.5) / 64 - 0.25] * 2, indexing="ij"))
    c = np.asarray(made.novelty[0, : 96 * 96]).reshape(96, 96)
    inside = [np.hypot(at[0] - x, at[1] - y) < 0.08 for x, y in (hole, other)]
    assert c[inside[0]].min() > 0.5
    assert c[inside[1]].max() == 0.0
    far = (np.hypot(at[0] - hole[0], at[1] - hole[1]) > 0.2) & ((at > 0.05) & (at < 0.95)).all(0)
    assert c[far].mean() < 0.1


def test_below_a_limit_nothing_is_novel_and_beyond_it_everything():
    """Demonstrated are values from 0 to 0.4 and from 0.6 to 1. The gap is a hole, but no limit."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=1_500)
    rows = [np.where((x > 0.4) & (x < 0.6), 0.2, x), *(rng.uniform(-0.2, 1.2, 3_000) for _ in range(2))]
    demos, own, newest = (
        Sample(jnp.asarray(np.stack([v, 0 * v], axis=1), jnp.float32), jnp.ones(len(v), bool)) for v in rows
    )
    found = {}
    for ends, limit in ENDS.items():
        grid = Grid(
            jnp.array([[0, 1, 1]]), jnp.array([[-0.25, -0.5, -0.5]]), jnp.array([[1.5 / 768, 1.0, 1.0]]),
            jnp.array([SHAPES[0]]), jnp.array([[5.0, 0.0]]), jnp.array([limit]),
        )  # fmt: skip
        made = tables(grid, 0, demos, jnp.arange(1_500) % 4, own, newest, CFG)
        at = -0.25 + 1.5 / 768 * (np.arange(768) + 0.5)
        c = np.asarray(made.novelty[0, :768])
        found[ends] = [c[(at > low) & (at < high)] for low, high in ((-0.18, -0.04), (0.44, 0.56), (1.04, 1.18))]
    novel = {ends: [part.min() > 0.9 for part in parts] for ends, parts in found.items()}
    assert novel[""] == [True, True, True]  # without a limit, a hole is novel
    assert novel["low"] == [True, False, False]
    assert novel["high"] == [False, False, True]
    assert novel["low high"] == [True, False, True]
    others = [part for ends, parts in found.items() for part, is_novel in zip(parts, novel[ends]) if not is_novel]
    assert max(part.max() for part in others) == 0.0


def test_a_limit_is_not_known_where_demonstrations_have_not_been():
    """Demonstrated are x from 0 to 0.4 and from 0.6 to 1, with v below 0.5; the learner is everywhere."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=3_000)
    shown = np.where((x > 0.4) & (x < 0.6), 0.2, x), rng.uniform(0, 0.5, 3_000)
    rows = shown, *((rng.uniform(-0.2, 1.2, 6_000), rng.uniform(0, 1, 6_000)) for _ in range(2))
    demos, own, newest = (
        Sample(jnp.asarray(np.stack([*pair, 0 * pair[0]], axis=1), jnp.float32), jnp.ones(len(pair[0]), bool))
        for pair in rows
    )
    grid = Grid(
        jnp.array([[0, 1, 2]]), jnp.array([[-0.25, -0.25, -0.5]]), jnp.array([[1.5 / 48, 1.5 / 192, 1.0]]),
        jnp.array([SHAPES[2]]), jnp.array([[0.6, 2.0]]), jnp.array([HIGH]),
    )  # fmt: skip
    c = np.asarray(tables(grid, 2, demos, jnp.arange(3_000) % 4, own, newest, CFG).novelty[0, : 48 * 192])
    at = [-0.25 + 1.5 / bins * (np.arange(bins) + 0.5) for bins in (48, 192)]
    place = np.stack(np.meshgrid(*at, indexing="ij"))
    fast = (place[1] > 0.6) & (place[1] < 0.95)
    known, gap = (abs(abs(place[0] - 0.5) - 0.3) < 0.1), abs(place[0] - 0.5) < 0.04
    c = c.reshape(48, 192)
    assert c[known & fast].min() > 0.9
    assert c[known & (place[1] < 0.45)].max() == 0.0
    assert c[gap].max() == 0.0


def test_episode_means_and_welch_equal_the_reference_and_scipy():
    rng = np.random.default_rng(0)
    sides = []
    for rows, count in ((70, 9), (90, 14)):
        values, use = np.asarray(rng.normal(size=(rows, 3)), np.float32), rng.random(rows) < 0.7
        episode = rng.integers(count, size=rows)
        use &= episode != 4  # an episode without a row in use
        got = marginals.episode_means(jnp.asarray(values), jnp.asarray(episode), jnp.asarray(use), count + 5)
        want = [ref.episode_means(values[:, j], episode, use) for j in range(3)]
        assert np.flatnonzero(got.there).tolist() == sorted(want[0])
        for j in range(3):
            np.testing.assert_allclose(
                np.asarray(got.value)[got.there, j], [want[j][e] for e in sorted(want[j])], **NEAR
            )
        sides.append((got, want))
    (a, mine), (b, theirs) = sides
    gap, t = marginals.welch(a, b)
    for j in range(3):
        x, y = list(mine[j].values()), list(theirs[j].values())
        np.testing.assert_allclose((gap[j], t[j]), ref.welch(x, y), **NEAR)
        np.testing.assert_allclose(t[j], np.asarray(stats.ttest_ind(x, y, equal_var=False))[0], **NEAR)


def test_welch_is_finite_with_few_or_equal_episodes():
    one = Means(jnp.ones((3, 2)), jnp.array([True, False, False]))
    same, none = Means(jnp.ones((3, 2)), jnp.ones(3, bool)), Means(jnp.ones((3, 2)), jnp.zeros(3, bool))
    for a in (one, same, none):
        for b in (one, same, none):
            assert all(np.isfinite(x).all() for x in marginals.welch(a, b))
    assert marginals.welch(same, same)[1].tolist() == [0.0, 0.0]


# --- familiarity ------------------------------------------------------------------------------------------------------


def monitor_of(held_out: np.ndarray, ratio: np.ndarray, grid: Grid) -> Monitor:
    """A monitor with these demonstrated states (K, M) of one component; NaN for none."""
    f = features_of(["x", "y"], 0)
    known = ~np.isnan(held_out)
    cells = np.clip(np.floor((np.nan_to_num(held_out) - float(grid.low[0, 0])) / float(grid.width[0, 0])), 0, 767)
    scores = np.take_along_axis(ratio[0], cells.astype(int), axis=1)
    shown = np.sort(np.where(known, scores, -np.inf), axis=1)
    blank = jnp.full((2, 4), 1e30)
    return Monitor(f, blank, grid, jnp.asarray(ratio), jnp.asarray(shown), jnp.asarray(known.sum(1)))


def x_grid(none: int) -> Grid:
    return Grid(
        jnp.array([[0, none, none]]), jnp.array([[-3.0, -0.5, -0.5]]), jnp.array([[6 / 768, 1.0, 1.0]]),
        jnp.array([SHAPES[0]]), jnp.zeros((1, 2)), jnp.zeros(1, jnp.int32),
    )  # fmt: skip


def test_familiarity_is_the_share_of_held_out_states_at_least_as_novel():
    rng = np.random.default_rng(5)
    held_out = rng.normal(size=(4, 30))
    held_out[0, 10:], held_out[3] = np.nan, np.nan  # unequal folds; of the last nothing is held out
    ratio = np.zeros((1, 4, CELLS), np.float32)
    ratio[:, :, :768] = rng.normal(size=(1, 4, 768))
    grid = x_grid(features_of(["x", "y"], 0).none)
    obs = np.asarray(np.stack([rng.normal(size=9), np.zeros(9)], axis=1), np.float32)
    got = familiarity(monitor_of(held_out, ratio, grid), jnp.asarray(obs))

    def score(k: int, x: float) -> float:
        return ratio[0, k, min(max(int((x + 3.0) // (6 / 768)), 0), 767)]

    want = []
    for x in obs[:, 0]:
        shares = []
        for k in range(3):
            shown = [score(k, y) for y in held_out[k] if not np.isnan(y)]
            shares.append(np.mean([s >= score(k, x) for s in shown]))
        want.append(np.mean(shares))
    np.testing.assert_allclose(got, want, atol=1e-6)
    assert 0 <= min(want) < max(want) <= 1


def test_familiarity_is_calibrated_on_further_states_of_the_demonstrator():
    """Of one fold it is uniform over the demonstrator's states: a share p of them is less familiar than p."""
    rng = np.random.default_rng(6)
    held_out, more = np.full((1, 4_000), np.nan), rng.normal(size=4_000)
    held_out[0] = rng.normal(size=4_000)
    ratio = np.zeros((1, 1, CELLS), np.float32)
    ratio[0, 0, :768] = np.linspace(-3, 3, 768) ** 2  # the further out, the more novel
    obs = jnp.asarray(np.stack([more, more], axis=1), jnp.float32)
    got = np.asarray(familiarity(monitor_of(held_out, ratio, x_grid(features_of(["x", "y"], 0).none)), obs))
    for p in (0.1, 0.25, 0.5, 0.75):
        assert (got < p).mean() == pytest.approx(p, abs=0.03)
