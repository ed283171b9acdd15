"""Image and video files, read back by other programs."""

import subprocess
import sys

import numpy as np
import pytest

from scopil.errors import ScopilError
from scopil_bench.images import write_gif, write_mp4, write_png


def test_png_is_read_back_by_another_program(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    image = np.random.default_rng(0).integers(0, 256, (37, 53, 3), dtype=np.uint8)
    write_png(tmp_path / "a.png", image)
    with pillow.open(tmp_path / "a.png") as opened:
        opened.load()
        np.testing.assert_array_equal(np.asarray(opened), image)


def test_gif_holds_every_frame(tmp_path, monkeypatch):
    pillow = pytest.importorskip("PIL.Image")
    frames = [np.full((20, 30, 3), 80 * i, np.uint8) for i in range(3)]
    write_gif(tmp_path / "a.gif", frames, fps=10)
    with pillow.open(tmp_path / "a.gif") as opened:
        assert (opened.n_frames, opened.size) == (3, (30, 20))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ScopilError, match=r'pip install "scopil\[data\]"'):
        write_gif(tmp_path / "a.gif", frames)


def test_a_film_has_the_frames_it_was_given(tmp_path):
    films = pytest.importorskip("imageio_ffmpeg", reason='needs pip install "scopil[video]"')
    frames = [np.full((41, 60, 3), 20 * i, np.uint8) for i in range(8)]
    write_mp4(tmp_path / "a.mp4", frames)
    command = [films.get_ffmpeg_exe(), "-i", str(tmp_path / "a.mp4"), "-f", "rawvideo", "-pix_fmt", "gray", "-"]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    shown = np.frombuffer(raw, np.uint8).reshape(-1, 42, 60).mean((1, 2))
    np.testing.assert_allclose(shown, [20 * i for i in range(8)], atol=4)
