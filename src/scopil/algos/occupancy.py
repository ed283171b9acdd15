"""The occupancy constraints of SCOPIL-ρ: which marginals are in, their tables and multipliers, entry and leaving.

    E_π[c_j] ≤ κ E_D[c_j] = b_j                            one constraint per marginal j that is in
    μ_j ← [μ_j + η (E_π[c_j] − b_j)/(E_π[c_j] + b_j)]₊     a step down is smaller (`occupancy_fall`); μ of the k-th
                                                           oldest constraint is at most `occupancy_most` / k

At a test, the candidate enters in which the tested episodes exceed the demonstrated ones most, significantly (Welch's t
over episodes), once those that are in are kept as in demonstrations or no longer improve. A constraint leaves if it
cannot be met, if those that were in before become worse with it, or, once all slots are filled, if it does not bind.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from scopil.losses import features as feature_set
from scopil.losses import marginals
from scopil.losses.features import Features, Ranges
from scopil.losses.marginals import CELLS, HIGH, LOW, SHAPES, Grid, Sample, Tables

KINDS = range(len(SHAPES))  # one feature, two features, a limit that depends on a feature, two and a category
PAIR, LIMIT, TRIPLE = 1, 2, 3
FURTHER = np.array([0, 1, 1, 2])  # axes after the first, of every kind
# Kinds of candidates, and which end of a limit they are about. Single features come first.
FORMS = ((0, HIGH), (0, LOW), (PAIR, 0), (LIMIT, HIGH), (LIMIT, LOW), (TRIPLE, 0))
FEWEST = 5  # episodes of a test for entry
NOVEL = 0.5  # c of a novel step
SMOOTH = 0.3  # weight of the newest mean in E_π[c_j]
HARMLESS = 0.02  # rise of the novelty of older constraints that counts as none
NEVER = 2**30  # steps


class Slots(NamedTuple):
    """The constraints that are in."""

    kind: Int[Array, " S"]  # −1: the slot is empty
    grid: Grid
    table: Float[Array, "S T"]  # c_j
    mu: Float[Array, " S"]
    budget: Float[Array, " S"]  # b_j
    own: Float[Array, " S"]  # E_π[c_j], smoothed
    clone: Float[Array, " S"]  # E[c_j] of the clone's transitions
    entered: Float[Array, " S"]  # E_π[c_j] at entry
    others: Float[Array, " S"]  # Σ_i E_π[c_i] of those that were in at entry
    least: Float[Array, " S"]  # E_π[c_j] at its last improvement
    stale: Int[Array, " S"]  # refreshes since then
    age: Int[Array, " S"]  # refreshes since entry
    idle: Int[Array, " S"]  # refreshes with μ = 0

    @property
    def filled(self) -> Bool[Array, " S"]:
        return self.kind >= 0


class Candidates(NamedTuple):
    """What may enter."""

    among: Int[Array, " P"]  # state features that pairs are made of
    categories: Int[Array, " C"]  # components used as categories; −1: none
    allowed: Bool[Array, " J"]  # of every candidate: not given up
    evidence: Float[Array, " J"]  # of every candidate: decayed sum of t
    failed: Int[Array, ""]  # constraints that were given up
    wait: Int[Array, ""]  # no entry before this refresh


class Seen(NamedTuple):
    """What a refresh compares."""

    demos: Sample  # E
    fold: Int[Array, " M"]
    episode: Int[Array, " M"]
    own: Sample  # B, without the episodes that are tested
    newest: Sample  # A
    number: Int[Array, " R"]  # of the episode of every row of `newest`
    fresh: Bool[Array, " R"]  # rows of matched episodes that ended since the last test
    tested: Bool[Array, " R"]  # … with a good return
    latest: Bool[Array, " R"]  # rows of matched episodes since the last refresh
    clone: Sample  # transitions of the clone


def no_slots(count: int) -> Slots:
    integers, floats = jnp.zeros(count, jnp.int32), jnp.zeros(count, jnp.float32)
    grid = Grid(
        feature=jnp.zeros((count, 3), jnp.int32),
        low=jnp.zeros((count, 3)),
        width=jnp.ones((count, 3)),
        bins=jnp.ones((count, 3), jnp.int32),
        blur=jnp.zeros((count, 2)),
        limit=jnp.zeros(count, jnp.int32),
    )
    return Slots(
        kind=integers - 1,
        grid=grid,
        table=jnp.zeros((count, CELLS)),
        mu=floats,
        budget=floats,
        own=floats,
        clone=floats,
        entered=floats,
        others=floats,
        least=floats + jnp.inf,
        stale=integers,
        age=integers,
        idle=integers,
    )


def new_candidates(f: Features, cfg: Any) -> Candidates:
    among = jnp.arange(min(f.states, cfg.pair_features), dtype=jnp.int32)
    categories, none = jnp.full(cfg.most_categories, -1, jnp.int32), jnp.int32(0)
    count = sum(len(marginals_of(f, among, categories, kind, cfg)) for kind, _ in FORMS)
    return Candidates(among, categories, jnp.ones(count, bool), jnp.zeros(count), none, none)


def first_features(f: Features, pace: Float[Array, " F"], cfg: Any) -> Int[Array, " P"]:
    """The features that pairs are made of at first: all of them, or the slowest."""
    return jnp.sort(jnp.argsort(pace)[: min(f.states, cfg.pair_features)]).astype(jnp.int32)


def first_constraint(
    f: Features, ranges: Ranges, s: Slots, pace: Float[Array, " F"], shown: Float[Array, "M F"], cfg: Any
) -> Slots:
    """Slot 0: the two slowest components, which describe where the demonstrator is. The second one is not a function
    of the first, such as the distance to a fixed place: their correlation over the demonstrated states is small.

    It is in from the start, although other constraints must show that they are needed. Where an untrained policy gets
    lost, it is lost in these components. With 40 demonstrations, a hole in them is as large as the gaps between
    demonstrations, so that no test of means finds it (docs/algorithms/scopil_rho.md has the figures).
    """
    if len(f.used) < 2:
        return s
    pace, components = pace[: len(f.used)], shown[:, : len(f.used)]
    first = jnp.argmin(pace)
    apart = (components - components.mean(0)[None]) / jnp.maximum(components.std(0), 1e-9)[None]
    same = jnp.abs((apart * apart[:, first][:, None]).mean(0)) > cfg.same_place
    two = jnp.sort(jnp.stack([first, jnp.argmin(jnp.where(same, jnp.inf, pace))])).astype(jnp.int32)
    row = jnp.append(two, f.none)[None]
    grid = feature_set.grid_of(row, PAIR, ranges, cfg)
    wanted = (
        jnp.isfinite(jnp.where(same, jnp.inf, pace).min())
        & jnp.isfinite(pace[first])
        & ~is_struck(f, row, cfg.strike)[0]
    )
    into = jnp.where(wanted, 0, cfg.slots)  # out of range: dropped
    return s._replace(
        kind=s.kind.at[into].set(PAIR, mode="drop"),
        grid=jax.tree.map(lambda all, one: all.at[into].set(one[0], mode="drop"), s.grid, grid),
        mu=s.mu.at[into].set(cfg.occupancy_init, mode="drop"),
    )


# --- candidates -------------------------------------------------------------------------------------------------------


def marginals_of(f: Features, among: Array, categories: Array, kind: int, cfg: Any) -> Int[Array, "J 3"]:
    """The columns of the candidates of a kind."""
    if kind == 0:
        return feature_set.singles(f)
    if kind == PAIR:
        return feature_set.pairs(f, among)
    if kind == LIMIT:
        return feature_set.limits(f, among)
    return feature_set.triples(f, among[: cfg.triple_features], categories)


def all_of(f: Features, c: Candidates, ranges: Ranges, cfg: Any) -> tuple[Grid, Int[Array, " J"]]:
    """The bins of all candidates, and their kinds; −1: the low end of a feature that has no limit."""
    grids, kinds = [], []
    for kind, ends in FORMS:
        grid = feature_set.grid_of(marginals_of(f, c.among, c.categories, kind, cfg), kind, ranges, cfg, ends)
        grids.append(grid)
        kinds.append(jnp.where((grid.limit == 0) & (ends == LOW), -1, kind))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *grids), jnp.concatenate(kinds)


def labels(f: Features, strike: tuple[str, ...]) -> list[frozenset[str]]:
    """The sets of names that are struck out. Raises ValueError for names that are no features."""
    known_names = {*(f.label(i) for i in range(f.none)), *f.columns, "action"}
    struck = [frozenset(x for part in name.split(" at ") for x in _split(part.strip(), known_names)) for name in strike]
    for names, said in zip(struck, strike, strict=True):
        if unknown := names - known_names:
            raise ValueError(f"strike: no feature {min(unknown)}; known: {', '.join(sorted(known_names))}.")
        if len(names) > 3:
            raise ValueError(f"strike: {said} has {len(names)} features; want at most 3.")
    return struck


def _split(name: str, known_names: set[str]) -> list[str]:
    """The names of `a, b`. A name may contain a comma: `|vx, vy|`."""
    for one in known_names:
        if name.startswith(f"{one}, "):
            return [one, *_split(name[len(one) + 2 :], known_names)]
    return [name]


def is_struck(f: Features, feature: Int[Array, "J 3"], strike: tuple[str, ...]) -> Bool[Array, " J"]:
    """Which candidates are struck out."""
    names = [f.label(i) for i in range(f.none)]
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    of_column = jnp.asarray([*(number[name] for name in names), -1], jnp.int32)
    found = jnp.zeros(len(feature), bool)
    mine = jnp.sort(of_column[feature], axis=1)
    for one in labels(f, strike):
        row = sorted([number.get(name, -2) for name in one] + [-1] * (3 - len(one)))  # −2: no candidate has it
        found |= (mine == jnp.asarray(row)[None]).all(1)
    return found


def usable(f: Features, feature: Int[Array, "J 3"], kind: Any, cfg: Any) -> Bool[Array, " J"]:
    """Which candidates make sense and are not struck out."""
    third = feature[:, 2] - f.category  # below 0: there is no such category
    category = (third >= 0) & (feature[:, :2] != third[:, None]).all(1)
    return ~is_struck(f, feature, cfg.strike) & (category | (kind != TRIPLE))


# --- at a refresh -----------------------------------------------------------------------------------------------------


def share_of(grid: Grid, cfg: Any) -> Float[Array, " J"]:
    """κ of every table."""
    return jnp.where(grid.limit > 0, cfg.limit_share, cfg.occupancy_share)


def slot_tables(s: Slots, seen: Seen, cfg: Any) -> Tables:
    """The tables of the constraints that are in."""
    return marginals.tables(s.grid, s.kind, seen.demos, seen.fold, seen.own, seen.newest, cfg)


def ascend(s: Slots, t: Tables, seen: Seen, learning: Bool[Array, ""], cfg: Any) -> Slots:
    """The budgets and multipliers of the constraints that are in."""
    table = jnp.where(s.filled[:, None], t.novelty, 0.0)
    budget = share_of(s.grid, cfg) * jnp.where(s.filled, marginals.mean(t.demo, seen.demos.use), 0.0)

    def mean(of: Sample, use: Bool[Array, " M"]) -> Float[Array, " S"]:
        return marginals.mean(marginals.look_up(table, marginals.cells_of(s.grid, of.values)), use)

    found = mean(seen.newest, seen.latest)
    own = jnp.where(seen.latest.any(), s.own + jnp.where(s.age > 0, SMOOTH, 1.0) * (found - s.own), s.own)

    # μ_j ← [μ_j + η (E_π[c_j] − b_j)/(E_π[c_j] + b_j)]₊
    excess = jnp.where(seen.latest.any() & learning, (own - budget) / (own + budget + 1e-3), 0.0)
    rate = cfg.occupancy_lr * jnp.where(excess < 0, cfg.occupancy_fall, 1.0)
    mu = jnp.where(s.filled, jnp.clip(s.mu + rate * excess, 0.0, cfg.occupancy_most / rank(s)), 0.0)
    better = ~learning | (own < (1.0 - cfg.progress) * s.least)
    s = s._replace(
        table=table,
        mu=mu,
        budget=budget,
        own=own,
        clone=mean(seen.clone, seen.clone.use),
        least=jnp.where(better, own, s.least),
        stale=jnp.where(better, 0, s.stale + 1),
        age=s.age + 1,
    )
    return s._replace(idle=jnp.where(s.filled & (s.mu <= 0), s.idle + 1, 0))


def rank(s: Slots) -> Float[Array, " S"]:
    """1 for the oldest constraint, 2 for the next one, …"""
    return 1.0 + (s.filled[None] & (s.age[None] > s.age[:, None])).sum(1)


def leave(
    s: Slots, c: Candidates, f: Features, ranges: Ranges, number: Int[Array, ""], cfg: Any
) -> tuple[Slots, Candidates]:
    """Constraints leave; the first stays. Those that cannot be met at a price, or that make older ones worse, may not
    return, and the next entry waits, longer after every such case. `number` is that of the refresh."""
    expected = s.budget / share_of(s.grid, cfg)
    later = s.filled & (jnp.arange(cfg.slots) > 0)
    # A constraint that was met once can be met, even if a later one disturbs it.
    unmet = (s.least > expected + cfg.costly) & (s.least > 0.5 * (s.entered + expected))
    older = jnp.where(s.filled[None] & (s.age[None] > s.age[:, None]), s.own[None], 0.0).sum(1)
    given_up = later & (s.mu > 0) & (s.age >= cfg.patience) & (unmet | (older > cfg.harm * s.others + HARMLESS))
    # A constraint with μ = 0 still tells the shield what is novel, so it leaves only if another may need its slot.
    idle = later & (s.idle >= cfg.patience) & s.filled.all()
    kind = jnp.where(given_up | idle, -1, s.kind)
    allowed = c.allowed & ~(same(*all_of(f, c, ranges, cfg), s.grid, s.kind) & given_up[None]).any(1)
    failed = c.failed + given_up.sum()
    wait = jnp.where(given_up.any(), number + cfg.patience * 2 ** jnp.minimum(failed, 10), c.wait)
    stays = kind >= 0
    s = s._replace(
        kind=kind,
        mu=jnp.where(stays, s.mu, 0.0),
        budget=jnp.where(stays, s.budget, 0.0),
        table=jnp.where(stays[:, None], s.table, 0.0),
    )
    return s, c._replace(allowed=allowed, failed=failed, wait=wait)


def same(a: Grid, kind_a: Int[Array, " J"], b: Grid, kind_b: Int[Array, " S"]) -> Bool[Array, "J S"]:
    """Which marginals are equal."""
    alike = (kind_a[:, None] == kind_b[None]) & (a.limit[:, None] == b.limit[None])
    return alike & (a.feature[:, None] == b.feature[None]).all(-1)


def ready(s: Slots, c: Candidates, number: Int[Array, ""], cfg: Any) -> Bool[Array, ""]:
    """Whether a constraint may enter: a slot is free, and each that is in is kept as held-out demonstrations keep it,
    or has not improved for long."""
    familiar = s.own <= s.budget / share_of(s.grid, cfg)
    settled = ~s.filled | familiar | (s.stale >= cfg.patience)
    return settled.all() & ~s.filled.all() & (number >= c.wait)


def enter(
    s: Slots, c: Candidates, seen: Seen, f: Features, ranges: Ranges, cfg: Any
) -> tuple[Slots, Candidates, Bool[Array, ""]]:
    """At most one constraint enters: where the tested episodes exceed the demonstrated ones most, and significantly.
    Returns whether one did."""
    if len(c.allowed) == 0:  # images and continuous actions: no features
        return s, c, jnp.bool_(False)
    grid, kind = all_of(f, c, ranges, cfg)
    may, count = usable(f, grid.feature, kind, cfg) & (kind >= 0), len(seen.tested)

    def judged(row: Any) -> tuple[Array, ...]:
        g, k = jax.tree.map(lambda leaf: leaf[None], row)
        t = marginals.tables(g, k, seen.demos, seen.fold, seen.own, seen.newest, cfg)
        novelty = marginals.look_up(t.novelty, marginals.cells_of(g, seen.newest.values))
        mine = marginals.episode_means(novelty, seen.number, seen.tested, count)
        theirs = marginals.episode_means(t.demo, seen.episode, seen.demos.use, len(seen.episode))
        gap, score = marginals.welch(mine, theirs)
        means = marginals.mean(t.demo, seen.demos.use), marginals.mean(novelty, seen.latest)
        return tuple(x[0] for x in (gap, score, *means, t.novelty))

    gap, score, expected, own, table = jax.lax.map(judged, (grid, jnp.where(may, kind, -1)))
    enough = jnp.zeros(count + 1, bool).at[jnp.where(seen.tested, seen.number, count)].set(True)[:count].sum() >= FEWEST
    evidence = jnp.where(enough, cfg.memory * c.evidence + score, c.evidence)
    least_t = jax.scipy.stats.norm.isf(jnp.minimum(cfg.enter_level, 0.5))
    significant = (score > least_t) | (evidence > least_t / jnp.sqrt(1.0 - cfg.memory**2))
    may &= c.allowed & ~same(grid, kind, s.grid, s.kind).any(1) & significant & (gap > cfg.enter_gap)
    gain = jnp.where((grid.limit > 0) & (kind == LIMIT), cfg.limit_gain, 1.0)
    rank = jnp.where(may, gap * (1.0 - cfg.simpler * jnp.asarray(FURTHER)[kind]) * gain, -jnp.inf)
    j, enters = jnp.argmax(rank), enough & may.any()
    none = jnp.int32(0)
    new = Slots(
        kind=kind[j],
        grid=jax.tree.map(lambda leaf: leaf[j], grid),
        table=table[j],
        mu=jnp.minimum(cfg.occupancy_init, cfg.enter_price * cfg.step_reward / jnp.maximum(expected[j], 1e-6)),
        budget=(share_of(grid, cfg) * expected)[j],
        own=own[j],
        clone=own[j],
        entered=own[j],
        others=jnp.where(s.filled, s.own, 0.0).sum(),
        least=own[j],
        stale=none,
        age=none,
        idle=none,
    )
    into = jnp.where(enters, jnp.argmax(~s.filled), cfg.slots)  # out of range: dropped
    s = jax.tree.map(lambda all, one: all.at[into].set(one, mode="drop"), s, new)

    # Evidence about a policy without the new constraint says nothing about the policy with it.
    c = c._replace(evidence=jnp.where(enters, 0.0, evidence))
    return s, with_other_features(f, c, ranges, cfg) if f.states > cfg.pair_features else c, enters


def with_other_features(f: Features, c: Candidates, ranges: Ranges, cfg: Any) -> Candidates:
    """Pairs of the features that differ most by themselves. Evidence about other pairs is lost; a pair that was given
    up stays out while both its features are among them."""
    count = len(feature_set.singles(f))
    most = jnp.maximum(c.evidence[: f.states], c.evidence[count : count + f.states])
    among = jnp.sort(jnp.argsort(-most)[: len(c.among)]).astype(jnp.int32)
    new, single = c._replace(among=among), jnp.arange(len(c.allowed)) < 2 * count
    before, after = all_of(f, c, ranges, cfg), all_of(f, new, ranges, cfg)
    given_up = (same(*after, *before) & ~c.allowed[None]).any(1)
    evidence = jnp.where(single | (among == c.among).all(), c.evidence, 0.0)
    return new._replace(evidence=evidence, allowed=~given_up)


def novel_in_a_row(s: Slots, t: Tables, seen: Seen, quantile: Any) -> Int[Array, ""]:
    """More novel steps in a row than the share `quantile` of the demonstrated episodes has, held out."""
    novel = ((t.demo * s.filled[None]).max(1) >= NOVEL) & seen.demos.use
    begins = jnp.append(True, seen.episode[1:] != seen.episode[:-1])

    def count(run: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        run = jnp.where(row[0], jnp.where(row[1], 0, run) + 1, 0)
        return run, run

    runs = jax.lax.scan(count, jnp.int32(0), (novel, begins))[1]
    longest = jax.ops.segment_max(runs, seen.episode, len(runs)).astype(jnp.float32)
    there = jnp.zeros(len(runs), bool).at[seen.episode].set(True)
    return 1 + jnp.ceil(jnp.nanquantile(jnp.where(there, longest, jnp.nan), quantile)).astype(jnp.int32)
