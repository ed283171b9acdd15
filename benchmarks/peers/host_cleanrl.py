"""SAC for continuous actions in one file of PyTorch, in the way of CleanRL: vector environment, NumPy replay, two
policy updates at every second step. Our own code with CleanRL's defaults (vwxyzjn/cleanrl, sac_continuous_action).
"""

import copy
import sys
from itertools import pairwise

import gymnasium as gym
import numpy as np
import torch
from protocol import BATCH, REPLAY, serve
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

DISCOUNT, POLYAK, POLICY_RATE, CRITIC_RATE, POLICY_EVERY = 0.99, 5e-3, 3e-4, 1e-3, 2
LOG_STD = (-5.0, 2.0)


def mlp(sizes: list[int]) -> nn.Sequential:
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class Actor(nn.Module):
    def __init__(self, obs: int, hidden: list[int], space: gym.spaces.Box):
        super().__init__()
        self.body = mlp([obs, *hidden, 2 * space.shape[0]])
        self.scale = torch.tensor((space.high - space.low) / 2.0)
        self.bias = torch.tensor((space.high + space.low) / 2.0)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A sampled action and its log-density."""
        mean, spread = self.body(obs).chunk(2, -1)
        log_std = LOG_STD[0] + 0.5 * (LOG_STD[1] - LOG_STD[0]) * (torch.tanh(spread) + 1)
        normal = torch.distributions.Normal(mean, log_std.exp())
        x = normal.rsample()
        squashed = torch.tanh(x)
        log_pi = normal.log_prob(x) - torch.log(self.scale * (1 - squashed**2) + 1e-6)
        return squashed * self.scale + self.bias, log_pi.sum(-1, keepdim=True)


class Buffer:
    def __init__(self, obs: int, actions: int):
        self.rows = [np.zeros((REPLAY, width), np.float32) for width in (obs, actions, 1, obs, 1)]
        self.added, self.rng = 0, np.random.default_rng(0)

    def add(self, *row: object) -> None:
        for kept, value in zip(self.rows, row):
            kept[self.added % REPLAY] = value
        self.added += 1

    def sample(self) -> list[torch.Tensor]:
        index = self.rng.integers(min(self.added, REPLAY), size=BATCH)
        return [torch.from_numpy(kept[index]) for kept in self.rows]


class Sac:
    def __init__(self, env: str, hidden: list[int]):
        self.envs = gym.vector.SyncVectorEnv([lambda: gym.make(env)], autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
        space = self.envs.single_action_space
        assert isinstance(space, gym.spaces.Box)
        assert self.envs.single_observation_space.shape is not None
        obs, actions = self.envs.single_observation_space.shape[0], space.shape[0]
        self.actor = Actor(obs, hidden, space)
        self.critics = nn.ModuleList([mlp([obs + actions, *hidden, 1]) for _ in range(2)])
        self.targets = copy.deepcopy(self.critics)
        self.policy_adam = torch.optim.Adam(self.actor.parameters(), POLICY_RATE)
        self.critic_adam = torch.optim.Adam(self.critics.parameters(), CRITIC_RATE)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], CRITIC_RATE)
        self.target_entropy = -float(actions)
        self.buffer, self.steps = Buffer(obs, actions), 0
        self.obs, _ = self.envs.reset(seed=0)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.steps += 1
            if self.steps <= BATCH:
                action = self.envs.action_space.sample()
            else:
                with torch.no_grad():
                    action = self.actor(torch.from_numpy(self.obs))[0].numpy()
            later, reward, terminated, truncated, infos = self.envs.step(action)
            following = infos["final_obs"][0] if terminated[0] or truncated[0] else later[0]
            self.buffer.add(self.obs[0], action[0], reward[0], following, terminated[0])
            self.obs = later
            if self.steps > BATCH:
                self.update()

    def update(self) -> None:
        obs, action, reward, following, terminated = self.buffer.sample()
        alpha = self.log_alpha.exp().item()
        with torch.no_grad():
            later, log_pi = self.actor(following)
            value = torch.min(*self.values(self.targets, following, later)) - alpha * log_pi
            wanted = reward + (1 - terminated) * DISCOUNT * value
        loss = sum(F.mse_loss(found, wanted) for found in self.values(self.critics, obs, action))
        self.step(self.critic_adam, loss)
        if self.steps % POLICY_EVERY == 0:
            for _ in range(POLICY_EVERY):
                chosen, log_pi = self.actor(obs)
                value = torch.min(*self.values(self.critics, obs, chosen))
                self.step(self.policy_adam, (alpha * log_pi - value).mean())
                with torch.no_grad():
                    _, log_pi = self.actor(obs)
                self.step(self.alpha_adam, (-self.log_alpha.exp() * (log_pi + self.target_entropy)).mean())
                alpha = self.log_alpha.exp().item()
        for kept, new in zip(self.targets.parameters(), self.critics.parameters()):
            kept.data.copy_(POLYAK * new.data + (1 - POLYAK) * kept.data)

    @staticmethod
    def values(critics: nn.ModuleList, obs: torch.Tensor, action: torch.Tensor) -> list[torch.Tensor]:
        return [critic(torch.cat([obs, action], 1)) for critic in critics]

    @staticmethod
    def step(adam: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        adam.zero_grad()
        loss.backward()
        adam.step()


def main(env: str, hidden: list[int]) -> None:
    sac = Sac(env, hidden)
    sac.run(BATCH + 10)
    serve(sac.run, torch=torch.__version__, hidden=hidden)


if __name__ == "__main__":
    main(sys.argv[1], list(map(int, sys.argv[2:])))
