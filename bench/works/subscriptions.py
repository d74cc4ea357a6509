"""Subscriptions of one log: what one that is stopped costs the others, and how it catches up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import psycopg

from bench.report import Line, at_least, at_most, ratio_line
from bench.rounds import Comparison, compare
from bench.servers import OUTBOX, Site, Stand
from bench.worker import SettledCounter, WarmWorker, inner_worker, warm_worker
from boxengine.app.servers.connected import connect

BUCKETS = 16
PARTS = 20
"""Into which the items are cut; each goes through both boxes in turn. Many, as a machine's mood changes within seconds."""
GOING = ("billing", "search")
STOPPED = "audit"


class Witness:
    """The stopped subscription's transport: notes which items reach it, and whether those of a key come in order."""

    lock: ClassVar[threading.Lock] = threading.Lock()
    last: ClassVar[dict[str, int]] = {}
    ids: ClassVar[set[int]] = set()
    repeated: ClassVar[int] = 0
    reordered: ClassVar[int] = 0

    @classmethod
    def forget(cls) -> None:
        """Begins anew."""
        cls.last.clear()
        cls.ids.clear()
        cls.repeated = cls.reordered = 0

    def call_batch(self, items: Sequence[Any]) -> list[None]:
        kind = type(self)
        with kind.lock:
            for item in items:
                kind.repeated += item.id in kind.ids
                kind.reordered += item.id < kind.last.get(item.event_key, 0)
                kind.ids.add(item.id)
                kind.last[item.event_key] = max(item.id, kind.last.get(item.event_key, 0))
        return [None] * len(items)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """What the stopped subscription did in the end."""

    expected: int
    arrived: int
    """Different items."""
    repeated: int
    reordered: int
    """Items that came after a later one of their key."""
    rate: float
    """Items per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Deliveries per second of two subscriptions, with a third one stopped against without one, and how that one caught up."""

    whole: Comparison
    late: Comparison
    """In the last quarter of the parts, while most waits for the stopped subscription."""
    waiting: int
    """Items before the stopped subscription in the end."""
    caught_up: CaughtUp


def one_stopped(stand: Stand) -> list[Line]:
    """Two subscriptions beside a third that is stopped, against the same two alone; then the third catches up."""
    count = stand.scale.pick(200_000, 50_000)
    found = prove(stand, count)
    work = f"subscriptions, one of three stopped for {found.waiting:,} items"
    caught_up = found.caught_up
    return [
        ratio_line(f"{work}: deliveries/s of the others", found.whole, at_least(0.95), unit_of_rates="deliveries/s"),
        Line(
            work=f"{work}: lost, repeated or out of order as it catches up",
            figure=caught_up.expected - caught_up.arrived + caught_up.repeated + caught_up.reordered,
            bar=at_most(0),
            details={"items/s": caught_up.rate},
        ),
    ]


def prove(stand: Stand, count: int, *, told: Callable[[int, float, float], None] = lambda *_: None) -> Proof:
    """Sends so many items through two boxes, part by part in turn: one with a third subscription that nobody delivers.

    Both logs have the same rows at every moment, and the same two subscriptions are delivered from each by a worker that does
    the same. The box that goes first changes from part to part.

    Args:
        told: called after each part with its number, and the rates with one stopped and without.
    """
    part = max(1, count // PARTS)
    with _box(stand, (*GOING, STOPPED)) as (behind, behind_worker), _box(stand, GOING) as (alone, alone_worker):
        programs = {"one stopped": _part(behind, behind_worker, part), "none": _part(alone, alone_worker, part)}
        rates: dict[str, list[float]] = {name: [] for name in programs}
        for number in range(PARTS):
            for name in list(programs) if number % 2 else list(programs)[::-1]:
                rates[name].append(programs[name]())
            told(number + 1, rates["one stopped"][-1], rates["none"][-1])
        waiting = _rows(behind)
        caught_up = _catch_up(behind, waiting)
    return Proof(
        whole=compare(rates, ours="one stopped"),
        late=compare({name: found[-(PARTS // 4) :] for name, found in rates.items()}, ours="one stopped"),
        waiting=waiting,
        caught_up=caught_up,
    )


@contextmanager
def _box(stand: Stand, names: Sequence[str]) -> Iterator[tuple[Site, WarmWorker]]:
    """A log box with these subscriptions, and a worker that delivers the two that go on."""
    transports = {name: "Batches" if name in GOING else "Witness" for name in names}
    where = {"Batches": "bench.transports.Batches", "Witness": f"{__name__}.Witness"}
    read: dict[str, dict[str, Any]] = {name: {"transports": {where[kind]: {}}} for name, kind in transports.items()}
    options = {"storage": "log", "subscriptions": read}
    with (
        stand.site(buckets=BUCKETS, transport=None, box_options=options) as site,
        warm_worker(site, boxes=[f"{OUTBOX}.{name}" for name in GOING]) as worker,
    ):
        yield site, worker


def _part(site: Site, worker: WarmWorker, count: int) -> Callable[[], float]:
    def run() -> float:
        site.table().add(count)
        return worker.drain_rate(len(GOING) * count)

    return run


def _rows(site: Site) -> int:
    with psycopg.connect(site.dsn) as connection:
        row = connection.execute(f"SELECT count(*) FROM {site.table().name}".encode()).fetchone()
        return int(row[0]) if row else 0


def _catch_up(site: Site, expected: int) -> CaughtUp:
    Witness.forget()
    counter = SettledCounter(expected)
    began = time.perf_counter()
    with inner_worker(site, counter, connect(site.boxes.resolved.settings), boxes=[f"{OUTBOX}.{STOPPED}"]):
        rate = expected / (counter.wait() - began)
    return CaughtUp(
        expected=expected,
        arrived=len(Witness.ids),
        repeated=Witness.repeated,
        reordered=Witness.reordered,
        rate=rate,
    )
