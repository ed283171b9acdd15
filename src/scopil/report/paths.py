# merge: delete this file; it keeps the old cli/demos.py working until it uses `report.episode_pictures`.
"""Old name of `episode_pictures`."""

from scopil.report.episode_pictures import check_ending, save_panels

__all__ = ["check_ending", "save_paths"]


def save_paths(path, params, episodes, title=""):
    from scopil.studies.marble_maze.paths import draw_episodes

    save_panels(path, lambda axes, shown: draw_episodes(axes, shown, params), {title: episodes})
