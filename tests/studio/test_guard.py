"""Access to the studio: token, key, Host, Origin, connections, bodies, sockets, names of files. The server runs in this
process and starts no worker."""

import asyncio
import contextlib
import socket
import threading
import webbrowser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

pytest.importorskip("starlette", reason='needs pip install "scopil[studio]"')
import uvicorn
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from scopil.cli import main
from scopil.errors import ConfigError
from scopil_studio import connections, paths, server, workers
from scopil_studio.guard import SUBPROTOCOL, Access

HERE = "http://127.0.0.1:8808"
PLAY = "ws://127.0.0.1:8808/play"


@pytest.fixture
def access():
    return Access()


@pytest.fixture
def app(tmp_path, monkeypatch, access):
    monkeypatch.setattr(server, "Worker", SilentWorker)
    monkeypatch.setattr(workers, "Worker", SilentWorker)
    return server.make_app(tmp_path, access=access)


@pytest.fixture
def anonymous(app):
    """A page without the key."""
    return TestClient(app, base_url=HERE, headers={"origin": HERE})


@pytest.fixture
def client(anonymous, access):
    """A page opened by the printed address."""
    answer = anonymous.post("/enter", headers={"x-scopil-token": access.token})
    anonymous.headers["x-scopil-key"] = answer.text
    anonymous.headers["sec-websocket-protocol"] = f"{SUBPROTOCOL}, {answer.text}"
    return anonymous


class SilentWorker:
    """In place of a worker process: keeps messages and never answers."""

    received: list = []  # noqa: RUF012
    alive = ready = True

    @classmethod
    async def start(cls, role, config):
        cls.received, cls.role = [], role
        return cls()

    async def send(self, fields):
        self.received.append(fields)

    async def receive(self) -> Any:
        await asyncio.sleep(3600)

    async def end(self):
        pass


def refused_socket(client, url=PLAY, **headers):
    with pytest.raises(WebSocketDisconnect) as closed, client.websocket_connect(url, headers=headers):
        pass
    return closed.value.code


def test_the_token_is_exchanged_once_for_a_key_that_is_no_cookie(anonymous, access):
    token = access.token
    answer = anonymous.post("/enter", headers={"x-scopil-token": token})
    assert (answer.status_code, answer.text) == (200, access.key)
    assert "set-cookie" not in answer.headers
    assert anonymous.post("/enter", headers={"x-scopil-token": token}).status_code == 401
    assert access.token != token  # for another browser
    assert anonymous.post("/enter", headers={"x-scopil-token": access.token}).text == access.key


@pytest.mark.parametrize("token", ["", "wrong", "\u00e9\u4e2d"])
def test_a_wrong_token_gives_no_key(anonymous, access, token):
    for wrong in (token, access.token + "x", access.token[:-1]):
        assert anonymous.post("/enter", headers={"x-scopil-token": wrong.encode()}).status_code == 401
    assert anonymous.get("/enter", headers={"x-scopil-token": access.token}).status_code == 401
    del anonymous.headers["origin"]
    assert anonymous.post("/enter", headers={"x-scopil-token": access.token}).status_code == 403


def test_only_the_files_of_the_page_are_read_without_the_key(anonymous, access):
    for path in ("/", "/index.html", "/studio.js"):
        assert anonymous.get(path).status_code == 200
    cookies = {"cookie": f"scopil-studio-8808={access.key}"}
    for headers in ({}, cookies, *({"x-scopil-key": k} for k in ("", "x", access.token, "a" * 4000))):
        for path in ("/ask/overview", "/ask/report", "/nothing"):
            assert anonymous.post(path, json={}, headers=headers).status_code == 401
        assert refused_socket(anonymous, **headers) == 1008
    assert anonymous.get("/nothing").status_code == 401
    assert anonymous.post("/", json={}).status_code == 401
    for ticket in ("", "x", access.key):
        assert anonymous.get(f"/report?ticket={ticket}").status_code == 404


def test_a_report_is_sent_once_for_its_ticket(client, app, monkeypatch):
    async def report(self, name, args, seconds):
        return {"answer": {}}, args["name"].encode()

    monkeypatch.setattr(server.RequestQueue, "ask", report)
    at = [client.post("/ask/report", json={"name": f"report {i}"}).json()["at"] for i in range(server.REPORTS + 1)]
    assert client.get(at[0]).status_code == 404  # the oldest is not kept
    stranger = TestClient(app, base_url=HERE)
    answer = stranger.get(at[1])
    assert (answer.text, "sandbox" in answer.headers["content-security-policy"]) == ("report 1", True)
    assert stranger.get(at[1]).status_code == 404


def test_the_browser_is_opened_without_the_token_in_its_command_line(tmp_path, monkeypatch, capsys):
    opened, files = [], []

    def run(self, sockets):
        file = Path(unquote(urlparse(opened[0]).path))
        files.append((file, file.stat().st_mode & 0o777, file.read_text()))
        sockets[0].close()

    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(uvicorn.Server, "run", run)
    assert main(["studio", str(tmp_path), "--port", "0"]) == 0
    address = capsys.readouterr().out.splitlines()[1].strip()
    ((file, mode, text),) = files
    assert address.partition("#token=")[2] not in opened[0]
    assert (mode, address in text) == (0o600, True)
    assert not file.exists()


@pytest.fixture
def listening(app):
    """The address of the application, served by uvicorn as the command does."""
    place = socket.create_server(("127.0.0.1", 0), backlog=64)
    config = uvicorn.Config(app, log_config=None, http=connections.Connection, limit_concurrency=200)
    made = uvicorn.Server(config)
    thread = threading.Thread(target=made.run, kwargs={"sockets": [place]})
    thread.start()
    yield place.getsockname()
    made.should_exit = True
    thread.join()


def get(address, source="127.0.0.1"):
    """An open connection with a request for the page, and the first bytes of the answer."""
    made = socket.create_connection(address, timeout=20, source_address=(source, 0))
    made.sendall(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    return made, made.recv(15)


def test_idle_connections_take_no_place_from_others(listening):
    idle = []
    for i in range(260):  # also after a request, and from several addresses
        source = f"127.0.0.{1 + i % 4}"
        idle.append(get(listening, source)[0] if i % 2 else socket.create_connection(listening, 20, (source, 0)))
    made, answer = get(listening)
    assert answer == b"HTTP/1.1 200 OK"
    for one in (made, *idle):
        one.close()


def test_a_header_that_does_not_end_closes_its_connection(listening, monkeypatch):
    monkeypatch.setattr(connections, "SECONDS", 0.2)
    new = socket.create_connection(listening, timeout=20)
    used, _ = get(listening)
    for one in (new, used):
        one.sendall(b"GET / HTTP/1.1\r\nx: ")
        with contextlib.suppress(ConnectionResetError):
            while one.recv(2**16):  # until it is closed
                pass
        one.close()


HOSTS = dict.fromkeys(["", "0.0.0.0", "evil.example:1", "127.0.0.1.evil.example", "127.0.0.1@evil.example"], 421)
HOSTS |= dict.fromkeys(["localhost:9000", "127.0.0.1", "LOCALHOST:1"], 200)  # any port, as behind a tunnel


@pytest.mark.parametrize(("host", "status"), HOSTS.items())
def test_only_host_names_of_this_machine_are_accepted(client, host, status):
    assert client.get("/", headers={"host": host, "origin": f"http://{host}"}).status_code == status
    del client.headers["origin"]
    assert client.get("/", headers={"host": host}).status_code == status


FOREIGN_ORIGINS = ["null", "file://", "http://evil.example", "http://127.0.0.1:8809", "http://localhost:8808"]


@pytest.mark.parametrize("origin", [*FOREIGN_ORIGINS, f"{HERE}.x"])
def test_a_foreign_origin_is_refused_for_pages_requests_and_sockets(client, origin):
    assert client.get("/", headers={"origin": origin}).status_code == 403
    assert client.post("/ask/overview", json={}, headers={"origin": origin}).status_code == 403
    assert refused_socket(client, origin=origin) == 1008


def test_requests_and_sockets_need_an_origin_a_key_and_a_known_host(client):
    with client.websocket_connect(PLAY) as socket:
        socket.send_json({"do": "ping"})
    refused_socket(client, "ws://evil.example/play")
    for protocols in ("", SUBPROTOCOL, f"{SUBPROTOCOL}, x", f"x, {client.headers['x-scopil-key']}"):
        refused_socket(client, **{"sec-websocket-protocol": protocols})
    foreign = {"sec-fetch-site": "same-site"}  # a page on another port of this machine
    assert client.post("/ask/nothing", headers=foreign).status_code == 403
    del client.headers["origin"]
    assert client.get("/", headers=foreign).status_code == 200  # a link to the studio
    assert client.get("/studio.js", headers=foreign).status_code == 403
    assert client.post("/ask/overview", json={}).status_code == 403
    assert refused_socket(client) == 1008


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


class LateWorker(SilentWorker):
    """Starts for longer than a request may take, then answers at once."""

    ready = False

    async def receive(self):
        await asyncio.sleep(0.0 if self.ready else 0.3)
        return {"answer": {"ready": self.ready}}, b""


def test_the_start_of_a_worker_is_no_part_of_the_time_of_a_request(client, monkeypatch):
    monkeypatch.setattr(workers, "Worker", LateWorker)
    monkeypatch.setitem(workers.REQUESTS, "tray", ("comparing", 0.1))
    for _ in range(2):
        assert client.post("/ask/tray", json={}).json() == {"ready": True}


def test_the_worker_that_lists_the_folder_starts_with_the_server(app, monkeypatch):
    monkeypatch.setattr(SilentWorker, "role", "none", raising=False)
    with TestClient(app, base_url=HERE):
        assert SilentWorker.role == "watching"


def test_unknown_requests_and_paths_are_not_found(client):
    for request in ("nothing", "__class__", "../x", "overview/x"):
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
