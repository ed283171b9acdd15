"""Access to the studio: tokens, cookies, Host, Origin, bodies, sockets, names of files. The server runs in this process
and starts no worker."""

import asyncio

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
def app(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "Worker", SilentWorker)
    return server.make_app(tmp_path, token=TOKEN, port=8808)


@pytest.fixture
def anonymous(app):
    """A browser without the cookie."""
    return TestClient(app, base_url=HERE, follow_redirects=False)


@pytest.fixture
def client(anonymous):
    """A browser that has opened the printed address."""
    assert anonymous.get(f"/?token={TOKEN}").status_code == 303
    anonymous.headers["origin"] = HERE
    return anonymous


class SilentWorker:
    """In place of a worker process: keeps messages and never answers."""

    received: list = []  # noqa: RUF012

    @classmethod
    async def start(cls, role, config):
        cls.received = []
        return cls()

    async def send(self, fields):
        self.received.append(fields)

    async def receive(self):
        await asyncio.sleep(3600)

    async def end(self):
        pass


def refused_socket(client, url=PLAY, **headers):
    with pytest.raises(WebSocketDisconnect) as closed, client.websocket_connect(url, headers=headers):
        pass
    return closed.value.code


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_see(anonymous):
    answer = anonymous.get(f"/?token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("scopil-studio-8808=")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert anonymous.get("/").status_code == 200


@pytest.mark.parametrize("path", ["/", "/index.html", "/report?name=x", "/nothing", "/ask/overview", "/?token="])
@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1], "\u00e9\u4e2d", "%00"])
def test_a_wrong_token_opens_no_page(anonymous, path, token):
    answer = anonymous.get(f"{path}{'&' if '?' in path else '?'}token={token}")
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_a_forged_cookie_opens_nothing_and_the_token_only_the_first_page(anonymous):
    for cookie in ("", "x", TOKEN, "é", "a" * 4000):
        answer = anonymous.get("/", headers={"cookie": f"scopil-studio-8808={cookie}".encode()})
        assert answer.status_code == 401
    for path in ("/index.html", "/ask/overview", "/report"):
        assert anonymous.get(f"{path}?token={TOKEN}").status_code == 401
    assert anonymous.post(f"/?token={TOKEN}", headers={"origin": HERE}).status_code == 401


HOSTS = dict.fromkeys(["", "0.0.0.0", "evil.example:1", "127.0.0.1.evil.example", "127.0.0.1@evil.example"], 421)
HOSTS |= dict.fromkeys(["localhost:9000", "127.0.0.1", "LOCALHOST:1"], 200)  # any port, as behind a tunnel


@pytest.mark.parametrize(("host", "status"), HOSTS.items())
def test_only_host_names_of_this_machine_are_accepted(client, host, status):
    assert client.get("/", headers={"host": host, "origin": f"http://{host}"}).status_code == status
    del client.headers["origin"]
    assert client.get("/", headers={"host": host}).status_code == status
    assert status == 200 or client.get(f"/?token={TOKEN}", headers={"host": host}).status_code == status


FOREIGN_ORIGINS = ["null", "file://", "http://evil.example", "http://127.0.0.1:8809", "http://localhost:8808"]


@pytest.mark.parametrize("origin", [*FOREIGN_ORIGINS, f"{HERE}.x"])
def test_a_foreign_origin_is_refused_for_pages_requests_and_sockets(client, origin):
    assert client.get("/", headers={"origin": origin}).status_code == 403
    assert client.post("/ask/overview", json={}, headers={"origin": origin}).status_code == 403
    assert refused_socket(client, origin=origin) == 1008


def test_requests_and_sockets_need_an_origin_a_cookie_and_a_known_host(client, app):
    with client.websocket_connect(PLAY) as socket:
        socket.send_json({"do": "ping"})
    cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    refused_socket(client, "ws://evil.example/play", cookie=cookie)
    refused_socket(TestClient(app, base_url=HERE), f"{PLAY}?token={TOKEN}", origin=HERE)
    del client.headers["origin"]
    assert client.get("/").status_code == 200
    assert client.post("/ask/overview", json={}).status_code == 403
    assert refused_socket(client) == 1008
    assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_every_answer_carries_the_security_headers(client):
    answers = [client.get("/"), client.get("/nothing"), client.post("/ask/nothing")]
    for answer in (*answers, client.get("/", headers={"host": "x"})):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_a_large_body_is_refused_unread(client):
    def pieces():
        for _ in range(1600):
            yield b" " * 2**16

    big = {"content-length": str(100 * 2**20)}
    assert client.post("/ask/overview", content=b"", headers=big).status_code == 413
    assert client.post("/ask/overview", content=b" " * (server.LARGEST_BODY + 1)).status_code == 413
    assert client.post("/ask/overview", content=pieces()).status_code == 413  # of unknown length
    assert client.post("/ask/overview", content=b"", headers={"content-length": "-1"}).status_code in (400, 413)


BODIES = ["{", "[]", "1", '"x"', "null", "{" * 5000, "[" * 60000, '{"a": NaN}', '{"a": 1e999}', '{"a": Infinity}']


@pytest.mark.parametrize("body", [b"\xff\xfe", *map(str.encode, BODIES)])
def test_a_body_that_is_not_a_json_object_is_refused_before_any_worker_starts(client, body):
    answer = client.post("/ask/overview", content=body)
    assert answer.status_code == 400
    assert "JSON" in answer.json()["refused"]


def test_unknown_requests_and_paths_are_not_found(client):
    for request in ("nothing", "report", "__class__", "../x", "overview/x"):
        assert client.post(f"/ask/{request}", json={}).status_code == 404
    for path in ("/../pyproject.toml", "/%2e%2e/server.py", "/server.py", "/page/index.html", "/etc/passwd"):
        assert client.get(path).status_code == 404


OUTSIDE = ["", ".", "..", "../x", "a/../../x", "/etc/passwd", "a/..", "a\\..\\x", "a\0b", ".hidden", "a/.b", "x" * 301]
OUTSIDE += ["a\nb", "\u202ea", "~/..", "//x", "\ud800", "../../../../etc/passwd", "a/./../../b", "\\\\host\\x"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_that_may_lead_out_of_the_folder_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="not a valid name"):
        paths.inside(tmp_path, name)


def test_a_link_that_leads_out_of_the_folder_is_refused_and_not_listed(tmp_path):
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


@pytest.mark.parametrize("messages", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_malformed_messages_close_their_socket_and_nothing_else(client, messages):
    kinds = ["[", "{", "[]", "null", '"x"', "{" * 2000, '{"a": NaN}', "x" * (server.LARGEST_MESSAGE + 1), "\0", "1e999"]
    for _ in range(-(-messages // (server.MALFORMED + 1))):
        with client.websocket_connect(PLAY) as socket:
            for i in range(server.MALFORMED):
                socket.send_text(kinds[i % len(kinds)])
                assert socket.receive_json()["kind"] == "refused"
            socket.send_text("one too many")
            with pytest.raises(WebSocketDisconnect) as closed:
                socket.receive_json()
        assert closed.value.code == 1008
        assert not SilentWorker.received
    assert client.get("/").status_code == 200


def test_more_sockets_than_allowed_are_refused(client, monkeypatch):
    monkeypatch.setattr(server, "SOCKETS", 2)
    two = client.websocket_connect(PLAY), client.websocket_connect(PLAY)
    with two[0], two[1]:
        refused_socket(client)
    with client.websocket_connect(PLAY) as socket:
        socket.send_json({"do": "ping"})
