"""Callbacks of `Agent.learn`: evaluation, the best policy so far, and early stopping, as in Stable-Baselines3.

evaluation = scopil.EvalCallback(every=10_000, rules="my_rules.py", best="best.safetensors", patience=5)
agent.learn(200_000, callback=evaluation)
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from scopil import sb3
from scopil.agent import Agent
from scopil.errors import ConfigError
from scopil.eval.measures import Measures, score
from scopil.train.trainer import TrainStatus


class EvalCallback:
    """Evaluates the agent at regular intervals.

    Args:
        every: environment steps between evaluations.
        episodes: episodes per evaluation.
        starts, deterministic, rules: as in `Agent.evaluate`.
        seed: seed of the unseen starts. The default differs from the default of `Agent.evaluate`, so that the
            policy is not selected on the starts of the final evaluation.
        score: (measures) → a score, larger is better. Default: (−avoidable violations, reward), so that reward decides
            only between policies with equal violations.
        best: file for the agent with the best score so far.
        patience: stop after this number of consecutive evaluations without a better score; None: no limit.
        until: (measures) → whether to stop.
        eval_freq, n_eval_episodes: `every` and `episodes`, by their names in Stable-Baselines3.

    `history` lists (steps, measures) of all evaluations; `best_score` is the best score.
    """

    def __init__(
        self,
        every: int | Any = 10_000,  # Any: others are refused below
        episodes: int = 20,
        *,
        starts: str = "unseen",
        deterministic: bool = True,
        seed: int = 1,
        rules: Any = None,
        score: Callable[[Measures], Any] = score,
        best: str | Path | None = None,
        patience: int | None = None,
        until: Callable[[Measures], bool] = lambda measures: False,
        **other: Any,
    ):
        every, episodes = other.pop("eval_freq", every), other.pop("n_eval_episodes", episodes)
        sb3.refuse(other, "EvalCallback")
        if not isinstance(every, int):
            raise ConfigError(f"every = {every!r}; want a number of steps. The agent opens its own environments.")
        for name, value in (("every", every), ("episodes", episodes), ("patience", patience)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} = {value}; want at least 1.", setting=name)
        self.every = every
        self._how: dict[str, Any] = {"starts": starts, "episodes": episodes, "deterministic": deterministic}
        self._how |= {"seed": seed, "rules": rules}
        self._score, self._best, self._patience, self._until = score, best, patience, until
        self._agent: Agent | None = None
        self._due = 0
        self._waited = 0
        self.history: list[tuple[int, Measures]] = []
        self.best_score: Any = None

    def begin(self, agent: Agent) -> None:
        """Called by `Agent.learn`."""
        self._agent = agent
        self._due = agent.num_timesteps // self.every + 1

    def __call__(self, status: TrainStatus) -> bool:
        """Evaluate if an evaluation is due. Returns whether to stop training."""
        if self._agent is None:
            raise ConfigError("EvalCallback has no agent; pass it to Agent.learn(callback=…).")
        if status.env_steps < self._due * self.every:
            return False
        self._due = status.env_steps // self.every + 1
        found = self._agent.evaluate(**self._how)
        self.history.append((status.env_steps, found))
        score = self._score(found)
        self._waited += 1
        if self.best_score is None or score > self.best_score:
            self.best_score, self._waited = score, 0
            if self._best is not None:
                self._agent.save(self._best)
        return self._until(found) or (self._patience is not None and self._waited >= self._patience)


class NovelBudget:
    """Stops training when too many of the newest training episodes were novel.

    An algorithm that stops novel episodes (SCOPIL-ρ) counts them. Training stops when the share of stopped episodes
    exceeds `most` of `of`, over the newest rows of metrics with at least `of` episodes.
    """

    def __init__(self, most: int, of: int):
        if not 0 <= most < of:
            raise ConfigError(f"a budget of {most} of {of} episodes; want fewer novel episodes than episodes.")
        self.most, self.of = most, of
        self._rows: list[tuple[float, float]] = []  # stopped, all

    @classmethod
    def parse(cls, text: str) -> "NovelBudget":
        """From the form `5/100`."""
        most, _, of = text.partition("/")
        if not (most.isdecimal() and of.isdecimal()):
            raise ConfigError(f"novel_budget = {text}; want N/M, such as 5/100.", setting="novel_budget")
        return cls(int(most), int(of))

    def __call__(self, status: TrainStatus) -> bool:
        """Whether to stop training."""
        stopped = status.metrics.get("episode/stopped")
        if stopped is None:
            raise ConfigError("a budget of novel episodes; want an algorithm that stops them (SCOPIL-ρ with a shield).")
        self._rows.append((stopped, stopped + status.metrics["episode/count"]))
        while sum(every for _, every in self._rows[1:]) >= self.of:
            self._rows.pop(0)
        return self.found[1] >= self.of and self.found[0] * self.of > self.most * self.found[1]

    @property
    def found(self) -> tuple[int, int]:
        """Novel episodes, and all, in the newest rows."""
        return int(sum(n for n, _ in self._rows)), int(sum(n for _, n in self._rows))
