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
from scopil_studio.workers import REQUESTS, RequestQueue, Worker, WorkerGone

PAGE = Path(__file__).parent / "page"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
LARGEST_BODY = 64 * 1024  # bytes of a request
LARGEST_MESSAGE = 16 * 1024  # bytes on a socket
SOCKETS = 16  # pages that may record at once
MALFORMED = 100  # messages after which a socket is closed
# A report contains its style and pictures. It runs no script and has no origin.
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
    """The application. `names` are accepted host names besides those of the loopback address, `port` is part of the
    cookie's name. `envs` and `rules` may name code, since the caller chooses them."""
    studio = _Studio({"folder": str(folder.resolve()), "envs": list(envs), "rules": rules})

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await studio.end()

    page = {f"/{file.name}": file for file in PAGE.iterdir() if file.suffix in KINDS} | {"/": PAGE / "index.html"}

    async def send(request: Request) -> Response:
        file = page[request.url.path]
        return Response(file.read_bytes(), media_type=KINDS[file.suffix])

    routes = [
        *(Route(path, send) for path in page),
        Route("/ask/{request}", studio.answer, methods=["POST"]),
        Route("/report", studio.report),
        WebSocketRoute("/play", studio.play),
    ]
    # Browsers share cookies between ports: two studios on one machine need two names.
    guard = Middleware(Guard, token=token, names=(*LOOPBACK, *names), cookie=f"scopil-studio-{port}")
    return Starlette(routes=routes, middleware=[guard], lifespan=lifespan)


class _Studio:
    def __init__(self, config: dict[str, Any]):
        self._config = config
        self._queues = {role: RequestQueue(role, config) for role, _ in REQUESTS.values()}
        self._sockets = 0

    async def end(self) -> None:
        for waiting in self._queues.values():
            await waiting.end()

    async def answer(self, request: Request) -> Response:
        """A request with its arguments as JSON; the answer is JSON, or a file."""
        name = request.path_params["request"]
        if name not in REQUESTS or name == "report":
            return JSONResponse({"refused": "no such request"}, 404)
        body = await _body(request)
        if body is None:
            message = f"a body above {LARGEST_BODY} bytes"
            return JSONResponse({"refused": message}, 413, headers={"connection": "close"})
        try:
            fields, data = await self._ask(name, _parsed(body))
        except ScopilError as error:
            return JSONResponse({"refused": str(error)}, 503 if isinstance(error, WorkerGone) else 400)
        if not data:
            return JSONResponse(fields)
        return Response(data, media_type=fields.pop("type"), headers={"x-fields": json.dumps(fields)})

    async def _ask(self, name: str, args: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        role, seconds = REQUESTS[name]
        fields, data = await self._queues[role].ask(name, args, seconds)
        if "refused" in fields:
            raise ConfigError(fields["refused"])
        return fields["answer"], data

    async def report(self, request: Request) -> Response:
        """A report as a document of its own, for a frame in the page."""
        try:
            _, data = await self._ask("report", {"name": request.query_params.get("name", "")})
        except ScopilError as error:
            return Response(str(error), 404 if isinstance(error, ConfigError) else 503, media_type="text/plain")
        return Response(data, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})

    async def play(self, socket: WebSocket) -> None:
        """A recording page: relays messages between it and a worker of its own."""
        if self._sockets >= SOCKETS:
            return await socket.close(1013, f"{SOCKETS} pages are recording already")
        self._sockets += 1
        worker = None
        try:
            await socket.accept()
            worker = await Worker.start("recording", self._config)
            try:
                await _relay(socket, worker)
            except* WorkerGone as gone:
                await socket.send_json({"kind": "ended", "message": str(gone.exceptions[0])})
                await socket.close(1011)
        except* (WebSocketDisconnect, RuntimeError):  # the page is gone
            pass
        finally:
            self._sockets -= 1
            if worker is not None:
                with anyio.CancelScope(shield=True):
                    await worker.end()


async def _relay(socket: WebSocket, worker: Worker) -> None:
    """Messages in both directions until one side is gone. Raises a group with WorkerGone if that is the worker."""
    async with anyio.create_task_group() as both:

        async def run(call: Awaitable[None]) -> None:
            await call
            both.cancel_scope.cancel()

        both.start_soon(run, _to_worker(socket, worker))
        both.start_soon(run, _to_page(worker, socket))


async def _to_worker(socket: WebSocket, worker: Worker) -> None:
    malformed = 0
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        try:
            text = message.get("text") or ""
            if len(text) > LARGEST_MESSAGE:
                raise ConfigError(f"a message of {len(text)} characters; want at most {LARGEST_MESSAGE}")
            fields = _parsed(text.encode())
        except ConfigError as error:
            malformed += 1
            if malformed > MALFORMED:
                return await socket.close(1008, f"{MALFORMED} malformed messages")
            await socket.send_json({"kind": "refused", "message": str(error)})
        else:
            await worker.send(fields)


async def _to_page(worker: Worker, socket: WebSocket) -> None:
    while True:
        fields, data = await worker.receive()
        await socket.send_text(json.dumps(fields))
        if data:
            await socket.send_bytes(data)


async def _body(request: Request) -> bytes | None:
    """The body of a request; None if it is too large. A body that declares its size is refused unread."""
    length, body = request.headers.get("content-length", "0"), b""
    if not length.isdecimal() or int(length) > LARGEST_BODY:
        return None
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_BODY:
            return None
    return body


def _parsed(body: bytes) -> dict[str, Any]:
    """A JSON object of finite numbers."""
    try:
        found = json.loads(body or b"{}", parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON: {str(error)[:80]}") from error
    if not isinstance(found, dict):
        raise ConfigError("not a JSON object")
    return found


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return number
