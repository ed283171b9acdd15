"""PPO+DGD: PPO under SCOPIL's imitation constraint, with dual ascent.

    G(θ)   = E_D [ −log π(a|s) ] − δ                     the constraint; feasible if ≤ 0
    L(θ,λ) = L_PPO(θ) + λ G(θ)
    θ:       minimise L(θ, λ), then  λ ← [λ + η G(θ)]₊,  each minibatch

SCOPIL's G also has the term −α H(π(·|s)). This term is zero here, because the paper's PPO has entropy weight 0.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.algos import ppo
from scopil.algos.base import Algorithm, Curve, Data, Metrics, Spaces
from scopil.algos.scopil import resolution_setting, slack, slack_setting
from scopil.config import config, setting
from scopil.losses import constraints
from scopil.nn import normalise
from scopil.nn.distributions import Resolved, SquashedGaussian
from scopil.nn.gradient import Trainable, gradient_step
from scopil.nn.heads import Head
from scopil.types import PRNGKey


@config
class Config(ppo.Config):
    demo_batch_size: int = setting(default=64, about="Demonstrated steps per minibatch.", low=1)
    multiplier_init: float = setting(default=1.05, about="λ₀, as SCOPIL.", low=0)
    multiplier_lr: float = setting(
        default=3e-4, about="η of the multiplier per minibatch, plain ascent, as SCOPIL.", low=0
    )
    slack: float | None = slack_setting()
    action_resolution: float = resolution_setting()


class State(NamedTuple):
    nets: Trainable  # ppo.Nets
    obs_stats: normalise.RunningStats | None
    head: Head
    reward_scale: normalise.ReturnScale | None
    multiplier: Float[Array, ""]  # λ


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    return State(*ppo.init(key, spaces, cfg), jnp.asarray(cfg.multiplier_init, jnp.float32))


def update(state: State, data: Data, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    rollout, demos, head = ppo.preprocess(state, data), data.demos, state.head
    assert demos is not None
    batch, reward_scale = ppo.prepare(state, rollout, cfg)
    demo_obs = normalise.normalise(state.obs_stats, demos.obs)
    demo_action = head.to_learner(demos.action)
    delta = slack(cfg, head)

    def step(carry: tuple[Trainable, Array], mini: ppo.Batch, key: PRNGKey):
        nets, lam = carry
        k_demo, k_loss = jax.random.split(key)
        index = jax.random.randint(k_demo, (cfg.demo_batch_size,), 0, len(demo_obs))
        obs, action = demo_obs[index], demo_action[index]

        def g(nets: ppo.Nets) -> Float[Array, ""]:
            pi = imitator(head, nets, obs, cfg.action_resolution)
            return constraints.nll_constraint(pi, action, 0.0, delta).mean()

        # θ: minimise L_PPO(θ) + λ G(θ)
        def lagrangian(nets: ppo.Nets):
            value, metrics = ppo.loss(nets, head, mini, cfg, k_loss)
            return value + lam * g(nets), metrics

        nets, _, metrics = gradient_step(nets, lagrangian, cfg.learning_rate, ppo.optimiser(cfg))
        # λ ← [λ + η G(θ)]₊
        violation = g(nets.params)
        lam = constraints.ascend(lam, violation, cfg.multiplier_lr)
        metrics |= {"dual/constraint": violation, "dual/lambda": lam, "demo/nll": violation + delta}
        return (nets, lam), metrics

    (nets, lam), metrics = ppo.sweep((state.nets, state.multiplier), batch, step, key, cfg)
    obs_stats = ppo.update_obs_stats(state.obs_stats, rollout.step)
    return State(nets, obs_stats, head, reward_scale, lam), metrics


def imitator(head: Head, nets: ppo.Nets, obs: Float[Array, "B D"], resolution: ppo.Scalar) -> constraints.Distribution:
    """π(·|s) at the resolution of the demonstrated actions. The entropy of π is not used."""
    pi = head(nets.actor(obs))
    return Resolved(pi, jnp.zeros_like(pi.mean), resolution) if isinstance(pi, SquashedGaussian) else pi


ALGORITHM = Algorithm(
    name="ppo-dgd",
    title="PPO+DGD",
    summary="PPO under SCOPIL's imitation constraint",
    config=Config,
    init=init,
    update=update,
    policy=ppo.policy,
    wants=frozenset({"rollout", "demos"}),
    curves=(
        Curve("dual/lambda", "Multiplier λ", "λ"),
        Curve("dual/constraint", "Constraint G (nats)", "G"),
        Curve("demo/nll", "−log π of demonstrated actions (nats)"),
        *ppo.CURVES,
    ),
)
