"""Security headers for every response, and the check of the host name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_MAPPED = "::ffff:"


class Guard:
    """Around the whole application."""

    def __init__(self, app: ASGIApp, *, hosts: Collection[str] = ()) -> None:
        """Args:
        hosts: names to answer to, without ports; none: any. They stop DNS rebinding: a foreign page whose name is made to
            resolve to this address still sends that name.
        """
        self._app = app
        self._hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        if self._hosts and _name(Headers(scope=scope).get("host", "")) not in self._hosts:
            told = "This name is not one of the console's: see console.allowed_hosts.\n"
            await PlainTextResponse(told, status_code=421)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


class Unmapped:
    """Outermost: calls a sender by its address of IPv4 where a socket for both kinds has it as ``::ffff:10.0.0.5``.

    Otherwise a proxy would not be found among those that ``FORWARDED_ALLOW_IPS`` names.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if client and client[0].startswith(_MAPPED):
            scope = {**scope, "client": (client[0].removeprefix(_MAPPED), client[1])}
        await self._app(scope, receive, send)


def _name(host: str) -> str:
    """Without the port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()
