"""Who may talk to the studio: tokens, cookies, Host, Origin, bodies, sockets. The server runs in this process; the one
worker that is asked is never started, unless a test says so."""

import json

import pytest

pytest.importorskip("starlette", reason='needs pip install "scopil[studio]"')
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from scopil.errors import ConfigError
from scopil_studio import paths, server

TOKEN = "the-token"
HERE = "http://127.0.0.1:8808"
PLAY = "ws://127.0.0.1:8808/play"


@pytest.fixture
def app(tmp_path):
    return server.make_app(tmp_path, token=TOKEN, port=8808)


@pytest.fixture
def stranger(app):
    """A browser without the cookie."""
    return TestClient(app, base_url=HERE, follow_redirects=False)


@pytest.fixture
def friend(stranger):
    """A browser that has opened the printed address."""
    assert stranger.get(f"/?token={TOKEN}").status_code == 303
    stranger.headers["origin"] = HERE
    return stranger


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_see(stranger):
    answer = stranger.get(f"/?token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("scopil-studio-8808=")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    page = stranger.get("/")
    assert page.status_code == 200
    assert "<title>" in page.text


@pytest.mark.parametrize("path", ["/", "/index.html", "/report?name=x", "/nothing", "/ask/overview", "/?token="])
@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1], "\u00e9\u4e2d", "%00"])
def test_without_the_cookie_only_the_right_token_opens_the_first_page(stranger, path, token):
    joined = f"{path}{'&' if '?' in path else '?'}token={token}"
    assert stranger.get(joined).status_code == 401
    assert "set-cookie" not in stranger.get(joined).headers


@pytest.mark.parametrize("cookie", ["", "x", TOKEN, "é", "a" * 4000])
def test_a_made_up_cookie_opens_nothing(stranger, cookie):
    answer = stranger.get("/", headers={"cookie": f"scopil-studio-8808={cookie}".encode()})
    assert answer.status_code == 401


def test_the_token_opens_no_other_path(stranger):
    for path in ("/index.html", "/ask/overview", "/report"):
        assert stranger.get(f"{path}?token={TOKEN}").status_code == 401
    assert stranger.post(f"/?token={TOKEN}", headers={"origin": HERE}).status_code == 401


FOREIGN_HOSTS = [
    "evil.example",
    "evil.example:8808",
    "127.0.0.1.evil.example",
    "127.0.0.1:8808@evil.example",
    "",
    "0.0.0.0",
]


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_rebound_name_is_refused_even_with_the_cookie(friend, host):
    assert friend.get("/", headers={"host": host}).status_code == 421
    assert friend.get(f"/?token={TOKEN}", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:9000", "127.0.0.1", "LOCALHOST:1"])
def test_this_machine_may_have_any_port_as_behind_a_tunnel(friend, host):
    assert friend.get("/", headers={"host": host, "origin": f"http://{host}"}).status_code == 200


FOREIGN_ORIGINS = [
    "http://evil.example",
    "null",
    "http://127.0.0.1:8809",
    "http://localhost:8808",
    f"{HERE}.evil.example",
    "file://",
]


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_another_sites_origin_is_refused_for_reading_asking_and_sockets(friend, origin):
    assert friend.get("/", headers={"origin": origin}).status_code == 403
    assert friend.post("/ask/overview", json={}, headers={"origin": origin}).status_code == 403
    with pytest.raises(WebSocketDisconnect) as closed, friend.websocket_connect(PLAY, headers={"origin": origin}):
        pass
    assert closed.value.code == 1008


def test_questions_and_sockets_need_an_origin(friend):
    del friend.headers["origin"]
    assert friend.get("/").status_code == 200
    assert friend.post("/ask/overview", json={}).status_code == 403
    with pytest.raises(WebSocketDisconnect), friend.websocket_connect(PLAY):
        pass
    assert friend.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_a_socket_needs_the_cookie_and_our_name(friend, app, monkeypatch):
    monkeypatch.setattr(server, "Worker", Deaf)
    with friend.websocket_connect(PLAY) as socket:
        socket.send_json({"do": "ping"})
    elsewhere = friend.websocket_connect("ws://evil.example/play", headers={"cookie": _cookies(friend)})
    with pytest.raises(WebSocketDisconnect), elsewhere:
        pass
    stranger = TestClient(app, base_url=HERE)
    with (
        pytest.raises(WebSocketDisconnect),
        stranger.websocket_connect(f"{PLAY}?token={TOKEN}", headers={"origin": HERE}),
    ):
        pass


def _cookies(client) -> str:
    return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


def test_every_answer_carries_the_policy(friend, stranger):
    for answer in (
        friend.get("/"),
        friend.get("/nothing"),
        friend.post("/ask/nothing"),
        friend.get("/", headers={"host": "x"}),
    ):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_a_large_body_is_refused_unread(friend):
    sent = 0

    def pieces():
        nonlocal sent
        while sent < 100 * 2**20:
            sent += 2**16
            yield b" " * 2**16

    big = {"content-length": str(100 * 2**20)}
    assert friend.post("/ask/overview", content=b"", headers=big).status_code == 413
    assert friend.post("/ask/overview", content=b" " * (server.LARGEST_BODY + 1)).status_code == 413
    assert friend.post("/ask/overview", content=pieces()).status_code == 413  # of unknown length
    assert friend.post("/ask/overview", content=b"", headers={"content-length": "-1"}).status_code in (400, 413)


BODIES = [
    b"{",
    b"[]",
    b"1",
    b'"x"',
    b"null",
    b"\xff\xfe",
    b"{" * 5000,
    b"[" * 60000,
    b'{"a": NaN}',
    b'{"a": 1e999}',
    b'{"a": Infinity}',
]


@pytest.mark.parametrize("body", BODIES)
def test_what_is_not_a_json_object_is_refused_before_anybody_is_asked(friend, body):
    answer = friend.post("/ask/overview", content=body)
    assert answer.status_code == 400
    assert "JSON" in answer.json()["refused"]


def test_unknown_questions_and_paths_are_not_found(friend):
    for verb in ("nothing", "report", "__class__", "../x", "overview/x"):
        assert friend.post(f"/ask/{verb}", json={}).status_code == 404
    for path in ("/../pyproject.toml", "/%2e%2e/server.py", "/server.py", "/page/index.html", "/etc/passwd"):
        assert friend.get(path).status_code == 404


# --- names of files -----------------------------------------------------------------------------------------------

OUTSIDE = ["", ".", "..", "../x", "a/../../x", "/etc/passwd", "a/..", "a\\..\\x", "a\0b", ".hidden", "a/.b", "x" * 301]
OUTSIDE += ["a\nb", "\u202ea", "~/..", "//x", "\ud800", "../../../../etc/passwd", "a/./../../b", "\\\\host\\x"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_could_lead_elsewhere_are_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="not a valid name"):
        paths.inside(tmp_path, name)


def test_links_that_lead_out_are_refused_and_not_listed(tmp_path):
    home, other = tmp_path / "home", tmp_path / "other"
    (home / "deep").mkdir(parents=True)
    other.mkdir()
    (other / "run.json").write_text("{}")
    (other / "secret.npz").write_bytes(b"x")
    (home / "out").symlink_to(other)
    (home / "deep" / "file.npz").symlink_to(other / "secret.npz")
    (home / "deep" / "run.json").symlink_to(other / "run.json")
    for name in ("out", "out/run.json", "out/new.npz", "deep/file.npz"):
        with pytest.raises(ConfigError, match="leads out"):
            paths.inside(home, name)
    assert not list(paths.folders_with(home, "run.json"))
    assert not list(paths.outside_runs(home, ".npz"))
    assert paths.inside(home, "deep/new.npz") == home / "deep" / "new.npz"


# --- the socket ---------------------------------------------------------------------------------------------------


class Deaf:
    """A worker process that is none."""

    heard: list = []  # noqa: RUF012

    @classmethod
    async def start(cls, role, setting):
        cls.heard = []
        return cls()

    async def send(self, fields):
        self.heard.append(fields)

    async def receive(self):
        import asyncio

        await asyncio.sleep(3600)

    async def end(self):
        pass


@pytest.mark.parametrize("messages", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_malformed_messages_close_their_socket_and_nothing_else(friend, monkeypatch, messages):
    monkeypatch.setattr(server, "Worker", Deaf)
    kinds = [
        "[",
        "{",
        "[]",
        "null",
        '"x"',
        "{" * 2000,
        '{"a": NaN}',
        "x" * (server.LARGEST_MESSAGE + 1),
        "\u0000",
        "1e999",
    ]
    sent = sockets = 0
    while sent < messages:
        sockets += 1
        with friend.websocket_connect(PLAY) as socket:
            for i in range(server.MALFORMED):
                socket.send_text(kinds[i % len(kinds)])
                assert socket.receive_json()["kind"] == "refused"
            socket.send_text("one too many")
            with pytest.raises(WebSocketDisconnect) as closed:
                socket.receive_json()
        sent += server.MALFORMED + 1
        assert closed.value.code == 1008
        assert not Deaf.heard
    assert sockets == -(-messages // (server.MALFORMED + 1))
    assert friend.get("/").status_code == 200


def test_more_sockets_than_allowed_are_refused(friend, monkeypatch):
    monkeypatch.setattr(server, "Worker", Deaf)
    monkeypatch.setattr(server, "SOCKETS", 2)
    two = friend.websocket_connect(PLAY), friend.websocket_connect(PLAY)
    with two[0], two[1], pytest.raises(WebSocketDisconnect), friend.websocket_connect(PLAY):
        pass
    with friend.websocket_connect(PLAY) as socket:
        socket.send_text(json.dumps({"do": "ping"}))
