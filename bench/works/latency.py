"""The time from the beginning of a commit to the transport, at a low rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from sqlalchemy import Engine

from bench.floors.drain import EVENT_KEY
from bench.floors.latency import listener
from bench.report import Line, at_most
from bench.rounds import percentile, spread_of
from bench.servers import OUTBOX, Site, Stand
from bench.worker import inner_worker
from boxengine.app.servers.connected import connect
from boxengine.app.servers.database import connect_store
from boxengine.engine.observation import NullObserver

RATE = 20
"""Items per second."""
WARM_UP = 10
"""The first items of each round are not counted: they open connections and prepare statements."""
FIRST_SECONDS = 120
"""The same of a worker of boxengine, so many that it is past its first seconds, in which it works by leases alone."""
PUNCH: Mapping[str, Mapping[str, Any]] = {"bench.works.latency.Punch": {}}
"""The transport."""
UNTIL_BOUNDS = 600
"""The same beside many delayed items, so many that the worker has found bounds that pass these."""
DELAYED = (0, 10_000, 100_000, 1_000_000)
"""Items that wait beside those that are timed."""
FLOOR = "LISTEN/NOTIFY by hand"
_CLOCKS: dict[int, Clock] = {}
"""The running clock, where transports find it, because the worker creates them by itself."""


class Clock:
    """When each item's commit began and when it reached the transport."""

    def __init__(self, count: int, *, warm_up: int) -> None:
        """Args:
        count: of all items, with those of the warm-up.
        """
        self._count = count
        self._warm_up = warm_up
        self._committed: dict[str, float] = {}
        self._arrived: dict[str, float] = {}
        self._all = threading.Event()

    def committing(self, key: str) -> None:
        self._committed[key] = time.perf_counter()

    def arrived(self, keys: Sequence[str]) -> None:
        now = time.perf_counter()
        for key in keys:
            self._arrived.setdefault(key, now)
        if len(self._arrived) >= self._count:
            self._all.set()

    def milliseconds(self) -> list[float]:
        """The latency of each item after the warm-up.

        Raises:
            TimeoutError: some items did not arrive in time.
        """
        if not self._all.wait(timeout=60):
            raise TimeoutError(f"{self._count - len(self._arrived)} items never reached the transport")
        return [(self._arrived[key] - self._committed[key]) * 1000 for key in list(self._committed)[self._warm_up :]]


class Punch:
    """Takes whole batches and records their arrival."""

    def call_batch(self, items: Sequence[Any]) -> list[None]:
        _CLOCKS[0].arrived([item.event_key for item in items])
        return [None] * len(items)


def latency(stand: Stand) -> list[Line]:
    """Commit to transport at 20 items/s, out of a table and out of a log, against LISTEN/NOTIFY by hand."""
    count = stand.scale.pick(200, 100)
    with (
        stand.site(buckets=256, transport=PUNCH) as table,
        stand.site(buckets=256, transport=PUNCH, box_options={"storage": "log"}) as log,
    ):

        def send(rows: Sequence[Any]) -> None:
            _CLOCKS[0].arrived([row[EVENT_KEY] for row in rows])

        programs: dict[str, tuple[Site, Callable[[], AbstractContextManager[object]]]] = {
            "table": (table, lambda: _worker(table)),
            "log": (log, lambda: _worker(log)),
            FLOOR: (table, lambda: listener(table.table(), send)),
        }
        measured: dict[str, list[list[float]]] = {name: [] for name in programs}
        for _ in range(stand.scale.rounds):
            for name, (site, program) in programs.items():
                store = connect_store(site.boxes.resolved.settings)
                warm_up = WARM_UP if name == FLOOR else FIRST_SECONDS
                measured[name].append(_round(site, store.engine, count, program, warm_up=warm_up))
                store.close()
    bars = {"p50": (0.50, 2.5), "p99": (0.99, 10.0)}
    return [_line(storage, name, *bars[name], measured) for storage in ("table", "log") for name in bars]


def beside_delayed(stand: Stand) -> list[Line]:
    """The same with delayed items in the box, which wait for tomorrow, by their number and the number of buckets."""
    count = stand.scale.pick(100, 20)
    lines = []
    for buckets in (16, 256):
        with stand.site(buckets=buckets, transport=PUNCH) as site:
            for delayed in (stand.scale.pick(full, full // 100) for full in DELAYED):
                found = [run_round(site, count, delayed=delayed) for _ in range(stand.scale.long_rounds())]
                lines.append(
                    Line(
                        work=f"commit to transport beside {delayed:,} delayed items in {buckets} buckets, p50",
                        figure=percentile([value for each in found for value in each], 0.5),
                        unit=" ms",
                        spread=spread_of([percentile(each, 0.5) for each in found]),
                    )
                )
    return lines


def run_round(site: Site, count: int, *, delayed: int = 0) -> list[float]:
    """Milliseconds from commit to transport for each of this many items, with a worker in this process.

    Args:
        delayed: how many delayed items the box already has.
    """
    store, warm_up = connect_store(site.boxes.resolved.settings), UNTIL_BOUNDS if delayed else WARM_UP
    try:
        return _round(site, store.engine, count, lambda: _worker(site), warm_up=warm_up, delayed=delayed)
    finally:
        store.close()


@contextmanager
def _worker(site: Site) -> Iterator[None]:
    site.forget_queues()
    with inner_worker(site, NullObserver(), connect(site.boxes.resolved.settings)):
        yield


def _round(
    site: Site,
    engine: Engine,
    count: int,
    program: Callable[[], AbstractContextManager[object]],
    *,
    warm_up: int,
    delayed: int = 0,
) -> list[float]:
    site.table().fill(delayed, delayed=delayed > 0)
    clock = _CLOCKS[0] = Clock(warm_up + count, warm_up=warm_up)
    with program():
        _write(site, engine, clock, warm_up + count)
        return clock.milliseconds()


def _write(site: Site, engine: Engine, clock: Clock, count: int) -> None:
    pace = threading.Event()  # never set: waiting for it paces the writer
    start = time.perf_counter()
    with engine.connect() as connection:
        for number in range(count):
            pace.wait(max(0.0, start + number / RATE - time.perf_counter()))
            site.boxes.create_outbox_item(connection, OUTBOX, event_key=number, payload=b"x" * 500)
            clock.committing(str(number))
            connection.commit()


def _line(storage: str, name: str, share: float, limit: float, measured: dict[str, list[list[float]]]) -> Line:
    every = {who: [value for one_round in rounds for value in one_round] for who, rounds in measured.items()}
    return Line(
        work=f"storage: {storage}, commit to transport at {RATE} items/s, {name}",
        figure=percentile(every[storage], share),
        unit=" ms",
        bar=at_most(limit),
        spread=spread_of([percentile(one_round, share) for one_round in measured[storage]]),
        details={f"{FLOOR} ms": percentile(every[FLOOR], share)},
        note="from the commit's beginning",
    )
