"""A shield in plain float64 NumPy, one state and one action at a time.

Shares no code with scopil. A critic is a list of (w, b), outputs are `w @ x + b`, hidden layers are ReLU.
"""

from typing import Any

import numpy as np

SHARES = (0.125, 0.25, 0.5, 1.0)


def layers(net: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.array(w, np.float64), np.array(b, np.float64)) for w, b in zip(net.weights, net.biases)]


def output(net: list[tuple[np.ndarray, np.ndarray]], x: np.ndarray) -> np.ndarray:
    for i, (w, b) in enumerate(net):
        x = w @ x + b
        if i < len(net) - 1:
            x = np.maximum(x, 0)
    return x


def masked(critics: Any, limit: float, s: np.ndarray) -> tuple[list[bool], np.ndarray]:
    """Which actions are kept, and Q of all actions."""
    q = np.maximum(output(critics[0], s), output(critics[1], s))
    kept = [bool(x <= limit) for x in q]
    if not any(kept):
        kept[int(np.argmin(q))] = True
    return kept, q


def even(width: int, count: int) -> np.ndarray:
    """The R sequence in [−1, 1]^width: its base is the positive root of x^(width + 1) = x + 1."""
    polynomial = np.zeros(width + 2)
    polynomial[0], polynomial[-2:] = 1.0, -1.0
    (base,) = (root.real for root in np.roots(polynomial) if abs(root.imag) < 1e-9 and root.real > 1)
    return np.array([[2 * ((0.5 + n / base**k) % 1.0) - 1 for k in range(1, width + 1)] for n in range(1, count + 1)])


def moved(critics: Any, limit: float, s: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The action that replaces `action`, and Q of all points that are tried."""
    tried = [action] + [action + SHARES[i // 8] * (p - action) for i, p in enumerate(even(len(action), 32))]
    q = np.array([max(output(c, np.concatenate([s, a]))[0] for c in critics) for a in tried])
    inside = [a for a, value in zip(tried, q) if value <= limit]
    if not inside:
        return tried[int(np.argmin(q))], q
    return min(inside, key=lambda a: float(np.sum((a - action) ** 2))), q
