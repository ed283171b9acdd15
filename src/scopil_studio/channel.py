"""Messages between the server and a worker process: a JSON object and, behind it, bytes (a picture, a file).

Both lengths come first. Nothing is pickled.
"""

import asyncio
import json
import os
import queue
import struct
import sys
import threading
from typing import Any, BinaryIO

Message = tuple[dict[str, Any], bytes]
_LENGTHS = struct.Struct("!II")
LARGEST = 256 * 2**20  # bytes; an animation may be long


def pack(fields: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(fields, allow_nan=False).encode()
    return _LENGTHS.pack(len(text), len(data)) + text + data


async def read_async(stream: asyncio.StreamReader) -> Message:
    """Raises `asyncio.IncompleteReadError` when the other side is gone."""
    text, data = _LENGTHS.unpack(await stream.readexactly(_LENGTHS.size))
    if text + data > LARGEST:
        raise asyncio.IncompleteReadError(b"", text + data)
    fields = json.loads(await stream.readexactly(text))
    return fields, await stream.readexactly(data)


class Channel:
    """The worker's end, over its standard input and output. What an environment prints goes to standard error."""

    def __init__(self) -> None:
        self._in: BinaryIO = os.fdopen(os.dup(0), "rb")
        self._out: BinaryIO = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self._arrived: queue.Queue[Message | None] = queue.Queue(maxsize=1000)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while head := self._in.read(_LENGTHS.size):
            text, data = _LENGTHS.unpack(head)
            self._arrived.put((json.loads(self._in.read(text)), self._in.read(data)))
        self._arrived.put(None)

    def receive(self, wait: float | None = None) -> Message | None:
        """The next message, or None when none came within `wait` seconds. Ends the process when the server is gone."""
        try:
            message = self._arrived.get(timeout=wait)
        except queue.Empty:
            return None
        if message is None:
            os._exit(0)  # at once, whatever an environment's threads do
        return message

    def send(self, fields: dict[str, Any], data: bytes = b"") -> None:
        try:
            self._out.write(pack(fields, data))
            self._out.flush()
        except BrokenPipeError:
            os._exit(0)
