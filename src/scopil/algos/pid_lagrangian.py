"""PID-Lagrangian (Stooke, Achiam & Abbeel 2020): the oracles with a multiplier from a PID controller.

    e  ← s e + (1 − s) (c̄ − budget)                     the smoothed excess cost; e⁻ is its value before
    I  ← [I + e]₊
    ν  = [K_P e + K_I I + K_D (e − e⁻)₊]₊
    θ:   the policy's loss is divided by 1 + ν

Everything else is as in SAC-Lagrangian and PPO-Lagrangian (docs/algorithms/oracles.md).
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.algos import ppo_lagrangian, sac_lagrangian
from scopil.config import config, setting
from scopil.losses.constraints import Dual


@config
class PPOConfig(ppo_lagrangian.Costs):
    """Gains per rollout, for costs per step (ours)."""

    gain_proportional: float = setting(default=10.0, about="K_P.", low=0)
    gain_integral: float = setting(default=1.0, about="K_I per rollout.", low=0)
    gain_derivative: float = setting(default=10.0, about="K_D.", low=0)
    smoothing: float = setting(default=0.9, about="s of the excess cost, per rollout.", low=0, high=1)


@config
class SACConfig(sac_lagrangian.Costs):
    """Gains per gradient step, for costs per step (ours)."""

    gain_proportional: float = setting(default=1.0, about="K_P.", low=0)
    gain_integral: float = setting(default=1e-3, about="K_I per gradient step, as η_ν of SAC-Lagrangian.", low=0)
    gain_derivative: float = setting(default=10.0, about="K_D.", low=0)
    smoothing: float = setting(default=0.999, about="s of the excess cost, per gradient step.", low=0, high=1)


class Controller(NamedTuple):
    error: Float[Array, ""]  # e
    integral: Float[Array, ""]  # I
    value: Float[Array, ""]  # ν


def control(old: Controller, excess: Float[Array, ""], cfg: Any) -> Controller:
    error = cfg.smoothing * old.error + (1.0 - cfg.smoothing) * excess
    integral = jax.nn.relu(old.integral + error)
    rise = jax.nn.relu(error - old.error)
    value = cfg.gain_proportional * error + cfg.gain_integral * integral + cfg.gain_derivative * rise
    return Controller(error, integral, jax.nn.relu(value))


PID = Dual(lambda cfg: Controller(*jnp.zeros(3, jnp.float32)), lambda controller: controller.value, control)
PPO_ORACLE = replace(
    ppo_lagrangian.ORACLE,
    name="oracle-ppo-pid",
    title="PPO-PID (oracle)",
    summary="PPO that learns from the true cost, with a PID multiplier",
    config=PPOConfig,
    init=partial(ppo_lagrangian.init, dual=PID),
    update=partial(ppo_lagrangian.oracle_update, dual=PID),
)
SAC_ORACLE = replace(
    sac_lagrangian.ORACLE,
    name="oracle-sac-pid",
    title="SAC-PID (oracle)",
    summary="SAC that learns from the true cost, with a PID multiplier",
    config=SACConfig,
    init=partial(sac_lagrangian.init, dual=PID),
    update=partial(sac_lagrangian.update, dual=PID, scale=lambda nu: 1.0 / (1.0 + nu)),
)
