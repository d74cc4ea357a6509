"""Simulated users: each has a live page open in a tab, and opens another page every five seconds."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.console.site import IDLE, TOKEN
from bench.servers import OUTBOX

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
PAUSE = 5.0
"""Seconds between two clicks of a tab."""
BOX, QUIET = OUTBOX.replace("_", "-"), IDLE.replace("_", "-")


@dataclass
class Timings:
    """The seconds that each kind of page and action took, and what went wrong."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)
    looks: int = 0
    """How many live looks arrived."""


class Tabs:
    """A number of tabs, from ``start`` to ``stop``."""

    def __init__(self, port: int, count: int, *, silent: bool = False) -> None:
        """Args:
        silent: tabs click as often, but only on a page for which the console sends the database no query.
        """
        self.timings = Timings()
        self._port = port
        self._stop = threading.Event()
        live = ("overview", f"box:{BOX}", "workers")
        self._silent = silent
        watching = 0 if silent else count
        pages = [threading.Thread(target=self._watch, args=(live[n % 3],), daemon=True) for n in range(watching)]
        self._threads = pages + [threading.Thread(target=self._click, args=(n,), daemon=True) for n in range(count)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _watch(self, page: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.request("GET", f"/events?page={page}", headers=HEADERS)
        answer = connection.getresponse()
        while not self._stop.is_set():
            if answer.readline().startswith(b"event: look"):
                self.timings.looks += 1
        connection.close()

    def _click(self, number: int) -> None:
        clicks = _silent_clicks() if self._silent else itertools.islice(_clicks(self._port), number, None)
        self._stop.wait(number * PAUSE / 10)
        for kind, method, path, body in clicks:
            # A server may close a connection that is idle between two clicks.
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            began = time.perf_counter()
            sent = None if body is None else json.dumps(body)
            more = {"Content-Type": "application/json"} if sent else {}
            connection.request(method, path, body=sent, headers=HEADERS | more)
            answer = connection.getresponse()
            answer.read()
            connection.close()
            self.timings.seconds[kind].append(time.perf_counter() - began)
            if answer.status >= 400:
                self.timings.wrong.append(f"{answer.status} {method} {path}")
            if self._stop.wait(PAUSE):
                break


Click = tuple[str, str, str, Mapping[str, Any] | None]


def _silent_clicks() -> Iterator[Click]:
    """Requests the trail, which Redis keeps."""
    return itertools.repeat(("trail", "GET", "/trail", None))


def _clicks(port: int) -> Iterator[Click]:
    """Requests every page and action again and again, on other items each time."""
    failed = _ids(port, "failed", 200)
    delivered = _ids(port, "delivered", 200)
    items, api = f"/boxes/{BOX}/items", f"/api/boxes/{BOX}"
    for number in itertools.count():
        item, done = failed[number % len(failed)], delivered[number % len(delivered)]
        yield "overview", "GET", "/", None
        yield "box", "GET", f"/boxes/{BOX}", None
        yield "history", "GET", f"{api}/history?span=hour", None
        yield "items", "GET", items, None
        for status in ("pending", "failed", "delivered", "discarded"):
            yield f"items, {status}", "GET", f"{items}?status={status}", None
        yield "items, older", "GET", f"{items}?before={done}", None
        yield "items, oldest", "GET", f"{items}?after=0", None
        yield "items, by key", "GET", f"{items}?by=key&q={number % 1000}", None
        yield "items, by id", "GET", f"{items}?by=id&q={done}", None
        yield "items, failed, by error", "GET", f"{items}?status=failed&error=Timeout", None
        yield "items, by error that none has", "GET", f"{items}?error=nowhere", None
        yield "items, by time", "GET", f"{items}?from=PT12H&to=PT11H", None
        yield "items, failed, by time", "GET", f"{items}?status=failed&from=PT12H&to=PT11H", None
        yield "items, by event", "GET", f"{items}?event_name=never", None
        yield "item, failed", "GET", f"{items}/{item}", None
        yield "item, delivered", "GET", f"{items}/{done}", None
        yield "question, one", "GET", f"/boxes/{BOX}/act?action=retry&id={item}", None
        yield "question, all failed", "GET", f"/boxes/{BOX}/act?action=retry&status=failed", None
        yield "question, replay by time", "GET", f"/boxes/{BOX}/act?action=replay&from=PT12H&to=PT11H", None
        yield "count, API", "GET", f"{api}/items/count?status=pending", None
        yield "retry one", "POST", f"{api}/items/{item}/retry", {}
        yield "replay one", "POST", f"{api}/items/{done}/replay", {}
        yield (
            "dry run",
            "POST",
            f"{api}/actions",
            {"action": "discard", "filter": {"status": "failed"}, "dry_run": True},
        )
        yield "pause", "POST", f"/api/boxes/{QUIET}/pause", {}
        yield "resume", "POST", f"/api/boxes/{QUIET}/resume", {}
        yield "forget", "POST", f"/api/boxes/{QUIET}/forget", {}
        yield "workers", "GET", "/workers", None
        yield "trail", "GET", "/trail", None
        yield "doctor", "GET", "/doctor", None


def _ids(port: int, status: str, limit: int) -> list[int]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", f"/api/boxes/{BOX}/items?status={status}&after=0&limit={limit}", headers=HEADERS)
    found = json.load(connection.getresponse())
    connection.close()
    return [int(item["id"]) for item in found["items"]]
