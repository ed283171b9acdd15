"""A window that shows a picture with lines of text below it."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scopil.errors import ScopilError

SMALLEST = 480  # px; smaller pictures are enlarged by an integer factor
LINE, PAD = 22, 10
BACK, TEXT = (38, 30, 26), (240, 232, 218)

Colour = tuple[int, int, int]


class Key(NamedTuple):
    """A key press or release. Names are pygame's: "up", "a", "space", "[7]" on the keypad."""

    name: str
    down: bool


class Window:
    """A window that opens at the first `show`. After the user closes it, `closed` is true and `show` does nothing."""

    def __init__(self, title: str, fps: int | float):
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        try:
            import pygame
        except ImportError as error:
            raise ScopilError('a window needs pygame: pip install "scopil[play]"') from error
        self._pygame, self._title, self._fps, self._screen, self.closed = pygame, title, fps, None, False

    def show(self, image: np.ndarray, text: Sequence[tuple[str, Colour]] = ()) -> None:
        """Draw the picture and the text, then wait until the next frame is due."""
        self.draw(image, text)
        self.events()
        if not self.closed:
            self.wait()

    def draw(self, image: np.ndarray, text: Sequence[tuple[str, Colour]] = ()) -> None:
        if self.closed:
            return
        pygame = self._pygame
        factor = max(1, SMALLEST // min(image.shape[:2]))
        height, width = image.shape[0] * factor, image.shape[1] * factor
        size = (width, height + (2 * PAD + LINE * len(text) if text else 0))
        screen = self._screen
        if screen is None or screen.get_size() != size:
            screen = self._screen = self._open(size)
        picture = pygame.surfarray.make_surface(np.swapaxes(image, 0, 1))
        screen.blit(pygame.transform.scale(picture, (width, height)), (0, 0))
        if text:
            screen.fill(BACK, (0, height, width, size[1] - height))
        for i, (line, colour) in enumerate(text):
            written = self._font.render(line, True, colour)
            if written.get_width() > width - 2 * PAD:  # shrink text that is too wide
                share = (width - 2 * PAD) / written.get_width()
                written = pygame.transform.smoothscale_by(written, share)
            screen.blit(written, (PAD, height + PAD + LINE * i))
        pygame.display.flip()

    def _open(self, size: tuple[int, int]) -> Any:
        pygame = self._pygame
        try:
            pygame.display.init()
            pygame.font.init()
            screen = pygame.display.set_mode(size)
        except pygame.error as error:
            raise ScopilError(f"cannot open a window ({error}); render_mode='rgb_array' needs no display.") from error
        pygame.display.set_caption(self._title)
        self._font = pygame.font.Font(None, LINE)
        self._clock = pygame.time.Clock()
        return screen

    def events(self) -> list[Key]:
        """Key events since the last call. Call this often, otherwise the window system reports a hanging window."""
        if self._screen is None or self.closed:
            return []
        pygame = self._pygame
        keys = []
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                self.close()
                return keys
            if event.type in (pygame.KEYDOWN, pygame.KEYUP):
                keys.append(Key(pygame.key.name(event.key), event.type == pygame.KEYDOWN))
        return keys

    def now(self) -> float:
        """Time in seconds, from an arbitrary origin."""
        return self._pygame.time.get_ticks() / 1000

    def wait(self) -> None:
        self._clock.tick(self._fps)

    def close(self) -> None:
        self.closed = True
        if self._screen is not None:
            self._screen = None
            self._pygame.display.quit()
