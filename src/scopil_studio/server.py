"""The studio's server: routes, sockets and worker processes. Only the workers run environments and read runs."""

import json
import math
import secrets
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
from scopil_studio.guard import LOOPBACK, SUBPROTOCOL, Access, Guard
from scopil_studio.workers import REQUESTS, RequestQueue, Worker, WorkerGone

PAGE = Path(__file__).parent / "page"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
LARGEST_BODY = 64 * 1024  # maximum bytes of a request body
LARGEST_MESSAGE = 16 * 1024  # maximum bytes of a socket message
SOCKETS = 16  # maximum number of pages that record at the same time
REPORTS = 4  # maximum number of reports that wait for their frame
MALFORMED = 100  # number of malformed messages after which a socket is closed
# A report embeds its styles and pictures. It may run no script, and the sandbox gives it no origin.
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'self'"


def make_app(
    folder: Path, *, access: Access, names: Iterable[str] = (), envs: Iterable[str] = (), rules: str | None = None
) -> Starlette:
    """The application. It accepts the host names in `names` and those of the loopback address. `envs` and `rules` may
    name code, because the caller trusts them."""
    studio = _Studio({"folder": str(folder.resolve()), "envs": list(envs), "rules": rules})

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await studio.begin()
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
    guard = Middleware(Guard, access=access, public={*page, "/report"}, names=(*LOOPBACK, *names))
    return Starlette(routes=routes, middleware=[guard], lifespan=lifespan)


class _Studio:
    def __init__(self, config: dict[str, Any]):
        self._config = config
        self._queues = {role: RequestQueue(role, config) for role, _ in REQUESTS.values()}
        self._sockets = 0
        self._reports: dict[str, bytes] = {}  # by ticket

    async def begin(self) -> None:
        await self._queues["watching"].start()  # every page needs it; its imports take longest

    async def end(self) -> None:
        for waiting in self._queues.values():
            await waiting.end()

    async def answer(self, request: Request) -> Response:
        """A request with its arguments as JSON; the answer is JSON, or a file."""
        name = request.path_params["request"]
        if name not in REQUESTS:
            return JSONResponse({"refused": "no such request"}, 404)
        body = await _body(request)
        if body is None:
            message = f"a body above {LARGEST_BODY} bytes"
            return JSONResponse({"refused": message}, 413, headers={"connection": "close"})
        try:
            fields, data = await self._ask(name, _parsed(body))
        except ScopilError as error:
            return JSONResponse({"refused": str(error)}, 503 if isinstance(error, WorkerGone) else 400)
        if name == "report":
            return JSONResponse({"at": f"/report?ticket={self._ticket(data)}"})
        if not data:
            return JSONResponse(fields)
        return Response(data, media_type=fields.pop("type"), headers={"x-fields": json.dumps(fields)})

    async def _ask(self, name: str, args: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        role, seconds = REQUESTS[name]
        fields, data = await self._queues[role].ask(name, args, seconds)
        if "refused" in fields:
            raise ConfigError(fields["refused"])
        return fields["answer"], data

    def _ticket(self, report: bytes) -> str:
        """A ticket with which a frame can get this report once: the request of a frame carries no key."""
        while len(self._reports) >= REPORTS:
            del self._reports[next(iter(self._reports))]
        self._reports[ticket := secrets.token_urlsafe(32)] = report
        return ticket

    async def report(self, request: Request) -> Response:
        """A report as a separate document, which the page shows in a frame."""
        data = self._reports.pop(request.query_params.get("ticket", ""), None)
        if data is None:
            return Response("Choose the report again.", 404, media_type="text/plain")
        return Response(data, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})

    async def play(self, socket: WebSocket) -> None:
        """Relay messages between a recording page and a worker that serves only this page."""
        if self._sockets >= SOCKETS:
            return await socket.close(1013, f"{SOCKETS} pages are recording already")
        self._sockets += 1
        worker = None
        try:
            await socket.accept(SUBPROTOCOL)
            worker = await Worker.start("recording", self._config)
            try:
                await _relay(socket, worker)
            except* WorkerGone as gone:
                await socket.send_json({"kind": "ended", "message": str(gone.exceptions[0])})
                await socket.close(1011)
        except* (WebSocketDisconnect, RuntimeError):  # the page closed the connection
            pass
        finally:
            self._sockets -= 1
            if worker is not None:
                with anyio.CancelScope(shield=True):
                    await worker.end()


async def _relay(socket: WebSocket, worker: Worker) -> None:
    """Relay messages until the page or the worker is gone. Raises a group with WorkerGone if the worker is gone."""
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
    """The body of a request, or None if it is too large. A declared size that is too large is refused unread."""
    length, body = request.headers.get("content-length", "0"), b""
    if not length.isdecimal() or int(length) > LARGEST_BODY:
        return None
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_BODY:
            return None
    return body


def _parsed(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. All its numbers must be finite."""
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
