"""SCOPIL-ρ: SCOPIL from a clone (scopil_clone.py) with a second constraint, on the states that the policy visits.

    c(s)  = mean_k clip(f_k(s) − τ_k, 0, 1)                 novelty of a state relative to the demonstrations
    E_π[c] ≤ κ E_D[c]                                       the occupancy constraint
    r'    = r − μ (c(s') + e · terminated)                  the critics' reward; e > 0 if no demonstration terminates
    μ     ← [μ + η (c(s'_newest) − κ E_D[c])]₊

f_k and τ_k are learned together with the policy (losses/density_ratio.py). Actor, temperature and λ are those of SCOPIL
from a clone. The learner receives no cost from the environment. Derivation:
docs/algorithms/scopil_rho.md.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.algos import cloning, sac, scopil_clone
from scopil.algos.base import Algorithm, Curve, Data, Metrics, Spaces
from scopil.buffers import matched_states
from scopil.buffers.matched_states import MatchedStates
from scopil.buffers.replay import uniform_indices
from scopil.config import config, setting
from scopil.data.dataset import DemoTransitions
from scopil.errors import ConfigError
from scopil.losses import constraints, density_ratio
from scopil.losses.density_ratio import DensityRatio
from scopil.policy import Policy
from scopil.types import PRNGKey


@config
class Config(scopil_clone.Config):
    """Settings of SCOPIL from a clone and of the occupancy constraint. The defaults were chosen on Marble Maze."""

    learning_rate: float = setting(default=1e-3, about="Learning rate η of policy and critics (Adam).", low=0)
    multiplier_init: float = setting(default=1.05, about="λ₀: initial multiplier, in units of reward.", low=0)
    multiplier_lr: float = setting(
        default=3e-4, about="Learning rate η of λ (gradient ascent), in units of reward.", low=0
    )
    return_unit: float = setting(
        default=13.0, about="The unit of reward is |Σ γᵗ r| of a demonstrated episode divided by this.", low=1e-6
    )
    # With β = ½ the policy tends to the minimum of −log π − αH as λ grows. There −log π is 0.27 nats
    # for nine actions and α = 0.4.
    entropy_split: float = setting(default=0.0, about="β: the constraint's share of the entropy bonus.", low=0, high=1)
    occupancy_init: float = setting(default=4.0, about="μ₀: initial multiplier of the occupancy constraint.", low=0)
    occupancy_lr: float = setting(default=3e-4, about="Learning rate η of μ (gradient ascent); 0 keeps μ at μ₀.", low=0)
    occupancy_share: float = setting(
        default=0.5, about="κ: allowed novelty of the policy's states, relative to held-out demonstrations.", low=0
    )
    features: tuple[int, ...] | None = setting(
        default=None, about="Indices of the observation's components that c uses. None: the slowest ones.", low=0
    )
    slow: float = setting(
        default=1.5, about="A component is used if it changes at most this many times as fast as the slowest.", low=1
    )
    one_way: float = setting(
        default=0.9,
        about="A component drifts one way if its net change over an episode exceeds this share of its range.",
        low=0,
        high=1,
    )
    last_share: float = setting(
        default=0.9, about="The last part of an episode begins at this share of its steps.", low=0, high=1
    )
    last_drift: float = setting(
        default=0.05, about="A drifting component covers more than this share of its range in the last part.", low=0
    )
    blur: float = setting(default=1.0, about="σ of a component's noise, in units of its RMS change per step.", low=0)
    folds: int = setting(default=4, about="K: number of classifiers; each is trained without one of K folds.", low=2)
    quantile: float = setting(
        default=0.7, about="q: the share of held-out demonstrated states that cost nothing.", low=0, high=1
    )
    threshold_lr: float = setting(default=0.01, about="Step size of the thresholds τ_k.", low=0)
    background: float = setting(default=0.1, about="ε: weight of states of any episode, added to both classes.", low=0)
    classifier_width: int = setting(default=32, about="Width of the classifiers' two hidden layers.", low=1)
    classifier_lr: float = setting(default=3e-3, about="Learning rate η of the classifiers (Adam).", low=0)
    classifier_batch_size: int = setting(default=128, about="States of each class per step of the classifiers.", low=1)
    classifier_every: int = setting(default=4, about="Gradient steps of the policy per step of the classifiers.", low=1)
    matched_capacity: int = setting(default=20_000, about="Number of states of matched episodes that are kept.", low=1)
    matched_within: float = setting(
        default=0.9,
        about="An episode is matched if its start is within this quantile of distances between demonstrated starts.",
        low=0,
        high=1,
    )

    def problem(self) -> str | None:
        for name in ("batch_size", "demo_batch_size"):
            if self.classifier_batch_size > getattr(self, name):
                return f"classifier_batch_size {self.classifier_batch_size} exceeds {name} {getattr(self, name)}."
        return super().problem()


class State(NamedTuple):
    learner: scopil_clone.State
    ratio: DensityRatio
    own: MatchedStates  # states of the learner that are compared with the demonstrations
    occupancy: Float[Array, ""]  # μ
    end_cost: Float[Array, ""]  # e


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    if cfg.features is not None and max(cfg.features) >= spaces.obs_dim:
        raise ConfigError(
            f"features = {max(cfg.features)}; the observation has components 0 to {spaces.obs_dim - 1}.",
            setting="features",
        )
    k_learner, k_ratio = jax.random.split(key)
    return State(
        scopil_clone.init(k_learner, spaces, cfg),
        density_ratio.new_density_ratio(k_ratio, spaces.obs_dim, cfg.classifier_width, cfg.folds),
        matched_states.empty(cfg.matched_capacity, spaces.obs_dim, cfg.num_envs),
        jnp.asarray(cfg.occupancy_init, jnp.float32),
        jnp.float32(0.0),
    )


def prepare(state: State, data: Data, cfg: Config, key: PRNGKey) -> State:
    """Train the clone. Compute the units, features and blur of c, the unit of λ, and the cost of termination e."""
    demos, starts = data.demos, data.demo_starts
    assert demos is not None
    assert starts is not None
    mean, deviation = demos.next_obs.mean(0), demos.next_obs.std(0)
    change = jnp.sqrt(jnp.mean((demos.next_obs - demos.obs) ** 2, axis=0))
    scale = jnp.where(deviation > 1e-6, 1.0 / jnp.maximum(deviation, 1e-6), 0.0)
    if cfg.features is not None:
        use = jnp.zeros(len(mean), bool).at[jnp.asarray(cfg.features)].set(True)
        scale = jnp.where(scale > 0, scale, 1.0)  # components that are constant in the demonstrations
    else:
        # Slow components describe where the demonstrator is, fast ones how it moves. Constant ones are not used.
        pace = jnp.where((scale > 0) & (change > 0), change * scale, jnp.inf)
        use = pace <= cfg.slow * pace.min()
    ratio = state.ratio._replace(
        mean=mean, scale=jnp.where(use, scale, 0.0), blur=jnp.where(use, cfg.blur * change * scale, 0.0)
    )
    before, after = (density_ratio.features(ratio, obs).T for obs in (demos.obs, demos.next_obs))
    way, cut = cut_off(demos, before, after, cfg)
    ratio = ratio._replace(way=way, cut=cut)
    reach = matched_states.reach_of(density_ratio.features(ratio, starts.obs).T, starts.group, cfg.matched_within)
    known = density_ratio.known(ratio, density_ratio.features(ratio, demos.next_obs))
    own = matched_states.begin_with(state.own, demos.next_obs, known, reach)
    learner = scopil_clone.prepare(state.learner, data, cfg, key)
    unit = jnp.float32(1.0)
    if demos.reward is not None:
        earned = mean_return(demos, cfg.discount)
        unit = jnp.where(earned > 0, earned / cfg.return_unit, 1.0)
    # If no demonstration terminates, termination costs c = 1 per step of a mean demonstrated episode: e = Σ γᵗ.
    length = len(demos.obs) / (1 + (jnp.diff(demos.episode) != 0).sum())
    saved = cfg.discount * (1.0 - cfg.discount**length) / (1.0 - jnp.minimum(cfg.discount, 0.999))
    end_cost = jnp.where(demos.terminated.any(), 0.0, saved).astype(jnp.float32)
    learner = learner._replace(multiplier=learner.multiplier * unit, unit=unit)
    return State(learner, ratio, own, state.occupancy, end_cost)


def cut_off(
    demos: DemoTransitions, before: Float[Array, "M D"], after: Float[Array, "M D"], cfg: Config
) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
    """The direction (±1) of components that drift one way until the time limit, 0 for others; and the value that
    most demonstrations reach in this direction.

    If the time limit ends the demonstrations, a faster policy reaches states beyond their last ones. The demonstrations
    carry no information about these states. If a demonstration terminates, it has reached its goal, and no
    component is cut off.
    """
    steps = len(before)
    rows = jnp.arange(steps)
    first, last = (of(rows, demos.episode, steps) for of in (jax.ops.segment_min, jax.ops.segment_max))
    ends = rows == last[demos.episode]
    path = jnp.concatenate([before, after])
    high, low = (of(path, jnp.tile(demos.episode, 2), steps) for of in (jax.ops.segment_max, jax.ops.segment_min))
    span = jnp.maximum(high - low, 1e-6)[demos.episode]
    begun = first[demos.episode]
    late = begun + (cfg.last_share * (rows - begun)).astype(jnp.int32)  # in last rows: where the last part begins

    def covered(since: Float[Array, "M D"]) -> Float[Array, " D"]:
        """Net change from `since` to the end, divided by the component's range; mean over episodes."""
        return jnp.sum(jnp.where(ends[:, None], (after - since) / span, 0.0), axis=0) / ends.sum()

    drift = covered(before[begun])
    goes_on = covered(before[late]) * jnp.sign(drift) > cfg.last_drift
    one_way = (jnp.abs(drift) > cfg.one_way) & goes_on & ~demos.terminated.any()
    way = jnp.where(one_way, jnp.sign(drift), 0.0)
    reached = jnp.where(ends[:, None], way[None] * after, jnp.nan)
    return way, jnp.nanquantile(reached, 1.0 - cfg.matched_within, axis=0)


def mean_return(demos: DemoTransitions, discount: Float[Array, ""] | float) -> Float[Array, ""]:
    """The mean of |Σ γᵗ r| over the demonstrated episodes."""
    steps = len(demos.reward)  # also the number of segments: there are at most as many episodes
    rows = jnp.arange(steps)
    first = jax.ops.segment_min(rows, demos.episode, steps)
    returns = jax.ops.segment_sum(demos.reward * discount ** (rows - first[demos.episode]), demos.episode, steps)
    return jnp.abs(returns).sum() / (rows == first[demos.episode]).sum()


def update(state: State, data: Data, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    k_own, k_pick, k_ratio, k_learner = jax.random.split(key, 4)
    batch, demo, newest, began, starts = data.replay, data.demo_batch, data.newest, data.began, data.demo_starts
    assert batch is not None
    assert demo is not None
    assert newest is not None
    assert began is not None
    assert starts is not None

    # states of the learner in episodes that start near a demonstrated start
    place, first = (density_ratio.features(state.ratio, obs).T for obs in (newest.obs, starts.obs))
    known = density_ratio.known(state.ratio, density_ratio.features(state.ratio, newest.next_obs))
    own = matched_states.offer(state.own, newest.next_obs, began, place, known, first, k_own)

    # f_k, τ_k
    def learn(old: DensityRatio) -> DensityRatio:
        n = cfg.classifier_batch_size
        (index,) = uniform_indices(k_pick, (n, own.kept))
        fold, anywhere = demo.group[:n] % cfg.folds, batch.next_obs[: -(-n // 4)]
        return density_ratio.ratio_step(old, demo.next_obs[:n], fold, own.states[index], anywhere, cfg, k_ratio)

    due = state.learner.updates % cfg.classifier_every == 0
    ratio = jax.lax.cond(due, learn, lambda old: old, state.ratio)

    # SCOPIL from a clone on r − μ (c(s') + e · terminated)
    mu, novelty = state.occupancy, density_ratio.cost(ratio, batch.next_obs)
    price = mu * (novelty + jnp.where(batch.terminated, state.end_cost, 0.0))
    charged = data._replace(replay=batch._replace(reward=batch.reward - price))
    learner, metrics = scopil_clone.update(state.learner, charged, cfg, k_learner)

    # μ ← [μ + η (c(s'_newest) − κ E_D[c])]₊, in matched episodes
    own_cost = density_ratio.cost(ratio, newest.next_obs)
    gap = jnp.where(own.playing & known, own_cost - cfg.occupancy_share * ratio.demo_cost, 0.0).mean()
    mu = constraints.ascend(mu, gap, cfg.occupancy_lr)
    metrics |= {
        "occupancy/mu": mu,
        "occupancy/cost": own_cost.mean(),
        "occupancy/matched": own.playing.mean(dtype=jnp.float32),
        "occupancy/replay_cost": novelty.mean(),
        "occupancy/demo_cost": ratio.demo_cost,
        "occupancy/loss": ratio.loss,
        "occupancy/threshold": ratio.threshold.mean(),
    }
    return State(learner, ratio, own, mu, state.end_cost), metrics


def policy(state: State) -> Policy:
    return scopil_clone.policy(state.learner)


def behaviour(state: State) -> Policy:
    return sac.policy(state.learner)


def learned_cost(state: State, obs: Array, action: Array) -> Array:
    """c of the observations; the actions are ignored."""
    return density_ratio.cost(state.ratio, obs.reshape(-1, obs.shape[-1])).reshape(obs.shape[:-1])


def monitor(state: State, demos: DemoTransitions) -> density_ratio.Monitor:
    """A monitor of the familiarity of states relative to the demonstrations."""
    return density_ratio.monitor(state.ratio, demos.next_obs, demos.group % len(state.ratio.threshold))


ALGORITHM = Algorithm(
    name="scopil-rho",
    title="SCOPIL-ρ",
    summary="SCOPIL under a second constraint on visited states, for unseen starts",
    config=Config,
    init=init,
    update=update,
    policy=policy,
    behaviour=behaviour,
    wants=frozenset({"replay", "newest", "demo_batch", "demo_starts"}),
    prepare=prepare,
    curves=(
        Curve("occupancy/mu", "Multiplier μ", "μ"),
        Curve("occupancy/cost", "Novelty c of the policy's newest states", "c"),
        Curve("occupancy/demo_cost", "Novelty c of held-out demonstrations"),
        *scopil_clone.CURVES,
    ),
    replay_demos=True,
    demo_filter=cloning.deliberate,
    short_run=scopil_clone.short_run,
    learned_cost=learned_cost,
    monitor=monitor,
)
