"""ICRL's constraint learning in plain NumPy, as its authors write it: products of ratios, one trajectory at a time.

Shares no code with scopil. Trajectories are lists of arrays of different lengths; no padding, no logs of sums.
"""

import numpy as np

E = 1e-5


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-z))


def zeta(layers: list[tuple[np.ndarray, np.ndarray]], obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """ReLU layers on the clipped observation beside the one-hot action."""
    one_hot = np.zeros((len(action), layers[0][0].shape[0] - obs.shape[1]))
    one_hot[np.arange(len(action)), action] = 1.0
    x = np.concatenate([np.clip(obs, -20, 20), one_hot], axis=1)
    for w, b in layers[:-1]:
        x = np.maximum(x @ w + b, 0)
    return sigmoid(x @ layers[-1][0] + layers[-1][1])[:, 0]


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
