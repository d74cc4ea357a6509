"""Delivers what is due at once, with the worker's own engine, in the test's thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.failures import MemoryFailures
from boxengine.adapters.memory.rows import Row
from boxengine.adapters.sql.sessions.async_session import lend
from boxengine.domain.box import Box
from boxengine.domain.item import Item, Status
from boxengine.domain.item_id import ItemId
from boxengine.engine.attempt import ends_the_worker, reason_of
from boxengine.engine.awaiting.event_loop import EventLoop
from boxengine.engine.awaiting.wrapping import Awaiting
from boxengine.engine.delivering.batches.delivery import Delivery
from boxengine.engine.delivering.calls.pipeline import Middlewares, Pipeline
from boxengine.engine.delivering.holds.sizing import ROWS
from boxengine.engine.delivering.work import Errand, Report
from boxengine.engine.observation import NullTracer
from boxengine.errors import Unavailable
from boxengine.ports import Store
from boxengine.ports.events import Event, Settled
from boxengine.testing.clock import present
from boxengine.testing.emitted import describe

FOREVER = float("inf")
MOST_ROUNDS = 1_000
"""A drain gives up after this many rounds: a transport that creates a new item for each delivered one would never end."""
KEPT_BACK = "a middleware did not call call_next(), or did not await it"
_Key: TypeAlias = tuple[str, ItemId]
"""A box's name and an item's id."""


@dataclass(frozen=True, slots=True)
class Endless:
    """The ``Term`` of a drain, which never ends because nobody else competes for the buckets."""

    valid_until: float = FOREVER


@dataclass(frozen=True, slots=True)
class Undelivered:
    """An item that a drain could not deliver, and why."""

    item: Item
    reason: str
    error: BaseException | None = None
    """What the transport raised last, or what stopped the box; None if the transport returned ``False`` or a ``Failure``, or was
    not called."""

    def __str__(self) -> str:
        return f"{describe(self.item)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Drained:
    """What a drain has done."""

    delivered: tuple[Item, ...] = ()
    """In the order of delivery."""
    discarded: tuple[Item, ...] = ()
    undelivered: tuple[Undelivered, ...] = ()
    """Items whose last attempt failed, which are retried later or have failed for good; those that a middleware kept back; and
    those that are due in a box that is left alone, because a receiver cannot be reached or a batch middleware failed."""


class NotDelivered(AssertionError):
    """A drain could not deliver some items, and no transport raised: they returned ``False`` or a ``Failure``, or a middleware
    kept the items back."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a box is left alone for the rest of a drain. Its items stay as they were, and no attempt counts."""

    reason: str
    error: BaseException

    @classmethod
    def unreachable(cls, transports: Mapping[str, Unavailable]) -> Stop:
        """The receivers of these transports cannot be reached."""
        reason = "; ".join(f"{name} cannot be reached: {reason_of(why)}" for name, why in transports.items())
        return cls(reason, next(iter(transports.values())))


class Log:
    """Keeps what the engine reports about the batches of all boxes."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets everything, for the next drain."""
        self._delivered: dict[_Key, Item] = {}
        self._discarded: dict[_Key, Item] = {}
        self._undelivered: dict[_Key, Undelivered] = {}
        self.stopped: dict[str, Stop] = {}
        """The boxes that are left alone from now on."""

    def see(self, event: Event) -> None:
        """See ``Observer.see``."""
        if not isinstance(event, Settled):
            return
        box, settlement, by_id = event.box.name, event.settlement, {item.id: item for item in event.items}
        discarded = [discard.id for discard in settlement.discarded]
        for ids, kept in ((settlement.delivered, self._delivered), (discarded, self._discarded)):
            for item_id in ids:
                kept[box, item_id] = by_id[item_id]
                self._undelivered.pop((box, item_id), None)
        for attempt in settlement.failed:
            reason, error = attempt.error_log.partition("\n")[0], event.raised.get(attempt.id)
            self._undelivered[box, attempt.id] = Undelivered(by_id[attempt.id], reason, error)
        for item in event.kept_back:
            self._undelivered[box, item.id] = Undelivered(item, KEPT_BACK)

    def not_reached(self, box: str, items: Sequence[Item]) -> None:
        """These items of a box that was stopped are still due."""
        stop = self.stopped[box]
        for item in items:
            self._undelivered.setdefault((box, item.id), Undelivered(item, stop.reason, stop.error))

    def drained(self) -> Drained:
        """Everything since ``clear``."""
        return Drained(
            delivered=tuple(self._delivered.values()),
            discarded=tuple(self._discarded.values()),
            undelivered=tuple(self._undelivered.values()),
        )


class Around:
    """A batch middleware outside of all others and one inside of them: they tell whether those between them stopped a batch."""

    def __init__(self) -> None:
        self.stopped = False
        """Whether one of the others did not let the last batch in, or raised after it."""
        self._inside_failed = self._went_in = False

    def around(self, middlewares: Middlewares) -> Middlewares:
        """The middlewares, watched."""
        if not middlewares.batch_process:
            return middlewares
        return replace(middlewares, batch_process=(self._outermost, *middlewares.batch_process, self._innermost))

    def _outermost(self, _batch: object, call_next: Callable[[], Any]) -> Any:
        self.stopped, self._went_in, self._inside_failed = True, False, False
        try:
            said = call_next()
        except BaseException:
            self.stopped = not self._inside_failed
            raise
        self.stopped = not self._went_in
        return said

    def _innermost(self, _batch: object, call_next: Callable[[], Any]) -> Any:
        self._went_in, self._inside_failed = True, True
        said = call_next()
        self._inside_failed = False
        return said


class Drain:
    """Drains one box. Its transports live as long as it does."""

    def __init__(
        self, pipeline: Pipeline, *, middlewares: Middlewares, store: Store, clock: ManualClock, log: Log
    ) -> None:
        self._box = pipeline.box
        self._log = log
        self._event_loop = EventLoop()
        self._around = Around()
        awaiting = Awaiting(self._event_loop, lend=lend, clock=clock)
        self._delivery = Delivery(
            awaiting.pipeline(pipeline),
            middlewares=self._around.around(awaiting.middlewares(middlewares)),
            store=store,
            memory=MemoryFailures(clock=clock),
            observer=log,
            tracer=NullTracer(),
            clock=clock,
            error_tracker=lambda _error, /, **_context: None,
        )

    def deliver_what_is_due(self) -> bool:
        """Delivers until nothing is due, or the box must be left alone; returns whether that changed anything.

        Raises:
            NotDelivered: there is no end to it.
        """
        for batches in range(MOST_ROUNDS):
            report = self._deliver_batch()
            progressed = report is not None and report.claimed > 0 and report.progressed
            if self._box.name in self._log.stopped or not progressed:
                return progressed or batches > 0
        raise NotDelivered(
            f"box {self._box.name}: still not empty after {MOST_ROUNDS} batches; does a transport feed it?"
        )

    def close(self) -> None:
        """Lets the transports free what they hold."""
        self._delivery.close()
        self._event_loop.close()

    def _deliver_batch(self) -> Report | None:
        """None: a batch middleware stopped it, which a worker reports as an outage of the box."""
        buckets, name = dict.fromkeys(self._box.buckets), self._box.name
        self._around.stopped = False
        try:
            report = self._delivery.run(Errand(positions=buckets, rows=ROWS, until=FOREVER, term=Endless()))
        except BaseException as error:
            if not self._around.stopped or ends_the_worker(error):
                raise
            self._log.stopped[name] = Stop(f"a batch middleware failed: {reason_of(error)}", error)
            return None
        if report.unreachable:
            self._log.stopped[name] = Stop.unreachable(report.unreachable)
        return report


def due_items(box: Box, rows: Sequence[Row], *, now: datetime) -> list[Item]:
    """The items of the box that could be delivered now."""
    due = [row for row in rows if row.status == Status.PENDING and (_due(box, row) or now) <= now]
    return [row.as_item(box, dispatched_at=now) for row in due]


@dataclass(frozen=True, slots=True)
class Horizon:
    """Until when a drain delivers."""

    retried: datetime
    """Items that wait for a pause to pass."""
    delayed: datetime
    """Items that wait for their ``available_at``, which the application may have taken from the real clock."""


def horizon(until: datetime | timedelta | None, clock: ManualClock) -> Horizon:
    """``until`` as moments; None: the present."""
    if isinstance(until, datetime) and until.tzinfo is not None:
        return Horizon(until, until)
    if until is not None and not isinstance(until, timedelta):
        raise TypeError(
            f"until takes a timedelta, such as timedelta(hours=1), or a datetime with a zone, not {until!r:.80}"
        )
    span = until or timedelta(0)
    return Horizon(clock.now() + span, present(clock) + span)


def next_due(box: Box, rows: Sequence[Row], *, now: datetime, until: Horizon) -> datetime | None:
    """When the next pending row of the box comes due, if that is in the future and not after ``until``."""
    moments = [(_due(box, row), row.available_at) for row in rows if row.status == Status.PENDING]
    return min(
        (
            due
            for due, available_at in moments
            if due is not None and now < due <= (until.delayed if due == available_at else until.retried)
        ),
        default=None,
    )


def come(rows: Sequence[Row], *, by: datetime) -> datetime | None:
    """The last ``available_at`` of pending rows that has come by this moment."""
    moments = [row.available_at for row in rows if row.status == Status.PENDING and row.available_at is not None]
    return max((moment for moment in moments if moment <= by), default=None)


def _due(box: Box, row: Row) -> datetime | None:
    moments = [row.available_at] if row.available_at is not None else []
    if box.backoff is not None and row.processed_at is not None:
        moments.append(row.processed_at + box.backoff.pause(row.errors_count, row.id))
    return max(moments, default=None)


def insist(drained: Drained) -> None:
    """Raises the first error that an item is undelivered for, with a note that names the items.

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
