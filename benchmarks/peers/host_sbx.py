"""SBX's SAC (Stable-Baselines3 in JAX) on the same environment with the same sizes: one step, one update."""

import os
import sys

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import sbx  # pyright: ignore[reportMissingImports]
from protocol import BATCH, REPLAY, serve


def main(env: str, hidden: list[int]) -> None:
    model = sbx.SAC(
        "MlpPolicy",
        env,
        batch_size=BATCH,
        buffer_size=REPLAY,
        learning_starts=BATCH,
        train_freq=1,
        gradient_steps=1,
        policy_kwargs={"net_arch": hidden},
        seed=0,
    )

    def run(steps: int) -> None:
        model.learn(steps, reset_num_timesteps=False)

    run(BATCH + 10)
    serve(run, sbx=sbx.__version__, hidden=hidden)


if __name__ == "__main__":
    main(sys.argv[1], list(map(int, sys.argv[2:])))
