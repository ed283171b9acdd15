"""Worker processes, seen from the server. One that crashes, hangs or grows is killed; the page goes on."""

import asyncio
import json
import os
from typing import Any

from scopil.errors import ScopilError
from scopil.user_code import python
from scopil_studio.channel import Message, pack, read_async

# Networks and environments here are too small to share among threads; no window is ever opened.
SURROUNDINGS = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "SDL_VIDEODRIVER": "dummy", "MPLBACKEND": "Agg"}
WAITING = 32  # questions that may wait for one worker


class WorkerGone(ScopilError):
    """The process has ended, or was ended because it did not answer."""


class Worker:
    """One process. `setting` is what every worker is told: the folder, the rules, the environments allowed."""

    def __init__(self, process: asyncio.subprocess.Process):
        self._process = process

    @classmethod
    async def start(cls, role: str, setting: dict[str, Any]) -> "Worker":
        pipe = asyncio.subprocess.PIPE
        command = [*python(), "-m", "scopil_studio.worker", role, json.dumps(setting)]
        around = os.environ | {k: os.environ.get(k, v) for k, v in SURROUNDINGS.items()}
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=around))

    async def send(self, fields: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pack(fields))
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise await self._gone() from error

    async def receive(self) -> Message:
        assert self._process.stdout is not None
        try:
            return await read_async(self._process.stdout)
        except (asyncio.IncompleteReadError, ValueError) as error:
            raise await self._gone() from error

    async def _gone(self) -> WorkerGone:
        self.kill()
        code = await self._process.wait()
        return WorkerGone(f"its process ended (exit code {code}); the terminal of `scopil studio` may say why.")

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def end(self) -> None:
        """Kill it and wait for its end."""
        self.kill()
        await self._process.wait()

    @property
    def alive(self) -> bool:
        return self._process.returncode is None


class Desk:
    """Answers questions one after the other in a process of its own, started when first asked."""

    def __init__(self, role: str, setting: dict[str, Any]):
        self._role, self._setting = role, setting
        self._worker: Worker | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def ask(self, verb: str, args: dict[str, Any], seconds: float) -> Message:
        """The answer. One that takes longer than `seconds` ends the process; the next question starts another."""
        if self._waiting >= WAITING:
            raise ScopilError(f"{WAITING} questions are waiting already; try again.")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._ask(verb, args, seconds)
        finally:
            self._waiting -= 1

    async def _ask(self, verb: str, args: dict[str, Any], seconds: float) -> Message:
        if self._worker is None or not self._worker.alive:
            self._worker = await Worker.start(self._role, self._setting)
        worker = self._worker
        try:
            async with asyncio.timeout(seconds):
                await worker.send({"verb": verb, "args": args})
                return await worker.receive()
        except TimeoutError as error:
            await worker.end()
            raise WorkerGone(f"no answer within {seconds:g} s; its process was ended.") from error
        except BaseException:  # a cancelled question leaves its answer in the pipe
            worker.kill()
            raise

    async def end(self) -> None:
        if self._worker is not None:
            await self._worker.end()
