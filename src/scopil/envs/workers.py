"""Copies of one Gymnasium environment in several processes, for evaluation in a slow environment.

The policy stays in this process and chooses the actions of all copies, so that the episodes are those of one process. A
worker makes its copies from the environment's name. Messages are lines of JSON with arrays in base64: nothing is
pickled.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from scopil.envs.gym_vector import SerialEnvs, StepResult
from scopil.envs.jax_env import make_env
from scopil.envs.rollout import name_of
from scopil.envs.spaces import Spaces
from scopil.errors import EnvError
from scopil.user_code import python

PATIENCE = 5.0  # seconds for the environments of a worker to close


class WorkerEnvs:
    """`count` copies of an environment in `processes` workers; episodes only, without new ones where one ended."""

    def __init__(self, spaces: Spaces, name: str, count: int, processes: int):
        self.num_envs, self._spaces, self._name = count, spaces, name
        self._parts = np.array_split(np.arange(count), processes)
        self._workers: list[subprocess.Popen[str]] = []

    def reset(self, seeds: np.ndarray) -> tuple[np.ndarray, Any]:
        if not self._workers:
            self._start()
        answers = self._ask(lambda part: {"reset": seeds[part].tolist()})
        return self._rows(answers), [info for answer in answers for info in answer["infos"]]

    def step(self, actions: np.ndarray, seeds: np.ndarray | None, alive: np.ndarray | None = None) -> StepResult:
        assert seeds is None
        alive = np.ones(self.num_envs, bool) if alive is None else alive
        answers = self._ask(lambda part: {"step": _text(actions[part]), "alive": alive[part].tolist()})
        reward, terminated, truncated, infos = (
            [value for answer in answers for value in answer[name]]
            for name in ("reward", "terminated", "truncated", "infos")
        )
        obs = self._rows(answers)
        return StepResult(obs, np.array(reward, np.float32), np.array(terminated), np.array(truncated), obs, infos)

    def restart(self, before: np.ndarray, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        assert not which.any()  # an evaluation plays every episode to its end
        return before

    def numbers(self, infos: Any, index: int) -> dict[str, float]:
        return infos[index]

    def close(self) -> None:
        """Stop the workers. `reset` starts them again."""
        if self._workers:
            self._stop()

    def _start(self) -> None:
        self._workers = [
            subprocess.Popen(
                [*python(), "-m", __name__, self._name, str(part[0]), str(len(part)), str(self.num_envs)],
                env=os.environ | {"JAX_PLATFORMS": "cpu"},  # one process holds the GPU
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for part in self._parts
        ]
        self._stop = weakref.finalize(self, _stop, self._workers)
        made = self._ask(lambda part: None)
        wanted = _described(self._spaces)
        if any(answer["spaces"] != wanted for answer in made):
            self.close()
            raise EnvError(f"{self._name} has the spaces {made[0]['spaces']} in another process; want {wanted}.")

    def _ask(self, question: Callable[[np.ndarray], Any]) -> list[dict[str, Any]]:
        """Ask all workers, then wait for all answers: no worker waits for another."""
        try:
            for worker, part in zip(self._workers, self._parts):
                assert worker.stdin is not None
                if (asked := question(part)) is not None:
                    print(json.dumps(asked), file=worker.stdin, flush=True)
            answers = [json.loads(self._line(worker)) for worker in self._workers]
        except BaseException:  # an answer may be missing
            self.close()
            raise
        if faults := [answer["error"] for answer in answers if "error" in answer]:
            raise EnvError(faults[0])
        return answers

    def _line(self, worker: subprocess.Popen[str]) -> str:
        assert worker.stdout is not None
        if line := worker.stdout.readline():
            return line
        raise EnvError(f"{self._name}: a process of the evaluation ended with exit code {worker.wait()}.")

    def _rows(self, answers: list[dict[str, Any]]) -> np.ndarray:
        return np.concatenate([_array(answer["obs"]) for answer in answers])


def _stop(workers: list[subprocess.Popen[str]]) -> None:
    for worker in workers:
        assert worker.stdin is not None
        with suppress(OSError):  # the worker has ended
            worker.stdin.close()  # it closes its environments and ends
    for worker in workers:
        assert worker.stdout is not None
        try:
            worker.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
        worker.stdout.close()
    workers.clear()


def _described(spaces: Spaces) -> str:
    return f"{spaces.env_observation}, {spaces.env_action}"


def _text(array: np.ndarray) -> list[Any]:
    return [array.dtype.str, array.shape, base64.b64encode(array.tobytes()).decode()]


def _array(text: list[Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text[2]), np.dtype(text[0])).reshape(text[1])


def _answer(envs: SerialEnvs, asked: dict[str, Any]) -> dict[str, Any]:
    if "reset" in asked:
        obs, infos = envs.reset(np.array(asked["reset"]))
        return {"obs": _text(obs), "infos": [envs.numbers(infos, i) for i in range(envs.num_envs)]}
    result = envs.step(_array(asked["step"]), None, np.array(asked["alive"]))
    return {
        "obs": _text(result.next_obs),
        "reward": result.reward.tolist(),
        "terminated": result.terminated.tolist(),
        "truncated": result.truncated.tolist(),
        "infos": [envs.numbers(result.infos, i) for i in range(envs.num_envs)],
    }


def main(name: str, first: int, count: int, total: int) -> None:
    """Answer questions until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one answers it
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # an environment may print
    try:
        made = [make_env(name) for _ in range(count)]
        spaces = Spaces(name_of(made[0]), made[0].observation_space, made[0].action_space)
        envs = SerialEnvs(spaces, made, first, total)
        answer: dict[str, Any] = {"spaces": _described(spaces)}
    except EnvError as error:
        return print(json.dumps({"error": str(error)}), file=answers, flush=True)
    print(json.dumps(answer), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = _answer(envs, json.loads(line))
        except EnvError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)
    for env in made:
        env.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
