"""SCOPIL-ρ: SCOPIL from a clone (scopil_clone.py) under occupancy constraints on marginals of the transitions.

    c_j(s, a, s')                                          novelty in marginal j, a table (losses/marginals.py)
    E_π[c_j] ≤ κ E_D[c_j] = b_j                            one constraint per marginal that is in
    r'    = r/u − Σ_j μ_j (c_j − b_j) − e · terminated     the critics' reward; e > 0 if no demonstration terminates
    μ_j   ← [μ_j + η (E_π[c_j] − b_j)/(E_π[c_j] + b_j)]₊

u is the unit of reward: the mean |r| of a demonstrated step becomes `step_reward`, so that λ, μ and α do not depend on
the scale of the reward. The first constraint is on the two slowest components. Others enter one at a time, where the
policy that is held by those that are in still differs from the demonstrations, by episodes and significantly. They
leave if they never bind or cannot be met. Actor, temperature and λ are those of SCOPIL from a clone. The learner
receives no cost from the environment. Derivation: docs/algorithms/scopil_rho.md.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from scopil.algos import cloning, sac, scopil_clone
from scopil.algos.base import Algorithm, Curve, Data, Metrics, Spaces
from scopil.config import config, setting
from scopil.data.dataset import DemoTransitions
from scopil.errors import ConfigError
from scopil.losses import features as feature_set
from scopil.losses import marginals
from scopil.losses.familiarity import Monitor, scores
from scopil.losses.features import NONE, Features, Ranges
from scopil.losses.marginals import CATEGORIES, CELLS, SHAPES, Grid, Sample, Tables
from scopil.losses.matched import matches, reach_of
from scopil.marginal import Axis, Marginal, name_of
from scopil.policy import Policy
from scopil.types import PRNGKey, Transition
from scopil.user_code import Named, split_name

KINDS = range(len(SHAPES))  # one feature, two features, a limit that depends on a feature, two and a category
FURTHER = (0, 1, 1, 2)  # axes after the first, of every kind
MOST_NAMES = 12  # features in a line
FEWEST = 5  # episodes of a test for entry
LAST_PART, LAST_DRIFT = 0.9, 0.05  # `cut_off`: the last part of an episode, and what a drifting component covers in it


@config
class Config(scopil_clone.Config):
    """Settings of SCOPIL from a clone and of the occupancy constraints. The same defaults serve all tasks."""

    learning_rate: float = setting(default=1e-3, about="Learning rate η of policy and critics (Adam).", low=0)
    # Prices change within a small distance. Critics of 32 × 32 do not follow them on the trays with many holes.
    hidden: tuple[int, ...] = setting(default=(64, 64), about="Widths of the hidden layers of every network.", low=1)
    # With β = ½ the policy tends to the minimum of −log π − αH as λ grows. There −log π is 0.27 nats
    # for nine actions and α = 0.4.
    entropy_split: float = setting(default=0.0, about="β: the constraint's share of the entropy bonus.", low=0, high=1)
    step_reward: float = setting(
        default=0.65, about="Mean |r| of a demonstrated step after division by the unit u.", low=1e-6
    )
    features: tuple[str, ...] = setting(
        default=(),
        about="Components that constraints may use, by name, by the name of their part or by number, and a function "
        "of your own: my_features.py:features (docs/rules.md). Empty: all components, norms and distances.",
    )
    strike: tuple[str, ...] = setting(
        default=(), about='Constraints that are no rules, as `scopil rules` names them: "vx at x".'
    )
    occupancy_init: float = setting(default=10.0, about="μ₀: multiplier of a constraint that enters.", low=0)
    occupancy_lr: float = setting(default=1.0, about="Learning rate η of μ, per refresh of the tables.", low=0)
    occupancy_most: float = setting(default=20.0, about="Largest μ: a constraint that cannot be met stops here.", low=0)
    occupancy_share: float = setting(
        default=0.5, about="κ: allowed novelty of the policy, relative to held-out demonstrations.", low=1e-3
    )
    # With more, standing still in familiar states would earn more than a step costs.
    refund: float = setting(
        default=0.9, about="Largest budget Σ μ b that a step earns, in mean demonstrated rewards.", low=0
    )
    quantile: float = setting(
        default=0.7, about="q: the share of held-out demonstrated transitions that cost nothing.", low=0, high=1
    )
    background: float = setting(default=0.1, about="ε: weight of the newest transitions, in both densities.", low=0)
    folds: int = setting(default=4, about="K: number of tables per marginal; each is made without a fold.", low=2)
    margin: float = setting(default=0.25, about="Bins beyond the demonstrated range on each side, in ranges.", low=0)
    # The edge of a limit is sharp; a hole in two features is found only with more blur. Both are tried.
    line_blur: float = setting(default=0.0055, about="Smallest σ for a feature with a limit, in ranges.", low=0)
    line_blur_most: float = setting(default=0.012, about="Largest σ for a limit; between: a step's change.", low=0)
    blur: float = setting(default=0.035, about="σ for other features, in ranges.", low=0)
    slots: int = setting(default=8, about="Largest number of constraints.", low=1)
    pair_features: int = setting(default=16, about="Features that pairs are made of, at most.", low=2)
    triple_features: int = setting(default=8, about="Features that pairs with a category are made of, at most.", low=2)
    most_categories: int = setting(default=4, about="Components with few values that are used as categories.", low=0)
    refresh_every: int = setting(default=1_000, about="Gradient steps between tables.", low=1)
    enter_every: int = setting(default=3, about="Refreshes between tests for entry.", low=1)
    enter_level: float = setting(
        default=0.02, about="Level of a test for entry (Welch's t over episodes), for all candidates together.", low=0
    )
    enter_gap: float = setting(default=0.003, about="Smallest difference of novelty for entry.", low=0)
    memory: float = setting(default=0.7, about="Decay of the evidence of earlier tests.", low=0, high=0.99)
    simpler: float = setting(
        default=0.1, about="Share of the difference that a further axis must add.", low=0, high=0.4
    )
    patience: int = setting(
        default=12, about="Refreshes in which a constraint must halve the difference, or improve.", low=1
    )
    progress: float = setting(default=0.02, about="Relative fall of the novelty that counts as improvement.", low=0)
    costly: float = setting(default=0.05, about="Novelty above the demonstrations' that counts as not met.", low=0)
    good: float = setting(
        default=0.1, about="Quantile of demonstrated returns that a tested episode reaches.", low=0, high=1
    )
    matched_capacity: int = setting(default=20_000, about="Transitions of matched episodes that are kept (B).", low=1)
    recent: int = setting(default=4_000, about="Newest transitions (A).", low=1)
    matched_within: float = setting(
        default=0.9,
        about="An episode is matched if its start is within this quantile of distances between demonstrated starts.",
        low=0,
        high=1,
    )
    one_way: float = setting(
        default=0.9,
        about="A component drifts one way if its net change over an episode exceeds this share of its range.",
        low=0,
        high=1,
    )


class Rows(NamedTuple):
    """Transitions as they are stored."""

    obs: Float[Array, "M D"]
    action: Array
    next_obs: Float[Array, "M D"]


class Episodes(NamedTuple):
    """The newest transitions, in a ring, and the returns of their episodes."""

    rows: Rows
    number: Int[Array, " R"]  # of the row's episode, modulo R
    matched: Bool[Array, " R"]
    returns: Float[Array, " R"]  # by number
    ended: Int[Array, " R"]  # by number: the update; −1: not ended
    steps: Int[Array, ""]  # transitions so far
    # of every environment
    current: Int[Array, " N"]  # number of its episode
    so_far: Float[Array, " N"]  # return
    playing: Bool[Array, " N"]  # whether its episode is matched
    begun: Int[Array, ""]  # episodes so far


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
    allowed: tuple[Bool[Array, " J"], ...]  # of every kind: not struck out, and not given up
    evidence: tuple[Float[Array, " J"], ...]  # of every kind: decayed sum of t
    failed: Int[Array, ""]  # constraints that were given up
    wait: Int[Array, ""]  # no entry before this refresh


class State(NamedTuple):
    learner: scopil_clone.State
    features: Features
    ranges: Ranges
    values: Float[Array, "D C"]  # demonstrated values of categories
    way: Float[Array, " D"]  # ±1 for components that drift one way until the time limit; else 0
    cut: Float[Array, " D"]  # the largest known value along `way`
    start_scale: Float[Array, " D"]
    reach: Float[Array, ""]
    enough: Float[Array, ""]  # return of a tested episode, at least
    end_cost: Float[Array, ""]  # e / μ
    unit: Float[Array, ""]  # u
    kept: Rows  # B
    offered: Int[Array, ""]  # transitions offered to B so far
    newest: Episodes
    clone: Rows  # transitions of the clone, before the actor learns
    slots: Slots
    candidates: Candidates


# --- before training --------------------------------------------------------------------------------------------------


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    head, d = spaces.head, spaces.obs_dim
    actions = head.num_actions if head.continuous else 0
    f = chosen_features(spaces.columns if spaces.image is None else (), actions, cfg, d, spaces.codec)

    def rows(count: int) -> Rows:
        obs = jnp.zeros((count, d), jnp.float32)
        shape = (count, head.num_actions) if head.continuous else (count,)
        return Rows(obs, jnp.zeros(shape, jnp.float32 if head.continuous else jnp.int32), obs)

    s, n, r, width = cfg.slots, cfg.num_envs, cfg.recent, f.none + 1
    zero, blank, per_feature = jnp.float32(0.0), jnp.zeros(d, jnp.float32), jnp.zeros(width, jnp.float32)
    integers, floats = jnp.zeros(s, jnp.int32), jnp.zeros(s, jnp.float32)
    empty = Grid(
        jnp.zeros((s, 3), jnp.int32),
        jnp.zeros((s, 3)),
        jnp.ones((s, 3)),
        jnp.ones((s, 3), jnp.int32),
        jnp.zeros((s, 2)),
    )
    among = jnp.arange(min(f.states, cfg.pair_features), dtype=jnp.int32)
    candidates = Candidates(among, jnp.full(cfg.most_categories, -1, jnp.int32), (), (), jnp.int32(0), jnp.int32(0))
    counts = [len(marginals_of(f, candidates, kind, cfg)) for kind in KINDS]
    candidates = candidates._replace(
        allowed=tuple(jnp.ones(j, bool) for j in counts), evidence=tuple(jnp.zeros(j) for j in counts)
    )
    return State(
        learner=scopil_clone.init(key, spaces, cfg),
        features=f,
        ranges=Ranges(per_feature, per_feature + 1, per_feature, per_feature > 0, per_feature > 0),
        values=jnp.full((len(f.columns), CATEGORIES), NONE),
        way=blank,
        cut=blank,
        start_scale=blank + 1,
        reach=zero,
        enough=zero,
        end_cost=zero,
        unit=jnp.float32(1.0),
        kept=rows(cfg.matched_capacity),
        offered=jnp.int32(0),
        newest=Episodes(
            rows=rows(r),
            number=jnp.zeros(r, jnp.int32),
            matched=jnp.zeros(r, bool),
            returns=jnp.zeros(r, jnp.float32),
            ended=jnp.full(r, -1, jnp.int32),
            steps=jnp.int32(0),
            current=jnp.zeros(n, jnp.int32),
            so_far=jnp.zeros(n, jnp.float32),
            playing=jnp.zeros(n, bool),
            begun=jnp.int32(0),
        ),
        clone=rows(min(r, cfg.refresh_every)),
        slots=Slots(
            kind=integers - 1,
            grid=empty,
            table=jnp.zeros((s, CELLS)),
            mu=floats,
            budget=floats,
            own=floats,
            clone=floats,
            entered=floats,
            least=floats + jnp.inf,
            stale=integers,
            age=integers,
            idle=integers,
        ),
        candidates=candidates,
    )


def chosen_features(columns: Sequence[str], actions: int, cfg: Config, width: int, codec: Any) -> Features:
    """The features that the settings choose, of observations with `width` numbers."""
    own = [name for name in cfg.features if isinstance(name, Named)]
    try:
        if len(own) > 1:
            raise ValueError(f"features = {', '.join(own)}; want one function that returns all numbers.")
        made = [feature_set.own_of(name, width, codec, f"{name.module}.{split_name(name)[1]}") for name in own]
        f = feature_set.features_of(columns, actions, [n for n in cfg.features if n not in own], *made)
        labels(f, cfg.strike)
    except ValueError as error:
        setting = "strike" if "strike" in str(error) else None if own else "features"
        raise ConfigError(str(error), setting=setting) from error
    return f


def prepare(state: State, data: Data, cfg: Config, key: PRNGKey) -> State:
    """Train the clone. Compute the units, the bins, the first constraint and the cost of termination."""
    demos, starts = data.demos, data.demo_starts
    assert demos is not None
    assert starts is not None
    f, used = state.features, list(state.features.used)
    try:  # constants of the program
        before, after = (f.components_on_host(np.asarray(x)) for x in (demos.obs, demos.next_obs))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    values, few = feature_set.categories_of(np.concatenate([before, after]))
    kinds = np.flatnonzero(values[used, 0] < NONE)[: cfg.most_categories]
    episode = np.asarray(demos.episode)
    returns = None if demos.reward is None else np.bincount(episode, np.asarray(demos.reward))[np.unique(episode)]
    demos = jax.lax.optimization_barrier(demos)  # XLA would compute with constants when it compiles, slowly
    first, then = f.components(demos.obs), f.components(demos.next_obs)
    change = jnp.sqrt(jnp.mean((then - first) ** 2, axis=0))
    rows = Rows(demos.obs, demos.action, demos.next_obs)
    state = state._replace(values=jnp.asarray(values))
    ranges = feature_set.ranges_of(f, features_of(state, rows), change, few)
    way, cut = cut_off(demos, cfg.one_way, 1.0 - cfg.matched_within)
    state = state._replace(ranges=ranges, way=way, cut=cut)

    deviation = demos.obs.std(0)
    scale = 1.0 / jnp.where(deviation > 1e-6, deviation, 1.0)
    unit, enough = jnp.float32(1.0), jnp.float32(jnp.finfo(jnp.float32).min)
    if returns is not None:
        step = jnp.abs(demos.reward).mean()
        unit = jnp.where(step > 0, step / cfg.step_reward, 1.0)
        enough = jnp.quantile(jnp.asarray(returns, jnp.float32), cfg.good)
    # If no demonstration terminates, termination costs c = 1 per step of a mean demonstrated episode: Σ γᵗ.
    length = len(before) / len(np.unique(episode))
    saved = cfg.discount * (1.0 - cfg.discount**length) / (1.0 - jnp.minimum(cfg.discount, 0.999))

    # B begins with the demonstrations, so that the ratio starts at 1
    told = known(state, rows)
    count = min(len(before), cfg.matched_capacity)
    order = jnp.argsort(~told, stable=True)[:count]
    kept = jax.tree.map(lambda buffer, new: buffer.at[:count].set(new[order]), state.kept, rows)

    pace = jnp.where((change > 0) & ~few, change / jnp.maximum(first.std(0), 1e-9), jnp.inf)[
        jnp.asarray(used, jnp.int32)
    ]
    candidates = state.candidates._replace(
        among=first_features(f, pace, cfg), categories=jnp.full(cfg.most_categories, -1).at[: len(kinds)].set(kinds)
    )
    return state._replace(
        learner=scopil_clone.prepare(state.learner, data, cfg, key),
        start_scale=scale,
        reach=reach_of(starts.obs * scale[None], starts.group, cfg.matched_within),
        enough=enough,
        end_cost=jnp.where(demos.terminated.any(), 0.0, saved).astype(jnp.float32),
        unit=unit,
        kept=kept,
        offered=jnp.minimum(told.sum(), count).astype(jnp.int32),
        candidates=candidates,
        slots=first_constraint(state, pace, cfg),
    )


def first_features(f: Features, pace: Float[Array, " D"], cfg: Config) -> Int[Array, " P"]:
    """The features that pairs are made of at first: all of them, or the slowest components."""
    most = min(f.states, cfg.pair_features)
    return (jnp.arange(most) if f.states == most else jnp.sort(jnp.argsort(pace)[:most])).astype(jnp.int32)


def first_constraint(state: State, pace: Float[Array, " D"], cfg: Config) -> Slots:
    """Slot 0: the two slowest components, which describe where the demonstrator is.

    It is in from the start, although other constraints must show that they are needed. Where an untrained policy gets
    lost, it is lost in these components. With 40 demonstrations, a hole in them is as large as the gaps between
    demonstrations, so that no test of means finds it (docs/algorithms/scopil_rho.md has the figures).
    """
    f, s = state.features, state.slots
    if len(f.used) < 2:
        return s
    two = jnp.sort(jnp.argsort(pace)[:2]).astype(jnp.int32)
    row = jnp.append(two, f.none)[None]
    grid = feature_set.grid_of(row, 1, state.ranges, cfg)
    wanted = jnp.isfinite(pace[two]).all() & ~is_struck(f, row, cfg.strike)[0]
    into = jnp.where(wanted, 0, cfg.slots)  # out of range: dropped
    return s._replace(
        kind=s.kind.at[into].set(1, mode="drop"),
        grid=jax.tree.map(lambda all, one: all.at[into].set(one[0], mode="drop"), s.grid, grid),
        mu=s.mu.at[into].set(cfg.occupancy_init, mode="drop"),
    )


def cut_off(
    demos: DemoTransitions, one_way: float | Array, share: float | Array
) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
    """The direction (±1) of components that drift one way until the time limit, 0 for others; and the value that
    most demonstrations reach in this direction.

    If the time limit ends the demonstrations, a faster policy reaches states beyond their last ones. The demonstrations
    carry no information about these states. If a demonstration terminates, it has reached its goal, and no
    component is cut off.
    """
    before, after, steps = demos.obs, demos.next_obs, len(demos.obs)
    rows = jnp.arange(steps)
    first, last = (of(rows, demos.episode, steps) for of in (jax.ops.segment_min, jax.ops.segment_max))
    ends = rows == last[demos.episode]
    path = jnp.concatenate([before, after])
    high, low = (of(path, jnp.tile(demos.episode, 2), steps) for of in (jax.ops.segment_max, jax.ops.segment_min))
    span = jnp.maximum(high - low, 1e-6)[demos.episode]
    begun = first[demos.episode]
    late = begun + (LAST_PART * (rows - begun)).astype(jnp.int32)  # in last rows: where the last part begins

    def covered(since: Float[Array, "M D"]) -> Float[Array, " D"]:
        """Net change from `since` to the end, divided by the component's range; mean over episodes."""
        return jnp.sum(jnp.where(ends[:, None], (after - since) / span, 0.0), axis=0) / ends.sum()

    drift = covered(before[begun])
    goes_on = covered(before[late]) * jnp.sign(drift) > LAST_DRIFT
    drifts = (jnp.abs(drift) > one_way) & goes_on & ~demos.terminated.any()
    way = jnp.where(drifts, jnp.sign(drift), 0.0)
    reached = jnp.where(ends[:, None], way[None] * after, jnp.nan)
    return way, jnp.where(drifts, jnp.nanquantile(reached, share, axis=0), 0.0)


# --- features and candidates ------------------------------------------------------------------------------------------


def features_of(state: State, rows: Rows | Transition | DemoTransitions) -> Float[Array, "M F"]:
    return state.features(rows.obs, rows.action, rows.next_obs, state.values)


def known(state: State, rows: Rows | Transition | DemoTransitions) -> Bool[Array, " M"]:
    """Whether a state is not beyond the point where the time limit ended the demonstrations."""
    return ~(state.way[None] * rows.next_obs > state.cut[None]).any(1)


def marginals_of(f: Features, candidates: Candidates, kind: int, cfg: Config) -> Int[Array, "J 3"]:
    """The columns of the candidates of a kind."""
    if kind == 0:
        return feature_set.singles(f)
    if kind == 1:
        return feature_set.pairs(f, candidates.among)
    if kind == 2:
        return feature_set.limits(f, candidates.among)
    return feature_set.triples(f, candidates.among[: cfg.triple_features], candidates.categories)


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


def usable(f: Features, feature: Int[Array, "J 3"], kind: int, cfg: Config) -> Bool[Array, " J"]:
    """Which candidates make sense and are not struck out."""
    ok = ~is_struck(f, feature, cfg.strike)
    if kind == 3:
        third = feature[:, 2] - f.category  # below 0: there is no such category
        ok &= (third >= 0) & (feature[:, :2] != third[:, None]).all(1)
    return ok


# --- during training --------------------------------------------------------------------------------------------------


def observe(state: State, data: Data) -> State:
    """The newest steps into the ring."""
    step, began, starts, old = data.newest, data.began, data.demo_starts, state.newest
    assert step is not None
    assert began is not None
    assert starts is not None
    size = len(old.number)
    near = matches(step.obs * state.start_scale[None], starts.obs * state.start_scale[None], state.reach)
    playing = jnp.where(began, near, old.playing)
    current = jnp.where(began, (old.begun + jnp.cumsum(began)) % size, old.current)
    so_far = jnp.where(began, 0.0, old.so_far) + step.reward
    at = (old.steps + jnp.arange(len(began))) % size
    first, last = (jnp.where(mask, current, size) for mask in (began, step.terminated | step.truncated))
    return state._replace(
        newest=Episodes(
            rows=jax.tree.map(
                lambda ring, new: ring.at[at].set(new), old.rows, Rows(step.obs, step.action, step.next_obs)
            ),
            number=old.number.at[at].set(current),
            matched=old.matched.at[at].set(playing & known(state, step)),
            returns=old.returns.at[last].set(so_far, mode="drop"),
            ended=old.ended.at[first].set(-1, mode="drop").at[last].set(state.learner.updates, mode="drop"),
            steps=old.steps + len(began),
            current=current,
            so_far=so_far,
            playing=playing,
            begun=old.begun + began.sum(),
        )
    )


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


def compared(state: State, demos: DemoTransitions, cfg: Config) -> Seen:
    now, new = state.learner.updates, state.newest
    size, capacity = len(new.number), len(state.kept.obs)
    there = jnp.arange(size) < new.steps
    matched, ended = there & new.matched, new.ended[new.number]
    fresh = matched & (ended >= 0) & (ended > now - cfg.refresh_every * cfg.enter_every)
    age = (new.steps - 1 - jnp.arange(size)) % size
    return Seen(
        demos=Sample(features_of(state, demos), known(state, demos)),
        fold=demos.group % cfg.folds,
        episode=demos.episode,
        own=Sample(features_of(state, state.kept), jnp.arange(capacity) < state.offered),
        newest=Sample(features_of(state, new.rows), there),
        number=new.number,
        fresh=fresh,
        tested=fresh & (new.returns[new.number] >= state.enough),
        latest=matched & (age < cfg.refresh_every * cfg.num_envs // cfg.grad_steps),
    )


def refresh(state: State, data: Data, cfg: Config, key: PRNGKey) -> State:
    """New tables, multipliers and constraints."""
    demos, now, new = data.demos, state.learner.updates, state.newest
    assert demos is not None
    due = (now // cfg.refresh_every) % cfg.enter_every == 0
    seen = compared(state, jax.lax.optimization_barrier(demos), cfg)
    clone = jax.tree.map(
        lambda old, ring: jnp.where(now < cfg.critics_first, ring[: len(old)], old), state.clone, new.rows
    )
    slots, candidates = ascend(state, seen, cfg)
    slots, candidates = jax.lax.cond(
        due & (now >= cfg.critics_first),
        lambda s, c: enter(state, s, c, seen, cfg),
        lambda s, c: (s, c),
        slots,
        candidates,
    )
    kept, offered = keep(state, seen.fresh & due, key)
    return state._replace(slots=slots, candidates=candidates, kept=kept, offered=offered, clone=clone)


def keep(state: State, taken: Bool[Array, " R"], key: PRNGKey) -> tuple[Rows, Int[Array, ""]]:
    """Reservoir sampling of the newest transitions: old and new ones are kept with the same probability, so that early
    violations stay represented."""
    capacity = len(state.kept.obs)
    number = state.offered + jnp.cumsum(taken) - taken
    drawn = jnp.floor(jax.random.uniform(key, taken.shape) * (number + 1)).astype(jnp.int32)
    place = jnp.where(number < capacity, number, drawn)
    into = jnp.where(taken, place, capacity)  # out of range: dropped
    kept = jax.tree.map(lambda buffer, new: buffer.at[into].set(new, mode="drop"), state.kept, state.newest.rows)
    return kept, state.offered + taken.sum()


def slot_tables(state: State, seen: Seen, cfg: Config) -> Tables:
    """The tables of the constraints that are in."""
    s = state.slots
    made = [marginals.tables(s.grid, shape, seen.demos, seen.fold, seen.own, seen.newest, cfg) for shape in SHAPES]
    kind, slot = jnp.maximum(s.kind, 0), jnp.arange(cfg.slots)
    return Tables(jnp.stack([t.ratio for t in made])[kind, slot], jnp.stack([t.demo.T for t in made])[kind, slot].T)


def ascend(state: State, seen: Seen, cfg: Config) -> tuple[Slots, Candidates]:
    """Tables, budgets and multipliers of the constraints that are in; some leave."""
    s, c, learning = state.slots, state.candidates, state.learner.updates >= cfg.critics_first
    t = slot_tables(state, seen, cfg)
    table = jnp.where(s.filled[:, None], t.novelty, 0.0)
    expected = jnp.where(s.filled, marginals.mean(t.demo, seen.demos.use), 0.0)  # E_D[c_j]
    budget = cfg.occupancy_share * expected
    cells = marginals.cells_of(s.grid, seen.newest.values)
    found = marginals.mean(marginals.look_up(table, cells), seen.latest)
    own = jnp.where(seen.latest.any(), s.own + jnp.where(s.age > 0, 0.3, 1.0) * (found - s.own), s.own)

    # μ_j ← [μ_j + η (E_π[c_j] − b_j)/(E_π[c_j] + b_j)]₊
    excess = jnp.where(seen.latest.any() & learning, (own - budget) / (own + budget + 1e-3), 0.0)
    mu = jnp.where(s.filled, jnp.clip(s.mu + cfg.occupancy_lr * excess, 0.0, cfg.occupancy_most), 0.0)

    better = own < (1.0 - cfg.progress) * s.least
    least, stale = jnp.where(better, own, s.least), jnp.where(better, 0, s.stale + 1)

    # constraints that cannot be met, or that never bind, leave; the first stays
    age, idle = s.age + 1, jnp.where(s.filled & (mu <= 0), s.idle + 1, 0)
    later = s.filled & (jnp.arange(cfg.slots) > 0)
    unmet = later & (age >= cfg.patience) & (own > expected + cfg.costly) & (own > 0.5 * (s.entered + expected))
    kind = jnp.where(unmet | (later & (idle >= cfg.patience)), -1, s.kind)
    allowed = []
    for k, ok in zip(KINDS, c.allowed, strict=True):
        feature = marginals_of(state.features, c, k, cfg)
        same = (feature[:, None] == s.grid.feature[None]).all(-1) & (s.kind == k)[None]
        allowed.append(ok & ~(same & unmet[None]).any(1))
    failed = c.failed + unmet.sum()
    number = state.learner.updates // cfg.refresh_every
    wait = jnp.where(unmet.any(), number + cfg.patience * 2 ** jnp.minimum(failed, 10), c.wait)
    mu = jnp.where(kind >= 0, mu, 0.0)
    clone = marginals.look_up(table, marginals.cells_of(s.grid, features_of(state, state.clone))).mean(0)
    slots = s._replace(
        kind=kind, table=table, mu=mu, budget=budget, own=own, clone=clone, least=least, stale=stale, age=age, idle=idle
    )
    return slots, c._replace(allowed=tuple(allowed), failed=failed, wait=wait)


def enter(state: State, s: Slots, c: Candidates, seen: Seen, cfg: Config) -> tuple[Slots, Candidates]:
    """At most one constraint enters: where the tested episodes exceed the demonstrated ones most, and significantly."""
    f, count = state.features, len(seen.tested)
    expected = s.budget / cfg.occupancy_share
    settled = ~s.filled | (s.own <= expected) | (s.stale >= cfg.patience)  # met, or no longer improving
    ready = settled.all() & ~s.filled.all() & (state.learner.updates // cfg.refresh_every >= c.wait)
    found: list[Slots] = []  # the best candidate of every kind
    ranks, evidence = [], []
    tests = sum(len(ok) for ok in c.allowed)
    least_t = jax.scipy.stats.norm.isf(jnp.minimum(cfg.enter_level / tests, 0.5))  # Bonferroni
    for kind, shape in zip(KINDS, SHAPES, strict=True):
        candidates = marginals_of(f, c, kind, cfg)
        if len(candidates) == 0:
            evidence.append(c.evidence[kind])
            continue
        grid = feature_set.grid_of(candidates, kind, state.ranges, cfg)
        t = marginals.tables(grid, shape, seen.demos, seen.fold, seen.own, seen.newest, cfg)
        table, expected = t.novelty, marginals.mean(t.demo, seen.demos.use)
        novelty = marginals.look_up(table, marginals.cells_of(grid, seen.newest.values))
        mine = marginals.episode_means(novelty, seen.number, seen.tested, count)
        theirs = marginals.episode_means(t.demo, seen.episode, seen.demos.use, len(seen.episode))
        gap, score = marginals.welch(mine, theirs)
        enough = mine.there.sum() >= FEWEST
        evidence.append(jnp.where(enough, cfg.memory * c.evidence[kind] + score, c.evidence[kind]))
        significant = (score > least_t) | (evidence[kind] > least_t / jnp.sqrt(1.0 - cfg.memory**2))
        is_in = ((grid.feature[:, None] == s.grid.feature[None]).all(-1) & (s.kind == kind)[None]).any(1)
        may = c.allowed[kind] & usable(f, grid.feature, kind, cfg) & ~is_in
        weighed = gap * (1.0 - cfg.simpler * FURTHER[kind])
        rank = jnp.where(may & significant & enough & (gap > cfg.enter_gap), weighed, -jnp.inf)
        j = jnp.argmax(rank)
        own, none = marginals.mean(novelty, seen.latest)[j], jnp.int32(0)
        budget, mu = cfg.occupancy_share * expected[j], jnp.asarray(cfg.occupancy_init, jnp.float32)
        bins = Grid(*(leaf[j] for leaf in grid))
        slot = Slots(jnp.int32(kind), bins, table[j], mu, budget, own, own, own, own, none, none, none)
        found.append(slot)
        ranks.append(rank[j])
    if not ranks:  # images and continuous actions: no features
        return s, c
    best = jnp.argmax(jnp.stack(ranks))
    enters = ready & (jnp.stack(ranks).max() > -jnp.inf)
    into = jnp.where(enters, jnp.argmax(~s.filled), cfg.slots)  # out of range: dropped
    s = jax.tree.map(lambda all, *one: all.at[into].set(jnp.stack(one)[best], mode="drop"), s, *found)

    # Evidence about a policy without the new constraint says nothing about the policy with it.
    c = c._replace(evidence=tuple(jnp.where(enters, 0.0, e) for e in evidence))
    return s, with_other_features(f, c, cfg) if f.states > cfg.pair_features else c


def with_other_features(f: Features, c: Candidates, cfg: Config) -> Candidates:
    """Pairs of the features that differ most by themselves. Evidence about other pairs is lost; a pair that was given
    up stays out while both its features are among them."""
    most = len(c.among)
    among = jnp.sort(jnp.argsort(-c.evidence[0][: f.states])[:most]).astype(jnp.int32)
    same, new = (among == c.among).all(), c._replace(among=among)
    evidence = (c.evidence[0], *(jnp.where(same, e, 0.0) for e in c.evidence[1:]))
    allowed = [c.allowed[0]]
    for kind, ok in zip(KINDS[1:], c.allowed[1:], strict=True):
        before, after = (marginals_of(f, x, kind, cfg) for x in (c, new))
        given_up = (after[:, None] == before[None]).all(-1) & ~ok[None]
        allowed.append(~given_up.any(1))
    return new._replace(evidence=evidence, allowed=tuple(allowed))


def novelty_of(state: State, rows: Rows | Transition) -> Float[Array, "B S"]:
    """c_j of transitions, for the constraints that are in."""
    cells = marginals.cells_of(state.slots.grid, features_of(state, rows))
    return jnp.where(known(state, rows)[:, None], marginals.look_up(state.slots.table, cells), 0.0)


def update(state: State, data: Data, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    k_keep, k_learner = jax.random.split(key)
    batch, updates = data.replay, state.learner.updates
    assert batch is not None
    if cfg.grad_steps == 1:
        state = observe(state, data)
    else:  # every step is observed once
        state = jax.lax.cond(updates % cfg.grad_steps == 0, lambda s: observe(s, data), lambda s: s, state)
    due = updates % cfg.refresh_every == 0
    state = jax.lax.cond(due, lambda s: refresh(s, data, cfg, k_keep), lambda s: s, state)

    # SCOPIL from a clone on r' = r/u − Σ_j μ_j c_j + Σ_j μ_j b_j − e · terminated
    s = state.slots
    price = (novelty_of(state, batch) * s.mu[None]).sum(1)
    refund = jnp.minimum((s.mu * s.budget).sum(), cfg.refund * cfg.step_reward)
    end = jnp.where(batch.terminated, state.end_cost * jnp.maximum(s.mu.max(), cfg.occupancy_init), 0.0)
    charged = data._replace(replay=batch._replace(reward=batch.reward / state.unit - price + refund - end))
    learner, metrics = scopil_clone.update(state.learner, charged, cfg, k_learner)

    filled = jnp.maximum(s.filled.sum(), 1)
    metrics |= {
        "occupancy/mu": s.mu.sum(),
        "occupancy/cost": jnp.where(s.filled, s.own, 0.0).sum() / filled,
        "occupancy/clone_cost": jnp.where(s.filled, s.clone, 0.0).sum() / filled,
        "occupancy/demo_cost": s.budget.sum() / cfg.occupancy_share / filled,
        "occupancy/constraints": s.filled.sum().astype(jnp.float32),
        "occupancy/matched": state.newest.playing.mean(dtype=jnp.float32),
        "occupancy/price": price.mean() - refund,
    }
    return state._replace(learner=learner), metrics


def policy(state: State) -> Policy:
    return scopil_clone.policy(state.learner)


def behaviour(state: State) -> Policy:
    return sac.policy(state.learner)


# --- after training ---------------------------------------------------------------------------------------------------


def of_states(state: State) -> Int[Array, " J"]:
    """The slots whose features are all of states, not of actions. Outside jit only."""
    f, feature = state.features, np.asarray(state.slots.grid.feature)
    about = ((feature < f.before) | ((feature >= f.category) & (feature < f.action)) | (feature == f.none)).all(1)
    return jnp.asarray(np.flatnonzero(about & np.asarray(state.slots.filled)), jnp.int32)


def learned_cost(state: State, obs: Array, action: Array) -> Array:
    """The largest c_j of states, over the constraints on states; the actions are ignored."""
    rows = obs.reshape(-1, obs.shape[-1])
    s, at = state.slots, of_states(state)
    values = state.features(rows, jnp.zeros((len(rows), max(state.features.actions, 1))), rows, state.values)
    cells = marginals.cells_of(Grid(*(leaf[at] for leaf in s.grid)), values)
    return marginals.look_up(s.table[at], cells).max(1, initial=0.0).reshape(obs.shape[:-1])


def monitor(state: State, demos: DemoTransitions, cfg: Config) -> Monitor:
    """A monitor of the familiarity of states relative to the demonstrations."""
    at = of_states(state)
    made = slot_tables(state, compared(state, demos, cfg), cfg)
    blank = jnp.zeros((cfg.folds, len(demos.obs)), jnp.float32)
    grid = Grid(*(leaf[at] for leaf in state.slots.grid))
    empty = Monitor(state.features, state.values, grid, made.ratio[at], blank, jnp.zeros(cfg.folds, jnp.int32))
    if len(at) == 0:
        return empty
    held_out = jnp.arange(cfg.folds)[:, None] == (demos.group % cfg.folds)[None]
    shown = jnp.sort(jnp.where(held_out, scores(empty, demos.next_obs), -jnp.inf), axis=1)
    return empty._replace(shown=shown, known=held_out.sum(1))


def learned(state: State, demos: DemoTransitions, cfg: Config) -> list[Marginal]:
    """The constraints that are in, as arrays on the host; the largest multiplier first."""
    f, s, seen = state.features, state.slots, compared(state, demos, cfg)
    shown, own = (np.asarray(sample.values)[np.asarray(sample.use)] for sample in (seen.demos, seen.own))
    episode, head = np.asarray(demos.episode)[np.asarray(seen.demos.use)], state.learner.head
    first = getattr(head, "start", 0)
    actions = range(first, first + head.num_actions)
    found = []
    for i in np.flatnonzero(np.asarray(s.filled)):
        columns = [int(c) for c in np.asarray(s.grid.feature[i]) if c != f.none]
        axes, table = on_host(f, Grid(*(leaf[i] for leaf in s.grid)), s.table[i], np.asarray(state.values), actions)
        budget = float(s.budget[i])
        found.append(
            Marginal(
                axes=axes,
                novelty=table,
                multiplier=float(s.mu[i]),
                budget=budget,
                demo_novelty=budget / float(cfg.occupancy_share),
                own_novelty=float(s.own[i]),
                demo=shown[:, columns],
                demo_episode=episode,
                own=own[:, columns],
            )
        )
    return sorted(found, key=lambda m: -m.multiplier)


def on_host(
    f: Features, grid: Grid, table: Float[Array, " T"], categories: np.ndarray, actions: range
) -> tuple[tuple[Axis, ...], np.ndarray]:
    """The axes and the table of one marginal, without axes that it does not have and bins without a value. `actions`
    are the discrete actions."""
    bins = [int(n) for n in grid.bins]
    axes = []
    for column, low, width, size in zip(*(np.asarray(leaf).tolist() for leaf in grid[:4]), strict=True):
        if column == f.none:
            continue
        name, code = f.label(column), f.code(column, before=f.before <= column < f.category)
        module = f.own.call.rpartition(".")[0] if f.own is not None and f.is_own(column) else ""
        if column == f.action and f.actions == 0:
            axes.append(Axis(name, code, values=tuple(actions)))
        elif f.category <= column < f.action:
            known = [float(v) if v < NONE else None for v in categories[f.used[column - f.category]]]
            axes.append(Axis(name, code, values=(*known, None), module=module))
        else:
            axes.append(Axis(name, code, edges=low + width * np.arange(size + 1), module=module))
    cells = np.asarray(table)[: int(np.prod(bins))].reshape(bins[: len(axes)])
    for at, axis in enumerate(axes):
        if axis.values is not None:
            cells = cells.take(range(len(axis.values)), axis=at)
    return tuple(axes), cells


def remarks(state: State, cfg: Config) -> list[str]:
    """What training watches (before it) and which constraints bound (after it), one line each."""
    f, s, learner = state.features, state.slots, state.learner
    if int(learner.updates) == 0:
        names = ", ".join(f.names[:MOST_NAMES]) + (f", … ({len(f.names)} in all)" if len(f.names) > MOST_NAMES else "")
        lambda_, mu = cfg.multiplier_init, cfg.occupancy_init
        slow = [f.own.call] if f.own is not None and not f.own.compiled else []
        said = [f"{call} runs in Python, once per observation; with jax.numpy it is compiled" for call in slow]
        return [*said, f"watches {names or 'no features of images'}; λ₀ = {lambda_:g}, μ₀ = {mu:g}, δ from the clone"]
    lines = [f"λ = {float(learner.multiplier):.2g}, δ = {float(learner.slack):.2g} nats"]
    for i in np.argsort(-np.asarray(s.mu), kind="stable"):
        if not bool(s.filled[i]):
            continue
        name = name_of([f.label(int(c)) for c in np.asarray(s.grid.feature[i]) if c != f.none])
        own, shown = float(s.own[i]), float(s.budget[i]) / float(cfg.occupancy_share)
        does = "does not bind" if float(s.mu[i]) <= 0 else "binds"
        if float(s.mu[i]) >= float(cfg.occupancy_most) and own > shown:
            does = "binds and is not met: the largest price does not keep the policy as the demonstrations are"
        lines.append(f"{name}: {does} (μ = {float(s.mu[i]):.1f}, novelty {own:.3f}, demonstrations {shown:.3f})")
    if float(s.own.sum()) > float(s.clone.sum()) and float(learner.multiplier) <= 0.01:
        lines.append("warning: λ is 0 and the policy is more novel than its clone; more demonstrations may help")
    return lines


ALGORITHM = Algorithm(
    name="scopil-rho",
    title="SCOPIL-ρ",
    summary="SCOPIL under learned constraints on states and actions, for unseen starts",
    config=Config,
    init=init,
    update=update,
    policy=policy,
    behaviour=behaviour,
    wants=frozenset({"replay", "newest", "demo_batch", "demos", "demo_starts"}),
    prepare=prepare,
    curves=(
        Curve("occupancy/mu", "Multipliers Σ μ", "μ"),
        Curve("occupancy/cost", "Novelty c of the policy's newest transitions", "c"),
        Curve("occupancy/clone_cost", "Novelty c of the clone's transitions"),
        Curve("occupancy/demo_cost", "Novelty c of held-out demonstrations"),
        Curve("occupancy/constraints", "Constraints that are in"),
        *scopil_clone.CURVES,
    ),
    replay_demos=True,
    demo_filter=cloning.deliberate,
    short_run=scopil_clone.short_run,
    learned_cost=learned_cost,
    monitor=monitor,
    marginals=learned,
    remarks=remarks,
)
