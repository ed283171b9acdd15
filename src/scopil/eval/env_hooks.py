"""What an environment may offer beyond Gymnasium, found by name on its FuncEnv or on the unwrapped host environment:

measures(episode) → {name: number}            further measures of an episode
draw_episodes(axes, episodes, params)         episodes from above, on matplotlib axes; with info["position"] in the
                                              coordinates of these axes, reports have them to look into
draw_cost(axes, cost, params)                 a map of a learned cost(observations, actions)
initial_at(start, params)                     the initial state at a given start
rules                                         rules to count violations by (`scopil.eval.rules`)
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from scopil.data.dataset import Episode
from scopil.envs.base import BatchEnv, Offer

Measuring = Callable[[Episode], dict[str, float]]
Drawing = Callable[[Any, Sequence[Episode]], Any]  # (axes, episodes)
CostDrawing = Callable[[Any, Callable[..., Any]], Any]  # (axes, cost) → an image for the colour bar


def offer(env: BatchEnv, name: Offer) -> Callable[..., Any] | None:
    """The environment's optional method, or None."""
    found = env.offer(name)
    return found if callable(found) else None


def measuring(env: BatchEnv) -> Measuring | None:
    return offer(env, "measures")


def drawing(env: BatchEnv) -> Drawing | None:
    found = offer(env, "draw_episodes")
    return None if found is None else partial(_with_params, found, getattr(env, "params", None))


def cost_drawing(env: BatchEnv) -> CostDrawing | None:
    found = offer(env, "draw_cost")
    return None if found is None else partial(_with_params, found, getattr(env, "params", None))


def _with_params(draw: Callable[..., Any], params: Any, axes: Any, subject: Any) -> Any:
    return draw(axes, subject, params)
