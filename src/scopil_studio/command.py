"""`scopil studio`: record demonstrations, watch runs and compare policies in the browser."""

import secrets
import socket
import webbrowser
from pathlib import Path
from typing import Annotated

import tyro

from scopil.cli.options import RulesOption, call, option
from scopil.errors import ConfigError, ScopilError


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
    rules: RulesOption = None,
    no_browser: Annotated[bool, option(help="print the address without opening a browser")] = False,
) -> None:
    """A web page on this machine. Its address contains a token that gives access with your rights: keep it secret."""
    try:
        import uvicorn

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

        load_rules(rules)  # errors in the rules appear in the terminal, before any page is open
    listening = _listen(host, port)
    port, token = listening.getsockname()[1], secrets.token_urlsafe(32)
    name = f"[{host}]" if ":" in host else host
    app = make_app(folder, token=token, names=(name,), envs=env, rules=rules, port=port)
    address = f"http://{name}:{port}/?token={token}"
    print(f"scopil studio of {folder.resolve()}\n  {address}\nCtrl-C stops it; training runs continue.", flush=True)
    if not no_browser:
        webbrowser.open(address)
    config = uvicorn.Config(app, log_level="warning", ws="websockets-sansio", limit_concurrency=200)
    config.ws_max_size, config.ws_max_queue = LARGEST_MESSAGE, 64
    uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)  # requests wait in this queue until the server is ready
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port.") from error
    return listening
