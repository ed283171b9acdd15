"""Expectations over actions for soft actor-critic, one number per sample; the caller averages.

`ExactSum` sums over discrete actions; `Reparametrised` uses one sampled continuous action. Both compute

    V(s) = E_{a~π} [ Q(s,a) − α log π(a|s) ] = α H(π(·|s)) + E_{a~π} Q(s,a)

V(s') is in the critics' target, and V(s) is the actor's objective. docs/method.md defines the notation.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from scopil.nn.distributions import Categorical, Resolved, Sampled, SquashedGaussian, pick
from scopil.nn.heads import BoxHead, Head
from scopil.nn.nets import Net, columns
from scopil.types import PRNGKey

Scalar = float | Float[Array, ""]
Critics = tuple[Net, Net]


class Noise(NamedTuple):
    """The standard normal samples of one update; None for discrete actions."""

    after: Float[Array, "B A"] | None  # for actions at next states
    now: Float[Array, "B A"] | None  # for actions at current states
    demo: Float[Array, "M A"] | None  # for actions at demonstrated states


class ExactSum:
    """Discrete actions: a critic has one output per action. States are columns, (D, B), because 256 samples fill
    vector registers and nine outputs do not."""

    def critic_sizes(self, obs_dim: int, hidden: tuple[int, ...], head: Head) -> tuple[int, ...]:
        return obs_dim, *hidden, head.num_actions

    def noise(self, key: PRNGKey, rows: int, demo_rows: int, head: Head) -> Noise:
        return Noise(None, None, None)

    def states(self, obs: Float[Array, "B D"]) -> Float[Array, "D B"]:
        return columns(obs)

    def distribution(self, actor: Net, s: Float[Array, "D B"], noise: None) -> Categorical:
        return Categorical(actor.columns(s), axis=0)

    def imitator(self, actor: Net, s: Float[Array, "D B"], noise: None, resolution: Scalar) -> Categorical:
        """The distribution that gives the likelihood of demonstrated actions."""
        return Categorical(actor.columns(s), axis=0)

    def apart(self, reference: Net, actor: Net, s: Float[Array, "D B"]) -> Float[Array, " B"]:
        """KL(π(·|s) ‖ π_reference(·|s))"""
        return Categorical(actor.columns(s), axis=0).kl_to(Categorical(reference.columns(s), axis=0))

    def q(self, critic: Net, s: Float[Array, "D B"], action: Int[Array, " B"]) -> Float[Array, " B"]:
        """Q(s, a)"""
        return pick(critic.columns(s), action, axis=0)

    def min_q(self, critics: Critics, pi: Categorical, s: Float[Array, "D B"]) -> Float[Array, " B"]:
        """E_{a~π} min_x Q_x(s, a)"""
        return pi.expect(jnp.minimum(critics[0].columns(s), critics[1].columns(s)))

    def mean_q(self, critics: Critics, pi: Categorical, s: Float[Array, "D B"]) -> Float[Array, " B"]:
        """E_{a~π} ½ Σ_x Q_x(s, a)"""
        return pi.expect(0.5 * (critics[0].columns(s) + critics[1].columns(s)))


class Reparametrised:
    """Continuous actions: a critic has state and action as inputs. One sampled action estimates an expectation, and
    gradients pass through this action."""

    def critic_sizes(self, obs_dim: int, hidden: tuple[int, ...], head: Head) -> tuple[int, ...]:
        return obs_dim + head.num_actions, *hidden, 1

    def noise(self, key: PRNGKey, rows: int, demo_rows: int, head: Head) -> Noise:
        """All noise of one update, drawn in a single call."""
        xi = jax.random.normal(key, (2 * rows + demo_rows, head.num_actions))
        return Noise(xi[:rows], xi[rows : 2 * rows], xi[2 * rows :])

    def states(self, obs: Float[Array, "B D"]) -> Float[Array, "B D"]:
        return obs

    def distribution(self, actor: Net, s: Float[Array, "B D"], noise: Float[Array, "B A"]) -> Sampled:
        return Sampled(SquashedGaussian(actor(s)), noise)

    def imitator(self, actor: Net, s: Float[Array, "B D"], noise: Float[Array, "B A"], resolution: Scalar) -> Resolved:
        return Resolved(SquashedGaussian(actor(s)), noise, resolution)

    def apart(self, reference: Net, actor: Net, s: Float[Array, "B D"]) -> Float[Array, " B"]:
        """log (1 + KL(π(·|s) ‖ π_reference(·|s))). The KL of narrow Gaussians grows with the square of their distance
        and can exceed all rewards."""
        return jnp.log1p(SquashedGaussian(actor(s)).kl_to(SquashedGaussian(reference(s))))

    def q(self, critic: Net, s: Float[Array, "B D"], action: Float[Array, "B A"]) -> Float[Array, " B"]:
        """Q(s, a). Samples are columns, which makes an update 5 % faster."""
        return critic.columns(jnp.concatenate([s.T, action.T]))[0]

    def min_q(self, critics: Critics, pi: Sampled, s: Float[Array, "B D"]) -> Float[Array, " B"]:
        return jnp.minimum(self.q(critics[0], s, pi.action), self.q(critics[1], s, pi.action))

    def mean_q(self, critics: Critics, pi: Sampled, s: Float[Array, "B D"]) -> Float[Array, " B"]:
        return 0.5 * (self.q(critics[0], s, pi.action) + self.q(critics[1], s, pi.action))


EXACT_SUM, REPARAMETRISED = ExactSum(), Reparametrised()


def operator(head: Head) -> Any:
    """`Reparametrised` for the continuous actions of a `BoxHead`, else `ExactSum`."""
    return REPARAMETRISED if isinstance(head, BoxHead) else EXACT_SUM


def soft_value(op: Any, critics: Critics, pi: Any, s: Array, alpha: Scalar) -> Float[Array, " B"]:
    """V(s) = α H(π(·|s)) + E_{a~π} min_x Q_x(s, a)"""
    return alpha * pi.entropy() + op.min_q(critics, pi, s)


def td_target(
    reward: Float[Array, " B"], terminated: Bool[Array, " B"], v_next: Float[Array, " B"], discount: Scalar
) -> Float[Array, " B"]:
    """y = r + γ (1 − terminated) V(s'). A truncated step keeps its future value."""
    return reward + discount * jnp.where(terminated, 0.0, v_next)
