"""Image and video files."""

import io
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from scopil.errors import ScopilError
from scopil.files import write_atomically

Image = UInt8[np.ndarray, "height width 3"]


def write_png(path: str | Path, image: Image) -> None:
    write_atomically(Path(path), png_bytes(image))


def png_bytes(image: Image) -> bytes:
    buffer = io.BytesIO()
    _pillow().fromarray(image).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def write_gif(path: str | Path, frames: Sequence[Image], fps: int | float = 12) -> None:
    write_atomically(Path(path), gif_bytes(frames, fps))


def gif_bytes(frames: Sequence[Image], fps: int | float = 12) -> bytes:
    """A looping animation that shows its last frame for one second."""
    pillow = _pillow()
    # All frames share one palette, because the animation flickers with one palette per frame.
    few = np.concatenate([frames[0], frames[len(frames) // 2], frames[-1]])
    palette = pillow.fromarray(few).quantize(256)
    first, *rest = [pillow.fromarray(f).quantize(palette=palette, dither=pillow.Dither.NONE) for f in frames]
    pause = round(1000 / fps)
    durations = [pause] * len(rest) + [max(pause, 1000)]
    buffer = io.BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=rest, duration=durations, loop=0, optimize=False)
    return buffer.getvalue()


def _pillow() -> Any:
    try:
        from PIL import Image as pillow
    except ImportError as error:
        raise ScopilError('PNG and GIF need pillow: pip install "scopil[data]"') from error
    return pillow


def write_mp4(path: str | Path, frames: Sequence[Image], fps: int | float = 12) -> None:
    """Write an H.264 video, which every browser plays. Odd sides grow by one pixel, because H.264 needs even sides."""
    try:
        from imageio_ffmpeg import get_ffmpeg_exe
    except ImportError as error:
        raise ScopilError('MP4 needs imageio-ffmpeg: pip install "scopil[video]"') from error
    height, width = (side + side % 2 for side in frames[0].shape[:2])
    grown = ((0, height - frames[0].shape[0]), (0, width - frames[0].shape[1]), (0, 0))
    raw = b"".join(np.pad(frame, grown, mode="edge").tobytes() for frame in frames)
    given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
    wanted = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "video.mp4")
        command = [get_ffmpeg_exe(), "-loglevel", "error", *given, *wanted, str(file)]
        done = subprocess.run(command, input=raw, capture_output=True)
        if done.returncode != 0:
            raise ScopilError(f"{path}: ffmpeg failed: {done.stderr.decode(errors='replace').strip()[-300:]}")
        write_atomically(Path(path), file.read_bytes())
