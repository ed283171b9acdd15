"""SCOPIL in plain PyTorch: modules, Adam, a NumPy replay, one Gymnasium environment.

The same arithmetic in the same order as scopil.algos.scopil (speed.py compares the weights after some updates).
"""

import copy
import sys

import numpy as np
import torch
from protocol import ACTIONS, BATCH, HIDDEN, OBS, REPLAY, serve
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

DISCOUNT, RATE, ALPHA_RATE, POLYAK, SLACK = 0.99, 3e-4, 2e-3, 5e-3, 0.0
TARGET_ENTROPY = 0.4 * float(np.log(ACTIONS))


def mlp() -> nn.Sequential:
    first, second = HIDDEN
    return nn.Sequential(
        nn.Linear(OBS, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, ACTIONS)
    )


def entropy(log_pi: torch.Tensor) -> torch.Tensor:
    return -(log_pi.exp() * log_pi).sum(-1)


class Scopil:
    def __init__(self):
        self.actor, self.q1, self.q2 = mlp(), mlp(), mlp()
        self.t1, self.t2 = copy.deepcopy(self.q1), copy.deepcopy(self.q2)
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.lam = torch.tensor(1.05)
        self.optimise()

    def optimise(self) -> None:
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), RATE)
        self.critic_adam = torch.optim.Adam([*self.q1.parameters(), *self.q2.parameters()], RATE)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], ALPHA_RATE)

    def log_pi(self, obs: torch.Tensor) -> torch.Tensor:
        return F.log_softmax(self.actor(obs), -1)

    def constraint(self, demo_obs, demo_action, alpha) -> torch.Tensor:
        log_pi = self.log_pi(demo_obs)
        nll = -log_pi.gather(1, demo_action[:, None])[:, 0]
        return (nll - alpha * entropy(log_pi)).mean() - SLACK

    @torch.no_grad()
    def act(self, obs: np.ndarray) -> int:
        return int(torch.distributions.Categorical(logits=self.actor(torch.from_numpy(obs))).sample())

    def update(self, obs, action, reward, next_obs, terminated, demo_obs, demo_action) -> None:
        alpha = self.log_alpha.detach().exp()

        with torch.no_grad():
            log_pi = self.log_pi(next_obs)
            q_next = torch.minimum(self.t1(next_obs), self.t2(next_obs))
            v_next = (log_pi.exp() * (q_next - alpha * log_pi)).sum(-1)
            y = reward + DISCOUNT * (1 - terminated) * v_next
        q1, q2 = (q(obs).gather(1, action[:, None])[:, 0] for q in (self.q1, self.q2))
        step(self.critic_adam, 0.5 * F.mse_loss(q1, y) + 0.5 * F.mse_loss(q2, y))

        with torch.no_grad():
            q = torch.minimum(self.q1(obs), self.q2(obs))
        log_pi = self.log_pi(obs)
        objective = (alpha * entropy(log_pi) + (log_pi.exp() * q).sum(-1)).mean()
        step(self.actor_adam, -objective + self.lam * self.constraint(demo_obs, demo_action, alpha))

        with torch.no_grad():
            gap = entropy(self.log_pi(obs)).mean() - TARGET_ENTROPY
        step(self.alpha_adam, self.log_alpha.exp() * gap)

        with torch.no_grad():
            broken = self.constraint(demo_obs, demo_action, self.log_alpha.exp())
            self.lam = (self.lam + RATE * broken).clamp(min=0.0)
            for target, online in ((self.t1, self.q1), (self.t2, self.q2)):
                for psi, phi in zip(target.parameters(), online.parameters()):
                    psi.lerp_(phi, POLYAK)


def step(adam: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    adam.zero_grad()
    loss.backward()
    adam.step()


class Replay:
    def __init__(self):
        self.obs, self.next_obs = np.zeros((2, REPLAY, OBS), np.float32)
        self.action = np.zeros(REPLAY, np.int64)
        self.reward, self.terminated = np.zeros((2, REPLAY), np.float32)
        self.added = 0
        self.rng = np.random.default_rng(0)

    def add(self, obs, action, reward, next_obs, terminated) -> None:
        at = self.added % REPLAY
        self.obs[at], self.action[at], self.reward[at] = obs, action, reward
        self.next_obs[at], self.terminated[at] = next_obs, terminated
        self.added += 1

    def sample(self) -> list[torch.Tensor]:
        index = self.rng.integers(min(self.added, REPLAY), size=BATCH)
        columns = (self.obs, self.action, self.reward, self.next_obs, self.terminated)
        return [torch.from_numpy(column[index]) for column in columns]


def bench() -> None:
    from marble import Marble

    rng = np.random.default_rng(1)
    demo_obs = rng.uniform(-1, 1, (850, OBS)).astype(np.float32)
    demo_action = rng.integers(ACTIONS, size=850)
    learner, replay, env = Scopil(), Replay(), Marble()
    obs, _ = env.reset(seed=0)

    def interact() -> None:
        nonlocal obs
        action = learner.act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        replay.add(obs, action, reward, next_obs, terminated)
        obs = env.reset()[0] if terminated or truncated else next_obs

    def run(steps: int) -> None:
        for _ in range(steps):
            interact()
            index = rng.integers(850, size=BATCH)
            demos = torch.from_numpy(demo_obs[index]), torch.from_numpy(demo_action[index])
            learner.update(*replay.sample(), *demos)

    for _ in range(BATCH):
        interact()
    run(10)
    serve(run, torch=torch.__version__, numpy=np.__version__, threads=torch.get_num_threads())


def check(inputs: str, outputs: str) -> None:
    """Weights and batches in, weights out."""
    given = np.load(inputs)
    learner = Scopil()
    nets = {"actor": learner.actor, "q1": learner.q1, "q2": learner.q2, "t1": learner.t1, "t2": learner.t2}
    with torch.no_grad():
        for name, net in nets.items():
            for i, layer in enumerate(net[::2]):
                layer.weight.copy_(torch.from_numpy(given[f"{name}/w{i}"]))
                layer.bias.copy_(torch.from_numpy(given[f"{name}/b{i}"]))
    names = ("obs", "action", "reward", "next_obs", "terminated", "demo_obs", "demo_action")
    for batch in zip(*(torch.from_numpy(given[f"batch/{name}"]) for name in names)):
        learner.update(*batch)
    out = {"log_alpha": learner.log_alpha.detach().numpy(), "lambda": learner.lam.numpy()}
    for name, net in nets.items():
        for i, layer in enumerate(net[::2]):
            out |= {f"{name}/w{i}": layer.weight.detach().numpy(), f"{name}/b{i}": layer.bias.detach().numpy()}
    np.savez(outputs, **out)


if __name__ == "__main__":
    check(*sys.argv[2:]) if sys.argv[1:2] == ["check"] else bench()
