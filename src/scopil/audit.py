"""Audit of a policy: the marginals in which it differs from the demonstrations, by episodes. Nothing is trained.

The candidates are those of SCOPIL-ρ (losses/features.py). The policy's episodes are split in two halves q, the
demonstrations in K folds k, and blurred histograms give

    f_qk = log (ρ_q + ε ρ_q)/(ρ_E^−k + ε ρ_q)     as in losses/marginals.py, with the episodes of half q as B and as A
    c_qk = clip(f_qk − τ_q, 0, 1)                 τ_q: quantile of f_qk over the demonstrations, each by its own fold

An episode of the policy is scored by the half that it is not in (mean over k), a demonstration by the fold that it is
in (mean over q). Welch's t compares the means of the two groups of episodes. The bar is a quantile of the largest t of
all candidates after random exchanges of episodes between the groups; histograms, thresholds and scores are made anew
for each exchange. By design, episodes of the demonstrator give a finding with probability `LEVEL`; benchmarks/audit.py
measures this rate.

Only episodes that start near a demonstrated start are compared (losses/matched.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy import sparse, stats

from scopil.algos import learned_constraints, occupancy, scopil_rho
from scopil.algos.occupancy import KINDS
from scopil.algos.scopil_rho import Config
from scopil.config import OWN_FEATURES, build, with_code
from scopil.data.dataset import Demonstrations, Episode
from scopil.errors import DatasetError
from scopil.losses import features as feature_set
from scopil.losses import marginals
from scopil.losses.features import NONE, Features, Ranges
from scopil.losses.marginals import SHAPES, Grid, Sample, Shape
from scopil.losses.matched import matches, reach_of
from scopil.marginal import Marginal
from scopil.user_code import load_object

FEWEST = 10  # matched episodes of the policy, and demonstrations
EXCHANGES = 99  # random exchanges of episodes
LEVEL = 0.05  # by design: probability of any finding about episodes of the demonstrator
NOVEL = 0.5  # novelty of a step that is counted
SAME = 0.8  # correlation by episode, or share of common novel steps, of findings about the same thing
PARTS = 2  # halves of the policy's episodes
ROWS = 4096  # arrays have a multiple of so many rows in JAX: audits with other lengths need no new programs


@dataclass(frozen=True)
class Finding:
    """A marginal in which the policy differs from the demonstrations."""

    marginal: Marginal
    gap: float  # mean novelty of the policy's episodes minus that of the demonstrations
    interval: tuple[float, float]  # 95 % interval of the gap
    t: float  # Welch's t of the gap
    p: float  # probability of so large a t in any candidate if the policy is the demonstrator
    share: float  # of the policy's episodes with a novel step (novelty above 0.5)
    demo_share: float  # of the demonstrations
    steps: float  # share of the policy's steps that are novel
    demo_steps: float  # of the demonstrated steps
    novel: tuple[np.ndarray, ...]  # for each of the policy's episodes: which steps are novel
    further: tuple["Finding", ...] = ()  # findings that this one explains

    @property
    def name(self) -> str:
        return self.marginal.name


@dataclass(frozen=True)
class Audit:
    """The findings, the largest difference first, and what they are based on."""

    findings: tuple[Finding, ...]
    episodes: int  # of the policy
    matched: int  # … that start near a demonstrated start
    demonstrations: int
    candidates: int
    bar: float  # smallest t of a finding


class Steps(NamedTuple):
    """The compared episodes: those of the policy, then the demonstrations."""

    features: Features
    ranges: Ranges
    categories: np.ndarray  # (D, C) demonstrated values
    values: Float[np.ndarray, "M F"]
    episode: Int[np.ndarray, " M"]
    step: Int[np.ndarray, " M"]  # in its episode
    played: int  # episodes of the policy
    total: int  # episodes


class Groups(NamedTuple):
    """Ways to assign the episodes to the parts of the policy and the folds of the demonstrations; −1: to none. The
    first way is the true one."""

    half: Int[np.ndarray, "W N"]
    fold: Int[np.ndarray, "W N"]


class Score(NamedTuple):
    """One candidate."""

    grid: Grid  # J = 1
    gap: float
    error: float  # standard error of the gap
    df: float  # Welch's degrees of freedom
    exchanged: Float[np.ndarray, " W"]  # t after every exchange
    novelty: Float[np.ndarray, " M"]  # of every step
    means: Float[np.ndarray, " N"]  # of every episode


def audit(
    played: Sequence[Episode],
    demos: Demonstrations,
    columns: Sequence[str] = (),
    *,
    features: Any = (),
    strike: Sequence[str] = (),
    seed: int = 0,
    codec: Any = None,
) -> Audit:
    """Compare a policy's episodes with demonstrations.

    Args:
        played: episodes of the policy, with observations as flat rows.
        demos: demonstrations with observations as flat rows.
        columns: names of the observation's components; default: obs[0], obs[1], …
        features, strike: as in the settings of SCOPIL-ρ.
        seed: seed of the exchanges of episodes.
        codec: `env.spaces`, for own features of observations that are not rows of numbers.

    Raises:
        ConfigError: an unknown feature.
        DatasetError: too few episodes, or observations of different shapes.
    """
    given = with_code({"features": features, "strike": strike}, lambda name: load_object(name, OWN_FEATURES))
    cfg = build(Config, given)
    near = _matched(played, demos, cfg)
    steps = steps_of([e for e, ok in zip(played, near, strict=True) if ok], demos, columns, cfg, codec)
    groups = _groups(steps, cfg, np.random.default_rng(seed))
    scores = _scores(steps, groups, cfg)
    t = np.array([s.gap / s.error for s in scores])
    largest = np.max([s.exchanged for s in scores], axis=0)
    bar = float(np.quantile(largest, 1.0 - LEVEL, method="higher"))
    names = [_names(steps.features, s.grid) for s in scores]
    rank = [s.gap * (1.0 - cfg.simpler * (len(axes) - 1)) for s, axes in zip(scores, names, strict=True)]
    mine, numbers = steps.episode < steps.played, np.flatnonzero(near)
    rates = [((s.novelty[mine] > NOVEL).mean(), (s.novelty[~mine] > NOVEL).mean()) for s in scores]
    found = [
        j for j, (own, shown) in enumerate(rates) if t[j] > bar and min(scores[j].gap, own - shown) > cfg.enter_gap
    ]
    order = sorted(found, key=lambda j: -rank[j])

    def finding(j: int, further: Sequence[int] = ()) -> Finding:
        s, margin = scores[j], float(stats.t.ppf(0.975, scores[j].df) * scores[j].error)
        novel = [np.zeros(len(e), bool) for e in played]
        odd = np.flatnonzero(s.novelty > NOVEL)
        for i in odd[steps.episode[odd] < steps.played]:
            novel[numbers[steps.episode[i]]][steps.step[i]] = True
        episodes = np.unique(steps.episode[odd])
        return Finding(
            marginal=_marginal(steps, s, demos.action_space, cfg),
            gap=s.gap,
            interval=(s.gap - margin, s.gap + margin),
            t=float(t[j]),
            p=float((1 + (largest >= t[j]).sum()) / (1 + EXCHANGES)),
            share=float((episodes < steps.played).sum() / steps.played),
            demo_share=float((episodes >= steps.played).sum() / len(demos)),
            steps=float(rates[j][0]),
            demo_steps=float(rates[j][1]),
            novel=tuple(novel),
            further=tuple(finding(other) for other in further),
        )

    groups_of = _grouped(
        order, names, [s.means[: steps.played] for s in scores], [s.novelty[mine] > NOVEL for s in scores]
    )
    findings = tuple(finding(first, rest) for first, rest in groups_of)
    return Audit(findings, len(played), steps.played, len(demos), len(scores), bar)


def _matched(played: Sequence[Episode], demos: Demonstrations, cfg: Config) -> np.ndarray:
    """Which episodes start near a demonstrated start."""
    refuse_other_shapes(played, demos)
    starts, deviation = demos.first_states(), demos.observations.std(0)
    scale = 1.0 / np.where(deviation > 1e-6, deviation, 1.0)
    known, group = jnp.asarray(starts.obs * scale, jnp.float32), jnp.asarray(starts.group, jnp.int32)
    mine = np.stack([e.observations[0] for e in played]) * scale
    near = np.asarray(matches(jnp.asarray(mine, jnp.float32), known, reach_of(known, group, cfg.matched_within)))
    starting = "episodes that start near a demonstrated start"
    for count, what in ((len(demos), "demonstrations"), (int(near.sum()), starting)):
        if count < FEWEST:
            raise DatasetError(f"{count} {what}; want at least {FEWEST} for a comparison. Give more of them.")
    return near


def refuse_other_shapes(played: Sequence[Episode], demos: Demonstrations) -> None:
    wanted = demos.episodes[0].observations.shape[1:]
    if len(wanted) != 1:
        raise DatasetError(f"{demos.name}: observations of shape {wanted}; want flat rows of numbers.")
    if not played:
        raise DatasetError("no episodes of the policy; want at least one.")
    if other := [e.observations.shape[1:] for e in played if e.observations.shape[1:] != wanted]:
        raise DatasetError(f"the policy's observations have shape {other[0]}; {demos.name} has {wanted}.")


def steps_of(
    played: Sequence[Episode], demos: Demonstrations, columns: Sequence[str], cfg: Config, codec: Any = None
) -> Steps:
    """Features of steps, and their ranges, as in `scopil_rho.prepare`."""
    shown, space = demos.transitions(), demos.action_space
    discrete = isinstance(space, gym.spaces.Discrete)
    names = tuple(columns) or tuple(f"obs[{i}]" for i in range(shown.obs.shape[1]))
    actions = 0 if discrete else int(np.prod(space.shape))
    f = scopil_rho.chosen_features(names, actions, cfg, shown.obs.shape[1], codec)
    first, then = (np.asarray(f.components(jnp.asarray(x, jnp.float32))) for x in (shown.obs, shown.next_obs))
    categories, few = feature_set.categories_of(np.concatenate([first, then]))
    way, cut = jax.jit(scopil_rho.cut_off)(shown, cfg.one_way, 1.0 - cfg.matched_within)

    episodes = [*played, *demos.episodes]
    lengths = [len(e) for e in episodes]
    before, after = (
        np.concatenate([e.observations[part] for e in episodes]).astype(np.float32)
        for part in (slice(None, -1), slice(1, None))
    )
    action = np.concatenate([e.actions for e in episodes]) - (space.start if discrete else 0)
    values = f(padded(before), padded(action), padded(after), jnp.asarray(categories))
    values = np.asarray(values)[: len(before)]
    number = np.repeat(np.arange(len(episodes)), lengths)
    known = ~(np.asarray(way)[None] * after > np.asarray(cut)[None]).any(1)  # as `scopil_rho.known`
    change, last = jnp.asarray(np.sqrt(np.mean((then - first) ** 2, axis=0)), jnp.float32), -len(shown.obs)
    return Steps(
        f,
        feature_set.ranges_of(f, padded(values[last:]), padded(number[last:]), change, few, cfg.blur_reach),
        categories,
        values[known],
        number[known],
        np.concatenate([np.arange(n) for n in lengths])[known],
        len(played),
        len(episodes),
    )


def padded(rows: np.ndarray) -> Array:
    """The rows, with copies of the last one."""
    return jnp.asarray(np.pad(rows, [(0, -len(rows) % ROWS), *[(0, 0)] * (rows.ndim - 1)], mode="edge"))


def _groups(steps: Steps, cfg: Config, rng: np.random.Generator) -> Groups:
    number, mine = np.arange(steps.total), np.arange(steps.total) < steps.played
    half = np.where(mine, number % PARTS, -1)
    fold = np.where(mine, -1, (number - steps.played) % cfg.folds)
    ways = np.stack([number, *(rng.permutation(steps.total) for _ in range(EXCHANGES))])
    return Groups(half[ways], fold[ways])


def _scores(steps: Steps, groups: Groups, cfg: Config) -> list[Score]:
    """The scores of all candidates."""
    f, among = steps.features, jnp.arange(0)
    categories = jnp.asarray(np.flatnonzero(steps.categories[list(f.used), 0] < NONE)[: cfg.most_categories], jnp.int32)
    scores: list[Score] = []
    for kind in KINDS:
        if kind == 1:  # pairs of the features that vary most between episodes
            spread = [float(s.means.std()) for s in scores if int(s.grid.feature[0, 0]) < f.states]
            widest = np.argsort([-x for x in spread], kind="stable")[: cfg.pair_features]
            among = jnp.asarray(np.sort(widest), jnp.int32)
        chosen = occupancy.marginals_of(f, among, categories, kind, cfg)
        grid = feature_set.grid_of(chosen, kind, steps.ranges, cfg)
        cells = np.asarray(marginals.cells_of(grid, padded(steps.values)))[: len(steps.values)]
        for j in np.flatnonzero(occupancy.usable(f, chosen, kind, cfg)):
            one = Grid(*(leaf[j : j + 1] for leaf in grid))
            scores.append(_score(one, SHAPES[kind], cells[:, j], steps, groups, cfg))
    return scores


def _score(grid: Grid, shape: Shape, cells: np.ndarray, steps: Steps, groups: Groups, cfg: Config) -> Score:
    episode, n, ways = steps.episode, steps.total, len(groups.half)
    lengths = np.bincount(episode, minlength=n)
    visited, place = np.unique(cells, return_inverse=True)
    blurred = _histograms(grid, shape, cells, episode, n)  # (N, T)

    def density(member: Bool[np.ndarray, "W G N"], of: Float[np.ndarray, "N T"]) -> Float[np.ndarray, "W G U"]:
        weight = member / np.maximum((member * lengths).sum(-1, keepdims=True), 1)
        return (weight.astype(np.float32).reshape(-1, n) @ of[:, visited]).reshape(*member.shape[:2], -1)

    half, fold = groups.half[:, None], groups.fold[:, None]
    others = (fold >= 0) & (fold != np.arange(cfg.folds)[:, None])
    b = density(half == np.arange(PARTS)[:, None], blurred)[:, :, None]  # (W, Q, 1, U)
    e = density(others, blurred)[:, None]  # (W, 1, K, U)
    background = cfg.background * b + 1e-7
    c = np.log((b + background) / (e + background))  # (W, Q, K, U)
    if grid.limit[0]:  # as `marginals.outermost`
        sides = _sides(blurred, shape)
        below, above, slices = (density(others, sums)[:, None] for sums in sides)
        own = density(half == np.arange(PARTS)[:, None], sides[2])[:, :, None]
        beyond = (np.minimum(below, above) <= cfg.tail * slices) & (slices > cfg.limit_known * own)
        c = np.where(beyond, c, np.minimum(c, 0.0))
    for way in range(ways):
        shown = groups.fold[way][episode]
        at = np.flatnonzero(shown >= 0)
        held_out = c[way][:, shown[at], place[at]]  # (Q, demonstrated steps)
        c[way] -= np.maximum(np.quantile(held_out, cfg.quantile, axis=1), 0.0)[:, None, None]
    np.clip(c, 0.0, 1.0, out=c)

    visits = sparse.csr_matrix((1.0 / np.maximum(lengths, 1)[episode], (episode, place)), (n, len(visited)))
    means = (visits @ c.reshape(-1, len(visited)).T).reshape(n, ways, PARTS, cfg.folds).swapaxes(0, 1)
    by_half, by_fold = means.mean(3), means.mean(2)  # (W, N, Q), (W, N, K)
    other = np.take_along_axis(by_half, (PARTS - 1 - groups.half.clip(0))[..., None], 2)[..., 0]
    own = np.take_along_axis(by_fold, groups.fold.clip(0)[..., None], 2)[..., 0]
    mine = groups.half >= 0
    value = np.where(mine, other, own)  # (W, N)
    gap, error, df = _welch(value, mine)
    true = c[0]  # (Q, K, U)
    side, part, number = mine[0][episode], groups.half[0][episode].clip(0), groups.fold[0][episode].clip(0)
    novelty = np.where(side, true.mean(1)[PARTS - 1 - part, place], true.mean(0)[number, place])
    return Score(
        grid, float(gap[0]), float(error[0]), float(df[0]), (gap / error)[1:], novelty.astype(np.float32), value[0]
    )


def _histograms(grid: Grid, shape: Shape, cells: np.ndarray, episode: np.ndarray, count: int) -> np.ndarray:
    """Blurred histograms of the steps of every episode, (N, T). They sum to the numbers of steps."""
    size = int(np.prod(shape))
    cube = np.bincount(episode * size + cells, minlength=count * size).astype(np.float32).reshape(count, *shape)
    first, second = (np.asarray(marginals.kernel(grid.blur[0, i], shape[i])) for i in (0, 1))
    if shape[1] > 1:
        cube = np.einsum("cd,nadk->nack", second, cube, optimize=True)
    return np.einsum("ab,nbck->nack", first, cube, optimize=True).reshape(count, size)


def _sides(histograms: Float[np.ndarray, "N T"], shape: Shape) -> list[np.ndarray]:
    """The sums up to a cell, from a cell on, and of all cells, in its slice along the last axis of a limit."""
    cube, axis = histograms.reshape(-1, *shape), 2 if shape[1] > 1 else 1
    from_above = np.flip(np.flip(cube, axis).cumsum(axis), axis)
    slices = np.broadcast_to(cube.sum(axis, keepdims=True), cube.shape)
    return [sums.reshape(histograms.shape) for sums in (cube.cumsum(axis), from_above, slices)]


def _welch(value: Float[np.ndarray, "W N"], mine: Bool[np.ndarray, "W N"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The differences of the means of two groups, their standard errors and Welch's degrees of freedom."""

    def moments(group: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        n = group.sum(1)
        mean = (value * group).sum(1) / n
        return mean, ((value - mean[:, None]) ** 2 * group).sum(1) / (n - 1) / n + 1e-9, n

    (a, u, n), (b, v, m) = moments(mine), moments(~mine)
    return a - b, np.sqrt(u + v), (u + v) ** 2 / (u**2 / (n - 1) + v**2 / (m - 1))


def _names(f: Features, grid: Grid) -> frozenset[str]:
    return frozenset(f.label(int(column)) for column in grid.feature[0] if column != f.none)


def _grouped(
    order: Sequence[int], names: Sequence[frozenset[str]], means: Sequence[np.ndarray], novel: Sequence[np.ndarray]
) -> list[tuple[int, list[int]]]:
    """Findings, each with those that it explains: about more or fewer of its features, or about the same steps. `means`
    are the policy's episodes, `novel` its steps, by candidate."""
    groups: list[tuple[int, list[int]]] = []
    seen: set[frozenset[str]] = set()
    for j in order:
        if names[j] in seen:  # the same features with another blur
            continue
        seen.add(names[j])
        for first, rest in groups:
            common = (novel[first] & novel[j]).sum() / max(novel[j].sum(), 1)
            alike = max(common, np.corrcoef(means[first], means[j])[0, 1]) > SAME
            if alike or names[first] <= names[j] or names[j] <= names[first]:
                rest.append(j)
                break
        else:
            groups.append((j, []))
    return groups


def _marginal(steps: Steps, score: Score, space: gym.Space, cfg: Config) -> Marginal:
    """A candidate as arrays on the host. Its table is made from all compared episodes."""
    f, grid, mine = steps.features, score.grid, steps.episode < steps.played
    columns = [int(c) for c in np.asarray(grid.feature[0]) if c != f.none]
    kind = jnp.array([SHAPES.index(tuple(int(n) for n in grid.bins[0]))])
    values, use = jnp.asarray(steps.values), jnp.asarray(mine)
    own, fold = Sample(values, use), jnp.asarray((steps.episode - steps.played) % cfg.folds, jnp.int32)
    made = marginals.tables(grid, kind, Sample(values, ~use), fold, own, own, cfg)
    actions = range(space.start, space.start + space.n) if isinstance(space, gym.spaces.Discrete) else range(0)
    bins = Grid(*(leaf[0] for leaf in grid))
    axes, table = learned_constraints.on_host(f, bins, made.novelty[0], steps.categories, actions)
    novelty = score.means[: steps.played].mean(), score.means[steps.played :].mean()
    return Marginal(
        axes=axes,
        novelty=table,
        multiplier=0.0,
        budget=float(novelty[1]),
        demo_novelty=float(novelty[1]),
        own_novelty=float(novelty[0]),
        demo=steps.values[~mine][:, columns],
        demo_episode=steps.episode[~mine] - steps.played,
        own=steps.values[mine][:, columns],
    )
