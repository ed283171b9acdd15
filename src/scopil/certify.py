"""Certificate of a policy: upper bounds, with a stated confidence, on two shares of its episodes. Nothing is trained.

    rules      the share that breaks a rule, if the rules are known: the bound of Clopper and Pearson
    novelty    the share that is more novel than 9 of 10 demonstrated episodes: threshold from held-out demonstrations

The novelty of a step is the mean over tables, as in losses/marginals.py, made from one half of the demonstrations (E):

    f_jk = log (1 + ε) u/(ρ_E^−k + ε u)           u uniform over the bins, instead of the density of the learner
    c_j  = mean_k clip(f_jk − τ_jk, 0, 1)         τ_jk: quantile of f_jk over the fold k of E

The score s of an episode is the mean over its steps. s does not depend on the policy nor on the other half, so the
policy may have been trained on all demonstrations. T is the r-th smallest of the n scores of the other half, q the 0.9
quantile of the scores of all future demonstrations, X the number of the N episodes with s > T. Then

    δ  = P(T > q) ≤ P(Bin(n, 0.9) < r)            r: the largest with δ ≤ α/2
    P(p* > bound) ≤ δ + (1 − δ) α′ = α            p* = P(s > q); bound of Clopper and Pearson of X at level 1 − α′

docs/certificate.md has the derivation. If the initial observations differ from the demonstrated ones by a test of
exchanges (eval/shift.py), nothing is stated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import bdtr

from scopil.algos import occupancy
from scopil.algos.occupancy import KINDS
from scopil.algos.scopil_rho import Config
from scopil.audit import Steps, padded, refuse_other_shapes, steps_of
from scopil.config import OWN_FEATURES, build, checked_seed, with_code
from scopil.data.dataset import Demonstrations, Episode
from scopil.errors import ConfigError
from scopil.eval.measures import UNNAMED, clopper_pearson_upper, measure
from scopil.eval.shift import Shift, shift_of
from scopil.losses import features as feature_set
from scopil.losses import marginals
from scopil.losses.features import NONE
from scopil.losses.marginals import CATEGORIES, SHAPES, Grid, Shape
from scopil.user_code import load_object

FAMILIAR = 0.9  # an episode is novel if it is more novel than this share of the demonstrated episodes
FEWEST = 20  # demonstrations: a half for the tables, a half for the threshold
SHIFT_LEVEL = 0.02  # probability that starts of the demonstrated kind are refused
ASSUMPTIONS = (
    "Later episodes start as these do, the policy acts as it did here (the most likely action), and the environment "
    "responds as it did.",
    "These episodes are independent of each other, and so are the demonstrated ones.",
    "The policy and the rules were fixed before these episodes were played.",
    "One certificate was made. The best of several, by other seeds or settings, has a lower confidence.",
)


@dataclass(frozen=True)
class Bound:
    """An upper bound on the share of episodes in which something happens."""

    hits: int  # episodes in which it happened
    bound: float


@dataclass(frozen=True)
class RuleBounds:
    any: Bound  # episodes that break any rule
    each: dict[str, Bound]  # by rule


@dataclass(frozen=True)
class Novelty:
    """The share of episodes that are more novel than 9 of 10 demonstrated episodes."""

    share: Bound  # hits: episodes above the threshold
    threshold: float
    rank: int  # the threshold is the rank-th smallest score of the held-out demonstrations
    held_out: int


@dataclass(frozen=True)
class Certificate:
    """Bounds that hold with the confidence `level` each, and the reasons for those that are missing."""

    level: float
    episodes: int
    demonstrations: int
    starts: Shift
    refused: str | None  # the reason for which nothing is stated
    rules: RuleBounds | None
    novelty: Novelty | None
    missing: dict[str, str]  # reasons, by `rules` and `novelty`


def certify(
    played: Sequence[Episode],
    demos: Demonstrations,
    columns: Sequence[str] = (),
    *,
    level: float = 0.95,
    features: Any = (),
    seed: int = 0,
    codec: Any = None,
) -> Certificate:
    """Bounds for a policy from its episodes and from demonstrations.

    Args:
        played: episodes of the policy from independent starts, with observations as flat rows. Their costs are those of
            the true rules; without costs the rules are not known.
        demos: demonstrations with observations as flat rows.
        columns: names of the observation's components; default: obs[0], obs[1], …
        level: confidence of each bound.
        features: as in the settings of SCOPIL-ρ.
        seed: seed of the split of the demonstrations and of the test of starts.
        codec: `env.spaces`, for own features of observations that are not rows of numbers.

    Raises:
        ConfigError: a level outside (0, 1), or an unknown feature.
        DatasetError: no episodes, or observations of different shapes.
    """
    if not 0.0 < level < 1.0:
        raise ConfigError(f"level = {level:g}; want a confidence between 0 and 1, such as 0.95.", setting="level")
    refuse_other_shapes(played, demos)
    rng = np.random.default_rng(checked_seed(seed))
    names = tuple(columns) or tuple(f"obs[{i}]" for i in range(demos.observations.shape[1]))
    first = np.stack([e.observations[0] for e in played])
    starts = shift_of(first, demos.first_states().obs, names, rng)
    rules, novelty, missing, refused = None, None, {}, None
    if starts.p <= SHIFT_LEVEL:
        refused = f"the starts are not of the demonstrated kind (p = {starts.p:g})"
        missing = {"rules": refused, "novelty": refused}
    else:
        if (rules := rule_bounds(played, level)) is None:
            missing["rules"] = "rules not known"
        if len(demos) >= FEWEST and rank_of(len(demos) // 2, level)[0] > 0:
            fitted, held_out = demos.split(0.5, seed)
            scores = novelty_scores([*held_out, *played], fitted, names, features=features, codec=codec)
            novelty = novelty_bound(scores[: len(held_out)], scores[len(held_out) :], level)
        else:
            missing["novelty"] = f"{len(demos)} demonstrations are too few (fewest: {FEWEST}; more at a level near 1)"
        if len(missing) == 2:
            refused = "; ".join(missing.values())
    return Certificate(level, len(played), len(demos), starts, refused, rules, novelty, missing)


# --- bounds -----------------------------------------------------------------------------------------------------------


def rule_bounds(played: Sequence[Episode], level: float) -> RuleBounds | None:
    """Bounds on the probability that an episode breaks a rule, also in its initial state; None without known rules."""
    rows = [measure(e) for e in played]
    names = dict.fromkeys(name for row in rows for name in row if name.partition("/")[0] == "violations")
    if not names:
        return None

    def bound(name: str) -> Bound:
        hits = sum(row.get(name, 0.0) > 0 for row in rows)
        return Bound(hits, clopper_pearson_upper(hits, len(rows), level))

    each = {rule: bound(name) for name in names if (rule := name.partition("/")[2]) != UNNAMED}
    return RuleBounds(bound("violations"), each)


def rank_of(held_out: int, level: float) -> tuple[int, float]:
    """The rank r of the threshold among n held-out scores, the largest with P(Bin(n, 0.9) < r) ≤ (1 − level)/2, and
    this probability. r is 0 if there is none."""
    below = bdtr(np.arange(held_out), held_out, FAMILIAR)  # of r = 1, …, n
    rank = int((below <= (1.0 - level) / 2.0).sum())
    return rank, float(below[rank - 1]) if rank else 0.0


def novelty_bound(
    held_out: Sequence[float] | np.ndarray, scores: Sequence[float] | np.ndarray, level: float
) -> Novelty:
    """The bound from scores of held-out demonstrated episodes and of the policy's episodes."""
    rank, risk = rank_of(len(held_out), level)
    threshold = float(np.sort(held_out)[rank - 1]) if rank else -np.inf
    hits = int((np.asarray(scores) > threshold).sum())
    left = (1.0 - level - risk) / (1.0 - risk)
    bound = Bound(hits, clopper_pearson_upper(hits, len(scores), 1.0 - left))
    return Novelty(bound, threshold, rank, len(held_out))


# --- novelty ----------------------------------------------------------------------------------------------------------


def novelty_scores(
    episodes: Sequence[Episode],
    demos: Demonstrations,
    columns: Sequence[str] = (),
    *,
    features: Any = (),
    codec: Any = None,
) -> Float[np.ndarray, " N"]:
    """The novelty of episodes relative to demonstrations: mean over tables and steps, in [0, 1]. 1 for an episode
    that has no step before the point where the time limit ended the demonstrations."""
    given = with_code({"features": features}, lambda name: load_object(name, OWN_FEATURES))
    cfg = build(Config, given)
    steps = steps_of(episodes, demos, columns, cfg, codec)
    novelty = _step_novelty(steps, demos.action_space, cfg)
    count = np.bincount(steps.episode, minlength=steps.total)
    mean = np.bincount(steps.episode, novelty, steps.total) / np.maximum(count, 1)
    return np.where(count > 0, mean, 1.0)[: len(episodes)]


def _step_novelty(steps: Steps, space: gym.Space, cfg: Config) -> Float[np.ndarray, " M"]:
    """The mean of c_j over all tables j, for every step."""
    f = steps.features
    categories = np.flatnonzero(steps.categories[list(f.used), 0] < NONE)[: cfg.most_categories]
    among = jnp.arange(min(f.states, cfg.pair_features), dtype=jnp.int32)
    shown = steps.episode >= steps.played
    values, fold = padded(steps.values), (steps.episode[shown] - steps.played) % cfg.folds
    fitted = padded(steps.values[shown])
    weight = np.zeros((len(fitted), cfg.folds), np.float32)  # 0: the padding
    weight[: len(fold)] = fold[:, None] != np.arange(cfg.folds)
    total, tables = np.zeros(len(steps.values)), 0
    for kind in KINDS:
        chosen = occupancy.marginals_of(f, among, jnp.asarray(categories, jnp.int32), kind, cfg)
        chosen = chosen[np.flatnonzero(occupancy.usable(f, chosen, kind, cfg))]
        if len(chosen) == 0:
            continue
        grid = feature_set.grid_of(chosen, kind, steps.ranges, cfg)
        e = np.asarray(_density(grid, SHAPES[kind], marginals.cells_of(grid, fitted), jnp.asarray(weight)))
        cells = np.asarray(marginals.cells_of(grid, values))[: len(steps.values)]
        for j, columns in enumerate(np.asarray(chosen)):
            u = 1.0 / np.prod([_bins(steps, int(c), n, space) for c, n in zip(columns, SHAPES[kind], strict=True)])
            ratio = np.log((1.0 + cfg.background) * u / (e[j] + cfg.background * u))  # (K, T)
            mine = cells[shown, j]
            for k in np.unique(fold):
                ratio[k] -= max(np.quantile(ratio[k, mine[fold == k]], cfg.quantile), 0.0)
            total += np.clip(ratio, 0.0, 1.0).mean(0)[cells[:, j]]
            tables += 1
    return total / max(tables, 1)


@partial(jax.jit, static_argnums=1)
def _density(grid: Grid, shape: Shape, cells: Int[Array, "M J"], weight: Float[Array, "M K"]) -> Float[Array, "J K T"]:
    return jax.vmap(lambda g, at: marginals.density(g, shape, at, weight), in_axes=(0, 1))(grid, cells)


def _bins(steps: Steps, column: int, bins: int, space: gym.Space) -> int:
    """The number of bins of an axis in which a feature can lie."""
    f = steps.features
    if f.category <= column < f.action:
        return CATEGORIES + 1
    if f.action <= column < f.none and isinstance(space, gym.spaces.Discrete):
        return min(int(space.n), bins)
    return bins
