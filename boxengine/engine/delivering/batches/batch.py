"""One batch: claim, admit, send, settle, report.

All of it is one transaction of the store. The claim takes the buckets' locks in the database and reads their due rows;
the transports are called while it is open; all outcomes are written and committed at its end. A crash anywhere before the
commit undoes everything but what the transports have taken already: those items go out once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.domain.outcome import Settlement
from boxengine.engine.delivering.batches.admission import Admission, Admitted
from boxengine.engine.delivering.batches.kept_back import KeptBackItems
from boxengine.engine.delivering.batches.order import OrderWatch
from boxengine.engine.delivering.batches.recording import Recording
from boxengine.engine.delivering.batches.remembered import Remembered
from boxengine.engine.delivering.batches.reporting import report
from boxengine.engine.delivering.calls.deadline import Deadline
from boxengine.engine.delivering.calls.middleware import Passage
from boxengine.engine.delivering.calls.pipeline import Middlewares
from boxengine.engine.delivering.calls.sending import Sending
from boxengine.engine.delivering.calls.sent import Failed, Sent
from boxengine.engine.delivering.calls.transports import Routes
from boxengine.engine.delivering.calls.undoing import Undo
from boxengine.engine.delivering.calls.watch import Watch
from boxengine.engine.delivering.care import ENDED
from boxengine.engine.delivering.receivers.circuits import FREE, Circuits
from boxengine.engine.delivering.receivers.detour import Course, Detour, Passed, in_front, nothing_behind
from boxengine.engine.delivering.work import Errand, Report
from boxengine.errors import TransactionLost, Unavailable
from boxengine.ports import Claim, Claims, Clock, RememberedFailure, events

PROBE_ROWS = 10
"""Rows of a batch that finds out whether a receiver is back."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What batch middlewares see."""

    box: Box
    items: Sequence[Item]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the batches of one box are made with."""

    box: Box
    claims: Claims[Claim]
    routes: Routes
    circuits: Circuits
    detour: Detour
    middlewares: Middlewares
    admission: Admission
    recording: Recording
    remembered: Remembered
    kept_back: KeptBackItems
    order: OrderWatch | None
    watch: Watch
    clock: Clock
    paused: Callable[[Box], bool]
    flush_after: float
    """Seconds after which a batch records what it has and sends no further item or wave, so that a crash repeats little."""


@dataclass(frozen=True, slots=True)
class Handled:
    """How a batch has ended, before its outcomes are recorded."""

    settlement: Settlement = field(default_factory=Settlement)
    sent: Sent | None = None
    """None: nothing was to be sent."""
    sending: float = 0.0
    """Seconds that the transports took."""
    recalled: Mapping[ItemId, RememberedFailure] = field(default_factory=dict)
    """By item, failures that were remembered outside the database."""
    kept_back: Sequence[Item] = ()
    """Items whose middleware did not call ``call_next()``."""
    passed: Sequence[Passed] = ()
    """Of each bucket the first items, if the next batch may read on behind them."""
    broken: BaseException | None = None
    """Why nothing may be recorded at all."""
    at_rest: bool = False
    """Whether items were left out because the database refused their outcomes."""


class Batches:
    """Runs the batches of one box, one after the other in each thread; keeps nothing of them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._box = parts.box

    def run(self, errand: Errand) -> Report:
        """See ``Work.run``."""
        parts = self._parts
        entry, sent = parts.circuits.enter(), None
        if entry.shut:
            # No look at the database either: it could only be told that nothing happened.
            return Report(claimed=0, progressed=False, unreachable=entry.refused)
        course = parts.detour.course(errand, entry)
        began = parts.clock.monotonic()
        rows = min(PROBE_ROWS, errand.rows) if entry.probes else errand.rows
        try:
            with parts.claims.open(course.positions, rows) as claim:
                if not claim.items:
                    empty = report(self._box, claim, Settlement(), errand.positions, None)
                    return nothing_behind(empty, course) if course.behind else empty
                with parts.watch.tracer.processing(self._box, claim.items):
                    handled = self._handle(claim, course)
                    sent = handled.sent
                    if handled.broken is not None:
                        raise handled.broken
                    recorded = parts.recording.commit(claim, handled.settlement)
        finally:
            parts.circuits.leave(entry, sent)
        goes_on = entry is not FREE and self._goes_on(course, handled)
        if sent is not None and sent.in_conflict:
            parts.recording.undone(sent.in_conflict)
            goes_on = True  # whoever was in the way is mostly done by now
        self._tell(claim.items, handled, recorded, seconds=parts.clock.monotonic() - began)
        return report(
            self._box,
            claim,
            recorded,
            errand.positions,
            sent,
            sending=handled.sending,
            goes_on=goes_on,
            at_rest=handled.at_rest,
        )

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _handle(self, claim: Claim, course: Course) -> Handled:
        """All that is done with the items, through the batch middlewares where there are any."""
        middlewares = self._parts.middlewares.batch_process
        if not middlewares:
            return self._process(claim, course)
        process = partial(self._process, claim, course)
        passage = _BatchPassage(middlewares, lambda _batch: process(), Batch(self._box, list(claim.items)))
        with suppress(Undo), claim.savepoint() if self._parts.routes.in_session else nullcontext():
            passage.run()
            if passage.problem is not None:
                raise Undo
        handled: Handled | None = passage.answer
        if passage.problem is None:
            return Handled(kept_back=claim.items) if handled is None else handled
        if handled is None or isinstance(passage.problem, Unavailable):
            # Nothing was sent, or it is no item's fault.
            return Handled(sent=None if handled is None else handled.sent, broken=passage.error)
        return self._taken_back(handled, claim.items, passage.problem)

    def _process(self, claim: Claim, course: Course) -> Handled:
        parts = self._parts
        condemned = course.errand.caution.condemned(claim.items)
        if condemned:
            return self._given_up(condemned, claim)
        admitted = parts.admission.admit(claim, number=course.errand.number)
        sending = self._sending(claim, course, admitted)
        began = parts.clock.monotonic()
        try:
            sent = sending.send(admitted.items)
        except TransactionLost as lost:
            parts.recording.lost(lost.item_ids)
            raise
        seconds = parts.clock.monotonic() - began
        failed = parts.recording.attempts(admitted.failed, now=claim.now) if admitted.failed else []
        if sent.failed:
            failed += parts.recording.attempts(sent.failed, now=parts.clock.now())
        settlement = Settlement(list(sent.delivered), list(admitted.discarded), failed)
        passed = self._passed(claim, admitted, settlement, sending, sent) if course.passing else ()
        return Handled(settlement, sent, seconds, admitted.recalled, sent.kept_back, passed, at_rest=admitted.at_rest)

    def _sending(self, claim: Claim, course: Course, admitted: Admitted) -> Sending:
        parts = self._parts
        sending = Sending(
            claim,
            parts.routes,
            middlewares=parts.middlewares.item_process,
            coroutines=parts.middlewares.item_coroutines,
            strict_order=self._box.strict_order,
            deadline=Deadline(
                course.errand,
                self._box,
                flush_after=parts.flush_after,
                monotonic=parts.clock.monotonic,
                paused=parts.paused,
            ),
            watch=parts.watch,
            refused=course.entry.refused,
        )
        sending.hold_back(failure.item for failure in admitted.failed)
        if course.behind:
            free = [item for item in admitted.items if item.bucket in course.behind and not sending.refusing(item)]
            if free:
                sending.hold_back_keys(claim.waiting_keys(free, course.behind))
        return sending

    def _passed(
        self, claim: Claim, admitted: Admitted, settlement: Settlement, sending: Sending, sent: Sent
    ) -> Sequence[Passed]:
        """Of each bucket the first items, as far as they have outcomes, or wait for receivers that are away. They step aside."""
        settled, to_be_sent = set(settlement.ids), {item.id for item in admitted.items}
        # For lack of time, or for a receiver whose circuit is not open: the next batch is to send them.
        put_off = {item.id for item in sent.waiting}.difference(item.id for item in sent.kept_back)
        unordered = self._box.strict_order is StrictOrder.NONE

        def judge(item: Item) -> Passed | None:
            if item.id in settled:
                return Passed(item, ())
            waits_for = sending.refusing(item)
            skipped = unordered and item.id not in to_be_sent  # by a strategy, or it rests
            follows = sending.stops(item) and item.id not in put_off
            return Passed(item, waits_for) if waits_for or skipped or follows else None

        passed = in_front(claim.items, judge)
        settlement.aside = [item.id for item, _ in passed if item.id not in settled]
        return passed

    def _goes_on(self, course: Course, handled: Handled) -> bool:
        """Whether the next batch reads on behind items that wait, or leads past those that this one has tried in vain."""
        detour, sent = self._parts.detour, handled.sent
        if handled.passed:
            return detour.went(course, handled.passed)
        return sent is not None and bool(course.entry.probes) and detour.leads_past(course.entry, sent.unreachable)

    def _given_up(self, items: Sequence[Item], claim: Claim) -> Handled:
        """These have ended workers. They have failed for good; under strict order by bucket it counts as an attempt."""
        recording, failures = self._parts.recording, [Failed(item, ENDED, "worker") for item in items]
        if self._box.strict_order is StrictOrder.BUCKET:
            return Handled(Settlement(failed=recording.attempts(failures, now=claim.now)))
        return Handled(Settlement(failed=recording.last_attempts(failures, now=claim.now)))

    def _taken_back(self, handled: Handled, items: Sequence[Item], problem: object) -> Handled:
        """A middleware failed after the transports: their deliveries are failed attempts, and their writes are undone."""
        settlement, taken = handled.settlement, frozenset(handled.settlement.delivered)
        failures = [Failed(item, problem, "batch middleware") for item in items if item.id in taken]
        attempts = self._parts.recording.attempts(failures, now=self._parts.clock.now())
        return replace(handled, settlement=replace(settlement, delivered=[], failed=[*settlement.failed, *attempts]))

    def _tell(self, items: Sequence[Item], handled: Handled, recorded: Settlement, *, seconds: float) -> None:
        parts = self._parts
        if handled.kept_back:
            parts.kept_back.tell(handled.kept_back)
        if handled.recalled:
            parts.remembered.forget(handled.recalled, items, recorded)
        raised = {} if handled.sent is None else handled.sent.raised
        kept_back = handled.kept_back
        parts.watch.observer.see(
            events.Settled(self._box, items, recorded, seconds=seconds, raised=raised, kept_back=kept_back)
        )
        if parts.order is not None:
            parts.order.delivered(items, recorded.delivered)


class _BatchPassage(Passage):
    """Its innermost call returns the engine's own value; middlewares are shown nothing of it."""

    __slots__ = ()

    def enter(self, depth: int) -> Any:
        said = super().enter(depth)
        return None if isinstance(said, Handled) else said
