"""Authentication, roles, and protection against requests that another site makes a browser send.

A browser authenticates with a signed cookie, or with credentials that it sends by itself (basic authentication, the
application's own). It sends all of these along even when another site triggers the request, so every change also needs a
token that only our pages have. A program authenticates with ``Authorization: Bearer``, which no browser sends by itself.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import inspect
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from ipaddress import IPv4Address, ip_address
from typing import Any, Literal
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from boxengine.errors import BoxError

COOKIE = "boxengine_console"
CSRF_FIELD, CSRF_HEADER = "csrf", "x-csrf-token"
LASTS = 12 * 3600
"""How long a session lasts, in seconds."""
_LONGEST_NAME = 80
_TRIES, _PER_SECONDS = 20, 60.0
"""How many different wrong tokens one address, or network of IPv6, may send, and within how many seconds."""
_ROUNDS = 200_000
"""A tenth of a second, once for each process."""
_ADDRESSES = 1_000
"""For how many addresses wrong tokens are remembered."""

Authentication = Literal["token", "basic", "none"]


class Role(IntEnum):
    """What somebody may do; the higher includes the lower."""

    READ = 1
    OPERATE = 2


@dataclass(frozen=True, slots=True)
class Who:
    """Somebody whom the console knows."""

    name: str
    role: Role


Authenticate = Callable[[Request], Who | str | Awaitable[Who | str | None] | None]
"""The application's own authentication: returns the user, or the name of somebody who may operate; None or an empty name:
nobody. It may raise an exception that its framework turns into a response, and may be ``async``."""


@dataclass(frozen=True, slots=True)
class Visit:
    """Who sent a request, and from which session."""

    who: Who | None
    session: str
    """A random id of this browser."""
    fresh: bool = False
    """Whether the browser does not have the session's cookie yet."""
    programmatic: bool = False
    """Whether the request authenticates in a way that no browser uses by itself."""


class Access:
    """Authenticates requests."""

    def __init__(
        self,
        *,
        authentication: Authentication,
        operate_token: str | None = None,
        read_token: str | None = None,
        secret: str | None = None,
        authenticate: Authenticate | None = None,
        read_only: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Args:
        secret: signs sessions together with the tokens; without either, a random key does.
        authenticate: the application's own authentication; replaces all others.
        read_only: nobody may change anything.

        Raises:
            BoxError: authentication needs a token, and there is none.
        """
        tokens = {Role.OPERATE: operate_token, Role.READ: read_token}
        self._tokens = [(role, _bytes(token)) for role, token in tokens.items() if token]
        if authenticate is None and authentication != "none" and not self._tokens:
            raise BoxError(
                "console: there is no token; set console.operate_token or console.read_token, or give "
                "authenticate=, or say console.authentication: none"
            )
        self.kind: str = "application" if authenticate is not None else authentication
        self._authenticate = authenticate
        self._most = Role.READ if read_only else Role.OPERATE
        self._key = _key(secret, self._tokens)
        self._clock = clock
        self._wrong: dict[str, dict[str, float]] = {}
        """By address, the signatures of wrong tokens, and when each was first sent."""

    # ── who asks ─────────────────────────────────────────────────────────────────────────────────────

    async def visit(self, request: Request) -> Visit:
        """Finds out who sent the request."""
        session = self._read(request.cookies.get(_cookie(request), ""))
        name = str(session["id"]) if session else secrets.token_urlsafe(16)
        who, programmatic = await self._who(request, session)
        if who is not None and who.role > self._most:
            who = Who(who.name, self._most)
        return Visit(who, name, fresh=session is None, programmatic=programmatic)

    async def _who(self, request: Request, session: dict[str, Any] | None) -> tuple[Who | None, bool]:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        bearer = scheme.lower() == "bearer"
        if self._authenticate is not None:
            answer = self._authenticate(request)
            found = await answer if inspect.isawaitable(answer) else answer
            if isinstance(found, str):
                # Starlette's own user who has not signed in has the name "".
                found = Who(printable(found) or "somebody", Role.OPERATE) if found.strip() else None
            return found or None, bearer
        if self.kind == "none":
            return Who("anybody", Role.OPERATE), bearer
        if bearer:
            role = self.role_of(given.strip(), _address(request))
            return (Who(f"token ({role.name.lower()})", role) if role else None), True
        if scheme.lower() == "basic" and self.kind == "basic":
            return self._basic(given, _address(request)), False
        if session and self.kind == "token" and session.get("role") in set(Role):
            return Who(str(session["name"]), Role(session["role"])), False
        return None, False

    def _basic(self, given: str, address: str) -> Who | None:
        try:
            name, _, token = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
        role = self.role_of(token, address)
        return Who(printable(name) or "somebody", role) if role else None

    def role_of(self, token: str, address: str = "") -> Role | None:
        """What the holder of this token may do; None: it is wrong, or this address sent too many wrong ones recently.

        A token that is sent again and again counts once: somebody who guesses sends others, and a program with an old one shall
        not lock out all that come through the same proxy.
        """
        now, address = self._clock(), _place(address)
        wrong = self._wrong.get(address, {})
        for sent, since in list(wrong.items()):
            if now - since >= _PER_SECONDS:
                wrong.pop(sent, None)
        if len(wrong) >= _TRIES:
            return None
        # Every token is compared in full, so that the time taken reveals nothing.
        found = [role for role, right in self._tokens if hmac.compare_digest(right, _bytes(token))]
        if not found:
            if len(self._wrong) >= _ADDRESSES and address not in self._wrong:
                self._wrong.pop(next(iter(self._wrong)))
            # Not the token itself: it may be the right one with a slip.
            self._wrong.setdefault(address, {}).setdefault(self._sign("wrong token", token), now)
            return None
        return max(found)

    # ── sessions ─────────────────────────────────────────────────────────────────────────────────────

    def sign_in(self, response: Response, request: Request, *, token: str, name: str) -> bool:
        """Gives the browser a new session, if the token is right."""
        role = self.role_of(token, _address(request))
        if role is None:
            return False
        self._write(response, request, {"name": printable(name) or "somebody", "role": int(role)})
        return True

    def sign_out(self, response: Response, request: Request) -> None:
        """Ends the browser's session."""
        response.delete_cookie(_cookie(request), path=_path(request))

    def remember(self, response: Response, request: Request, visit: Visit) -> None:
        """Gives a browser without a session one that only identifies the browser."""
        if visit.fresh and not visit.programmatic:
            self._write(response, request, {}, session=visit.session)

    def _write(self, response: Response, request: Request, content: dict[str, Any], session: str = "") -> None:
        content = {"id": session or secrets.token_urlsafe(16), "until": int(self._clock()) + LASTS, **content}
        body = base64.urlsafe_b64encode(json.dumps(content).encode()).decode()
        response.set_cookie(
            _cookie(request),
            f"{body}.{self._sign('session', body)}",
            max_age=LASTS,
            path=_path(request),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )

    def _read(self, cookie: str) -> dict[str, Any] | None:
        body, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(_bytes(self._sign("session", body)), _bytes(signature)):
            return None
        content: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body))
        return content if content["until"] > self._clock() else None

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, _bytes(f"{purpose}\0{text}"), hashlib.sha256).hexdigest()

    # ── requests forged by other sites ───────────────────────────────────────────────────────────────

    def csrf_token(self, visit: Visit) -> str:
        """The token that this browser's forms carry."""
        return self._sign("csrf", visit.session)

    def is_meant(self, request: Request, visit: Visit, given: str) -> bool:
        """Whether the sender intends the request, rather than another site acting in their name."""
        if visit.programmatic:
            return True
        site = request.headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none"):
            return False
        origin = request.headers.get("origin")
        # No page can set Sec-Fetch-Site. It holds behind proxies that replace Host, too.
        if site != "same-origin" and origin is not None and _host_in(origin) != request.headers.get("host"):
            return False
        if request.method in ("PUT", "DELETE") and (site == "same-origin" or origin is not None):
            # No form can send these, and another site's script needs a CORS preflight; sbmt-outbox's pages have no token.
            return True
        return hmac.compare_digest(_bytes(self.csrf_token(visit)), _bytes(given))


def _key(secret: str | None, tokens: Sequence[tuple[Role, bytes]]) -> bytes:
    """Of the tokens too, so that no session outlives the token it was opened with."""
    if not secret and not tokens:
        return secrets.token_bytes(32)
    return _derived("\0".join([secret or "", *(f"{role.name} {token.hex()}" for role, token in tokens)]))


@cache
def _derived(text: str) -> bytes:
    """Slowly: every visitor gets a signed cookie, and could try tokens on it without asking the console."""
    return hashlib.pbkdf2_hmac("sha256", _bytes(text), b"boxengine console", _ROUNDS)


def _bytes(text: str) -> bytes:
    """Of any text: JSON can name lone surrogates, and a setting from the environment can hold bytes that are not UTF-8."""
    return text.encode(errors="surrogatepass")


def _host_in(origin: str) -> str:
    """With its port; empty where the origin is no address, like that of ``null``."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def printable(name: str) -> str:
    """The name, made safe for a log."""
    return "".join(each for each in name if each.isprintable())[:_LONGEST_NAME].strip()


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _place(address: str) -> str:
    """What stands for one sender: of IPv6 a network, because whoever has one address has the 2**64 beside it."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv4Address):
        return address
    return str(found.ipv4_mapped or f"{int(found) >> 64:x}/64")


def _cookie(request: Request) -> str:
    """By port, for browsers do not: two consoles behind two forwarded ports would end each other's sessions."""
    _, _, port = request.headers.get("host", "").rpartition(":")
    return f"{COOKIE}_{port}" if port.isascii() and port.isdigit() else COOKIE


def _path(request: Request) -> str:
    return str(request.scope.get("root_path", "")) or "/"
