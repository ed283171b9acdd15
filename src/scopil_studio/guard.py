"""Access control of the studio. It is the first check of every request and every WebSocket.

A page of another site can make a browser send requests to this machine, and an attacker can make a host name resolve
to this machine (DNS rebinding). Therefore `Host` must be a known name, `Origin` must be this site, and the request must
carry a cookie. Only the address printed in the terminal sets this cookie.
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
    """Middleware around the application.

    `names` are the accepted host names, without ports, because the port differs behind `ssh -L`.
    """

    def __init__(self, app: ASGIApp, *, token: str, names: Iterable[str] = LOOPBACK, cookie: str = "scopil-studio"):
        self.app, self.names, self.cookie = app, frozenset(names), cookie
        self._token = token
        self._cookie_value = secrets.token_urlsafe(32)  # differs from the token, which appears only in the terminal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        headers = Headers(scope=scope)
        refusal = self._refuse_foreign(scope, headers) or self._refuse_unauthenticated(scope, headers)
        if refusal is None:
            return await self.app(scope, receive, _with_headers(send))
        if scope["type"] == "websocket":
            await receive()  # the handshake; closing before accepting it answers 403
            return await send({"type": "websocket.close", "code": 1008, "reason": "refused"})
        await refusal(scope, receive, _with_headers(send))

    def _refuse_foreign(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse a request from another site or with an unknown host name; None if it is allowed."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _without_port(hosts[0]) not in self.names:
            return _refused(421, f"unknown host; open the studio as {', '.join(sorted(self.names))}")
        origin = headers.get("origin")
        reading = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if origin is None and not reading:
            return _refused(403, "no Origin")
        if origin is not None and origin not in (f"http://{hosts[0]}", f"https://{hosts[0]}"):
            return _refused(403, "Origin of another site")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return _refused(403, "request of another site")
        return None

    def _refuse_unauthenticated(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse a request without the cookie; None if allowed. A request for / with the token sets the cookie."""
        cookies: Mapping[str, str] = cookie_parser(headers.get("cookie", ""))
        if _same(cookies.get(self.cookie, ""), self._cookie_value):
            return None
        token = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] != "/":
            return _refused(401, "no cookie; open the address that `scopil studio` has printed")
        if not _same(token, self._token):
            return _refused(401, "missing or wrong token; open the address that `scopil studio` has printed")
        answer = RedirectResponse("/", status_code=303)  # removes the token from the address bar and the history
        answer.set_cookie(self.cookie, self._cookie_value, httponly=True, samesite="strict", path="/")
        return answer


def _same(given: str, wanted: str) -> bool:
    return compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdecimal() else host.lower()


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"refused: {why}.\n", status)


def _with_headers(send: Send) -> Send:
    async def write(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name for name, _ in message["headers"]}
            added = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in given]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return write
