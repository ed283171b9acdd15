"""Pictures of episodes and of learned costs, drawn by the environment's hooks `draw_episodes` and `draw_cost`."""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scopil.envs.base import BatchEnv, Drawing
from scopil.errors import ScopilError
from scopil.files import write_atomically

FORMATS = (".png", ".pdf", ".svg")


def check_ending(path: str | Path) -> Path:
    """Raise `ScopilError` if the format is not supported. Call this before playing many episodes."""
    if Path(path).suffix.lower() not in FORMATS:
        raise ScopilError(f"{path}: pictures end in {', '.join(FORMATS)}; give it one of these endings.")
    return Path(path)


def save_episodes(path: str | Path, env: BatchEnv, panels: Mapping[str, Sequence[Any]]) -> None:
    """Draw episodes with the environment's `draw_episodes`.

    Args:
        path: a file that ends in .png, .pdf or .svg.
        env: the environment of the episodes.
        panels: episodes by the title of their panel.
    """
    draw = env.drawing()
    if draw is None:
        raise ScopilError("this environment has no method draw_episodes(axes, episodes, params).")
    save_panels(path, draw, panels)


def save_panels(path: str | Path, draw: Drawing, panels: Mapping[str, Sequence[Any]]) -> None:
    """Draw panels side by side, each with its title and episodes. The file extension selects PNG, PDF or SVG."""
    path = check_ending(path)
    figure = new_figure(figsize=(5.0 * len(panels), 5.4))
    for axes, (title, episodes) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items()):
        draw(axes, episodes)
        axes.set_title(title, fontsize=10 if len(panels) == 1 else 14)
    save_figure(path, figure)


def save_costs(path: str | Path, draw: Drawing, costs: Mapping[str, Callable[..., Any]]) -> None:
    """Draw maps of learned costs side by side, each with its title, and one shared colour bar."""
    path = check_ending(path)
    figure = new_figure(figsize=(4.6 * len(costs) + 1.0, 5.0))
    panels = figure.subplots(1, len(costs), squeeze=False)[0]
    images = []
    for axes, (title, cost) in zip(panels, costs.items()):
        images.append(draw(axes, cost))
        axes.set_title(title, fontsize=10)
    if images[0] is not None:
        figure.colorbar(images[0], ax=panels, shrink=0.8).set_label("learned cost")  # all maps share one scale
    save_figure(path, figure)


def new_figure(**options: Any) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ScopilError('pictures of runs need matplotlib: pip install "scopil[plots]".') from error
    return Figure(layout="constrained", **options)


def save_figure(path: Path, figure: Any) -> None:
    buffer = io.BytesIO()
    kind = path.suffix[1:].lower()
    figure.savefig(buffer, format=kind, dpi=160, metadata={"Software": None} if kind == "png" else None)
    write_atomically(path, few_colours(buffer.getvalue()) if kind == "png" else buffer.getvalue())


def few_colours(png: bytes) -> bytes:
    """Reduce an image to 256 colours. The file, which reports embed, becomes a quarter as large. The method keeps rare
    colours; the usual palette of mean colours would merge thin lines."""
    from PIL import Image  # comes with matplotlib

    buffer = io.BytesIO()
    plain = Image.open(io.BytesIO(png)).convert("RGB")
    rare = Image.Quantize.MAXCOVERAGE
    plain.quantize(256, method=rare, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
