"""What happens, as log lines."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from boxengine.adapters.telemetry.job_logs import log_jobs
from boxengine.adapters.telemetry.logs import logger
from boxengine.adapters.telemetry.tags import Work, safe
from boxengine.domain.box import Box
from boxengine.domain.item import Item, Status, rfc3339
from boxengine.domain.outcome import Settlement
from boxengine.ports import events
from boxengine.ports.jobs import JobEnded, JobLoad, JobsLeft, JobsReaped

_SETTLED = 10.0
"""Seconds after which an outage is told again if its reason is another one; a server that restarts gives several at first."""
_MOST_REASONS = 5
"""How many reasons of one outage are told. Some texts differ at each try."""
_MOST_NAMES = 5
"""How many are named of those that do not work yet, and of tables that somebody has locked."""


class LogObserver:
    """Logs what a person would want to read: batches at debug, failures at warning, outages once."""

    def __init__(self, *, most_items: int = 5) -> None:
        """``most_items``: how many items of one batch get a line of their own; the others are counted."""
        self._most_items = most_items
        self._lock = threading.Lock()
        self._outages: dict[str, list[str]] = {}
        """What does not work, by reason; only the first of each reason has been logged."""
        self._reasons: dict[str, set[str]] = {}
        """Those of each outage that have been met and told."""
        self._told: set[str] = set()
        """What has a line that says that it does not work."""
        self._next_end: dict[str, int] = {}
        """By reason, how few may be left when the next end is told."""
        self._held_back: set[tuple[str, str]] = set()
        """Boxes of which a poll was held back, each with the reason: it may be meant, so it is logged once."""

    def see(self, event: events.Event) -> None:  # noqa: C901, PLR0912 - one branch for each event that is told
        match event:
            case events.CircuitChanged():
                self._circuit_changed(event)
            case events.Settled():
                self._settled(event)
            case events.DiscardedByHand():
                self._discarded_by_hand(event)
            case events.OrderViolated():
                self._order_violated(event)
            case events.KeptBack():
                self._kept_back(event)
            case events.FetchFailed(box=box):
                # At debug: every try reports it, while the outage behind it is logged once, as an outage.
                logger.debug("items could not be read or recorded: %s", event.reason, extra={"box": box.name})
            case events.RetentionHeld():
                self._retention_held(event)
            case events.ForeignJobs():
                self._foreign_jobs(event)
            case events.NamesTwice():
                self._names_twice(event)
            case events.Deleted(box=box):
                logger.debug("retention deleted %d rows in %.3f s", event.rows, event.seconds, extra={"box": box.name})
            case events.OutageBegan():
                self._outage_began(event)
            case events.OutageLasts():
                self._outage_lasts(event)
            case events.OutageEnded():
                self._outage_ended(event)
            case events.CoordinatorSlow(seconds=seconds, lease=lease):
                told = "Redis: answers after %.1f s; leases last %.0f s, so the buckets of a worker that dies wait that long"
                logger.warning(told, seconds, lease.total_seconds())
            case events.CoordinatorQuick(seconds=seconds, lease=lease):
                told = "Redis: answers after %.1f s again; leases last %.0f s"
                logger.info(told, seconds, lease.total_seconds())
            case events.Throttled(box=box, held_back=str() as held_back):
                self._poll_held_back(box, held_back)
            case JobEnded() | JobsReaped() | JobsLeft() | JobLoad():
                log_jobs(event)
            case _:
                pass  # numbers, which metrics show

    def _circuit_changed(self, event: events.CircuitChanged) -> None:
        circuit, tags = event.circuit, {"box": event.box.name, "transport": event.transport}
        if circuit is None:
            logger.info("circuit closed: items go out again", extra=tags)
        else:
            when = "when it comes back" if circuit.next_try is None else f"after {rfc3339(circuit.next_try)}"
            logger.warning("circuit open: %s; next try %s", circuit.reason, when, extra=tags)

    def _settled(self, event: events.Settled) -> None:
        box, items, settlement = event.box, event.items, event.settlement
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "batch settled: %d delivered, %d failed, %d discarded of %d in %.3f s",
                len(settlement.delivered),
                len(settlement.failed),
                len(settlement.discarded),
                len(items),
                event.seconds,
                extra={"box": box.name},
            )
        if settlement.failed:
            self._failures(box, items, settlement)
        if settlement.discarded:
            self._discards(box, items, settlement)

    def _discarded_by_hand(self, event: events.DiscardedByHand) -> None:
        shown, tags = ", ".join(map(str, sorted(event.ids)[: self._most_items])), {"box": event.box.name}
        if len(event.ids) == 1:
            logger.warning("item %s discarded by hand", shown, extra=tags)
        else:
            logger.warning("%d items discarded by hand, the first: %s", len(event.ids), shown, extra=tags)

    def _order_violated(self, event: events.OrderViolated) -> None:
        self._warn_of(
            event.box,
            event.items,
            one="item %s of key %s was delivered after a later one of its key: ",
            many="%d items were delivered after a later one of their key, the first is item %s of key %s: ",
            advice="are writers of one key serialised? (docs/databases.md)",
        )

    def _kept_back(self, event: events.KeptBack) -> None:
        self._warn_of(
            event.box,
            event.items,
            one="a middleware did not call call_next() for item %s of key %s, which stays pending",
            many="a middleware did not call call_next() for %d items: they stay pending, the first is item %s of key %s",
            advice="; an async def middleware has to await it",
        )

    def _warn_of(self, box: Box, items: Sequence[Item], *, one: str, many: str, advice: str) -> None:
        first = items[0]
        tags = _tags_of(box, first.id, first)
        if len(items) == 1:
            logger.warning(one + advice, first.id, first.event_key, extra=tags)
        else:
            logger.warning(many + advice, len(items), first.id, first.event_key, extra=tags)

    def _retention_held(self, event: events.RetentionHeld) -> None:
        box, limit = event.box, event.box.retention.at_most
        logger.warning(
            "this subscription holds back retention: it has not delivered an item of %s, which is %s old%s",
            box.source.name,
            event.age,
            "" if limit is None else f"; those older than {limit} are deleted undelivered (retain_at_most)",
            extra={"box": box.name},
        )

    def _foreign_jobs(self, event: events.ForeignJobs) -> None:
        shown, tags = event.elements[0][:80].decode(errors="backslashreplace"), {"box": event.box.name}
        if len(event.elements) == 1:
            logger.warning("the queue held an element that is not a job of this box; dropped it: %r", shown, extra=tags)
        else:
            text = "the queue held %d elements that are not jobs of this box; dropped them, the first: %r"
            logger.warning(text, len(event.elements), shown, extra=tags)

    def _names_twice(self, event: events.NamesTwice) -> None:
        logger.warning(
            "worker %s on host %s uses the same Redis for boxes of these names in another database: %s. Each takes the "
            "other's jobs, leases and pauses; give each database a redis.prefix of its own",
            event.worker.pid,
            event.worker.host,
            ", ".join(event.boxes),
        )

    def _poll_held_back(self, box: Box, reason: str) -> None:
        with self._lock:
            if (box.name, reason) in self._held_back:
                return
            self._held_back.add((box.name, reason))
        logger.warning(
            "%s: items wait until it lets a poll through; an async def middleware has to await it",
            reason,
            extra={"box": box.name},
        )

    def _outage_began(self, event: events.OutageBegan) -> None:
        with self._lock:
            met = self._outages.setdefault(event.reason, [])
            met.append(event.what)
            self._reasons[event.what] = {event.reason}
            if len(met) > (_MOST_NAMES if event.apart else 1):
                return  # a server that is down stops several loops, but is logged once
            self._told.add(event.what)
        logger.warning("%s does not work; retrying with growing pauses: %s", event.what, event.reason)

    def _outage_lasts(self, event: events.OutageLasts) -> None:
        """Tells of a reason that was not the first: a connection that is cut off, say, by what then refuses the next one."""
        what, reason = event.what, event.reason
        if reason is None or event.seconds < _SETTLED:
            return
        with self._lock:
            told = self._reasons.get(what, set())
            before = next((each for each, met in self._outages.items() if what in met), None)
            if before is None or reason in told or len(told) >= _MOST_REASONS:
                return
            told.add(reason)
            left = self._without(what, before)
            if left:
                # Perhaps none of them has a line: whichever works first gets one.
                self._next_end.setdefault(before, len(left))
            met = self._outages.setdefault(reason, [])
            met.append(what)
            if len(met) > 1:
                return
            self._told.add(what)
        logger.warning("%s still does not work: %s", what, reason)

    def _outage_ended(self, event: events.OutageEnded) -> None:
        """Tells of an end whenever half of what stopped for one reason works again: with hundreds of boxes, a server that is back
        would otherwise have a line for each, with the names of all others."""
        what = event.what
        with self._lock:
            reason = next((reason for reason, met in self._outages.items() if what in met), None)
            next_end = -1 if reason is None else self._next_end.get(reason, -1)
            left = [] if reason is None else self._without(what, reason)
            told = reason is None or what in self._told or len(left) <= next_end
            self._told.discard(what)
            self._reasons.pop(what, None)
            if told and reason is not None and left:
                self._next_end[reason] = len(left) // 2
        if told:
            end = "works again" if event.works else "has nothing left to do"
            logger.info("%s %s, after %.1f s%s", what, end, event.seconds, f"; not yet: {_named(left)}" if left else "")

    def _without(self, what: str, reason: str) -> list[str]:
        """What else does not work for this reason; forgets the reason if nothing is left."""
        left = self._outages[reason]
        left.remove(what)
        if not left:
            del self._outages[reason]
            self._next_end.pop(reason, None)
        return list(left)

    def _discards(self, box: Box, items: Sequence[Item], settlement: Settlement) -> None:
        by_id = {item.id: item for item in items}
        for discard in settlement.discarded[: self._most_items]:
            reason = discard.error_log.partition("\n")[0].partition(" ")[2][:300]
            tags = _tags_of(box, discard.id, by_id.get(discard.id)) | {"cause": str(discard.cause)}
            logger.warning("item %s", reason, extra=tags)
        more = len(settlement.discarded) - self._most_items
        if more > 0:
            logger.warning("%d more items of this batch discarded", more, extra={"box": box.name})

    def _failures(self, box: Box, items: Sequence[Item], settlement: Settlement) -> None:
        by_id = {item.id: item for item in items}
        for attempt in settlement.failed[: self._most_items]:
            outcome = "failed for good" if attempt.status is Status.FAILED else "will be tried again"
            logger.warning(
                "item %s (attempt %d): %s",
                outcome,
                attempt.errors_count,
                attempt.error_log.strip().partition("\n")[0][:300],
                extra=_tags_of(box, attempt.id, by_id.get(attempt.id)),
            )
        more = len(settlement.failed) - self._most_items
        if more > 0:
            logger.warning("%d more items of this batch failed", more, extra={"box": box.name})


def _named(what: Sequence[str]) -> str:
    more = len(what) - _MOST_NAMES
    return ", ".join(what[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _tags_of(box: Box, item_id: int, item: Item | None) -> dict[str, object]:
    """Those of a line of the item's own: the trace is that of its creation, whatever others are in its batch."""
    tags = {safe(name): value for name, value in Work(box, item=item).tags.items() if value is not None}
    return {**tags, "item": item_id}
