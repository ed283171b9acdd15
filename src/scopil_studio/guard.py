"""Who may talk to the studio. Every request and every socket passes here first.

A page of another site can make a browser send requests to this machine, and a name of its own can be made to point
here (rebinding). So the name in `Host` has to be one of ours, `Origin` has to be this very site, and a cookie that only
the address printed in the terminal gives has to be there.
"""

import secrets
from collections.abc import Iterable, Mapping
from hmac import compare_digest
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
LARGEST_BODY = 64 * 1024  # bytes of a request
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Around the application. `names` are the hosts that browsers may know this server by, without their ports:
    behind `ssh -L` the port is another."""

    def __init__(self, app: ASGIApp, *, token: str, names: Iterable[str] = LOOPBACK, cookie: str = "scopil-studio"):
        self.app, self.names, self.cookie = app, frozenset(names), cookie
        self._token = token
        self._pass = secrets.token_urlsafe(32)  # the cookie's value: the token itself stays in the terminal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        headers = Headers(scope=scope)
        answer = self._foreign(scope, headers) or self._unknown(scope, headers)
        if answer is None and scope["type"] == "http":
            body = await _body(headers, receive)
            if body is None:
                answer = _refused(413, f"a body above {LARGEST_BODY} bytes")
                answer.headers["connection"] = "close"
            else:
                receive = _again(body, receive)
        if answer is None:
            return await self.app(scope, receive, _with_headers(send))
        if scope["type"] == "websocket":
            await receive()  # the handshake, which is refused with 403
            return await send({"type": "websocket.close", "code": 1008, "reason": "refused"})
        await answer(scope, receive, _with_headers(send))

    def _foreign(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuses what another site, or another name for this machine, has sent."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _without_port(hosts[0]) not in self.names:
            return _refused(421, f"unknown host; open the studio as {', '.join(sorted(self.names))}")
        origin = headers.get("origin")
        reading = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if origin is None and not reading:
            return _refused(403, "no Origin")
        if origin is not None and origin not in (f"http://{hosts[0]}", f"https://{hosts[0]}"):
            return _refused(403, "another site's Origin")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return _refused(403, "sent by another site")
        return None

    def _unknown(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuses who has neither the cookie nor the token; gives the cookie to who has the token."""
        cookies: Mapping[str, str] = cookie_parser(headers.get("cookie", ""))
        if _same(cookies.get(self.cookie, ""), self._pass):
            return None
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] != "/":
            return _refused(401, "no cookie; open the address that `scopil studio` has printed")
        if not _same(given, self._token):
            return _refused(401, "no token, or a wrong one; open the address that `scopil studio` has printed")
        answer = RedirectResponse("/", status_code=303)  # the token leaves the address bar and the history
        answer.set_cookie(self.cookie, self._pass, httponly=True, samesite="strict", path="/")
        return answer


def _same(given: str, wanted: str) -> bool:
    return compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdecimal() else host.lower()


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"refused: {why}.\n", status)


async def _body(headers: Headers, receive: Receive) -> bytes | None:
    """The whole body; None when it is too large, which is found out before it is read."""
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > LARGEST_BODY:
        return None
    pieces, size = [], 0
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > LARGEST_BODY:
            return None
        if not message.get("more_body", False):
            return b"".join(pieces)


def _again(body: bytes, receive: Receive) -> Receive:
    """The application reads the body as if nobody had."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def read() -> Message:
        return first.pop() if first else await receive()

    return read


def _with_headers(send: Send) -> Send:
    async def write(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name for name, _ in message["headers"]}
            added = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in given]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return write
