"""The classifiers of SCOPIL-ρ by hand, in float64 NumPy: losses, gradients, Adam, thresholds, cost. Shares no code with
scopil.losses.density_ratio."""

from dataclasses import dataclass, field

import numpy as np

Net = list[np.ndarray]  # w1 (H, D), b1 (H,), w2 (H, H), b2 (H,), w3 (H,), b3 ()


def softplus(z: np.ndarray) -> np.ndarray:
    return np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z)))


def sigmoid(z: np.ndarray) -> np.ndarray:
    return np.where(z >= 0, 1.0, np.exp(-np.abs(z))) / (1.0 + np.exp(-np.abs(z)))


def forward(net: Net, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits of rows of x, and both hidden layers."""
    w1, b1, w2, b2, w3, b3 = net
    h1 = np.maximum(x @ w1.T + b1, 0.0)
    h2 = np.maximum(h1 @ w2.T + b2, 0.0)
    return h2 @ w3 + b3, h1, h2


def loss_and_gradient(net: Net, x: np.ndarray, weight: np.ndarray, own: np.ndarray) -> tuple[float, Net]:
    """Σ_i weight_i · (softplus(−f) for the learner's rows, softplus(f) for demonstrated ones)."""
    f, h1, h2 = forward(net, x)
    loss = float((weight * np.where(own, softplus(-f), softplus(f))).sum())
    d_f = weight * np.where(own, -sigmoid(-f), sigmoid(f))
    d_2 = np.outer(d_f, net[4]) * (h2 > 0)
    d_1 = (d_2 @ net[2]) * (h1 > 0)
    return loss, [d_1.T @ x, d_1.sum(0), d_2.T @ h1, d_2.sum(0), d_f @ h2, d_f.sum()]


@dataclass
class DensityRatio:
    nets: list[Net]
    threshold: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    blur: np.ndarray
    way: np.ndarray
    cut: np.ndarray
    moments: list[tuple[Net, Net]] = field(default_factory=list)
    steps: int = 0

    def features(self, obs: np.ndarray) -> np.ndarray:
        return (obs - self.mean) * self.scale

    def logits(self, obs: np.ndarray) -> np.ndarray:
        return np.stack([forward(net, self.features(obs))[0] for net in self.nets])

    def known(self, obs: np.ndarray) -> np.ndarray:
        def tells(row: np.ndarray) -> bool:
            return not any(w != 0 and x * w > c for x, w, c in zip(row, self.way, self.cut))

        return np.array([tells(row) for row in self.features(obs)])

    def cost(self, obs: np.ndarray) -> np.ndarray:
        return self.known(obs) * np.clip(self.logits(obs) - self.threshold[:, None], 0.0, 1.0).mean(0)

    def step(
        self,
        demo: np.ndarray,
        fold: np.ndarray,
        own: np.ndarray,
        anywhere: np.ndarray,
        noise: list[np.ndarray],
        quantile: float,
        rate: float,
    ) -> tuple[float, float]:
        """One step in place; the mean loss before it and the demonstrations' held-out cost after it."""
        n, a = len(demo), len(anywhere)
        sides = [self.features(rows) + part * self.blur for rows, part in zip((demo, own, anywhere), noise)]
        x = np.concatenate([*sides, sides[2]])  # states from anywhere stand on either side
        is_own = np.repeat([False, True, False, True], [n, n, a, a])
        if not self.moments:
            zero = [[np.zeros_like(p) for p in net] for net in self.nets]
            self.moments = list(zip(zero, zero))
        self.steps += 1
        losses, known = [], self.known(demo)
        for k, net in enumerate(self.nets):
            seen = (fold != k) & known
            shown = seen / max(seen.sum(), 1)
            weight = np.concatenate([shown, np.full(n, 1 / n), np.full(2 * a, 0.1 / a)])
            loss, gradient = loss_and_gradient(net, x, weight, is_own)
            losses.append(loss)
            first, second = self.moments[k]
            first = [0.9 * m + 0.1 * g for m, g in zip(first, gradient)]
            second = [0.999 * v + 0.001 * g * g for v, g in zip(second, gradient)]
            self.moments[k] = first, second
            unbiased = 1 - 0.9**self.steps, 1 - 0.999**self.steps
            self.nets[k] = [
                p - rate * (m / unbiased[0]) / (np.sqrt(v / unbiased[1]) + 1e-8) for p, m, v in zip(net, first, second)
            ]
        f, costs = self.logits(demo), []
        for k in range(len(self.nets)):
            held = (fold == k) & known
            if held.any():
                self.threshold[k] += 0.01 * ((f[k, held] > self.threshold[k]).mean() - (1 - quantile))
            costs.append(np.clip(f[k, held] - self.threshold[k], 0, 1).mean() if held.any() else 0.0)
        return float(np.mean(losses)), float(np.mean(costs))
