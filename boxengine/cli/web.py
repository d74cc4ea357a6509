"""``boxengine web``: the console."""

from __future__ import annotations

import os
import re
import secrets
import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from boxengine.cli.context import globals_of
from boxengine.errors import BoxError, PortTaken

if TYPE_CHECKING:
    import socket

    from uvicorn import Server

    from boxengine.app.boxes import Boxes

PORT = 5580
_PREFIX = re.compile(r"(/(?!\.\.?(/|$))[A-Za-z0-9._~-]+)+/?")
PROXIES = "127.0.0.1,::1"
"""Whom the console believes what X-Forwarded-For and X-Forwarded-Proto say, unless FORWARDED_ALLOW_IPS names others."""
MEASURED_EVERY = 15.0
"""Seconds between two measurements of the oldest waits for the charts, even while nobody watches."""


def web(
    context: typer.Context,
    *,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0: all, of IPv6 too.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0: a free one.")] = PORT,
    read_only: Annotated[bool, typer.Option("--read-only", help="Forbid all changes.")] = False,
    root_path: Annotated[
        str, typer.Option("--root-path", metavar="PATH", help="Prefix that a proxy removes from paths: /boxengine.")
    ] = "",
) -> None:
    """Serve the console: what is stuck, why, and what to press. Until SIGTERM or SIGINT.

    Listens only on this machine, unless --host says otherwise. Everybody who opens it needs a token: console.operate_token
    or console.read_token. Without either, the command generates a token at start and prints it.
    Needs: pip install "boxengine\\[web]".

    Examples: boxengine web; boxengine web --port 8080 --read-only
    """
    if root_path and not _PREFIX.fullmatch(root_path):
        raise typer.BadParameter(f"expected a path such as /boxengine, got {root_path!r}", param_hint="--root-path")
    options = globals_of(context)
    options.configure_logs()
    boxes = options.boxes()
    options.configure_logs(boxes)
    _serve(boxes, host, port, read_only=read_only, root_path=root_path.rstrip("/"))


def _serve(boxes: Boxes, host: str, port: int, *, read_only: bool, root_path: str) -> None:
    try:
        import uvicorn  # noqa: PLC0415 - see Globals.boxes
        from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware  # noqa: PLC0415

        from boxengine.web.console.application import build  # noqa: PLC0415
        from boxengine.web.console.guard import LOOPBACK, Unmapped  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise BoxError(f"{error.name} is not installed: pip install 'boxengine[web]'") from error

    chosen = boxes.resolved.settings.console
    made_up = None
    if chosen.authentication != "none" and not (chosen.operate_token or chosen.read_token):
        made_up = secrets.token_urlsafe(18)
    local = host in ("127.0.0.1", "localhost", "::1")
    app = build(boxes, token=made_up, read_only=read_only, hosts=LOOPBACK if local else ())
    listener = _listening(host, port)
    shown = f"[{host}]" if ":" in host else host
    sys.stderr.write(f"boxengine: the console is at http://{shown}:{listener.getsockname()[1]}/\n")
    if made_up is not None:
        sys.stderr.write(f"boxengine: token: {made_up}\n")
    if chosen.authentication == "none" and not local:
        sys.stderr.write(
            "boxengine: console.authentication is none: anyone who can reach this port can do everything\n"
        )
    sys.stderr.flush()
    app.state.site.live.keep_looking(every=MEASURED_EVERY)
    # Event streams stay open as long as their tabs; a stop does not wait for them.
    server = uvicorn.Server(
        uvicorn.Config(
            Unmapped(ProxyHeadersMiddleware(cast("Any", app), os.environ.get("FORWARDED_ALLOW_IPS", PROXIES))),
            proxy_headers=False,
            log_config=None,
            log_level="warning",  # that it has started is told already, without the colours that its log lines carry
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
            server_header=False,
            root_path=root_path,
        )
    )
    _run(server, listener)
    app.state.site.errands.cancel_all()


def _listening(host: str, port: int) -> socket.socket:
    from boxengine.web.server import listening  # noqa: PLC0415 - see Globals.boxes

    try:
        return listening(host, port, _bound)
    except OSError as error:
        raise PortTaken(f"--port: cannot listen on {host}:{port}: {error}") from error


def _bound(host: str, port: int) -> socket.socket:
    import socket  # noqa: PLC0415 - see Globals.boxes

    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listener.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def _run(server: Server, listener: socket.socket) -> None:
    """Returns after SIGTERM or SIGINT."""
    import signal  # noqa: PLC0415 - see Globals.boxes

    def stop(_number: int, _frame: object) -> None:
        server.should_exit = True

    # After it has stopped, uvicorn raises the same signal again: this handler receives it, so that the exit code is 0.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    server.run(sockets=[listener])
