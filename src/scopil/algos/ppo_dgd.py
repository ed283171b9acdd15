"""PPO+DGD: PPO's surrogate in place of SAC's objective under SCOPIL's imitation constraint and dual ascent.

    G(θ)   = E_D [ −log π(a|s) ] − δ                     the constraint; feasible when ≤ 0
    L(θ,λ) = L_PPO(θ) + λ G(θ)
    θ:       minimise L(θ, λ), then  λ ← [λ + η G(θ)]₊,  each minibatch

SCOPIL's G also has −α H(π(·|s)). The paper's PPO has entropy weight 0, which is its α, so that term is nought here.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.algos import ppo
from scopil.algos.base import Metrics, Pairs, Spaces
from scopil.algos.onpolicy import OnPolicyAlgorithm, Rollout
from scopil.config import pytree
from scopil.core import duals, imitation, normalise
from scopil.core.distributions import Categorical
from scopil.core.learner import Learned, descend
from scopil.types import PRNGKey


@pytree(static=(*ppo.STATIC, "demo_batch_size"))
@dataclass(frozen=True, kw_only=True)
class Config(ppo.Config):
    demo_batch_size: int = 64
    """Demonstrated pairs per minibatch."""
    lambda_init: float = 1.05
    """λ₀, as SCOPIL."""
    lambda_lr: float = 3e-4
    """η of the multiplier per minibatch, plain ascent, as SCOPIL."""
    slack: float = 0.0
    """δ in nats; 0 asks for the demonstrator exactly (ours: the paper gives no value)."""


class State(NamedTuple):
    nets: Learned  # ppo.Nets
    obs_stats: normalise.Running | None
    reward_scale: normalise.ReturnScale | None
    multiplier: Float[Array, ""]  # λ


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    return State(*ppo.init(key, spaces, cfg), jnp.asarray(cfg.lambda_init, jnp.float32))


def update(state: State, rollout: Rollout, demos: Pairs, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    batch, reward_scale = ppo.prepare(state, rollout, cfg)
    demos = Pairs(normalise.normalise(state.obs_stats, demos.obs), demos.action)

    def step(carry: tuple[Learned, Array], mini: ppo.Batch, key: PRNGKey):
        nets, lam = carry
        index = jax.random.randint(key, (cfg.demo_batch_size,), 0, demos.action.shape[0])
        seen, action = demos.obs[index], demos.action[index]

        def g(nets: ppo.Nets) -> Float[Array, ""]:
            return imitation.nll_constraint(Categorical(nets.actor(seen)), action, 0.0, cfg.slack).mean()

        # θ: minimise L_PPO(θ) + λ G(θ)
        def lagrangian(nets: ppo.Nets):
            value, metrics = ppo.loss(nets, mini, cfg)
            return value + lam * g(nets), metrics

        nets, _, metrics = descend(nets, lagrangian, cfg.learning_rate, ppo.rule(cfg))
        # λ ← [λ + η G(θ)]₊
        violation = g(nets.params)
        lam = duals.ascend(lam, violation, cfg.lambda_lr)
        metrics |= {"dual/constraint": violation, "dual/lambda": lam, "demo/nll": violation + cfg.slack}
        return (nets, lam), metrics

    (nets, lam), metrics = ppo.sweep((state.nets, state.multiplier), batch, step, key, cfg)
    return State(nets, state.obs_stats, reward_scale, lam), metrics


ALGORITHM = OnPolicyAlgorithm(
    name="ppo-dgd",
    title="PPO+DGD",
    config=Config,
    init=init,
    policy=ppo.policy,
    update=update,
    needs_demos=True,
    numpy_logits=ppo.numpy_logits,
)
