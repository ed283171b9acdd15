"""The studio's server: routes, sockets and the processes behind them. It runs no environment and reads no run."""

import json
import math
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from scopil.errors import ConfigError, ScopilError
from scopil_studio.guard import LOOPBACK, Guard
from scopil_studio.workers import Desk, Worker, WorkerGone

PAGE = Path(__file__).parent / "page"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
LARGEST_MESSAGE = 16 * 1024  # bytes on a socket
SOCKETS = 16  # people playing at once
MALFORMED = 100  # messages that a socket may send before it is closed

# question → (who answers, seconds it may take). Reading has a process of its own: it never waits for a policy.
READING, PLAYING = "reading", "playing"
QUESTIONS: dict[str, tuple[str, float]] = {
    "overview": (READING, 60.0),
    "run": (READING, 30.0),
    "episodes": (READING, 30.0),
    "note": (READING, 30.0),
    "drop": (READING, 30.0),
    "start": (READING, 30.0),
    "stop": (READING, 30.0),
    "resume": (READING, 30.0),
    "settings": (READING, 30.0),
    "tray": (PLAYING, 60.0),
    "replay": (PLAYING, 120.0),
    "roll": (PLAYING, 180.0),
    "frames": (PLAYING, 300.0),
    "starts_map": (PLAYING, 180.0),
    "cost_map": (PLAYING, 180.0),
    "download": (PLAYING, 600.0),
}
# A report carries its style and pictures inside. It runs nothing and is nobody's origin.
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'self'"


def make_app(
    folder: Path,
    *,
    token: str,
    names: Iterable[str] = (),
    envs: Iterable[str] = (),
    rules: str | None = None,
    port: int = 0,
) -> Starlette:
    """The application. `names` are hosts beside this machine's own that browsers may use; `envs` and `rules` come from
    the caller, who may name code."""
    studio = _Studio({"folder": str(folder.resolve()), "envs": list(envs), "rules": rules})

    @asynccontextmanager
    async def alive(app: Starlette) -> AsyncIterator[None]:
        yield
        await studio.end()

    page = {f"/{file.name}": file for file in PAGE.iterdir() if file.suffix in KINDS}
    routes = [Route(path, _file(file)) for path, file in page.items()]
    routes += [
        Route("/", _file(PAGE / "index.html")),
        Route("/ask/{verb}", studio.answer, methods=["POST"]),
        Route("/report", studio.report),
        WebSocketRoute("/play", studio.play),
    ]
    # Cookies know no ports: two studios on one machine need two names.
    guard = Middleware(Guard, token=token, names=(*LOOPBACK, *names), cookie=f"scopil-studio-{port}")
    return Starlette(routes=routes, middleware=[guard], lifespan=alive)


def _file(file: Path) -> Any:
    async def send(request: Request) -> Response:
        return Response(file.read_bytes(), media_type=KINDS[file.suffix])

    return send


class _Studio:
    def __init__(self, setting: dict[str, Any]):
        self._setting = setting
        self._desks = {role: Desk("answer", setting) for role in (READING, PLAYING)}
        self._sockets = 0

    async def end(self) -> None:
        for desk in self._desks.values():
            await desk.end()

    async def answer(self, request: Request) -> Response:
        """A question with its arguments as JSON; the answer is JSON, or a file."""
        verb = request.path_params["verb"]
        if verb not in QUESTIONS:
            return JSONResponse({"refused": "no such question"}, 404)
        try:
            args = _parsed(await request.body())
            fields, data = await self._ask(verb, args)
        except WorkerGone as error:
            return JSONResponse({"refused": str(error)}, 503)
        except ScopilError as error:
            return JSONResponse({"refused": str(error)}, 400)
        if not data:
            return JSONResponse(fields)
        return Response(data, media_type=fields.pop("type"), headers={"x-fields": json.dumps(fields)})

    async def _ask(self, verb: str, args: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        who, seconds = QUESTIONS[verb]
        fields, data = await self._desks[who].ask(verb, args, seconds)
        if "refused" in fields:
            raise ConfigError(fields["refused"])
        return fields["answer"], data

    async def report(self, request: Request) -> Response:
        """A report as its own document, for a frame in the page."""
        try:
            who, seconds = READING, 30.0
            fields, data = await self._desks[who].ask("report", {"name": request.query_params.get("name", "")}, seconds)
        except ScopilError as error:
            return Response(str(error), 503, media_type="text/plain")
        if "refused" in fields:
            return Response(fields["refused"], 404, media_type="text/plain")
        return Response(data, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})

    async def play(self, socket: WebSocket) -> None:
        """A page that records: its messages go to a process of its own, what that says comes back."""
        if self._sockets >= SOCKETS:
            return await socket.close(1013, f"{SOCKETS} pages are recording already")
        self._sockets += 1
        worker = None
        try:
            await socket.accept()
            worker = await Worker.start("record", self._setting)
            if (gone := await _relay(socket, worker)) is not None:
                await socket.send_json({"kind": "ended", "message": str(gone)})
                await socket.close(1011)
        except (WebSocketDisconnect, RuntimeError):  # gone while something was sent to it
            pass
        finally:
            self._sockets -= 1
            if worker is not None:
                with anyio.CancelScope(shield=True):
                    await worker.end()


async def _relay(socket: WebSocket, worker: Worker) -> WorkerGone | None:
    """Messages both ways, until one side is gone. Returns the error where it was the worker."""
    gone: WorkerGone | None = None

    async def until_the_end(call: Awaitable[None]) -> None:
        nonlocal gone
        try:
            await call
        except WorkerGone as error:
            gone = error
        except (WebSocketDisconnect, RuntimeError):
            pass
        both.cancel_scope.cancel()

    async with anyio.create_task_group() as both:
        both.start_soon(until_the_end, _inwards(socket, worker))
        both.start_soon(until_the_end, _outwards(worker, socket))
    return gone


async def _inwards(socket: WebSocket, worker: Worker) -> None:
    malformed = 0
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        try:
            text = message.get("text") or ""
            if len(text) > LARGEST_MESSAGE:
                raise ConfigError(f"a message of {len(text)} characters")
            await worker.send(_parsed(text.encode()))
        except WorkerGone:
            raise
        except ScopilError as error:
            malformed += 1
            if malformed > MALFORMED:
                return await socket.close(1008, f"{MALFORMED} malformed messages")
            await socket.send_json({"kind": "refused", "message": str(error)})


async def _outwards(worker: Worker, socket: WebSocket) -> None:
    while True:
        fields, data = await worker.receive()
        await socket.send_text(json.dumps(fields))
        if data:
            await socket.send_bytes(data)


def _parsed(body: bytes) -> dict[str, Any]:
    """A JSON object of finite numbers."""
    try:
        found = json.loads(body or b"{}", parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON: {str(error)[:80]}") from error
    if not isinstance(found, dict):
        raise ConfigError("not a JSON object")
    return found


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)
