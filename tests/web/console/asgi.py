"""A browser of a few lines, and a program with a token: both call the application without a socket."""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode

from starlette.types import ASGIApp


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def hidden(self) -> dict[str, str]:
        """What the page's forms send without anybody's typing."""
        return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', self.text))

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """Keeps cookies, as a browser does; follows no redirect."""

    app: ASGIApp
    headers: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    host: str = "localhost"
    root_path: str = ""

    def get(self, path: str, **headers: str) -> Answer:
        return self.call("GET", path, headers=headers)

    def post(self, path: str, sent: Any = None, *, form: bool = False, **headers: str) -> Answer:
        body = b"" if sent is None else urlencode(sent, doseq=True).encode() if form else json.dumps(sent).encode()
        kind = "application/x-www-form-urlencoded" if form else "application/json"
        return self.call("POST", path, body=body, headers={"content-type": kind, **headers})

    def press(self, page: str, target: str, /, **fields: Any) -> Answer:
        """Sends a form with the token that stands on a page."""
        return self.post(target, {"csrf": self.csrf(page), **fields}, form=True)

    def csrf(self, page: str) -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', self.get(page).text)
        assert found, f"no form on {page}"
        return found[1]

    def sign_in(self, token: str, name: str = "Zoë") -> Answer:
        return self.press("/login", "/login", token=token, name=name)

    def call(self, method: str, path: str, *, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
        # In a thread, for a browser's driver may have a loop running in this one.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._call(method, path, body, headers or {})).result()

    async def _call(self, method: str, path: str, body: bytes, more: dict[str, str]) -> Answer:
        path, _, query = path.partition("?")
        headers = {"host": self.host, **self.headers, **{name.replace("_", "-"): value for name, value in more.items()}}
        if self.cookies:
            headers["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": self.root_path + path,
            "raw_path": (self.root_path + path).encode(),
            "root_path": self.root_path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 80),
        }
        sent: list[Any] = []
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return waiting.pop() if waiting else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        found: dict[str, str] = {}
        for name, value in sent[0]["headers"]:
            if name == b"set-cookie":
                for cookie in SimpleCookie(value.decode()).values():
                    self.cookies[cookie.key] = cookie.value
            found[name.decode()] = value.decode()
        return Answer(sent[0]["status"], found, b"".join(part.get("body", b"") for part in sent[1:]))
