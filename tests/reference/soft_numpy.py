"""SCOPIL, its ablations and SAC for discrete actions in plain float64 NumPy, every gradient written out by hand.

Shares no code with scopil. A network is a list of (w, b), outputs are `x @ w + b`, hidden layers are ReLU. A learner
is a dict of networks and numbers; `step` is one whole gradient step in the order
critics → policy → temperature → multiplier → targets.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8

Net = list[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Settings:
    """Letters as in the method: γ, η, κ, ε, H̄, δ, β, the multiplier's rate, and what the ablations change."""

    gamma: float
    eta: float
    kappa: float
    epsilon: float
    target: float
    delta: float = 0.0
    beta: float = 0.5
    dual_rate: float = 0.0
    imitates: bool = True
    entropy_in_constraint: bool = True
    dual_ascent: bool = True


@dataclass
class Adam:
    """Adam's memory of a flat list of arrays."""

    m: list[np.ndarray]
    v: list[np.ndarray]
    t: int = 0

    def step(self, params: list[np.ndarray], grads: list[np.ndarray], rate: float) -> list[np.ndarray]:
        self.t += 1
        out = []
        for i, (p, g) in enumerate(zip(params, grads)):
            self.m[i] = BETA1 * self.m[i] + (1 - BETA1) * g
            self.v[i] = BETA2 * self.v[i] + (1 - BETA2) * g * g
            m_hat = self.m[i] / (1 - BETA1**self.t)
            v_hat = self.v[i] / (1 - BETA2**self.t)
            out.append(p - rate * m_hat / (np.sqrt(v_hat) + EPS))
        return out


@dataclass
class Learner:
    actor: Net
    critics: list[Net]
    targets: list[Net]
    log_alpha: float
    lam: float
    adam: dict[str, Adam] = field(default_factory=dict)

    def __post_init__(self):
        for name, params in self.optimised().items():
            zeros = [np.zeros_like(p, dtype=np.float64) for p in params]
            self.adam.setdefault(name, Adam([*zeros], [*zeros]))

    def optimised(self) -> dict[str, list[np.ndarray]]:
        return {
            "actor": flat(self.actor),
            "critics": flat(self.critics[0]) + flat(self.critics[1]),
            "log_alpha": [np.asarray(self.log_alpha, np.float64)],
        }


# --- networks ---------------------------------------------------------------------------------------------------


def flat(net: Net) -> list[np.ndarray]:
    return [array for layer in net for array in layer]


def unflat(arrays: list[np.ndarray]) -> Net:
    return [(arrays[i], arrays[i + 1]) for i in range(0, len(arrays), 2)]


def forward(net: Net, x: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The output, and the input of every layer."""
    inputs = []
    for depth, (w, b) in enumerate(net):
        inputs.append(x)
        x = x @ w + b
        if depth < len(net) - 1:
            x = np.where(x > 0, x, 0.0)
    return x, inputs


def backward(net: Net, inputs: list[np.ndarray], upstream: np.ndarray) -> Net:
    """Gradient of Σ upstream · output with respect to every weight and bias."""
    grads = []
    for depth in reversed(range(len(net))):
        x, (w, _) = inputs[depth], net[depth]
        grads.append((x.T @ upstream, upstream.sum(axis=0)))
        if depth:
            upstream = (upstream @ w.T) * (x > 0)  # x is the ReLU's output: positive where its input was
    return grads[::-1]


def log_softmax(z: np.ndarray) -> np.ndarray:
    z = z - z.max(axis=1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))


def entropy(log_pi: np.ndarray) -> np.ndarray:
    return -(np.exp(log_pi) * log_pi).sum(axis=1)


# --- the four objectives, as numbers (for finite differences) -----------------------------------------------------


def critic_loss(net: Net, obs: np.ndarray, action: np.ndarray, y: np.ndarray) -> float:
    q, _ = forward(net, obs)
    return float(np.mean(0.5 * (q[np.arange(len(y)), action] - y) ** 2))


def lagrangian(
    actor: Net, obs: np.ndarray, q: np.ndarray, demo: tuple[np.ndarray, np.ndarray], alpha: float, lam: float,
    s: Settings,
) -> float:  # fmt: skip
    log_pi = log_softmax(forward(actor, obs)[0])
    rl_weight = 2 * (1 - s.beta) * alpha if s.imitates else alpha
    j = np.mean(rl_weight * entropy(log_pi) + (np.exp(log_pi) * q).sum(axis=1))
    return float(-j + (lam * constraint(actor, demo, alpha, s) if s.imitates else 0.0))


def constraint(actor: Net, demo: tuple[np.ndarray, np.ndarray], alpha: float, s: Settings) -> float:
    obs, action = demo
    log_pi = log_softmax(forward(actor, obs)[0])
    nll = -log_pi[np.arange(len(action)), action]
    weight = 2 * s.beta * alpha if s.entropy_in_constraint else 0.0
    return float(np.mean(nll - weight * entropy(log_pi)) - s.delta)


def temperature_loss(log_alpha: float, mean_entropy: float, s: Settings) -> float:
    return float(np.exp(log_alpha) * (mean_entropy - s.target))


# --- their gradients ----------------------------------------------------------------------------------------------


def critic_grad(net: Net, obs: np.ndarray, action: np.ndarray, y: np.ndarray) -> Net:
    q, inputs = forward(net, obs)
    rows = np.arange(len(y))
    upstream = np.zeros_like(q)
    upstream[rows, action] = (q[rows, action] - y) / len(y)
    return backward(net, inputs, upstream)


def entropy_grad(log_pi: np.ndarray) -> np.ndarray:
    """∂H/∂z_i = −π_i (log π_i + H)"""
    return -np.exp(log_pi) * (log_pi + entropy(log_pi)[:, None])


def lagrangian_grad(
    actor: Net, obs: np.ndarray, q: np.ndarray, demo: tuple[np.ndarray, np.ndarray], alpha: float, lam: float,
    s: Settings,
) -> Net:  # fmt: skip
    z, inputs = forward(actor, obs)
    log_pi = log_softmax(z)
    pi = np.exp(log_pi)
    rl_weight = 2 * (1 - s.beta) * alpha if s.imitates else alpha
    value_grad = pi * (q - (pi * q).sum(axis=1, keepdims=True))  # ∂ Σ_a π(a) q(a) / ∂z
    grads = backward(actor, inputs, -(rl_weight * entropy_grad(log_pi) + value_grad) / len(obs))
    if not s.imitates:
        return grads

    demo_obs, action = demo
    z, inputs = forward(actor, demo_obs)
    log_pi = log_softmax(z)
    nll_grad = np.exp(log_pi)
    nll_grad[np.arange(len(action)), action] -= 1.0  # ∂(−log π(a))/∂z = π − 1_a
    weight = 2 * s.beta * alpha if s.entropy_in_constraint else 0.0
    demo_grads = backward(actor, inputs, lam * (nll_grad - weight * entropy_grad(log_pi)) / len(action))
    return [(gw + dw, gb + db) for (gw, gb), (dw, db) in zip(grads, demo_grads)]


# --- one gradient step ---------------------------------------------------------------------------------------------


def bootstrap(learner: Learner, batch: dict[str, np.ndarray], s: Settings) -> np.ndarray:
    """y = r + γ (1 − terminated) Σ_a π(a|s') [ min_x Q_ψx(s',a) − α log π(a|s') ]; truncation plays no part."""
    alpha = np.exp(learner.log_alpha)
    log_pi = log_softmax(forward(learner.actor, batch["next_obs"])[0])
    q = np.minimum(*(forward(net, batch["next_obs"])[0] for net in learner.targets))
    v = (np.exp(log_pi) * (q - alpha * log_pi)).sum(axis=1)
    return batch["reward"] + s.gamma * (1.0 - batch["terminated"].astype(np.float64)) * v


def step(
    learner: Learner, batch: dict[str, np.ndarray], demo: tuple[np.ndarray, np.ndarray], s: Settings
) -> dict[str, Any]:
    """One gradient step, in place. Returns what a learner would log."""
    obs, action = batch["obs"], batch["action"]
    alpha = np.exp(learner.log_alpha)

    y = bootstrap(learner, batch, s)
    log = {"critic/loss": sum(critic_loss(net, obs, action, y) for net in learner.critics)}
    params = flat(learner.critics[0]) + flat(learner.critics[1])
    grads = [g for net in learner.critics for g in flat(critic_grad(net, obs, action, y))]
    params = learner.adam["critics"].step(params, grads, s.eta)
    half = len(params) // 2
    learner.critics = [unflat(params[:half]), unflat(params[half:])]

    q = np.minimum(*(forward(net, obs)[0] for net in learner.critics))
    grads = lagrangian_grad(learner.actor, obs, q, demo, alpha, learner.lam, s)
    learner.actor = unflat(learner.adam["actor"].step(flat(learner.actor), flat(grads), s.eta))

    log_pi = log_softmax(forward(learner.actor, obs)[0])
    grad = alpha * (entropy(log_pi).mean() - s.target)  # ∂/∂log α of α·gap
    (log_alpha,) = learner.adam["log_alpha"].step([np.asarray(learner.log_alpha)], [np.asarray(grad)], s.kappa)
    learner.log_alpha = float(log_alpha)
    log |= {"alpha/value": np.exp(learner.log_alpha), "alpha/entropy": entropy(log_pi).mean()}

    if s.imitates:
        g = constraint(learner.actor, demo, np.exp(learner.log_alpha), s)
        if s.dual_ascent:
            learner.lam = max(learner.lam + s.dual_rate * g, 0.0)
        log |= {"dual/lambda": learner.lam, "dual/constraint": g}

    learner.targets = tracked(learner.targets, learner.critics, s.epsilon)
    return log


def tracked(targets: list[Net], critics: list[Net], epsilon: float) -> list[Net]:
    """ψ ← ε φ + (1 − ε) ψ"""

    def mix(online: np.ndarray, target: np.ndarray) -> np.ndarray:
        return epsilon * online + (1 - epsilon) * target

    return [[(mix(w, v), mix(b, c)) for (w, b), (v, c) in zip(*nets)] for nets in zip(critics, targets)]
