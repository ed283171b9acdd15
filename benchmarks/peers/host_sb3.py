"""Stable-Baselines3's SAC on the same environment with the same sizes: one step, one update."""

import sys

import stable_baselines3
import torch
from protocol import BATCH, REPLAY, serve

torch.set_num_threads(1)


def main(env: str, hidden: list[int]) -> None:
    model = stable_baselines3.SAC(
        "MlpPolicy",
        env,
        batch_size=BATCH,
        buffer_size=REPLAY,
        learning_starts=BATCH,
        train_freq=1,
        gradient_steps=1,
        policy_kwargs={"net_arch": hidden},
        device="cpu",
        seed=0,
    )

    def run(steps: int) -> None:
        model.learn(steps, reset_num_timesteps=False)

    run(BATCH + 10)
    serve(run, stable_baselines3=stable_baselines3.__version__, torch=torch.__version__, hidden=hidden)


if __name__ == "__main__":
    main(sys.argv[1], list(map(int, sys.argv[2:])))
