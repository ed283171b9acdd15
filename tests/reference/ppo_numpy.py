"""PPO, PPO+DGD and PPO-Lagrangian in plain float64 NumPy, from the formulas.

Shares no code with scopil. A network is a list of (w, b) with tanh between them. Every gradient is written out by hand,
for discrete and for continuous actions. Orders of rows, noise and sampled demonstrations are arguments.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
    """Mean and variance of all rows ever seen, together with 1e-4 rows of mean 0 and variance 1."""
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


def flatten(nets: list[Net]) -> tuple[np.ndarray, Callable[[np.ndarray], list[Net]]]:
    arrays = [a for net in nets for layer in net for a in layer]
    depths = [len(net) for net in nets]

    def rebuild(flat: np.ndarray) -> list[Net]:
        parts: Any = iter(np.split(flat, np.cumsum([a.size for a in arrays])[:-1]))
        shaped = iter([next(parts).reshape(a.shape) for a in arrays])
        return [[(next(shaped), next(shaped)) for _ in range(depth)] for depth in depths]

    return np.concatenate([a.ravel() for a in arrays]), rebuild


# --- policies: each quantity of a row beside its gradient in the network's outputs ---------------------------------

Graded = tuple[np.ndarray, np.ndarray]  # (B,) values and (B, outputs) gradients
LOW_STD, HIGH_STD = -5.0, 2.0


class Softmax:
    """Discrete actions; the outputs are logits."""

    def log_prob(self, out: np.ndarray, action: np.ndarray) -> Graded:
        """∂ log π(a) / ∂z = 1_a − π"""
        log_pi = log_softmax(out)
        rows = np.arange(len(out))
        grad = -np.exp(log_pi)
        grad[rows, action] += 1.0
        return log_pi[rows, action], grad

    def entropy(self, out: np.ndarray, noise: np.ndarray) -> Graded:
        """∂H/∂z = −π (log π + H)"""
        log_pi = log_softmax(out)
        h = -(np.exp(log_pi) * log_pi).sum(1)
        return h, -np.exp(log_pi) * (log_pi + h[:, None])

    def likelihood(self, out: np.ndarray, action: np.ndarray, resolution: float) -> Graded:
        return self.log_prob(out, action)


class Squashed:
    """a = tanh u, u ~ N(μ, σ²) in each component; the outputs are μ and log σ before its soft clip."""

    def split(self, out: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """μ, log σ and the slope of the soft clip."""
        half = out.shape[1] // 2
        middle, reach = (HIGH_STD + LOW_STD) / 2, (HIGH_STD - LOW_STD) / 2
        t = np.tanh((out[:, half:] - middle) / reach)
        return out[:, :half], middle + reach * t, 1 - t * t

    def log_prob(self, out: np.ndarray, action: np.ndarray) -> Graded:
        """log N(u; μ, σ²) − log(1 − a²);  ∂/∂μ = z/σ,  ∂/∂log σ = z² − 1,  z = (u − μ)/σ"""
        mu, log_std, slope = self.split(out)
        a = np.clip(action, -(1 - 1e-6), 1 - 1e-6)
        z = (np.arctanh(a) - mu) / np.exp(log_std)
        value = -z * z / 2 - log_std - math.log(2 * math.pi) / 2 - np.log1p(-a) - np.log1p(a)
        return value.sum(1), np.concatenate([z / np.exp(log_std), (z * z - 1) * slope], 1)

    def entropy(self, out: np.ndarray, noise: np.ndarray) -> Graded:
        """−log π at u = μ + σξ;  ∂/∂μ = −2 tanh u,  ∂/∂log σ = 1 − 2 σξ tanh u"""
        mu, log_std, slope = self.split(out)
        move = np.exp(log_std) * noise
        u = mu + move
        value = noise**2 / 2 + log_std + math.log(2 * math.pi) / 2 - 2 * np.log(np.cosh(u))
        grad = np.concatenate([-2 * np.tanh(u), (1 - 2 * move * np.tanh(u)) * slope], 1)
        return value.sum(1), grad

    def likelihood(self, out: np.ndarray, action: np.ndarray, resolution: float) -> Graded:
        """log [Φ(h) − Φ(l)] of the interval a ± ε;  ∂/∂μ = −(φ(h) − φ(l))/(σP),  ∂/∂log σ = −(h φ(h) − l φ(l))/P"""
        mu, log_std, slope = self.split(out)
        with np.errstate(divide="ignore", invalid="ignore"):
            low = np.where(action - resolution <= -1, -np.inf, np.arctanh(action - resolution))
            high = np.where(action + resolution >= 1, np.inf, np.arctanh(action + resolution))
        ends = [(edge - mu) / np.exp(log_std) for edge in (low, high)]
        cdf = [np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2)(e) for e in ends]
        pdf = [np.exp(-e * e / 2) / math.sqrt(2 * math.pi) for e in ends]
        moment = [np.where(np.isfinite(e), e, 0.0) * p for e, p in zip(ends, pdf)]
        mass = cdf[1] - cdf[0]
        d_mu = -(pdf[1] - pdf[0]) / np.exp(log_std) / mass
        d_std = -(moment[1] - moment[0]) / mass
        return np.log(mass).sum(1), np.concatenate([d_mu, d_std * slope], 1)


# --- whole updates -------------------------------------------------------------------------------------------------


class Draw(NamedTuple):
    """The random numbers of one minibatch."""

    rows: np.ndarray
    noise: np.ndarray  # ξ of the entropy's estimate, by row of the minibatch
    demos: np.ndarray | None = None


@dataclass(frozen=True)
class Settings:
    gamma: float
    trace: float
    eta: float
    clip: float
    entropy_weight: float
    value_weight: float
    max_norm: float
    max_kl: float
    cost_gamma: float = 0.0
    cost_trace: float = 0.0
    dual_rate: float = 0.0
    budget: float = 0.0
    delta: float = 0.0
    resolution: float = 0.05


@dataclass
class Learner:
    """`log_std` is None for discrete actions. `lam` is PPO+DGD's multiplier, `x` PPO-Lagrangian's before softplus."""

    actor: Net
    log_std: np.ndarray | None
    critics: list[Net]  # of rewards, and of costs where there are any
    mean: np.ndarray  # of `count` observations so far
    var: np.ndarray
    count: float
    lam: float | None = None
    x: float | None = None
    m: list[np.ndarray] = field(default_factory=list)
    v: list[np.ndarray] = field(default_factory=list)
    t: int = 0

    @property
    def policy(self) -> Softmax | Squashed:
        return Softmax() if self.log_std is None else Squashed()

    def arrays(self) -> list[np.ndarray]:
        nets = [self.actor, *self.critics]
        flat = [a for net in nets for layer in net for a in layer]
        return flat if self.log_std is None else [*flat, self.log_std]

    def put(self, arrays: list[np.ndarray]) -> None:
        left = iter(arrays)
        nets = [[(next(left), next(left)) for _ in net] for net in (self.actor, *self.critics)]
        self.actor, self.critics = nets[0], nets[1:]
        if self.log_std is not None:
            self.log_std = next(left)

    def see(self, obs: np.ndarray) -> np.ndarray:
        return np.clip((obs - self.mean) / np.sqrt(self.var + 1e-8), -10, 10)

    def outputs(self, x: np.ndarray) -> np.ndarray:
        out = forward(self.actor, x)
        if self.log_std is None:
            return out
        return np.concatenate([out, np.broadcast_to(self.log_std, out.shape)], -1)


def backward(net: Net, x: np.ndarray, upstream: np.ndarray) -> list[np.ndarray]:
    """Gradient of Σ upstream · output in every weight and bias."""
    inputs = [x]
    for w, b in net[:-1]:
        inputs.append(np.tanh(inputs[-1] @ w + b))
    grads = []
    for depth in reversed(range(len(net))):
        grads = [inputs[depth].T @ upstream, upstream.sum(0), *grads]
        if depth:
            upstream = (upstream @ net[depth][0].T) * (1 - inputs[depth] ** 2)
    return grads


def loss(
    learner: Learner, mini: dict[str, np.ndarray], noise: np.ndarray, demo: Any, s: Settings
) -> tuple[float, list[np.ndarray], dict[str, float]]:
    """The Lagrangian of a minibatch, its gradient in all arrays, and what is logged of it."""
    pi, rows = learner.policy, len(mini["seen"])
    out = learner.outputs(mini["seen"])
    log_pi, d_log_pi = pi.log_prob(out, mini["action"])
    h, d_h = pi.entropy(out, noise)
    log_rho = log_pi - mini["log_prob"]
    rho = np.exp(log_rho)
    a = (mini["advantage"] - mini["advantage"].mean()) / (mini["advantage"].std(ddof=1) + 1e-8)
    held = np.clip(rho, 1 - s.clip, 1 + s.clip) * a
    objective = np.minimum(rho * a, held)
    d_objective = np.where(rho * a <= held, rho * a, 0.0)  # in log ρ

    nu, harm = 0.0, np.zeros(rows)
    if learner.x is not None:
        nu = np.log1p(np.exp(learner.x))
        harm = rho * (mini["cost_advantage"] - mini["cost_advantage"].mean())  # also its slope in log ρ
    value = (-objective.mean() + nu * harm.mean()) / (1 + nu)
    value -= s.entropy_weight * h.mean()
    d_rho = (nu * harm - d_objective) / (1 + nu)
    up = (d_rho[:, None] * d_log_pi - s.entropy_weight * d_h) / rows
    log = {"policy/objective": objective.mean(), "policy/kl": -log_rho.mean(), "policy/entropy": h.mean()}
    log["policy/clipped"] = np.mean(np.abs(rho - 1) > s.clip)
    if learner.x is not None:
        log["policy/harm"] = harm.mean()

    grads = _actor_grads(learner, mini["seen"], up)
    if demo is not None:
        assert learner.lam is not None
        d_out = learner.outputs(demo[0])
        likelihood, d_likelihood = pi.likelihood(d_out, demo[1], s.resolution)
        value += learner.lam * (-likelihood.mean() - s.delta)
        more = _actor_grads(learner, demo[0], -learner.lam * d_likelihood / len(demo[0]))
        grads = [g + other for g, other in zip(grads, more)]
    tail = grads[len(grads) - (learner.log_std is not None) :]
    grads = grads[: len(grads) - len(tail)]
    for name, critic, target in zip(("critic", "cost_critic"), learner.critics, ("target", "cost_target")):
        error = forward(critic, mini["seen"])[:, 0] - mini[target]
        value += s.value_weight * np.mean(error**2)
        log[f"{name}/loss"] = np.mean(error**2)
        grads += backward(critic, mini["seen"], s.value_weight * 2 * error[:, None] / rows)
    return float(value), grads + tail, log


def _actor_grads(learner: Learner, x: np.ndarray, up: np.ndarray) -> list[np.ndarray]:
    if learner.log_std is None:
        return backward(learner.actor, x, up)
    half = len(learner.log_std)
    return [*backward(learner.actor, x, up[:, :half]), up[:, half:].sum(0)]


def descend(learner: Learner, grads: list[np.ndarray], s: Settings) -> None:
    """Adam with ε = 1e-5 on the gradient shortened to `max_norm`."""
    norm = np.sqrt(sum((g**2).sum() for g in grads))
    grads = [g * min(1.0, s.max_norm / norm) for g in grads]
    learner.m = learner.m or [np.zeros_like(g) for g in grads]
    learner.v = learner.v or [np.zeros_like(g) for g in grads]
    learner.t += 1
    learner.m = [0.9 * m + 0.1 * g for m, g in zip(learner.m, grads)]
    learner.v = [0.999 * v + 0.001 * g * g for v, g in zip(learner.v, grads)]
    m_hat = [m / (1 - 0.9**learner.t) for m in learner.m]
    v_hat = [v / (1 - 0.999**learner.t) for v in learner.v]
    steps = zip(learner.arrays(), m_hat, v_hat)
    learner.put([p - s.eta * m / (np.sqrt(v) + 1e-5) for p, m, v in steps])


def prepare(learner: Learner, steps: dict[str, np.ndarray], s: Settings) -> dict[str, np.ndarray]:
    """A rollout, every array (T, N, …), as rows to learn from. The running returns begin at 0."""
    ended = steps["terminated"] | steps["truncated"]
    seen, seen_next = learner.see(steps["obs"]), learner.see(steps["next_obs"])
    rows = ended.size
    batch = {"seen": seen.reshape(rows, -1), "action": steps["action"].reshape(rows, *steps["action"].shape[2:])}
    signals = [("", "reward", s.gamma, s.trace), ("cost_", "cost", s.cost_gamma, s.cost_trace)]
    for critic, (prefix, name, gamma, trace) in zip(learner.critics, signals):
        value, later = forward(critic, seen)[..., 0], forward(critic, seen_next)[..., 0]
        signal = scaled(steps[name], ended, gamma)
        a = advantages(signal, value, later, steps["terminated"], steps["truncated"], gamma, trace)
        batch |= {prefix + "advantage": a.ravel(), prefix + "target": (a + value).ravel()}
    batch["log_prob"] = learner.policy.log_prob(learner.outputs(batch["seen"]), batch["action"])[0]
    return batch


def update_stats(learner: Learner, rows: np.ndarray) -> None:
    """First and second moments of all observations together."""
    total = learner.count + len(rows)
    mean = (learner.count * learner.mean + rows.sum(0)) / total
    second = (learner.count * (learner.var + learner.mean**2) + (rows**2).sum(0)) / total
    learner.mean, learner.var, learner.count = mean, second - mean**2, total


def update(
    learner: Learner,
    steps: dict[str, np.ndarray],
    schedule: list[list[Draw]],
    demos: tuple[np.ndarray, np.ndarray] | None,
    s: Settings,
) -> dict[str, float]:
    """One whole update in place: passes, multiplier, statistics. Returns the last pass's means."""
    batch, log, made = prepare(learner, steps, s), {}, 0
    shown = None if demos is None else (learner.see(demos[0]), demos[1])
    for one_pass in schedule:
        logs = []
        for draw in one_pass:
            mini = {k: v[draw.rows] for k, v in batch.items()}
            demo = None if shown is None else (shown[0][draw.demos], shown[1][draw.demos])
            _, grads, said = loss(learner, mini, draw.noise, demo, s)
            descend(learner, grads, s)
            if demo is not None:
                assert learner.lam is not None
                likelihood = learner.policy.likelihood(learner.outputs(demo[0]), demo[1], s.resolution)[0]
                g = -likelihood.mean() - s.delta
                learner.lam = max(learner.lam + s.dual_rate * g, 0.0)
                said |= {"dual/constraint": g, "dual/lambda": learner.lam, "demo/nll": g + s.delta}
            logs.append(said)
        made += 1
        log = {k: float(np.mean([one[k] for one in logs])) for k in logs[0]}
        if log["policy/kl"] > s.max_kl:
            break
    if learner.x is not None:  # the first step of an Adam that maximises ν (c̄ − budget)
        excess = steps["cost"].mean() - s.budget
        grad = -excess / (1 + np.exp(-learner.x))
        learner.x = float(learner.x - s.dual_rate * grad / (np.abs(grad) + 1e-8))
        log |= {"cost/mean": steps["cost"].mean(), "dual/lambda": float(np.log1p(np.exp(learner.x)))}
    update_stats(learner, steps["obs"].reshape(-1, steps["obs"].shape[-1]))
    return log | {"policy/epochs": float(made)}
