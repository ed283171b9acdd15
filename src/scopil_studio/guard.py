"""Access control of the studio. It is the first check of every request and every WebSocket.

A page of another site can make a browser send requests to this machine, and an attacker can make a host name resolve
to this machine (DNS rebinding). Therefore `Host` must be a known name, `Origin` must be this site, and the request must
carry the key in a header. Browsers never add the key themselves, unlike a cookie, which they send to every port of this
machine. The page gets the key once, in exchange for the token in the printed address.
"""

import secrets
from collections.abc import Callable, Collection, Iterable
from hmac import compare_digest

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
SUBPROTOCOL = "scopil"  # a browser can give a WebSocket no header, so the key follows this name as a second subprotocol
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


class Access:
    """The key of a studio, and the token that is exchanged for it. A token serves once; `used` is called after that,
    when `token` is the next one."""

    def __init__(self, used: Callable[[], None] = lambda: None):
        self.key, self.token, self._used = secrets.token_urlsafe(32), secrets.token_urlsafe(32), used

    def exchange(self, token: str) -> str | None:
        """The key; None if the token is wrong or was used before."""
        if not _same(token, self.token):
            return None
        self.token = secrets.token_urlsafe(32)
        self._used()
        return self.key


class Guard:
    """Middleware around the application.

    `names` are the accepted host names, without ports, because the port differs behind `ssh -L`. The paths in `public`
    can be read without the key: they hold nothing of the user.
    """

    def __init__(self, app: ASGIApp, *, access: Access, public: Collection[str], names: Iterable[str] = LOOPBACK):
        self.app, self.access, self.public, self.names = app, access, public, frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        headers = Headers(scope=scope)
        answer = self._refuse_foreign(scope, headers) or self._enter(scope, headers) or self._refuse(scope, headers)
        if answer is None:
            return await self.app(scope, receive, _with_headers(send))
        if scope["type"] == "websocket":
            await receive()  # the handshake; closing before accepting it answers 403
            return await send({"type": "websocket.close", "code": 1008, "reason": "refused"})
        await answer(scope, receive, _with_headers(send))

    def _refuse_foreign(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse a request from another site or with an unknown host name; None if it is allowed."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _without_port(hosts[0]) not in self.names:
            return _refused(421, f"unknown host; open the studio as {', '.join(sorted(self.names))}")
        origin = headers.get("origin")
        if origin is None and not _reading(scope):
            return _refused(403, "no Origin")
        if origin is not None and origin not in (f"http://{hosts[0]}", f"https://{hosts[0]}"):
            return _refused(403, "Origin of another site")
        opened = _reading(scope) and scope["path"] == "/"  # a link, or the file that `scopil studio` opens
        if not opened and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return _refused(403, "request of another site")
        return None

    def _enter(self, scope: Scope, headers: Headers) -> Response | None:
        """The key, in exchange for the token; None for any other request."""
        if scope["type"] != "http" or (scope["method"], scope["path"]) != ("POST", "/enter"):
            return None
        key = self.access.exchange(headers.get("x-scopil-token", ""))
        return _refused(401, "wrong or used token") if key is None else PlainTextResponse(key)

    def _refuse(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse a request without the key; None if it is allowed."""
        if _reading(scope) and scope["path"] in self.public:
            return None
        given = headers.get("x-scopil-key", "")
        if scope["type"] == "websocket":
            name, _, given = headers.get("sec-websocket-protocol", "").replace(" ", "").partition(",")
            given = given if name == SUBPROTOCOL else ""
        if _same(given, self.access.key):
            return None
        return _refused(401, "no key; open the address that `scopil studio` has printed last")


def _reading(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["method"] in ("GET", "HEAD")


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
