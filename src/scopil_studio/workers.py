"""Worker processes, seen from the server. A worker that crashes, hangs or sends too much is killed.

A message is a JSON object followed by bytes (a picture, a file). A header gives both lengths. Nothing is pickled.
"""

import asyncio
import json
import os
import struct
from typing import Any

from scopil.errors import ScopilError
from scopil.user_code import python
from scopil.xla_flags import XLA_FLAGS

Message = tuple[dict[str, Any], bytes]
LENGTHS = struct.Struct("!II")
LARGEST = 256 * 2**20  # maximum bytes of a message; an animation may be large
# Networks and environments are too small to gain from several threads. The other two settings prevent windows.
ENVIRONMENT = {"XLA_FLAGS": XLA_FLAGS, "SDL_VIDEODRIVER": "dummy", "MPLBACKEND": "Agg"}
STARTING = 600.0  # seconds for the imports of a worker process, which no request counts as its own
WAITING = 32  # maximum number of requests waiting for one worker

# request → (module with the function of that name, seconds it may take). Each module has a process of its own, so that
# reading files never waits for a policy.
REQUESTS: dict[str, tuple[str, float]] = {
    **dict.fromkeys(("run", "episodes", "drop", "report"), ("watching", 30.0)),
    **dict.fromkeys(("settings", "start", "stop", "resume"), ("watching", 30.0)),
    "overview": ("watching", 60.0),
    "tray": ("comparing", 60.0),
    "replay": ("comparing", 120.0),
    "roll": ("comparing", 180.0),
    "starts_map": ("comparing", 180.0),
    "frames": ("comparing", 300.0),
    "download": ("comparing", 600.0),
}


def pack(fields: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(fields, allow_nan=False).encode()
    return LENGTHS.pack(len(text), len(data)) + text + data


class WorkerGone(ScopilError):
    """The worker process has ended, or was killed because it did not answer."""


class Worker:
    """One process. `role` is a module with requests or `recording`; `config` are the fields of `StudioConfig`."""

    def __init__(self, process: asyncio.subprocess.Process):
        self._process = process
        self.ready = False  # whether its first message, which says that it has started, was received

    @classmethod
    async def start(cls, role: str, config: dict[str, Any]) -> "Worker":
        pipe = asyncio.subprocess.PIPE
        command = [*python(), "-m", "scopil_studio.worker", role, json.dumps(config)]
        env = ENVIRONMENT | os.environ
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=env))

    async def send(self, fields: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pack(fields))
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise await self._gone() from error

    async def receive(self) -> Message:
        stream = self._process.stdout
        assert stream is not None
        try:
            text, data = LENGTHS.unpack(await stream.readexactly(LENGTHS.size))
            if text + data > LARGEST:
                raise ValueError("message too large")
            return json.loads(await stream.readexactly(text)), await stream.readexactly(data)
        except (asyncio.IncompleteReadError, ValueError) as error:
            raise await self._gone() from error

    async def _gone(self) -> WorkerGone:
        await self.end()
        code = self._process.returncode
        return WorkerGone(f"the worker process ended (exit code {code}); see the terminal of `scopil studio`.")

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def end(self) -> None:
        """Kill the process and wait for its end."""
        self.kill()
        await self._process.wait()

    def kill(self) -> None:
        if self.alive:
            self._process.kill()


class RequestQueue:
    """Sends requests one at a time to one worker, which is started when it is needed."""

    def __init__(self, role: str, config: dict[str, Any]):
        self._role, self._config = role, config
        self._worker: Worker | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def ask(self, request: str, args: dict[str, Any], seconds: float) -> Message:
        """The answer. After `seconds` without one the worker is killed; the next request starts another."""
        if self._waiting >= WAITING:
            raise ScopilError(f"{WAITING} requests are waiting already; try again.")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._ask(request, args, seconds)
        finally:
            self._waiting -= 1

    async def start(self) -> Worker:
        if self._worker is None or not self._worker.alive:
            self._worker = await Worker.start(self._role, self._config)
        return self._worker

    async def _ask(self, request: str, args: dict[str, Any], seconds: float) -> Message:
        worker, limit = await self.start(), STARTING
        try:
            if not worker.ready:
                async with asyncio.timeout(limit):
                    await worker.receive()
                worker.ready = True
            async with asyncio.timeout(limit := seconds):
                await worker.send({"request": request, "args": args})
                return await worker.receive()
        except TimeoutError as error:
            await worker.end()
            raise WorkerGone(f"no answer within {limit:g} s; the worker process was killed.") from error
        except BaseException:  # else the answer to a cancelled request would stay in the pipe
            worker.kill()
            raise

    async def end(self) -> None:
        if self._worker is not None:
            await self._worker.end()
