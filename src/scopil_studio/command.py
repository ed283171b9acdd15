"""`scopil studio`: record demonstrations, watch runs and compare policies in the browser."""

import contextlib
import os
import socket
import tempfile
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import tyro

from scopil.cli.options import call, option
from scopil.errors import ConfigError, ScopilError
from scopil_studio.paths import JOBS


def main(argv: list[str]) -> None:
    call(studio, "scopil studio", argv)


def studio(
    folder: Annotated[
        tyro.conf.Positional[Path],
        tyro.conf.arg(help="lists the runs, demonstrations and reports below it; only it is changed", metavar="FOLDER"),
    ] = Path("."),
    port: Annotated[int, tyro.conf.arg(help="0 takes a free one", metavar="P")] = 8808,
    host: Annotated[
        str, tyro.conf.arg(help="address to listen on; other machines reach any but a loopback address", metavar="H")
    ] = "127.0.0.1",
    env: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        option(help="a further environment, such as my_module:MyEnv-v0; may be given several times", metavar="ID"),
    ] = (),
    rules: Annotated[
        str | None,
        option("a Python file of rules for the environments named with --env; default: the rules of each run", "FILE"),
    ] = None,
    no_browser: Annotated[bool, option(help="print the address without opening a browser")] = False,
) -> None:
    """A web page on this machine. Its address contains a token that gives access with your rights: keep it secret."""
    try:
        import uvicorn

        from scopil_studio.connections import Connection
        from scopil_studio.guard import Access
        from scopil_studio.server import LARGEST_MESSAGE, make_app
    except ImportError as error:
        raise ScopilError('the studio needs starlette and uvicorn: pip install "scopil[studio]".') from error
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; want a folder for runs and demonstrations.")
    if not 0 <= port < 65536:
        raise ConfigError(f"port = {port}; want 0 … 65535.", setting="port")
    if host in ("0.0.0.0", "::", ""):
        raise ConfigError(f"host = {host!r}; want the one address browsers use, or 127.0.0.1.", setting="host")
    if rules is not None:
        from scopil.eval.rules import load_rules

        if not env:
            raise ConfigError(f"--rules {rules} without --env; want the environment that they were written for.")
        load_rules(rules)  # errors in the rules appear in the terminal, before any page is open
    listening = _listen(host, port)
    port = listening.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    address = lambda: f"http://{name}:{port}/#token={access.token}"  # noqa: E731
    with contextlib.ExitStack() as opened:  # removes the file that the browser opens

        def used() -> None:
            opened.close()
            with contextlib.suppress(OSError):  # the terminal may be gone
                print(f"Opened. The address serves once; for another browser:\n  {address()}", flush=True)

        access = Access(used)
        app = make_app(folder, access=access, names=(name,), envs=env, rules=rules)
        print(
            f"scopil studio of {folder.resolve()}\n  {address()}\nCtrl-C stops it; training runs continue.", flush=True
        )
        if not no_browser:
            webbrowser.open(opened.enter_context(_redirect(folder, address())).as_uri())
        logging = {"log_config": None, "log_level": "warning"}  # leaves the loggers of other packages alone
        limits = {"http": Connection, "ws": "websockets-sansio", "limit_concurrency": 200, "backlog": 64}
        config = uvicorn.Config(app, **logging, **limits)
        config.ws_max_size, config.ws_max_queue = LARGEST_MESSAGE, 64
        uvicorn.Server(config).run(sockets=[listening])


@contextlib.contextmanager
def _redirect(folder: Path, address: str) -> Iterator[Path]:
    """A file that only this user can read and that leads a browser to the address. All users of a machine see the
    command line of a browser, so the address is not in it. The file is in the studio's folder if that can be written,
    because browsers in a sandbox have a temporary folder of their own."""
    folder = (folder / JOBS).resolve()
    try:
        folder.mkdir(exist_ok=True)
        handle, name = tempfile.mkstemp(".html", "open-", folder)
    except OSError:
        handle, name = tempfile.mkstemp(".html", "scopil-studio-")
    with os.fdopen(handle, "w") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}"><title>scopil studio</title>')
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _listen(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(64)  # requests wait in this queue until the server is ready
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port.") from error
    return listening
