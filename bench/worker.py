"""A whole boxengine worker, run in this process or as ``boxengine start``, and timed."""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Self

import psycopg
from sqlalchemy import Engine

from bench.servers import OUTBOX, Site
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.waking.listen import CHANNEL
from boxengine.app import assembly
from boxengine.app.running import garbage
from boxengine.app.servers.connected import Servers, connect
from boxengine.domain.box import Box
from boxengine.engine.observation import NullTracer
from boxengine.ports import Observer, Outlook, PendingRow
from boxengine.ports.events import Event, Settled

PATIENCE = timedelta(minutes=15)
ROOT = Path(__file__).parents[1]
WARM_UP = 2_000
"""The number of items that warm a worker up."""


class SettledCounter:
    """Records when the last of a given number of items is settled, that is, its outcome is committed."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._lock = threading.Lock()
        self._all = threading.Event()
        self._at = 0.0

    def see(self, event: Event) -> None:
        if not isinstance(event, Settled):
            return
        with self._lock:
            self._left -= len(event.settlement.delivered)
            if self._left <= 0 and not self._all.is_set():
                self._at = time.perf_counter()
                self._all.set()

    def expect(self, count: int) -> None:
        """Starts over with this number of items."""
        with self._lock:
            self._left = count
            self._all.clear()

    def wait(self) -> float:
        """Returns when the last item was settled, by ``time.perf_counter``.

        Raises:
            TimeoutError: it was not settled in time.
        """
        if not self._all.wait(PATIENCE.total_seconds()):
            raise TimeoutError(f"{self._left} items were not delivered within {PATIENCE}")
        return self._at


@contextmanager
def inner_worker(site: Site, observer: Observer, servers: Servers, *, boxes: Sequence[str] = ()) -> Iterator[None]:
    """A worker in this process, with the defaults of ``boxengine start``; it closes the servers when it stops.

    Args:
        boxes: those that it delivers, as in ``--boxes``; all if none is named.
    """
    worker = assembly.assemble(
        site.boxes.resolved,
        servers,
        choices=assembly.Choices(boxes=boxes),
        observer=observer,
        tracer=NullTracer(),
        health=assembly.health(servers),
    )
    garbage.set_up_for_batches()
    worker.start()
    try:
        yield
    finally:
        stuck = worker.stop(within=timedelta(seconds=60))
        if stuck:
            raise RuntimeError(f"these threads did not stop: {', '.join(stuck)}")


class GatedStore(SqlStore):
    """A store whose polls find nothing while the gate is closed, as if the box were paused."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.open = threading.Event()

    def poll(self, box: Box, buckets: Sequence[int], limit: int) -> list[PendingRow]:
        return super().poll(box, buckets, limit) if self.open.is_set() else []

    def poll_regular(self, box: Box, buckets: Sequence[int], limit: int) -> list[PendingRow]:
        return super().poll_regular(box, buckets, limit) if self.open.is_set() else []

    def outlook(self, box: Box, buckets: Sequence[int]) -> Outlook:
        return super().outlook(box, buckets) if self.open.is_set() else Outlook([], None)


class WarmWorker:
    """A running worker with open connections, which polls nothing between two drains."""

    def __init__(self, store: GatedStore, counter: SettledCounter, tell: Callable[[], object]) -> None:
        self._store = store
        self._counter = counter
        self._tell = tell

    def drain_rate(self, count: int) -> float:
        """Items per second, from the moment when the pending rows may be polled to the commit of the last batch."""
        self._counter.expect(count)
        began = time.perf_counter()
        self._store.open.set()
        self._tell()
        rate = count / (self._counter.wait() - began)
        self._store.open.clear()
        return rate


@contextmanager
def warm_worker(
    site: Site,
    name: str = OUTBOX,
    *,
    boxes: Sequence[str] = (),
    watching: Callable[[Observer], Observer] | None = None,
) -> Iterator[WarmWorker]:
    """A worker over a site's only box, warmed up by items that are not counted.

    Args:
        boxes: the subscriptions that it delivers, if the box has some.
        watching: called with the worker's observer; returns one that also sees every event, and passes it on to that one.
    """
    site.forget_queues()
    servers = connect(site.boxes.resolved.settings)
    store = GatedStore(servers.store.engine)
    counter = SettledCounter(WARM_UP)
    observer = watching(counter) if watching else counter
    with (
        inner_worker(site, observer, replace(servers, store=store), boxes=boxes),
        # As with the floor programs, the clock starts when all are connected.
        psycopg.connect(site.dsn, autocommit=True) as writer,
    ):
        worker = WarmWorker(store, counter, lambda: writer.execute(f"NOTIFY {CHANNEL}, '{name}'".encode()))
        site.table(name).fill(WARM_UP)
        worker.drain_rate(WARM_UP * max(1, len(boxes)))
        yield worker


# ── as a process of its own ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Arrival:
    """One batch that reached a ``Told`` transport in another process."""

    items: int
    at: float
    """By ``time.monotonic``, which all processes of a machine share."""


class Ear:
    """Receives the reports of ``Told`` transports."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.bind(str(path))

    def hear(self, *, within: timedelta = PATIENCE) -> Arrival:
        """The next report.

        Raises:
            TimeoutError: no report came.
        """
        self._socket.settimeout(within.total_seconds())
        items, at = self._socket.recv(64).split()
        return Arrival(int(items), int(at) / 1e9)

    def hear_all(self, count: int) -> list[Arrival]:
        """The reports, until this many items have arrived."""
        arrivals: list[Arrival] = []
        left = count
        while left > 0:
            arrivals.append(self.hear())
            left -= arrivals[-1].items
        return arrivals

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)


class OuterWorker:
    """``boxengine start`` as a child process."""

    def __init__(self, site: Site, *options: str) -> None:
        command = [sys.executable, "-m", "boxengine", "--config", str(site.config), "--log-format", "text"]
        self.began = time.monotonic()
        self._process = subprocess.Popen(
            [*command, "start", *options], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self._log = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_started(self, *, processes: int = 1) -> None:
        """Returns when the log says that this many processes run.

        Raises:
            RuntimeError: they do not run within a minute; the message includes the log.
        """
        stream = self._process.stderr
        assert stream is not None
        deadline = time.monotonic() + 60
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while self._log.count(b"started: ") < processes:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise RuntimeError(f"the worker did not start: {self._log.decode(errors='replace')}")
                if selector.select(timeout=1):
                    self._log += os.read(stream.fileno(), 65536)

    def resident_kib(self, field: str = "VmRSS") -> int:
        """The process's resident memory, or its maximum so far (``VmHWM``)."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1])
        raise RuntimeError(f"/proc knows no {field}")

    def cpu_seconds(self) -> float:
        """The process's CPU time so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
