"""Limits for connections that send no request. Without them, idle connections could take all places of the server."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 10.0  # maximum time from the connection, or from the last answer, to the end of the next request's header
WAITING = 100  # maximum number of connections without a request; the one that has waited longest is closed


class Connection(H11Protocol):
    """An HTTP connection that is closed if it waits too long, or if too many newer ones wait.

    Browsers send their request at once, and reconnect by themselves. The limit counts all peers together, because a
    local user can connect from any address in 127.0.0.0/8.
    """

    _timer: asyncio.TimerHandle | None = None
    _since = 0.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._stop_waiting()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def waits(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self._stop_waiting()
        self._since = self.loop.time()
        self._timer = self.loop.call_later(SECONDS, self._end_if_waiting)
        waiting = [c for c in self.connections if isinstance(c, Connection) and c.waits]
        if len(waiting) > WAITING:
            min(waiting, key=lambda c: c._since).transport.abort()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_if_waiting(self) -> None:
        if self.waits:
            self.transport.abort()
