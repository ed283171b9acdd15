"""PPO, PPO+DGD and PPO-Lagrangian in plain float64 NumPy, from the formulas; gradients by central differences.

Shares no code with scopil. A network is a list of (w, b) with tanh between them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Net = list[tuple[np.ndarray, np.ndarray]]


def advantages(reward, value, next_value, terminated, truncated, gamma, lam) -> np.ndarray:
    """A_t = Σ_k (γλ)^k δ_{t+k} up to the end of the episode or of the data: the definition, not the recursion."""
    out = np.zeros(reward.shape)
    for n in range(reward.shape[1]):
        for t in range(reward.shape[0]):
            for k in range(reward.shape[0] - t):
                u = t + k
                bootstrap = 0.0 if terminated[u, n] else next_value[u, n]
                out[t, n] += (gamma * lam) ** k * (reward[u, n] + gamma * bootstrap - value[u, n])
                if terminated[u, n] or truncated[u, n]:
                    break
    return out


def moments(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of all rows ever seen, together with 1e-4 imagined rows of mean 0 and variance 1."""
    total = len(seen) + 1e-4
    mean = seen.sum(0) / total
    return mean, (1e-4 + (seen**2).sum(0)) / total - mean**2


def scaled(signal: np.ndarray, ended: np.ndarray, gamma: float) -> np.ndarray:
    """Each step divided by the deviation of all discounted running returns up to and including it."""
    running, history, out = np.zeros(signal.shape[1]), [], np.zeros(signal.shape)
    for t, row in enumerate(signal):
        running = gamma * running + row
        history += list(running)
        out[t] = np.clip(row / np.sqrt(moments(np.array(history))[1] + 1e-8), -10, 10)
        running = np.where(ended[t], 0.0, running)
    return out


def forward(net: Net, x: np.ndarray) -> np.ndarray:
    for w, b in net[:-1]:
        x = np.tanh(x @ w + b)
    return x @ net[-1][0] + net[-1][1]


def log_softmax(z: np.ndarray) -> np.ndarray:
    z = z - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


def policy_terms(actor: Net, batch: dict[str, np.ndarray], eps: float) -> dict[str, float]:
    """The clipped objective, E ρ A_c with A_c centred, the entropy and the KL of a minibatch, row by row."""
    log_pi = log_softmax(forward(actor, batch["seen"]))
    a = (batch["advantage"] - batch["advantage"].mean()) / (batch["advantage"].std(ddof=1) + 1e-8)
    a_c = batch["cost_advantage"] - batch["cost_advantage"].mean()
    objective = harm = kl = 0.0
    for i, action in enumerate(batch["action"]):
        rho = np.exp(log_pi[i, action] - batch["log_prob"][i])
        objective += min(rho * a[i], min(max(rho, 1 - eps), 1 + eps) * a[i])
        harm += rho * a_c[i]
        kl += batch["log_prob"][i] - log_pi[i, action]
    rows = len(batch["action"])
    entropy = -(np.exp(log_pi) * log_pi).sum(-1).mean()
    return {"objective": objective / rows, "harm": harm / rows, "kl": kl / rows, "entropy": entropy}


def value_loss(critic: Net, seen: np.ndarray, target: np.ndarray) -> float:
    return float(np.mean((forward(critic, seen)[:, 0] - target) ** 2))


def demo_nll(actor: Net, obs: np.ndarray, action: np.ndarray) -> float:
    log_pi = log_softmax(forward(actor, obs))
    return float(-np.mean([log_pi[i, a] for i, a in enumerate(action)]))


def adam_step(
    loss: Callable[[list[Net]], float], nets: list[Net], rate: float, max_norm: float, eps: float = 1e-5
) -> list[Net]:
    """The first Adam step on a numerical gradient shortened to `max_norm`: m̂ = g, v̂ = g²."""
    flat, rebuild = flatten(nets)
    grad = np.zeros_like(flat)
    for i in range(len(flat)):
        h = np.zeros_like(flat)
        h[i] = 1e-5
        grad[i] = (loss(rebuild(flat + h)) - loss(rebuild(flat - h))) / 2e-5
    norm = np.sqrt((grad**2).sum())
    grad *= min(1.0, max_norm / norm)
    return rebuild(flat - rate * grad / (np.abs(grad) + eps))


def flatten(nets: list[Net]) -> tuple[np.ndarray, Callable[[np.ndarray], list[Net]]]:
    arrays = [a for net in nets for layer in net for a in layer]
    depths = [len(net) for net in nets]

    def rebuild(flat: np.ndarray) -> list[Net]:
        parts: Any = iter(np.split(flat, np.cumsum([a.size for a in arrays])[:-1]))
        shaped = iter([next(parts).reshape(a.shape) for a in arrays])
        return [[(next(shaped), next(shaped)) for _ in range(depth)] for depth in depths]

    return np.concatenate([a.ravel() for a in arrays]), rebuild
