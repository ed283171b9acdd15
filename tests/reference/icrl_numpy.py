"""ICRL's constraint learning in plain NumPy, as its authors write it: products of ratios, one trajectory at a time.

Shares no code with scopil. Trajectories are lists of arrays of different lengths; no padding, no logs of sums.
"""

import numpy as np

from reference.soft_numpy import Net, backward, flat, forward, unflat

Pairs = list[tuple[np.ndarray, np.ndarray]]  # the observations and actions of each trajectory
E = 1e-5


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-z))


def zeta(layers: list[tuple[np.ndarray, np.ndarray]], obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """ReLU layers on the clipped observation beside the action."""
    x = inputs(layers, obs, action)
    for w, b in layers[:-1]:
        x = np.maximum(x @ w + b, 0)
    return sigmoid(x @ layers[-1][0] + layers[-1][1])[:, 0]


def inputs(layers: list[tuple[np.ndarray, np.ndarray]], obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """A discrete action is one-hot, a vector stands as it is."""
    if action.ndim == 1:
        one_hot = np.zeros((len(action), layers[0][0].shape[0] - obs.shape[1]))
        one_hot[np.arange(len(action)), action] = 1.0
        action = one_hot
    return np.concatenate([np.clip(obs, -20, 20), action], axis=1)


def products(new: list[np.ndarray], old: list[np.ndarray]) -> np.ndarray:
    """P_j = Π_t (ζ_new + e)/(ζ_old + e), in the precision of the input."""
    e = new[0].dtype.type(E)
    return np.array([np.prod((n + e) / (o + e)) for n, o in zip(new, old)])


def weights(p: np.ndarray) -> np.ndarray:
    return len(p) * p / p.sum()


def kl_forward(p: np.ndarray) -> float:
    return float(np.mean(-np.log(p)))


def kl_reverse(p: np.ndarray) -> float:
    return float(np.mean((p - p.mean()) * np.log(p)) / p.mean())


def loss(expert: list[np.ndarray], nominal: list[np.ndarray], w: np.ndarray, rho: float) -> float:
    e = np.concatenate(expert)
    n = np.concatenate(nominal)
    each = np.concatenate([np.full(len(z), w_j) for z, w_j in zip(nominal, w)])
    fit = -np.mean(np.log(e + E)) + np.mean(each * np.log(n + E))
    return float(fit + rho * (np.mean(1 - e) + np.mean(1 - n)))


# --- a whole backward phase, its gradient written out by hand ------------------------------------------------------


def loss_grad(net: Net, expert: Pairs, nominal: Pairs, w: np.ndarray, rho: float) -> Net:
    """∂ log(ζ+e)/∂z = ζ (1−ζ)/(ζ+e),  ∂(1−ζ)/∂z = −ζ (1−ζ); the weights are constants."""
    total: Net = []
    for pairs, fit in ((expert, [-1.0] * len(expert)), (nominal, list(w))):
        obs, action = (np.concatenate(part) for part in zip(*pairs))
        each = np.concatenate([np.full(len(a), f) for (_, a), f in zip(pairs, fit)])
        out, into = forward(net, inputs(net, obs, action))
        z = sigmoid(out[:, 0])
        up = (each * z * (1 - z) / (z + E) - rho * z * (1 - z)) / len(z)
        grads = backward(net, into, up[:, None])
        total = [(a + c, b + d) for (a, b), (c, d) in zip(total, grads)] if total else grads
    return total


def phase(
    net: Net, expert: Pairs, nominal: Pairs, *, rate: float, steps: int, rho: float, bounds: tuple[float, float]
) -> tuple[Net, int, list[float]]:
    """Adam (ε = 1e-5) until `steps` are made or a KL lies above its bound. The network, steps and losses."""

    def zetas(net: Net, pairs: Pairs) -> list[np.ndarray]:
        return [zeta(net, obs, action) for obs, action in pairs]

    old, losses = zetas(net, nominal), []
    m = [np.zeros_like(a) for a in flat(net)]
    v = [np.zeros_like(a) for a in flat(net)]
    for t in range(1, steps + 1):
        p = products(zetas(net, nominal), old)
        if kl_forward(p) > bounds[0] or kl_reverse(p) > bounds[1]:
            return net, t - 1, losses
        losses.append(loss(zetas(net, expert), zetas(net, nominal), weights(p), rho))
        grads = flat(loss_grad(net, expert, nominal, weights(p), rho))
        m = [0.9 * a + 0.1 * g for a, g in zip(m, grads)]
        v = [0.999 * a + 0.001 * g * g for a, g in zip(v, grads)]
        moved = zip(flat(net), m, v)
        net = unflat([a - rate * b / (1 - 0.9**t) / (np.sqrt(c / (1 - 0.999**t)) + 1e-5) for a, b, c in moved])
    return net, steps, losses
