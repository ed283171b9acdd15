"""SCOPIL-ρ: SCOPIL that also stays where the demonstrator is found.

    c(s)  = mean_k clip(f_k(s) − τ_k, 0, 1)                 how strange a state is beside the demonstrations
    E_π[c] ≤ κ E_D[c]                                       the occupancy constraint
    r'    = r − μ c(s')                                     what the critics learn; an end costs, where none was shown
    μ     ← [μ + η (c(s'_newest) − κ E_D[c])]₊

The constraint on actions says how, this one says where (docs/algorithms/scopil_rho.md). f_k and τ_k are learned beside
the policy (losses/density_ratio.py); actor, temperature and λ are SCOPIL's. No cost of the environment is seen.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from scopil.algos import sac, scopil
from scopil.algos.base import Algorithm, Curve, Data, Metrics, Spaces
from scopil.buffers import matched_states
from scopil.buffers.indices import uniform_indices
from scopil.buffers.matched_states import Comparable
from scopil.config import config, setting
from scopil.data.dataset import FOLDS, DemoTransitions
from scopil.errors import ConfigError
from scopil.losses import density_ratio, duals
from scopil.losses.density_ratio import Contrast
from scopil.policy import Policy
from scopil.types import PRNGKey


@config
class Config(scopil.Shared):
    """SCOPIL's settings, and those of the second constraint."""

    learning_rate: float = setting(default=1e-3, about="η of policy and critics (Adam).", low=0)
    multiplier_init: float = setting(default=1.05, about="λ₀, times what demonstrations earn.", low=0)
    multiplier_lr: float = setting(
        default=3e-4,
        about="η of the multiplier, plain ascent, times what demonstrations earn: |Σ γᵗ r| of an episode over 13.",
        low=0,
    )
    # With β = ½ the policy goes to the least −log π − αH as λ grows: 0.27 nats for nine actions and α = 0.4, above δ.
    entropy_split: float = setting(default=0.0, about="β: the constraint's share of the entropy bonus.", low=0, high=1)
    occupancy_init: float = setting(default=4.0, about="μ₀.", low=0)
    occupancy_lr: float = setting(default=3e-4, about="η of μ, plain ascent; 0 keeps μ at μ₀.", low=0)
    occupancy_share: float = setting(
        default=0.5, about="κ: how strange the policy's states may be, beside held-out demonstrated ones.", low=0
    )
    features: tuple[int, ...] | None = setting(
        default=None,
        about="Components of the observation that a rule may depend on, by number. None: the slowest ones.",
        low=0,
    )
    blur: float = setting(default=1.0, about="σ of every component, in its typical changes from step to step.", low=0)
    quantile: float = setting(
        default=0.7, about="q: the share of held-out demonstrated states that cost nothing.", low=0, high=1
    )
    contrast_width: int = setting(default=32, about="Width of the classifiers' two hidden layers.", low=1)
    contrast_lr: float = setting(default=3e-3, about="η of the classifiers (Adam).", low=0)
    contrast_batch_size: int = setting(default=128, about="States of either kind per step of the classifiers.", low=1)

    def problem(self) -> str | None:
        for name in ("batch_size", "demo_batch_size"):
            if self.contrast_batch_size > getattr(self, name):
                return f"contrast_batch_size {self.contrast_batch_size} is larger than {name} {getattr(self, name)}."
        return super().problem()


class State(NamedTuple):
    scopil: scopil.State
    contrast: Contrast
    own: Comparable  # the learner's states that the demonstrations are compared with
    occupancy: Float[Array, ""]  # μ
    end_cost: Float[Array, ""]  # of termination, where no demonstrated episode terminates; 0 elsewhere
    unit: Float[Array, ""]  # of λ: what a demonstrated episode earns, over EARNED


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    if cfg.features is not None and max(cfg.features) >= spaces.obs_dim:
        raise ConfigError(
            f"features = {max(cfg.features)}; the observation has components 0 to {spaces.obs_dim - 1}.",
            setting="features",
        )
    k_scopil, k_contrast = jax.random.split(key)
    return State(
        scopil.init(k_scopil, spaces, cfg),
        density_ratio.new_contrast(k_contrast, spaces.obs_dim, cfg.contrast_width, FOLDS),
        matched_states.empty(spaces.obs_dim, cfg.num_envs),
        jnp.asarray(cfg.occupancy_init, jnp.float32),
        jnp.float32(0.0),
        jnp.float32(1.0),
    )


SLOW = 1.5  # components that change at most so many times as fast as the slowest one are compared
ONE_WAY = 0.9  # from first to last state, of all that a component covers in an episode
EARNED = 13.0  # of an episode, discounted, where λ₀ and its rate are right as they are: Marble Maze
LEARN_EVERY = 4  # gradient steps; the classifiers are small and learn from the same states for long


def prepare(state: State, data: Data, cfg: Config, key: PRNGKey) -> State:
    """Units, features and blur of the contrast; and what SCOPIL prepares.

    What one step changes is how, which actions say; what carries over is where. So σ is the typical change of a step,
    and of the components only the slowest enter, measured by that change over their deviation.
    """
    demos, starts = data.demos, data.demo_starts
    assert demos is not None
    assert starts is not None
    mean, deviation = demos.next_obs.mean(0), demos.next_obs.std(0)
    change = jnp.sqrt(jnp.mean((demos.next_obs - demos.obs) ** 2, axis=0))
    scale = jnp.where(deviation > 1e-6, 1.0 / jnp.maximum(deviation, 1e-6), 0.0)
    if cfg.features is not None:
        use = jnp.zeros(len(mean), bool).at[jnp.asarray(cfg.features)].set(True)
        scale = jnp.where(scale > 0, scale, 1.0)  # what he never changes, a flag for example, in its own units
    else:
        # What never changes within an episode, a goal for example, is nowhere that one could go.
        pace = jnp.where((scale > 0) & (change > 0), change * scale, jnp.inf)
        use = pace <= SLOW * pace.min()
    settled = state.contrast._replace(
        mean=mean, scale=jnp.where(use, scale, 0.0), blur=jnp.where(use, cfg.blur * change * scale, 0.0)
    )
    way, cut = cut_off(
        demos, density_ratio.features(settled, demos.obs).T, density_ratio.features(settled, demos.next_obs).T
    )
    settled = settled._replace(way=way, cut=cut)
    reach = matched_states.reach_of(density_ratio.features(settled, starts.obs).T, starts.group)
    told = density_ratio.known(settled, density_ratio.features(settled, demos.next_obs))
    own = matched_states.begin_with(state.own, demos.next_obs, told, reach)
    inner = scopil.prepare(state.scopil, data, cfg, key)
    unit = jnp.float32(1.0)
    if demos.reward is not None:
        worth = earned(demos, cfg.discount)
        unit = jnp.where(worth > 0, worth / EARNED, 1.0)
    # The demonstrator never comes to an end: then an end is as strange as can be, for all steps that it saves: Σ γᵗ
    # over an episode. Of short ones that is much less than over all time, and the critics' errors are of its size.
    length = len(demos.obs) / (1 + (jnp.diff(demos.episode) != 0).sum())
    saved = cfg.discount * (1.0 - cfg.discount**length) / (1.0 - jnp.minimum(cfg.discount, 0.999))
    return State(
        inner._replace(multiplier=inner.multiplier * unit),
        settled,
        own,
        state.occupancy,
        jnp.where(demos.terminated.any(), 0.0, saved).astype(jnp.float32),
        unit,
    )


def cut_off(
    demos: DemoTransitions, before: Float[Array, "M D"], after: Float[Array, "M D"]
) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
    """Components that lead one way, and how far along it nine of ten demonstrations still went on.

    Where the clock cuts demonstrations off, nobody knows where they would have gone next, and who is faster than the
    demonstrator comes to such places. A demonstration that ends by itself has arrived: there is no way beyond.
    """
    steps = len(before)
    rows = jnp.arange(steps)
    first, last = (of(rows, demos.episode, steps) for of in (jax.ops.segment_min, jax.ops.segment_max))
    ends = rows == last[demos.episode]
    path = jnp.concatenate([before, after])
    high, low = (of(path, jnp.tile(demos.episode, 2), steps) for of in (jax.ops.segment_max, jax.ops.segment_min))
    span = jnp.maximum(high - low, 1e-6)[demos.episode]
    begun = first[demos.episode]
    late = begun + (0.9 * (rows - begun)).astype(jnp.int32)  # at an episode's end: where its last tenth begins

    def covered(since: Float[Array, "M D"]) -> Float[Array, " D"]:
        """The share of its range that a component covers until the end, on average over episodes."""
        return jnp.sum(jnp.where(ends[:, None], (after - since) / span, 0.0), axis=0) / ends.sum()

    drift = covered(before[begun])
    goes_on = covered(before[late]) * jnp.sign(drift) > 0.05  # who has arrived and stays goes nowhere
    one_way = (jnp.abs(drift) > ONE_WAY) & goes_on & ~demos.terminated.any()
    way = jnp.where(one_way, jnp.sign(drift), 0.0)
    reached = jnp.where(ends[:, None], way[None] * after, jnp.nan)
    return way, jnp.nanquantile(reached, 1.0 - matched_states.WITHIN, axis=0)


def earned(demos: DemoTransitions, discount: Any) -> Float[Array, ""]:
    """|Σ γᵗ r| of a demonstrated episode, on average."""
    steps = len(demos.reward)  # at least as many as episodes
    rows = jnp.arange(steps)
    first = jax.ops.segment_min(rows, demos.episode, steps)
    worth = jax.ops.segment_sum(demos.reward * discount ** (rows - first[demos.episode]), demos.episode, steps)
    return jnp.abs(worth).sum() / (rows == first[demos.episode]).sum()


def update(state: State, data: Data, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    k_own, k_pick, k_contrast, k_scopil = jax.random.split(key, 4)
    batch, demo, newest, began, starts = (data.replay, data.demo_batch, data.newest, data.began, data.demo_starts)
    assert batch is not None
    assert demo is not None
    assert newest is not None
    assert began is not None
    assert starts is not None

    # what the learner did in episodes that begin as demonstrated ones do
    place, first = (density_ratio.features(state.contrast, obs).T for obs in (newest.obs, starts.obs))
    known = density_ratio.known(state.contrast, density_ratio.features(state.contrast, newest.next_obs))
    own = matched_states.offer(state.own, newest.next_obs, began, place, known, first, k_own)

    # f_k, τ_k
    def learn(old: Contrast) -> Contrast:
        n = cfg.contrast_batch_size
        (index,) = uniform_indices(k_pick, (n, own.kept))
        shown, fold = demo.next_obs[:n], demo.group[:n] % FOLDS
        anywhere = batch.next_obs[: -(-n // 4)]
        return density_ratio.contrast_step(
            old, shown, fold, own.states[index], anywhere, cfg.quantile, cfg.contrast_lr, k_contrast
        )

    updates = optax.tree_utils.tree_get(state.scopil.critics.opt, "count")
    learned = jax.lax.cond(updates % LEARN_EVERY == 0, learn, lambda old: old, state.contrast)

    # everything else: SCOPIL on r − μ c(s')
    mu, strange = state.occupancy, density_ratio.cost(learned, batch.next_obs)
    price = mu * (strange + jnp.where(batch.terminated, state.end_cost, 0.0))
    charged = data._replace(replay=batch._replace(reward=batch.reward - price))
    scaled = replace(cfg, multiplier_lr=cfg.multiplier_lr * state.unit)
    inner, metrics = scopil.update(state.scopil, charged, scaled, k_scopil)

    # μ ← [μ + η (c(s'_newest) − κ E_D[c])]₊, in comparable episodes
    own_cost = density_ratio.cost(learned, newest.next_obs)
    gap = jnp.where(own.playing & known, own_cost - cfg.occupancy_share * learned.demo_cost, 0.0).mean()
    mu = duals.ascend(mu, gap, cfg.occupancy_lr)
    metrics |= {
        "occupancy/mu": mu,
        "occupancy/cost": own_cost.mean(),
        "occupancy/comparable": own.playing.mean(dtype=jnp.float32),
        "occupancy/replay_cost": strange.mean(),
        "occupancy/demo_cost": learned.demo_cost,
        "occupancy/loss": learned.loss,
        "occupancy/threshold": learned.threshold.mean(),
    }
    return State(inner, learned, own, mu, state.end_cost, state.unit), metrics


def policy(state: State) -> Policy:
    return scopil.policy(state.scopil)


def behaviour(state: State) -> Policy:
    return sac.policy(state.scopil)


def learned_cost(state: State, obs: Array, action: Array) -> Array:
    """c of the states themselves; the action says nothing."""
    return density_ratio.cost(state.contrast, obs.reshape(-1, obs.shape[-1])).reshape(obs.shape[:-1])


def monitor(state: State, demos: DemoTransitions) -> density_ratio.Monitor:
    """What tells how familiar a state is from the demonstrations."""
    return density_ratio.monitor(state.contrast, demos.next_obs, demos.group % FOLDS)


ALGORITHM = Algorithm(
    name="scopil-rho",
    title="SCOPIL-ρ",
    summary="SCOPIL that also stays where the demonstrator is found: for starts that nobody has shown",
    config=Config,
    init=init,
    update=update,
    policy=policy,
    behaviour=behaviour,
    wants=frozenset({"replay", "newest", "demo_batch", "demo_starts"}),
    short_run=scopil.short_run,
    prepare=prepare,
    curves=(
        Curve("occupancy/mu", "Multiplier μ", "μ"),
        Curve("occupancy/cost", "Novelty c of the policy's newest states", "c"),
        Curve("occupancy/demo_cost", "Novelty c of held-out demonstrations"),
        *scopil.CURVES,
    ),
    replay_demos=lambda cfg: cfg.from_cloning,
    skip_hesitation=lambda cfg: cfg.from_cloning,
    learned_cost=learned_cost,
    monitor=monitor,
)
