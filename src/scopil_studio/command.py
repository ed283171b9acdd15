"""`scopil studio`: record, watch and compare in the browser."""

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
        tyro.conf.arg(
            help="runs, demonstrations and reports below it are shown; nothing outside is touched", metavar="FOLDER"
        ),
    ] = Path("."),
    port: Annotated[int, tyro.conf.arg(help="0 takes a free one", metavar="P")] = 8808,
    host: Annotated[
        str,
        tyro.conf.arg(help="an address of this machine; others than loopback can be reached by others", metavar="H"),
    ] = "127.0.0.1",
    env: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        option(help="an environment of yours, such as my_module:MyEnv-v0; may be given several times", metavar="ID"),
    ] = (),
    rules: RulesOption = None,
    no_browser: Annotated[bool, option(help="print the address, open nothing")] = False,
) -> None:
    """A web page on this machine. Its address holds a token: whoever has it can do what you can do here."""
    try:
        import uvicorn

        from scopil_studio.server import LARGEST_MESSAGE, make_app
    except ImportError as error:
        raise ScopilError('the studio needs starlette and uvicorn: pip install "scopil[studio]".') from error
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; want one to keep runs and demonstrations in.")
    if not 0 <= port < 65536:
        raise ConfigError(f"port = {port}; want 0 … 65535.", setting="port")
    if host in ("0.0.0.0", "::", ""):
        raise ConfigError(
            f"host = {host!r}; want the one address that browsers will use, or keep 127.0.0.1.", setting="host"
        )
    if rules is not None:
        from scopil.eval.rules import load_rules

        load_rules(rules)  # refuses what is wrong with them here, not in a page
    listening = _listen(host, port)
    port, token = listening.getsockname()[1], secrets.token_urlsafe(32)
    named = f"[{host}]" if ":" in host else host
    app = make_app(folder, token=token, names=(named,), envs=env, rules=rules, port=port)
    address = f"http://{named}:{port}/?token={token}"
    print(f"scopil studio of {folder.resolve()}\n  {address}\nCtrl-C ends it; trainings go on.", flush=True)
    if not no_browser:
        webbrowser.open(address)
    config = uvicorn.Config(
        app,
        log_level="warning",
        ws="websockets-sansio",
        ws_max_size=LARGEST_MESSAGE,
        ws_max_queue=64,
        limit_concurrency=200,
    )
    uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)  # a browser that is quicker than the server waits for it
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port.") from error
    return listening
