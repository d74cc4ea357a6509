"""The heart: one batch of one box, from the buckets' locks to the committed outcomes.

One transaction: take the buckets' locks in the database, read their due rows, ask the retry strategies about those
tried before, send, write all outcomes, commit. A crash anywhere in between undoes everything but what the transport
already took; those items go out once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, cast

from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Discard, DiscardCause, FailedAttempt, Settlement, Unrecorded, Verdict
from boxengine.engine.answers import discard, failed, refusal
from boxengine.engine.attempt import discard_log, ends_the_worker, error_log, reason_of
from boxengine.engine.delivering.care import ENDED, Caution
from boxengine.engine.delivering.circuits import Circuits, Entry
from boxengine.engine.delivering.kept_back import KeptBack
from boxengine.engine.delivering.middleware import Passage
from boxengine.engine.delivering.order import OrderWatch
from boxengine.engine.delivering.pipeline import Middlewares, Pipeline
from boxengine.engine.delivering.resting import Resting
from boxengine.engine.delivering.sending import Sending, Watch
from boxengine.engine.delivering.sizing import PROBE_ROWS
from boxengine.engine.delivering.time_limit import TimeLimit
from boxengine.engine.delivering.transports import Carrier, Routes
from boxengine.engine.delivering.work import Errand, Report
from boxengine.engine.running.closing import Closing
from boxengine.engine.timing import TIMING
from boxengine.errors import StoreUnavailable, Unavailable
from boxengine.ports import (
    Claim,
    Claims,
    Clock,
    ErrorTracker,
    FailureMemory,
    Observer,
    OpenCircuit,
    RememberedFailure,
    Store,
    Tracer,
)

FLUSH_AFTER = TIMING.flush
"""Seconds after which a batch that sends one by one records what it has, so that a crash repeats little."""
MOST_NAMED = 20
"""Ids in one line of a log."""
_PAYLOAD = itemgetter(Item._fields.index("payload"))
_CREATED_AT = itemgetter(Item._fields.index("raw_created_at"))


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds one batch."""

    flush_after: float = FLUSH_AFTER
    """Seconds."""
    memory_ttl: timedelta = timedelta(minutes=30)
    """How long a failure that the database would not store is remembered elsewhere."""
    new: timedelta = timedelta(seconds=TIMING.new)
    """Items that are younger cannot have failed so: the leases of a batch whose commit failed last longer."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What batch middlewares see."""

    box: Box
    items: Sequence[Item]


class Delivery:
    """Delivers batches of one box. Shared by all processor threads; knows of past batches only which circuits are open."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        middlewares: Middlewares,
        store: Store,
        memory: FailureMemory,
        observer: Observer,
        tracer: Tracer,
        clock: Clock,
        error_tracker: ErrorTracker,
        order: OrderWatch | None = None,
        paused: Callable[[Box], bool] = lambda _box: False,
        limits: Limits = Limits(),
    ) -> None:
        """Makes the box's transports; what their constructors raise comes through.

        Args:
            order: told of what was delivered; None: nobody watches the order.
        paused: asked between any two items whether sending must stop, because somebody has paused the box.
        """
        self.box = pipeline.box
        self._routes = Routes(tuple(Carrier(spec, box=pipeline.box) for spec in pipeline.transports))
        names = dict.fromkeys(carrier.name for carrier in self._routes.carriers)
        self._circuits = Circuits(pipeline.box, names, observer=observer, clock=clock)
        for carrier in self._routes.carriers:
            if carrier.timeout is not None:
                breaker = self._circuits.breaker(carrier.name)
                carrier.limit(
                    TimeLimit(carrier.timeout, name=carrier.name, hanging=breaker.hanging, returned=breaker.returned)
                )
        self._strategies = pipeline.retry_strategies
        plain = not self._routes.in_session and not self._strategies
        # Nothing below asks a plain claim for more: no transport is there to take its session, no strategy to look back.
        opened = store.plain_claims(self.box) if plain else store.claims(self.box)
        self._claims = cast("Claims[Claim]", opened)
        self._middlewares = middlewares
        self._memory = memory
        self._observer = observer
        self._tracer = tracer
        self._clock = clock
        self._track = error_tracker
        self._order = order
        self._paused = paused
        self._kept_back = KeptBack(self.box, observer=observer)
        self._limits = limits
        self._resting = Resting(clock)

    def run(
        self,
        errand: Errand,
    ) -> Report:
        """Claims, sends and settles one batch.

        Raises:
            StoreUnavailable: the database refused; the rows count as pending.
        """
        entry, sent = self._circuits.enter(), list[Sending]()
        if entry.shut:
            # No look at the database either: it could only be told that nothing happened.
            return Report(claimed=0, progressed=False, unreachable=entry.refused)
        try:
            return self._run(errand, entry=entry, sent=sent)
        finally:
            self._circuits.leave(entry, sent[0] if sent else None)

    def open_circuits(self) -> list[OpenCircuit]:
        """The transports that are left alone just now."""
        return self._circuits.open()

    def close(self) -> None:
        """Lets the transports free what they hold."""
        self._routes.close()

    def closings(self) -> list[Closing]:
        """The same, one by one."""
        return [
            Closing(f"transport {carrier.name} of box {self.box.name}", carrier.close)
            for carrier in self._routes.carriers
        ]

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _run(self, errand: Errand, *, entry: Entry, sent: list[Sending]) -> Report:
        limit = min(PROBE_ROWS, errand.rows) if entry.probes else errand.rows
        box, started = self.box, self._clock.monotonic()
        settlement, recalled = Settlement(), dict[int, RememberedFailure]()
        with self._claims.open(errand.positions, limit) as claim:
            items = claim.items
            if items:

                def process(_batch: Batch) -> None:
                    admission = _Admission(box, claim, settlement, recalled)
                    if errand.caution is None or self._is_safe(errand.caution, admission):
                        sent.append(self._process(admission, errand, refused=entry.refused))

                with self._tracer.processing(box, items):
                    if self._middlewares.batch_process:
                        self._process_through_middlewares(claim, settlement, process, sent)
                    else:
                        process(Batch(box, items))
                    self._commit(claim, settlement)
                if sent and sent[0].kept_back:
                    self._kept_back.tell(sent[0].kept_back)
        if recalled:
            self._forget(recalled, items, settlement)
        if items:
            self._observer.settled(box, items, settlement, seconds=self._clock.monotonic() - started)
            if self._order is not None:
                self._order.delivered(items, settlement.delivered)
        report = self._report(claim, settlement, errand.positions)
        return replace(report, unreachable=sent[0].unreachable, reached=sent[0].reached) if sent else report

    def _process_through_middlewares(
        self, claim: Claim, settlement: Settlement, process: Callable[[Batch], None], sent: Sequence[Sending]
    ) -> None:
        """Where a middleware fails after the transports, their deliveries are failed attempts, and their writes undone."""
        passage = Passage(self._middlewares.batch_process, process, Batch(self.box, claim.items))
        with suppress(_Undo), claim.savepoint() if self._routes.in_session else nullcontext():
            passage.run()
            if passage.problem is not None:
                raise _Undo
        if not passage.arrived and passage.problem is None:
            self._kept_back.tell(claim.items)
        elif passage.problem is not None:
            if not sent or isinstance(passage.problem, Unavailable):
                passage.value()  # raises: nothing was sent, or it is no item's fault
            self._take_back(settlement, claim.items, passage.problem)

    def _take_back(self, settlement: Settlement, items: Sequence[Item], problem: object) -> None:
        taken, settlement.delivered = frozenset(settlement.delivered), []
        for item in items:
            if item.id in taken:
                self._record_failure(settlement, item, problem, where="batch middleware", now=self._clock.now())

    def _is_safe(self, caution: Caution, admission: _Admission) -> bool:
        """Whether the one item may be sent. If not, it has failed for good, unless the box knows no such end."""
        (item,) = admission.claim.items
        if not caution.ends_workers(item):
            return True
        final = self.box.strict_order is not StrictOrder.BUCKET
        now = admission.now
        self._record_failure(admission.settlement, item, ENDED, where="worker", now=now, final=final)
        return False

    def _process(
        self,
        admission: _Admission,
        errand: Errand,
        *,
        refused: Mapping[str, Unavailable],
    ) -> Sending:
        claim, settlement = admission.claim, admission.settlement
        items = self._admit(admission, fresh=errand.number == 0)
        monotonic = self._clock.monotonic
        # From here, not from the claim on: slow payload builders must not use up the time in which to send.
        deadline = min(errand.until, monotonic() + self._limits.flush_after)

        def expired(begun: bool) -> bool:  # noqa: FBT001 - called between any two items
            now = monotonic()
            # One item goes out in any case: a cutoff that had passed before the first would let nothing ever be sent.
            return now >= errand.term.valid_until or (begun and now >= deadline) or self._paused(self.box)

        sending = Sending(
            claim,
            self._routes,
            middlewares=self._middlewares.item_process,
            strict_order=self.box.strict_order,
            expired=expired,
            watch=Watch(self.box, self._observer, self._tracer, monotonic),
            refused=refused,
        )
        sending.hold_back(admission.failed)
        sending.send(items)
        settlement.delivered += sending.delivered
        for item, problem, where in sending.failed:
            self._record_failure(settlement, item, problem, where=where, now=self._clock.now())
        return sending

    def _admit(self, admission: _Admission, *, fresh: bool) -> Sequence[Item]:
        """Those of the claimed items that may be sent now, with their payloads."""
        items = admission.claim.items
        if admission.claim.unreadable:
            items = self._refuse_unreadable(admission, items)
        if self._resting:
            items = self._resting.awake(items)
        if not items:
            return items
        tried = [item for item in items if item.processed_at is not None]
        if tried or (fresh and not self._are_new(items, admission.now)):
            items = self._recall(admission, items)
        if tried and self._strategies:
            items = self._ask_strategies(admission, items)
        if self.box.extra_options is not None:
            items = self._extend_options(admission, items)
        if self.box.payload_builder is not None:
            items = self._build_payloads(admission, items)
        return items

    def _refuse_unreadable(self, admission: _Admission, items: Sequence[Item]) -> Sequence[Item]:
        unreadable = admission.claim.unreadable
        for item in items:
            if item.id in unreadable:
                self._refuse(admission, item, unreadable[item.id], where="table")
        return [item for item in items if item.id not in unreadable]

    def _are_new(self, items: Sequence[Item], now: datetime) -> bool:
        """Whether none of them can have been tried, which spares fresh items a round trip."""
        oldest, newest = min(items, key=_CREATED_AT), max(items, key=_CREATED_AT)
        # A writer's clock may be a little ahead of the database's.
        return all(abs(now - item.created_at) < self._limits.new for item in (oldest, newest))

    def _recall(self, admission: _Admission, items: Sequence[Item]) -> Sequence[Item]:
        """Takes failures into account that the database refused to store at the time."""
        try:
            remembered = self._memory.recall(self.box, [item.id for item in items])
        except Unavailable:
            return items  # the memory is a help, not a promise
        if not remembered:
            return items
        admission.recalled.update(remembered)
        return [self._with_remembered_errors(item, remembered.get(item.id)) for item in items]

    def _with_remembered_errors(self, item: Item, failure: RememberedFailure | None) -> Item:
        """The item with what is remembered of it. That alone never uses its retries up: anybody may have written it."""
        if failure is None or failure.uuid not in (None, item.uuid):
            return item
        count, most = failure.errors_count, self.box.max_retries
        if most is not None:
            count = min(count, most)
        return item._replace(errors_count=count) if count > item.errors_count else item

    def _ask_strategies(self, admission: _Admission, items: Sequence[Item]) -> Sequence[Item]:
        admitted = []
        for item in items:
            verdict, strategy = Verdict.PROCESS, None
            if item.processed_at is not None:
                try:
                    verdict, strategy = admission.verdict(item, self._strategies)
                except StoreUnavailable:
                    raise
                except BaseException as error:  # a strategy is user's code
                    if ends_the_worker(error):
                        raise
                    self._refuse(admission, item, error, where="retry strategy")
                    continue
            if verdict is Verdict.PROCESS:
                admitted.append(item)
            elif verdict is Verdict.DISCARD:
                admission.settlement.discarded.append(admission.discard(item, strategy))
        return admitted

    def _extend_options(self, admission: _Admission, items: Sequence[Item]) -> Sequence[Item]:
        admitted = []
        for item in items:
            try:
                admitted.append(item.with_extra_options())
            except BaseException as error:  # the model's method is user's code
                if ends_the_worker(error):
                    raise
                self._refuse(admission, item, error, where="extra_options")
        return admitted

    def _build_payloads(self, admission: _Admission, items: Sequence[Item]) -> Sequence[Item]:
        build = self.box.payload_builder
        admitted = []
        for item in items:
            problem: object = None
            payload: Any = None
            try:
                payload = build(item) if build is not None else item.payload
            except BaseException as error:  # a payload builder is user's code
                if ends_the_worker(error):
                    raise
                problem = error
            if problem is None and not failed(payload):
                admitted.append(item._replace(payload=payload))
                continue
            self._refuse(admission, item, refusal(payload) if problem is None else problem, where="payload builder")
        return admitted

    def _refuse(self, admission: _Admission, item: Item, problem: object, *, where: str) -> None:
        """Records an attempt that failed before the item could be sent."""
        admission.failed.append(item)
        self._record_failure(admission.settlement, item, problem, where=where, now=admission.now)

    def _record_failure(
        self, settlement: Settlement, item: Item, problem: object, *, where: str, now: datetime, final: bool = False
    ) -> None:
        errors_count = item.errors_count + 1
        status = Status.FAILED if final or self.box.exhausted(errors_count) else Status.PENDING
        log = error_log(problem, where=where, now=now)
        settlement.failed.append(FailedAttempt(item.id, status, errors_count, log))
        if status is Status.FAILED:
            error = problem if isinstance(problem, BaseException) else f"{where}: {reason_of(problem)}"
            details = {"item_details": item.log_details} if self.box.extra_log_details is not None else {}
            self._track(
                error,
                box_name=self.box.name,
                bucket=item.bucket,
                item_id=item.id,
                event_key=item.event_key,
                where=where,
                **details,
            )

    def _commit(self, claim: Claim, settlement: Settlement) -> None:
        try:
            unrecorded = claim.commit(settlement)
        except StoreUnavailable:
            self._resting.unrecorded(settlement.ids)
            self._remember(claim.items, settlement)
            raise
        if unrecorded is not None:
            self._note_unrecorded(settlement, unrecorded)
        if self._resting:
            self._resting.recorded(settlement.ids)

    def _note_unrecorded(self, settlement: Settlement, unrecorded: Unrecorded) -> None:
        """Leaves in the settlement what is recorded, and tells of the rest."""
        lost = settlement.ids if unrecorded.undone else [*unrecorded.failed, *unrecorded.left]
        kept = settlement.only(set(settlement.ids).difference(lost))
        settlement.delivered, settlement.discarded = kept.delivered, kept.discarded
        settlement.failed = [*kept.failed, *unrecorded.failed.values()]
        self._resting.unrecorded(unrecorded.left, for_good=True)
        for item_id, reason in unrecorded.left.items():
            what = "sent, but no outcome can be recorded, so it will be sent again"
            self._track(f"{what}: {reason}", box_name=self.box.name, item_id=item_id)
        for item_id, attempt in unrecorded.failed.items():
            self._track(attempt.error_log, box_name=self.box.name, item_id=item_id)
        if unrecorded.left:
            ids = ", ".join(map(str, sorted(unrecorded.left)[:MOST_NAMED]))
            self._observer.fetch_failed(self.box, f"no outcome can be recorded for item {ids}")

    def _forget(self, recalled: Mapping[int, RememberedFailure], items: Sequence[Item], settlement: Settlement) -> None:
        """Drops what was recalled and is recorded now, and what was recalled of other rows."""
        settled, known = set(settlement.ids), {item.id: item for item in items}
        spent = [
            id_
            for id_, failure in recalled.items()
            if id_ in settled or self._with_remembered_errors(known[id_], failure) is known[id_]
        ]
        with suppress(Unavailable):  # it is compared with the row again, and its time is limited
            self._memory.forget(self.box, spent)

    def _remember(self, items: Sequence[Item], settlement: Settlement) -> None:
        """Keeps failures that the database would not take, so that they count all the same."""
        uuids = {item.id: item.uuid for item in items}
        failures = {f.id: RememberedFailure(f.errors_count, f.error_log[:200], uuids[f.id]) for f in settlement.failed}
        if failures:
            try:
                self._memory.remember(self.box, failures, ttl=self._limits.memory_ttl)
            except Unavailable:
                self._observer.fetch_failed(self.box, "a failure could be stored neither in the database nor in Redis")

    def _report(self, claim: Claim, settlement: Settlement, after: Mapping[int, int]) -> Report:
        items, exhausted = claim.items, claim.exhausted
        # Not the last id read: a row with a lower one may be committed after this claim, and a follower of its key
        # after that. Who reads on from the last id meets the follower first. So does it under strict order when a
        # failed row below is due again. What is settled is not pending any more and need not be passed over.
        last_ids = {item.bucket: after[item.bucket] for item in items}
        if len(settlement) < len(items):
            touched = set(settlement.ids)
            rest = [item for item in items if item.id not in touched]
            unsent = {item.bucket for item in rest if item.processed_at is None}
            exhausted -= unsent
            if self.box.strict_order is StrictOrder.NONE:
                # Rows that a strategy skipped stay due, and would stand before all others in the next batch again.
                skipped = {item.bucket for item in rest} - unsent
                last_ids.update({item.bucket: item.id for item in items if item.bucket in skipped})
        return Report(
            claimed=len(items),
            positions=last_ids,
            refused=claim.refused,
            exhausted=exhausted,
            next_due=self._next_due(items, settlement),
            progressed=bool(settlement) or not items,
            weight=sum(map(len, filter(None, map(_PAYLOAD, items)))),
        )

    def _next_due(self, items: Sequence[Item], settlement: Settlement) -> Mapping[int, timedelta]:
        if not settlement.failed or self.box.backoff is None:
            return {}
        buckets = {item.id: item.bucket for item in items}
        due: dict[int, timedelta] = {}
        for attempt in settlement.failed:
            if attempt.status is Status.PENDING:
                pause = self.box.backoff.pause(attempt.errors_count, attempt.id)
                bucket = buckets[attempt.id]
                due[bucket] = min(pause, due.get(bucket, pause))
        return due


class _Admission:
    """What the retry strategies may ask, about the items of one claim."""

    def __init__(self, box: Box, claim: Claim, settlement: Settlement, recalled: dict[int, RememberedFailure]) -> None:
        self.box = box
        self.recalled = recalled
        """Takes in the failures that were remembered outside the database."""
        self.claim = claim
        self.settlement = settlement
        self.now = claim.now
        self.failed: list[Item] = []
        """Those that failed before they could be sent."""
        self._overtaken: Mapping[int, int] | None = None
        """By item, a later one of its key that was delivered. None: nobody has asked yet."""

    def later_delivered(self, item: Item) -> bool:
        if self._overtaken is None:
            tried = [known for known in self.claim.items if known.processed_at is not None]
            self._overtaken = self.claim.later_delivered(tried)
        return item.id in self._overtaken

    def verdict(self, item: Item, strategies: Sequence[object]) -> tuple[Verdict, object]:
        """The first answer that is not PROCESS, and who gave it."""
        for strategy in strategies:
            answer = strategy(item, self)  # type: ignore[operator]
            if not isinstance(answer, Verdict):
                discard(answer)
                raise TypeError(f"retry strategy {strategy!r} must return PROCESS, SKIP or DISCARD, not {answer!r}")
            if answer is not Verdict.PROCESS:
                return answer, strategy
        return Verdict.PROCESS, None

    def discard(self, item: Item, strategy: object) -> Discard:
        """The item as given up by this strategy."""
        later = (self._overtaken or {}).get(item.id)
        cause = DiscardCause.STRATEGY if later is None else DiscardCause.OVERTAKEN
        return Discard(item.id, cause, item.errors_count, discard_log(strategy, later=later, now=self.now))


class _Undo(Exception):
    """Leaves a savepoint so that what was written in it is undone."""
