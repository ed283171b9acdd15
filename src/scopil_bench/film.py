"""Films of a policy: rendered states, with one time line of violations per rule below."""

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from scopil.data.dataset import Episode
from scopil.envs.base import BatchEnv
from scopil.envs.rollout import gym_episode, name_of
from scopil.errors import EnvError
from scopil.eval.measures import broken_rules

Picture = np.ndarray  # uint8, (height, width, 3)
MOST = 400  # largest number of frames; a film of more states shows every second, fourth, … state
ROW, EDGE = 14, 4  # pixels: height of a time line; width of the red edge of a state that breaks a rule
BROKEN, LAWFUL, AHEAD, PAPER = (
    np.array(c, np.uint8) for c in ([207, 34, 46], [140, 149, 159], [234, 238, 242], [255] * 3)
)


class Shot(NamedTuple):
    """The rendered image of one state of one episode."""

    episode: int
    step: int
    picture: Picture


def play(
    env: gym.Env,
    seen_by: BatchEnv,
    choose: Callable[[Any], Any],
    seeds: Iterable[int],
    advance: Callable[[], None] = lambda: None,
    most: int | None = None,
) -> tuple[list[Shot], list[Episode]]:
    """Play one episode per seed with the actions `choose(obs)`. Returns the rendered images and the episodes.

    `env` has `render_mode="rgb_array"`; `seen_by` flattens its observations; `advance` is called after each episode;
    `most` is the largest number of images; by default MOST."""
    shots: list[Shot] = []
    episodes, apart = [], 1

    def look(step: int) -> None:
        nonlocal shots, apart
        if step % apart == 0:
            shots.append(Shot(len(episodes), step, picture_of(env)))
        if len(shots) > (most or MOST):
            apart *= 2
            shots = [shot for shot in shots if shot.step % apart == 0]

    for seed in seeds:
        steps = count()
        watch = lambda obs, info, n=steps: look(next(n))  # noqa: E731
        episodes.append(gym_episode(env, choose, int(seed), row=seen_by.spaces.flatten, watch=watch))
        advance()
    return shots, episodes


def picture_of(env: gym.Env) -> Picture:
    """A copy of the rendered image, because the environment may reuse its array."""
    try:
        drawn = env.render()
    except (NotImplementedError, gym.error.Error) as error:  # gym.error: a rendering library is missing
        raise _undrawn(env, f"cannot be rendered ({str(error) or type(error).__name__})") from error
    if not isinstance(drawn, np.ndarray) or drawn.dtype != np.uint8 or drawn.shape[2:] != (3,):
        raise _undrawn(env, f"renders {type(drawn).__name__}")
    return drawn.copy()


def _undrawn(env: gym.Env, found: str) -> EnvError:
    return EnvError(
        f"{name_of(env)} {found}; want render() to return an array of uint8 (height, width, 3) with "
        f'render_mode="rgb_array".'
    )


def with_time_lines(shots: Sequence[Shot], episodes: Sequence[Episode]) -> list[Picture]:
    """The images with one time line per rule below. The time line is red at the states, up to the current one, that
    break the rule. The image of a state that breaks a rule has a red edge. Without rules the images are unchanged."""
    broken = [broken_rules(episode) for episode in episodes]
    names = list(dict.fromkeys(name for one in broken for name in one))
    if not names:
        return [shot.picture for shot in shots]
    width = max(shot.picture.shape[1] for shot in shots)
    labels = {name: _label(name or "cost", width // 4) for name in names}
    return [_framed(shot, broken[shot.episode], labels) for shot in shots]


def _framed(shot: Shot, broken: dict[str, np.ndarray], labels: dict[str, Picture]) -> Picture:
    picture = shot.picture.copy()
    if any(line[shot.step] for line in broken.values()):
        for edge in (np.s_[:EDGE], np.s_[-EDGE:], np.s_[:, :EDGE], np.s_[:, -EDGE:]):
            picture[edge] = BROKEN
    rows = [picture]
    for name, label in labels.items():
        width = picture.shape[1] - label.shape[1]
        line = broken.get(name, np.zeros(1, bool))
        state = np.minimum(np.arange(width) * len(line) // max(width, 1), len(line) - 1)
        colours = np.where(line[state][:, None], BROKEN, LAWFUL)
        colours = np.where((state > shot.step)[:, None], AHEAD, colours)
        strip = np.broadcast_to(colours, (ROW, width, 3)).copy()
        strip[[0, -1]] = PAPER
        rows.append(np.hstack([label, strip]))
    return np.vstack(rows)


def _label(name: str, width: int) -> Picture:
    """The rule's name as an image; empty if Pillow is not installed."""
    try:
        from PIL import Image as Pillow
        from PIL import ImageDraw
    except ImportError:
        return np.broadcast_to(PAPER, (ROW, 0, 3))
    canvas = Pillow.new("RGB", (width, ROW), (255, 255, 255))
    ImageDraw.Draw(canvas).text((2, 1), name, fill=(36, 41, 47))
    return np.asarray(canvas)
