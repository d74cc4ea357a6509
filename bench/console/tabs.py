"""Simulated users: each has a live page open in a tab, and opens another page every five seconds."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.console.site import IDLE, TOKEN, Running
from bench.servers import OUTBOX
from boxengine.domain.item import Status

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
PAUSE = 5.0
"""Seconds between two clicks of a tab."""
BOX, QUIET = OUTBOX.replace("_", "-"), IDLE.replace("_", "-")
ITEMS = 2_000
"""How many items of a status the tabs look at and act on in turn."""


@dataclass
class Timings:
    """The seconds that each kind of page and action took, and what went wrong."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)
    looks: int = 0
    """How many live looks arrived."""


class Items:
    """Failed and delivered items, found once before anything is measured: another one for each click of any tab."""

    def __init__(self, failed: Sequence[int], delivered: Sequence[int]) -> None:
        self.failed = itertools.cycle(failed)
        self.delivered = itertools.cycle(delivered)

    @classmethod
    def of(cls, load: Running) -> Items:
        """Those of a running console's large table."""
        return cls(*(load.ids(status, ITEMS) for status in (Status.FAILED, Status.DELIVERED)))


class Tabs:
    """A number of tabs, from ``start`` to ``stop``."""

    def __init__(self, port: int, count: int, items: Items, *, silent: bool = False) -> None:
        """Args:
        silent: tabs click as often, but only on a page for which the console sends the database no query.
        """
        self.timings = Timings()
        self._port = port
        self._count = count
        self._items = items
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
        if not self._silent:
            # Tabs pause, resume and forget in no order: the next part finds the idle box as this one did.
            _answer(self._port, "POST", f"/api/boxes/{QUIET}/forget", {})

    def _watch(self, page: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.request("GET", f"/events?page={page}", headers=HEADERS)
        answer = connection.getresponse()
        while not self._stop.is_set():
            if answer.readline().startswith(b"event: look"):
                self.timings.looks += 1
        connection.close()

    def _click(self, number: int) -> None:
        clicks = _silent_clicks() if self._silent else clicks_of(number, self._count, self._items)
        self._stop.wait(number * PAUSE / self._count)
        for kind, method, path, body in clicks:
            began = time.perf_counter()
            status = _answer(self._port, method, path, body)
            self.timings.seconds[kind].append(time.perf_counter() - began)
            if status >= 400:
                self.timings.wrong.append(f"{status} {method} {path}")
            if self._stop.wait(PAUSE):
                break


def _answer(port: int, method: str, path: str, body: Mapping[str, Any] | None) -> int:
    """The status of the answer. On a connection of its own: a server may close one that is idle between two clicks."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    sent = None if body is None else json.dumps(body)
    more = {"Content-Type": "application/json"} if sent else {}
    connection.request(method, path, body=sent, headers=HEADERS | more)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


Click = tuple[str, str, str, Mapping[str, Any] | None]


def _silent_clicks() -> Iterator[Click]:
    """Requests the trail, which Redis keeps."""
    return itertools.repeat(("trail", "GET", "/trail", None))


def clicks_of(number: int, count: int, items: Items) -> Iterator[Click]:
    """What one of so many tabs requests. Each begins at another place, so that together they soon request every kind."""
    every = itertools.chain.from_iterable(_round(items) for _ in itertools.count())
    return itertools.islice(every, number * len(KINDS) // count, None)


def _round(items: Items) -> Iterator[Click]:
    """Requests every page and action once, on other items each time."""
    item, done = next(items.failed), next(items.delivered)
    listed, api = f"/boxes/{BOX}/items", f"/api/boxes/{BOX}"
    yield "overview", "GET", "/", None
    yield "box", "GET", f"/boxes/{BOX}", None
    yield "history", "GET", f"{api}/history?span=hour", None
    yield "items", "GET", listed, None
    for status in ("pending", "failed", "delivered", "discarded"):
        yield f"items, {status}", "GET", f"{listed}?status={status}", None
    yield "items, older", "GET", f"{listed}?before={done}", None
    yield "items, oldest", "GET", f"{listed}?after=0", None
    yield "items, by key", "GET", f"{listed}?by=key&q={done % 1000}", None
    yield "items, by id", "GET", f"{listed}?by=id&q={done}", None
    yield "items, failed, by error", "GET", f"{listed}?status=failed&error=Timeout", None
    yield "items, by error that none has", "GET", f"{listed}?error=nowhere", None
    yield "items, by time", "GET", f"{listed}?from=PT12H&to=PT11H", None
    yield "items, failed, by time", "GET", f"{listed}?status=failed&from=PT12H&to=PT11H", None
    yield "items, by event", "GET", f"{listed}?event_name=never", None
    yield "item, failed", "GET", f"{listed}/{item}", None
    yield "item, delivered", "GET", f"{listed}/{done}", None
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


KINDS = tuple(kind for kind, *_ in _round(Items([1], [1])))
