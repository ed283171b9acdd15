"""SCOPIL-ρ: SCOPIL from a clone (scopil_clone.py) under occupancy constraints on marginals of the transitions.

    c_j(s, a, s')                                          novelty in marginal j, a table (losses/marginals.py)
    E_π[c_j] ≤ κ E_D[c_j] = b_j                            one constraint per marginal that is in (occupancy.py)
    r'    = r/u − Σ_j μ_j c_j + min(Σ_j μ_j b_j, m) − e · terminated
                                                           the critics' reward; e > 0 if no demonstration terminates
    Q_c   expected future novelty Σ_j v_j c_j, at most 1 per step (guard.py), v_j = 1/(1 + constraints older than j)
    w     = 1 − min(Σ_j c_j, 1)                            how familiar a transition of the replay is
    θ:      minimise −J_π(θ) + λ G(θ) + ω E_B [w D(π, π₀)]
            D = KL(π ‖ π₀), of continuous actions log(1 + KL(π ‖ π₀))
    π'      π in the actions with Q_c ≤ τ: the acting policy, and the deployed one

u is the unit of reward: the mean |r| of a demonstrated step becomes `step_reward`, so that λ, μ and α do not depend on
the scale of the reward. The first constraint is on the two slowest components. Others enter one at a time. While
learning, an episode is stopped after more novel steps in a row than demonstrations have. Temperature, λ and the
averaged policy are those of SCOPIL from a clone; when a constraint enters, only the critics learn for some steps. The
learner receives no cost. Derivation: docs/algorithms/scopil_rho.md.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from scopil.algos import cloning, guard, learned_constraints, occupancy, sac, scopil_clone
from scopil.algos.base import Algorithm, Curve, Data, Metrics, Spaces
from scopil.algos.guard import Guard
from scopil.algos.occupancy import Candidates, Seen, Slots
from scopil.config import config, setting
from scopil.data.dataset import DemoTransitions
from scopil.errors import ConfigError
from scopil.losses import features as feature_set
from scopil.losses import marginals
from scopil.losses.familiarity import Monitor
from scopil.losses.features import NONE, Features, Ranges
from scopil.losses.marginals import CATEGORIES, Sample
from scopil.losses.matched import matches, reach_of
from scopil.marginal import Marginal
from scopil.nn.nets import Net
from scopil.policy import Policy
from scopil.types import PRNGKey, Transition
from scopil.user_code import Named, split_name

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
    # A rule that is kept has a price only as long as the price stays. If μ fell as fast as it rises, the policy would
    # break the rule again and again.
    occupancy_fall: float = setting(default=0.1, about="Rate at which μ falls, relative to η.", low=0)
    # Later constraints must not take the price from older ones, which were needed more.
    occupancy_most: float = setting(
        default=20.0, about="Largest μ of the oldest constraint; the k-th oldest has at most a k-th of it.", low=0
    )
    same_place: float = setting(
        default=0.5, about="Largest correlation of the two components of the first constraint.", low=0, high=1
    )
    occupancy_share: float = setting(
        default=0.5, about="κ: allowed novelty of the policy, relative to held-out demonstrations.", low=1e-3
    )
    # Held-out demonstrations are beyond a limit by the error of its estimate alone.
    limit_share: float = setting(default=0.1, about="κ of tables with a limit.", low=1e-3)
    # With more, standing still in familiar states would earn more than a step costs.
    refund: float = setting(default=0.9, about="m: largest budget Σ μ b, in mean demonstrated rewards.", low=0)
    quantile: float = setting(
        default=0.7, about="q: the share of held-out demonstrated transitions that cost nothing.", low=0, high=1
    )
    background: float = setting(default=0.1, about="ε: weight of the newest transitions, in both densities.", low=0)
    tail: float = setting(
        default=0.02,
        about="In a table with a limit, the cells are novel beyond which at most this share of the demonstrated "
        "transitions of the same slice lies.",
        low=0,
        high=1,
    )
    # A rule says what is never done, not what is done less often.
    rare: float = setting(
        default=0.5,
        about="In other tables, only cells with a density of demonstrations below its quantile of this level over the "
        "demonstrated transitions are novel.",
        low=0,
        high=1,
    )
    folds: int = setting(default=4, about="K: number of tables per marginal; each is made without a fold.", low=2)
    margin: float = setting(default=0.25, about="Bins beyond the demonstrated range on each side, in ranges.", low=0)
    # The edge of a limit is sharp; a hole in two features is found only with more blur. Both are tried.
    line_blur: float = setting(default=0.0055, about="Smallest σ for a feature with a limit, in ranges.", low=0)
    line_blur_most: float = setting(default=0.012, about="Largest σ for a limit; between: a step's change.", low=0)
    where_blur: float = setting(default=0.02, about="σ for the feature that a limit depends on, in ranges.", low=0)
    blur: float = setting(default=0.035, about="σ for other features, in ranges.", low=0)
    # A component that is constant in an episode has as many values as there are episodes.
    blur_reach: float = setting(
        default=0.9,
        about="σ is at least the distance to another episode that this share of demonstrated values does not exceed.",
        low=0,
        high=1,
    )
    limit_known: float = setting(
        default=0.1,
        about="A slice has a limit if its share of the demonstrations exceeds this part of its share of the learner's "
        "transitions.",
        low=0,
    )
    slots: int = setting(default=8, about="Largest number of constraints.", low=1)
    pair_features: int = setting(default=16, about="Features that pairs are made of, at most.", low=2)
    triple_features: int = setting(default=8, about="Features that pairs with a category are made of, at most.", low=2)
    most_categories: int = setting(default=4, about="Components with few values that are used as categories.", low=0)
    refresh_every: int = setting(default=1_000, about="Gradient steps between tables.", low=1)
    refresh_first: int = setting(default=250, about="Gradient steps between tables before the actor learns.", low=1)
    enter_every: int = setting(default=3, about="Refreshes between tests for entry.", low=1)
    settle: int = setting(default=2_000, about="Gradient steps of the critics alone after an entry.", low=0)
    enter_level: float = setting(default=0.002, about="Level of a test for entry (Welch's t over episodes).", low=0)
    # A table over two features prices lawful transitions too. A large new price would change every step at once.
    enter_price: float = setting(
        default=0.25, about="What a demonstrated step pays at an entry, at most, in mean demonstrated rewards.", low=0
    )
    enter_gap: float = setting(default=0.003, about="Smallest difference of novelty for entry.", low=0)
    memory: float = setting(default=0.7, about="Decay of the evidence of earlier tests.", low=0, high=0.99)
    simpler: float = setting(
        default=0.1, about="Share of the difference that a further axis must add.", low=0, high=0.4
    )
    # A limit says more exactly than a hole what is not done: its edge is sharp.
    limit_gain: float = setting(default=3.0, about="Weight of a limit's difference, against other candidates.", low=0)
    patience: int = setting(
        default=12, about="Refreshes in which a constraint must halve the difference, or improve.", low=1
    )
    progress: float = setting(default=0.02, about="Relative fall of the novelty that counts as improvement.", low=0)
    harm: float = setting(
        default=1.5, about="A constraint leaves if the novelty in older ones has risen by this factor.", low=1
    )
    costly: float = setting(default=0.05, about="Novelty above the demonstrations' that counts as not met.", low=0)
    good: float = setting(
        default=0.1, about="Quantile of demonstrated returns that a tested episode reaches.", low=0, high=1
    )
    matched_capacity: int = setting(default=20_000, about="Transitions of matched episodes that are kept (B).", low=1)
    anchor: float = setting(
        default=0.3,
        about="ω: weight of KL(π ‖ π₀), π₀ the softened clone, in familiar states, in units of the reward r/u.",
        low=0,
    )
    recent: int = setting(default=4_000, about="Newest transitions (A).", low=1)
    matched_within: float = setting(
        default=0.9,
        about="An episode is matched if its start is within this quantile of distances between demonstrated starts.",
        low=0,
        high=1,
    )
    shield: Literal["off", "learning", "always"] = setting(
        default="always", about="Which policies are behind the shield: none, the acting one, or the deployed one too."
    )
    stop_quantile: float = setting(
        default=0.95, about="Share of demonstrated episodes that would not be stopped for novelty.", low=0, high=1
    )
    # A step can still be corrected within about ten steps.
    shield_discount: float = setting(default=0.9, about="γ_c: discount of the novelty.", low=0, high=1)
    shield_quantile: float = setting(
        default=0.98, about="Share of demonstrated steps that the shield would allow while learning.", low=0, high=1
    )
    shield_hidden: tuple[int, ...] = setting(
        default=(32, 32), about="Widths of the hidden layers of the shield's critics.", low=1
    )
    shield_first: int = setting(default=500, about="Gradient steps before the shield is used.", low=0)
    # Early critics block lawful actions. While learning this costs time; a deployed policy would break rules.
    shield_deployed: int = setting(
        default=50_000, about="Gradient steps before the deployed policy is behind the shield.", low=0
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
    stopped: Bool[Array, " R"]  # by number: whether it was stopped
    ended: Int[Array, " R"]  # by number: the update; −1: not ended
    steps: Int[Array, ""]  # transitions so far
    # of every environment
    current: Int[Array, " N"]  # number of its episode
    so_far: Float[Array, " N"]  # return
    playing: Bool[Array, " N"]  # whether its episode is matched
    novel: Int[Array, " N"]  # novel steps in a row
    begun: Int[Array, ""]  # episodes so far


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
    clone: Episodes  # the newest transitions of the clone, before the actor learns
    slots: Slots
    candidates: Candidates
    guard: Guard
    anchor: Net  # π₀: the softened clone
    patience: Int[Array, ""]  # novel steps in a row after which an episode is stopped
    shield: "Shielded"


class Shielded(eqx.Module):
    """Which policies are behind the shield: the settings, as a part of the state."""

    which: str = eqx.field(static=True)
    deployed: int = eqx.field(static=True)  # gradient steps before the deployed policy is


# --- before training --------------------------------------------------------------------------------------------------


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    head, d = spaces.head, spaces.obs_dim
    actions = head.num_actions if head.continuous else 0
    f = chosen_features(spaces.columns if spaces.image is None else (), actions, cfg, d, spaces.codec)

    def rows(count: int) -> Rows:
        obs = jnp.zeros((count, d), jnp.float32)
        shape = (count, head.num_actions) if head.continuous else (count,)
        return Rows(obs, jnp.zeros(shape, jnp.float32 if head.continuous else jnp.int32), obs)

    n, r, width = cfg.num_envs, cfg.recent, f.none + 1
    zero, blank, per_feature = jnp.float32(0.0), jnp.zeros(d, jnp.float32), jnp.zeros(width, jnp.float32)
    newest = Episodes(
        rows=rows(r),
        number=jnp.zeros(r, jnp.int32),
        matched=jnp.zeros(r, bool),
        returns=jnp.zeros(r, jnp.float32),
        stopped=jnp.zeros(r, bool),
        ended=jnp.full(r, -1, jnp.int32),
        steps=jnp.int32(0),
        current=jnp.zeros(n, jnp.int32),
        so_far=jnp.zeros(n, jnp.float32),
        playing=jnp.zeros(n, bool),
        novel=jnp.zeros(n, jnp.int32),
        begun=jnp.int32(0),
    )
    learner = scopil_clone.init(key, spaces, cfg)
    return State(
        learner=learner,
        features=f,
        ranges=Ranges(per_feature, per_feature + 1, per_feature, per_feature, per_feature > 0, per_feature > 0),
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
        newest=newest,
        clone=newest,
        slots=occupancy.no_slots(cfg.slots),
        candidates=occupancy.new_candidates(f, cfg),
        guard=guard.new_guard(jax.random.fold_in(key, 1), spaces, cfg.shield_hidden),
        anchor=learner.actor.params,
        patience=jnp.int32(occupancy.NEVER),
        shield=Shielded(cfg.shield, cfg.shield_deployed),
    )


def chosen_features(columns: Sequence[str], actions: int, cfg: Config, width: int, codec: Any) -> Features:
    """The features that the settings choose, of observations with `width` numbers."""
    own = [name for name in cfg.features if isinstance(name, Named)]
    try:
        if len(own) > 1:
            raise ValueError(f"features = {', '.join(own)}; want one function that returns all numbers.")
        made = [feature_set.own_of(name, width, codec, f"{name.module}.{split_name(name)[1]}") for name in own]
        box = getattr(codec, "observation", None)
        bounds = None if box is None else np.stack([box.low, box.high])
        f = feature_set.features_of(columns, actions, [n for n in cfg.features if n not in own], *made, bounds=bounds)
        occupancy.labels(f, cfg.strike)
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
    ranges = feature_set.ranges_of(f, features_of(state, rows), demos.episode, change, few, cfg.blur_reach)
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
    saved = jnp.sum(cfg.discount ** jnp.arange(1.0, length + 1.0))

    # B begins with the demonstrations, so that the ratio starts at 1
    told = known(state, rows)
    count = min(len(before), cfg.matched_capacity)
    order = jnp.argsort(~told, stable=True)[:count]
    kept = jax.tree.map(lambda buffer, new: buffer.at[:count].set(new[order]), state.kept, rows)

    # Typical change in one step over standard deviation, of the state features
    values_first, values_then = f.of_states(first), f.of_states(then)
    step = jnp.sqrt(jnp.mean((values_then - values_first) ** 2, axis=0))
    constant = np.append(few[used], np.zeros(len(f.derived), bool)) | (step <= 0)
    pace = jnp.where(constant, jnp.inf, step / jnp.maximum(values_first.std(0), 1e-9))
    candidates = state.candidates._replace(
        among=occupancy.first_features(f, pace, cfg),
        categories=jnp.full(cfg.most_categories, -1).at[: len(kinds)].set(kinds),
    )
    learner = scopil_clone.prepare(state.learner, data, cfg, key)
    return state._replace(
        learner=learner,
        anchor=learner.actor.params,
        start_scale=scale,
        reach=reach_of(starts.obs * scale[None], starts.group, cfg.matched_within),
        enough=enough,
        end_cost=jnp.where(demos.terminated.any(), 0.0, saved).astype(jnp.float32),
        unit=unit,
        kept=kept,
        offered=jnp.minimum(told.sum(), count).astype(jnp.int32),
        candidates=candidates,
        slots=occupancy.first_constraint(f, ranges, state.slots, pace, values_first, cfg),
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
    strange = novelty_of(state, step).max(1) >= occupancy.NOVEL
    novel = jnp.where(strange, jnp.where(began, 0, old.novel) + 1, 0)
    stopped = novel >= state.patience
    over = step.terminated | step.truncated | stopped
    first, last = (jnp.where(mask, current, size) for mask in (began, over))
    return state._replace(
        newest=Episodes(
            rows=jax.tree.map(
                lambda ring, new: ring.at[at].set(new), old.rows, Rows(step.obs, step.action, step.next_obs)
            ),
            number=old.number.at[at].set(current),
            matched=old.matched.at[at].set(playing & known(state, step)),
            returns=old.returns.at[last].set(so_far, mode="drop"),
            stopped=old.stopped.at[last].set(stopped, mode="drop"),
            ended=old.ended.at[first].set(-1, mode="drop").at[last].set(state.learner.updates, mode="drop"),
            steps=old.steps + len(began),
            current=current,
            so_far=so_far,
            playing=playing,
            novel=novel,
            begun=old.begun + began.sum(),
        )
    )


def compared(state: State, demos: DemoTransitions, cfg: Config) -> Seen:
    now, new = state.learner.updates, state.newest
    size, capacity = len(new.number), len(state.kept.obs)
    there = jnp.arange(size) < new.steps
    matched, ended = there & new.matched, new.ended[new.number]
    fresh = matched & (ended >= 0) & (ended > now - since(now, cfg))
    age, first = (new.steps - 1 - jnp.arange(size)) % size, state.clone
    return Seen(
        demos=Sample(features_of(state, demos), known(state, demos)),
        fold=demos.group % cfg.folds,
        episode=demos.episode,
        own=Sample(features_of(state, state.kept), jnp.arange(capacity) < state.offered),
        newest=Sample(features_of(state, new.rows), there),
        number=new.number,
        fresh=fresh,
        tested=fresh & (new.returns[new.number] >= state.enough) & ~new.stopped[new.number],
        latest=matched & (age < cfg.refresh_every * cfg.num_envs // cfg.grad_steps),
        clone=Sample(features_of(state, first.rows), first.matched & (jnp.arange(size) < first.steps)),
    )


def since(now: Int[Array, ""], cfg: Config) -> Int[Array, ""]:
    """Gradient steps since the last test or, before the actor learns, since the last tables."""
    return jnp.where(now <= cfg.critics_first, cfg.refresh_first, cfg.refresh_every * cfg.enter_every)


def refresh(state: State, data: Data, cfg: Config, key: PRNGKey) -> State:
    """New tables, multipliers and constraints, and the limits of the shield."""
    demos, now, learner = data.demos, state.learner.updates, state.learner
    assert demos is not None
    first, number = now <= cfg.critics_first, now // cfg.refresh_every
    due = ~first & (number % cfg.enter_every == 0)
    k_first, k_keep = jax.random.split(key)
    demos = jax.lax.optimization_barrier(demos)
    state = keep(state, compared(state, demos, cfg).fresh & first, k_first)
    state = state._replace(clone=jax.tree.map(lambda a, b: jnp.where(first, a, b), state.newest, state.clone))

    seen, f = compared(state, demos, cfg), state.features
    tables = occupancy.slot_tables(state.slots, seen, cfg)
    slots = occupancy.ascend(state.slots, tables, seen, now >= cfg.critics_first, cfg)
    patience = state.patience
    if cfg.shield != "off":
        patience = occupancy.novel_in_a_row(slots, tables, seen, cfg.stop_quantile)
    slots, candidates = occupancy.leave(slots, state.candidates, f, state.ranges, number, cfg)
    slots, candidates, enters = jax.lax.cond(
        due & occupancy.ready(slots, candidates, number, cfg),
        lambda s, c: occupancy.enter(s, c, seen, f, state.ranges, cfg),
        lambda s, c: (s, c, jnp.bool_(False)),
        slots,
        candidates,
    )
    # The rewards of the whole replay change with a new constraint. An actor that followed the old critics would forget
    # what it has learned.
    learner = learner._replace(critics_until=jnp.where(enters, now + cfg.settle, learner.critics_until))
    limited = guard.calibrated(state.guard, demos, learner.obs_stats, learner.head, cfg.shield_quantile)
    watched = jax.tree.map(lambda new, old: jnp.where(now >= cfg.shield_first, new, old), limited, state.guard)
    state = keep(state, seen.fresh & due, k_keep)
    return state._replace(learner=learner, slots=slots, candidates=candidates, guard=watched, patience=patience)


def keep(state: State, taken: Bool[Array, " R"], key: PRNGKey) -> State:
    """Reservoir sampling of the newest transitions: old and new ones are kept with the same probability, so that early
    violations stay represented."""
    capacity = len(state.kept.obs)
    number = state.offered + jnp.cumsum(taken) - taken
    drawn = jnp.floor(jax.random.uniform(key, taken.shape) * (number + 1)).astype(jnp.int32)
    place = jnp.where(number < capacity, number, drawn)
    into = jnp.where(taken, place, capacity)  # out of range: dropped
    kept = jax.tree.map(lambda buffer, new: buffer.at[into].set(new, mode="drop"), state.kept, state.newest.rows)
    return state._replace(kept=kept, offered=state.offered + taken.sum())


def novelty_of(state: State, rows: Rows | Transition) -> Float[Array, "B S"]:
    """c_j of transitions, for the constraints that are in."""
    cells = marginals.cells_of(state.slots.grid, features_of(state, rows))
    return jnp.where(known(state, rows)[:, None], marginals.look_up(state.slots.table, cells), 0.0)


def update(state: State, data: Data, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    k_keep, k_learner, k_guard = jax.random.split(key, 3)
    batch, updates = data.replay, state.learner.updates
    assert batch is not None
    assert data.newest is not None
    if cfg.grad_steps == 1:
        state = observe(state, data)
    else:  # every step is observed once
        state = jax.lax.cond(updates % cfg.grad_steps == 0, lambda s: observe(s, data), lambda s: s, state)
    due = updates % jnp.where(updates <= cfg.critics_first, cfg.refresh_first, cfg.refresh_every) == 0
    state = jax.lax.cond(due, lambda s: refresh(s, data, cfg, k_keep), lambda s: s, state)

    # Q_c: expected future novelty Σ_j v_j c_j
    s, c, watched, m_guard = state.slots, novelty_of(state, batch), state.guard, {}
    if cfg.shield != "off":
        x = sac.preprocess(state.learner, data, k_guard, learn_stats=False)
        novelty = jnp.minimum((c / occupancy.rank(s)[None]).sum(1), 1.0)
        watched, m_guard = guard.step(state.guard, state.learner.actor.params, x, novelty, cfg)

    # SCOPIL from a clone on r' = r/u − Σ_j μ_j c_j + min(Σ_j μ_j b_j, m) − e · terminated. For the actor: ω w D(π, π₀)
    price = (c * s.mu[None]).sum(1)
    refund = jnp.minimum((s.mu * s.budget).sum(), cfg.refund * cfg.step_reward)
    end = jnp.where(batch.terminated, state.end_cost * jnp.maximum(s.mu.max(), cfg.occupancy_init), 0.0)
    charged = data._replace(replay=batch._replace(reward=batch.reward / state.unit - price + refund - end))

    familiar = 1.0 - jnp.minimum(c.sum(1), 1.0)

    def beyond(actor: Net, x: sac.Inputs) -> Float[Array, ""]:
        return cfg.anchor * (familiar * x.op.apart(state.anchor, actor, x.s)).mean()

    learner, metrics = scopil_clone.update(state.learner, charged, cfg, k_learner, beyond)

    filled = jnp.maximum(s.filled.sum(), 1)
    metrics |= {
        "occupancy/mu": s.mu.sum(),
        "occupancy/cost": jnp.where(s.filled, s.own, 0.0).sum() / filled,
        "occupancy/clone_cost": jnp.where(s.filled, s.clone, 0.0).sum() / filled,
        "occupancy/demo_cost": (s.budget / occupancy.share_of(s.grid, cfg)).sum() / filled,
        "occupancy/constraints": s.filled.sum().astype(jnp.float32),
        "occupancy/matched": state.newest.playing.mean(dtype=jnp.float32),
        "occupancy/price": price.mean() - refund,
    }
    if cfg.shield != "off":
        interventions = guard.blocked(state.guard, state.learner, data.newest.obs, jax.random.fold_in(k_guard, 1))
        metrics |= m_guard | {"shield/limit": state.guard.limit, "shield/interventions": interventions}
    return state._replace(learner=learner, guard=watched), metrics


def policy(state: State) -> Policy:
    """The averaged policy, behind the shield that it has learned with."""
    pi, which = scopil_clone.policy(state.learner), state.shield
    limit = jnp.where(state.learner.updates >= which.deployed, state.guard.limit, guard.UNLIMITED)
    return shielded(pi, state.guard._replace(limit=limit)) if which.which == "always" else pi


def behaviour(state: State) -> Policy:
    pi = sac.policy(state.learner)
    return pi if state.shield.which == "off" else shielded(pi, state.guard)


def shielded(pi: Policy, watched: Guard) -> Policy:
    return Policy(pi.normaliser, pi.network, pi.head, guard.shield(watched))


def stops(state: State) -> Bool[Array, " N"]:
    """The environments whose episodes have been novel for too long."""
    return state.newest.novel >= state.patience


# --- after training ---------------------------------------------------------------------------------------------------


def monitor(state: State, demos: DemoTransitions, cfg: Config) -> Monitor:
    """A monitor of the familiarity of states relative to the demonstrations."""
    return learned_constraints.monitor(state, demos, compared(state, demos, cfg), cfg)


def learned(state: State, demos: DemoTransitions, cfg: Config, beside: DemoTransitions | None = None) -> list[Marginal]:
    """The constraints that are in, as arrays on the host; the largest multiplier first. With the transitions `beside`,
    of another policy, the tables compare these with the demonstrations in place of the learner's."""
    seen = compared(state, demos, cfg)
    if beside is None:
        return learned_constraints.learned(state, demos, seen, cfg)
    other = Sample(features_of(state, beside), known(state, beside))
    seen = seen._replace(own=other, newest=other)
    table = occupancy.slot_tables(state.slots, seen, cfg).novelty
    state = state._replace(slots=state.slots._replace(table=table))
    found = learned_constraints.learned(state, demos, seen, cfg)
    return [replace(marginal, whose="the policy beside") for marginal in found]


ALGORITHM = Algorithm(
    name="scopil-rho",
    title="SCOPIL-ρ",
    summary="SCOPIL under learned constraints on states and actions, for unseen starts",
    config=Config,
    init=init,
    update=update,
    policy=policy,
    behaviour=behaviour,
    stops=stops,
    wants=frozenset({"replay", "newest", "demo_batch", "demos", "demo_starts"}),
    prepare=prepare,
    preparing="clone: learns the demonstrated actions",
    curves=(
        Curve("occupancy/mu", "Multipliers Σ μ", "μ"),
        Curve("occupancy/cost", "Novelty c of the policy's newest transitions", "c"),
        Curve("occupancy/clone_cost", "Novelty c of the clone's transitions"),
        Curve("occupancy/demo_cost", "Novelty c of held-out demonstrations"),
        Curve("occupancy/constraints", "Constraints that are in"),
        Curve("shield/interventions", "Share of training steps whose action the shield replaced"),
        *scopil_clone.CURVES,
    ),
    replay_demos=True,
    demo_filter=cloning.deliberate,
    short_run=scopil_clone.short_run,
    learned_cost=learned_constraints.learned_cost,
    monitor=monitor,
    marginals=learned,
    remarks=learned_constraints.remarks,
)
