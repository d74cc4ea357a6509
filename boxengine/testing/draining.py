"""Delivers what is due at once, with the worker's own engine, in the test's thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.failures import MemoryFailures
from boxengine.adapters.memory.rows import Row
from boxengine.adapters.sql.sessions.async_session import lend
from boxengine.domain.box import Box
from boxengine.domain.item import Item, Status
from boxengine.domain.item_id import ItemId
from boxengine.engine.awaiting.event_loop import EventLoop
from boxengine.engine.awaiting.wrapping import Awaiting
from boxengine.engine.delivering.delivery import Delivery
from boxengine.engine.delivering.pipeline import Middlewares, Pipeline
from boxengine.engine.delivering.sizing import ROWS
from boxengine.engine.delivering.work import Errand
from boxengine.engine.observation import NullTracer
from boxengine.ports import Store
from boxengine.ports.events import Event, Settled
from boxengine.testing.emitted import describe

FOREVER = float("inf")
MOST_ROUNDS = 1_000
"""A drain gives up after this many rounds: a transport that creates a new item for each delivered one would never end."""
_Key: TypeAlias = tuple[str, ItemId]
"""A box's name and an item's id."""


@dataclass(frozen=True, slots=True)
class Endless:
    """The ``Term`` of a drain, which never ends because nobody else competes for the buckets."""

    valid_until: float = FOREVER


@dataclass(frozen=True, slots=True)
class Undelivered:
    """An item that a drain tried and could not deliver, and why."""

    item: Item
    reason: str
    error: BaseException | None = None
    """What the transport raised last; None if it returned ``False`` or a ``Failure``."""

    def __str__(self) -> str:
        return f"{describe(self.item)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Drained:
    """What a drain has done."""

    delivered: tuple[Item, ...] = ()
    """In the order of delivery."""
    discarded: tuple[Item, ...] = ()
    undelivered: tuple[Undelivered, ...] = ()
    """Items whose last attempt failed; they are retried later, or have failed for good."""


class NotDelivered(AssertionError):
    """A drain could not deliver some items, and no transport raised: they returned ``False`` or a ``Failure``."""


class Log(NullTracer):
    """Keeps what the engine reports about the batches of all boxes, and sees what transports raise before the engine turns it
    into a failed attempt."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets everything, for the next drain."""
        self._delivered: dict[_Key, Item] = {}
        self._discarded: dict[_Key, Item] = {}
        self._failed: dict[_Key, tuple[Item, str]] = {}
        self._raised: dict[_Key, BaseException] = {}

    def see(self, event: Event) -> None:
        if not isinstance(event, Settled):
            return
        box, settlement, by_id = event.box.name, event.settlement, {item.id: item for item in event.items}
        discarded = [discard.id for discard in settlement.discarded]
        for ids, kept in ((settlement.delivered, self._delivered), (discarded, self._discarded)):
            for item_id in ids:
                kept[box, item_id] = by_id[item_id]
                self._failed.pop((box, item_id), None)
        for attempt in settlement.failed:
            self._failed[box, attempt.id] = by_id[attempt.id], attempt.error_log

    @contextmanager
    def sending(self, box: Box, transport: str, items: Sequence[Item]) -> Iterator[None]:  # noqa: ARG002 - the port's shape
        try:
            yield
        except BaseException as error:
            self._raised.update(((box.name, item.id), error) for item in items)
            raise
        for item in items:
            self._raised.pop((box.name, item.id), None)

    def drained(self) -> Drained:
        """Everything since ``clear``."""
        return Drained(
            delivered=tuple(self._delivered.values()),
            discarded=tuple(self._discarded.values()),
            undelivered=tuple(
                Undelivered(item, reason.partition("\n")[0], self._raised.get(key))
                for key, (item, reason) in self._failed.items()
            ),
        )


class Drain:
    """Drains one box. Its transports live as long as it does."""

    def __init__(
        self, pipeline: Pipeline, *, middlewares: Middlewares, store: Store, clock: ManualClock, log: Log
    ) -> None:
        self._box = pipeline.box
        self._store = store
        self._clock = clock
        self._event_loop = EventLoop()
        awaiting = Awaiting(self._event_loop, lend=lend, clock=clock)
        self._delivery = Delivery(
            awaiting.pipeline(pipeline),
            middlewares=awaiting.middlewares(middlewares),
            store=store,
            memory=MemoryFailures(clock=clock),
            observer=log,
            tracer=log,
            clock=clock,
            error_tracker=lambda _error, /, **_context: None,
        )

    def deliver_what_is_due(self) -> bool:
        """Delivers until nothing is due; returns whether that changed anything.

        Raises:
            NotDelivered: there is no end to it.
            Unavailable: a transport said that its receiver cannot be reached.
        """
        for batches in range(MOST_ROUNDS):
            if not self._deliver_batch():
                return batches > 0
        raise NotDelivered(
            f"box {self._box.name}: still not empty after {MOST_ROUNDS} batches; does a transport feed it?"
        )

    def close(self) -> None:
        """Lets the transports free what they hold."""
        self._delivery.close()
        self._event_loop.close()

    def _deliver_batch(self) -> bool:
        """Delivers one batch; returns whether it changed anything."""
        buckets = dict.fromkeys(self._box.buckets)
        report = self._delivery.run(Errand(positions=buckets, rows=ROWS, until=FOREVER, term=Endless()))
        for error in report.unreachable.values():
            raise error
        return report.claimed > 0 and report.progressed


def next_due(box: Box, rows: Sequence[Row], *, now: datetime, until: datetime) -> datetime | None:
    """When the next pending row of the box comes due, if that is in the future and not after ``until``."""
    moments = [moment for row in rows if row.status == Status.PENDING and (moment := _due(box, row)) is not None]
    return min((moment for moment in moments if now < moment <= until), default=None)


def _due(box: Box, row: Row) -> datetime | None:
    moments = [row.available_at] if row.available_at is not None else []
    if box.backoff is not None and row.processed_at is not None:
        moments.append(row.processed_at + box.backoff.pause(row.errors_count, row.id))
    return max(moments, default=None)


def insist(drained: Drained) -> None:
    """Raises what the first undelivered item's transport raised, with a note that names the item.

    Raises:
        NotDelivered: nothing was raised, but items are undelivered.
    """
    if not drained.undelivered:
        return
    raising = next((each for each in drained.undelivered if each.error is not None), None)
    lines = "\n".join(map(str, drained.undelivered))
    if raising is None or raising.error is None:
        raise NotDelivered(f"{len(drained.undelivered)} not delivered:\n{lines}")
    raising.error.add_note(f"not delivered:\n{lines}")
    raise raising.error


def horizon(until: datetime | timedelta | None, clock: ManualClock) -> datetime | None:
    """``until`` as a moment."""
    return clock.now() + until if isinstance(until, timedelta) else until
