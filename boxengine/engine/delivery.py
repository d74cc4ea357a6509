"""The heart: one batch of one box, from the buckets' locks to the committed outcomes.

One transaction: take the buckets' locks in the database, read their due rows, ask the retry strategies about those
tried before, send, write all outcomes, commit. A crash anywhere in between undoes everything but what the transport
already took; those items go out once more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import FailedAttempt, Settlement, Verdict
from boxengine.engine.attempt import error_log, reason_of
from boxengine.engine.circuits import Circuits, Entry
from boxengine.engine.middleware import compose
from boxengine.engine.order import OrderWatch
from boxengine.engine.pipeline import Middlewares, Pipeline
from boxengine.engine.sending import Sending, Watch
from boxengine.engine.time_limit import TimeLimit
from boxengine.engine.transports import Carrier, Routes, failed
from boxengine.errors import StoreUnavailable, Unavailable
from boxengine.ports import (
    Claim,
    Clock,
    ErrorTracker,
    FailureMemory,
    Hold,
    Observer,
    OpenCircuit,
    RememberedFailure,
    Store,
    Tracer,
)

BATCH_LIMIT = 500
"""Rows per transaction; what a crash may repeat for each thread."""
LARGE = 2
"""Batches in one, where they go through quickly: a sixth more items per second, as the fixed part of a batch is shared."""
LARGE_DELETING = 4
"""The same for boxes that delete on delivery, whose rows take the database half as long."""
PROBE_LIMIT = 10
"""Rows of a batch that finds out whether a receiver is back."""
FLUSH_AFTER = 1.0
"""Seconds after which a batch that sends one by one records what it has, so that a crash repeats little."""
_PAYLOAD = itemgetter(Item._fields.index("payload"))
_CREATED_AT = itemgetter(Item._fields.index("raw_created_at"))


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds one batch."""

    rows: int = BATCH_LIMIT
    flush_after: float = FLUSH_AFTER
    """Seconds."""
    memory_ttl: timedelta = timedelta(minutes=30)
    """How long a failure that the database would not store is remembered elsewhere."""
    new: timedelta = timedelta(seconds=1)
    """Items that are younger cannot have failed so: the leases of a batch whose commit failed last longer."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What batch middlewares see."""

    box: Box
    items: Sequence[Item]


@dataclass(frozen=True, slots=True)
class BatchReport:
    """How one batch went, for the processor to decide how to go on."""

    claimed: int
    """Rows read."""
    last_ids: Mapping[int, int] = field(default_factory=dict)
    """By bucket, the id up to which rows are to be passed over; 0 where none are."""
    refused: frozenset[int] = frozenset()
    exhausted: frozenset[int] = frozenset()
    """Buckets of which nothing due is left."""
    next_due: Mapping[int, timedelta] = field(default_factory=dict)
    """By bucket, the pause until the first of the items that failed just now is due again."""
    progressed: bool = True
    """False where rows were read and nothing at all became of them."""
    weight: int = 0
    """Bytes of the payloads that were read."""
    unreachable: Mapping[str, Unavailable] = field(default_factory=dict)
    """By transport, what was said by those whose receivers could not be reached: their items stay as they were."""
    reached: Collection[str] = ()
    """Transports that answered."""


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
        limits: Limits = Limits(),
    ) -> None:
        """Makes the box's transports; what their constructors raise comes through.

        Args:
            order: told of what was delivered; None: nobody watches the order.
        """
        self.box = pipeline.box
        self._routes = Routes(tuple(Carrier(spec) for spec in pipeline.transports))
        names = dict.fromkeys(carrier.name for carrier in self._routes.carriers)
        self._circuits = Circuits(pipeline.box, names, observer=observer, clock=clock)
        for carrier in self._routes.carriers:
            if carrier.timeout is not None:
                breaker = self._circuits.breaker(carrier.name)
                carrier.limit(
                    TimeLimit(carrier.timeout, name=carrier.name, hanging=breaker.hanging, returned=breaker.returned)
                )
        self._strategies = pipeline.retry_strategies
        self._large = LARGE_DELETING if self.box.retention.deletes_on_delivery else LARGE
        self._only_outcomes = not self._routes.in_session and not self._strategies
        """Whether a claim is asked for nothing but its commit."""
        self._middlewares = middlewares
        self._store = store
        self._memory = memory
        self._observer = observer
        self._tracer = tracer
        self._clock = clock
        self._track = error_tracker
        self._order = order
        self._limits = limits

    def run(
        self, hold: Hold, after: Mapping[int, int], *, until: float, first: bool = True, large: bool = False
    ) -> BatchReport:
        """Claims, sends and settles one batch of the hold's buckets.

        Args:
            after: by bucket, the id after which to read.
            until: monotonic time at which sending stops between two items.
            first: whether it is the hold's first batch, the only one for which failures of untried rows are recalled.
            large: whether it may have ``LARGE`` times the rows, or ``LARGE_DELETING`` times.

        Raises:
            StoreUnavailable: the database refused; the rows count as pending.
        """
        entry, sent = self._circuits.enter(), list[Sending]()
        if entry.shut:
            # No look at the database either: it could only be told that nothing happened.
            return BatchReport(claimed=0, progressed=False, unreachable=entry.refused)
        try:
            limit = self._limits.rows * (self._large if large else 1)
            if entry.probes:
                limit = min(PROBE_LIMIT, limit)
            return self._run(hold, after, limit, until=until, first=first, entry=entry, sent=sent)
        finally:
            self._circuits.leave(entry, sent[0] if sent else None)

    def open_circuits(self) -> list[OpenCircuit]:
        """The transports that are left alone just now."""
        return self._circuits.open()

    def close(self) -> None:
        """Lets the transports free what they hold."""
        self._routes.close()

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _run(
        self,
        hold: Hold,
        after: Mapping[int, int],
        limit: int,
        *,
        until: float,
        first: bool,
        entry: Entry,
        sent: list[Sending],
    ) -> BatchReport:
        box, started = self.box, self._clock.monotonic()
        settlement = Settlement()
        with self._store.claim(box, after, limit, only_outcomes=self._only_outcomes) as claim:
            items = claim.items
            if items:

                def process(_batch: Batch) -> None:
                    sent.append(self._process(claim, settlement, hold, until, fresh=first, refused=entry.refused))

                with self._tracer.processing(box, items):
                    compose(self._middlewares.batch_process, process)(Batch(box, items))
                    self._commit(claim, settlement)
        if items:
            self._observer.settled(box, items, settlement, seconds=self._clock.monotonic() - started)
            if self._order is not None:
                self._order.delivered(items, settlement.delivered)
        report = self._report(claim, settlement, after)
        return replace(report, unreachable=sent[0].unreachable, reached=sent[0].reached) if sent else report

    def _process(
        self,
        claim: Claim,
        settlement: Settlement,
        hold: Hold,
        until: float,
        *,
        fresh: bool,
        refused: Mapping[str, Unavailable],
    ) -> Sending:
        admission = _Admission(self.box, claim, settlement)
        items = self._admit(admission, fresh=fresh)
        monotonic = self._clock.monotonic
        # From here, not from the claim on: slow payload builders must not use up the time in which to send.
        deadline = min(until, monotonic() + self._limits.flush_after)

        def expired(begun: bool) -> bool:  # noqa: FBT001 - called between any two items
            now = monotonic()
            # One item goes out in any case: a cutoff that had passed before the first would let nothing ever be sent.
            return now >= hold.valid_until or (begun and now >= deadline)

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
        admitted = []
        for item in items:
            failure = remembered.get(item.id)
            if failure is None or failure.errors_count <= item.errors_count:
                admitted.append(item)
            elif self.box.exhausted(failure.errors_count):
                known = item._replace(errors_count=failure.errors_count)
                self._refuse(admission, known, failure.error_msg, where="remembered")
            else:
                admitted.append(item._replace(errors_count=failure.errors_count))
        return admitted

    def _ask_strategies(self, admission: _Admission, items: Sequence[Item]) -> Sequence[Item]:
        admitted = []
        for item in items:
            verdict = Verdict.PROCESS
            if item.processed_at is not None:
                try:
                    verdict = admission.verdict(item, self._strategies)
                except StoreUnavailable:
                    raise
                except Exception as error:  # a strategy is user's code
                    self._refuse(admission, item, error, where="retry strategy")
                    continue
            if verdict is Verdict.PROCESS:
                admitted.append(item)
            elif verdict is Verdict.DISCARD:
                admission.settlement.discarded.append(item.id)
        return admitted

    def _extend_options(self, admission: _Admission, items: Sequence[Item]) -> Sequence[Item]:
        admitted = []
        for item in items:
            try:
                admitted.append(item.with_extra_options())
            except Exception as error:  # the model's method is user's code
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
            except Exception as error:  # a payload builder is user's code
                problem = error
            if problem is None and not failed(payload):
                admitted.append(item._replace(payload=payload))
                continue
            self._refuse(admission, item, problem or payload, where="payload builder")
        return admitted

    def _refuse(self, admission: _Admission, item: Item, problem: object, *, where: str) -> None:
        """Records an attempt that failed before the item could be sent."""
        admission.failed.append(item)
        self._record_failure(admission.settlement, item, problem, where=where, now=admission.now)

    def _record_failure(
        self, settlement: Settlement, item: Item, problem: object, *, where: str, now: datetime
    ) -> None:
        errors_count = item.errors_count + 1
        status = Status.FAILED if self.box.exhausted(errors_count) else Status.PENDING
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
            claim.commit(settlement)
        except StoreUnavailable:
            self._remember(settlement)
            raise

    def _remember(self, settlement: Settlement) -> None:
        """Keeps failures that the database would not take, so that a poison item cannot be tried without end."""
        failures = {f.id: RememberedFailure(f.errors_count, f.error_log[:200]) for f in settlement.failed}
        if failures:
            try:
                self._memory.remember(self.box, failures, ttl=self._limits.memory_ttl)
            except Unavailable:
                self._observer.fetch_failed(self.box, "a failure could be stored neither in the database nor in Redis")

    def _report(self, claim: Claim, settlement: Settlement, after: Mapping[int, int]) -> BatchReport:
        items, exhausted = claim.items, claim.exhausted
        # Not the last id read: a row with a lower one may be committed after this claim, and a follower of its key
        # after that. Who reads on from the last id meets the follower first. So does it under strict order when a
        # failed row below is due again. What is settled is not pending any more and need not be passed over.
        last_ids = {item.bucket: after[item.bucket] for item in items}
        settled = len(settlement.delivered) + len(settlement.discarded) + len(settlement.failed)
        if settled < len(items):
            touched = {*settlement.delivered, *settlement.discarded, *(attempt.id for attempt in settlement.failed)}
            rest = [item for item in items if item.id not in touched]
            unsent = {item.bucket for item in rest if item.processed_at is None}
            exhausted -= unsent
            if self.box.strict_order is StrictOrder.NONE:
                # Rows that a strategy skipped stay due, and would stand before all others in the next batch again.
                skipped = {item.bucket for item in rest} - unsent
                last_ids.update({item.bucket: item.id for item in items if item.bucket in skipped})
        return BatchReport(
            claimed=len(items),
            last_ids=last_ids,
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

    def __init__(self, box: Box, claim: Claim, settlement: Settlement) -> None:
        self.box = box
        self.claim = claim
        self.settlement = settlement
        self.now = claim.now
        self.failed: list[Item] = []
        """Those that failed before they could be sent."""
        self._overtaken: frozenset[int] | None = None

    def later_delivered(self, item: Item) -> bool:
        if self._overtaken is None:
            tried = [known for known in self.claim.items if known.processed_at is not None]
            self._overtaken = self.claim.later_delivered(tried)
        return item.id in self._overtaken

    def verdict(self, item: Item, strategies: Sequence[object]) -> Verdict:
        """The first answer that is not PROCESS."""
        for strategy in strategies:
            answer = strategy(item, self)  # type: ignore[operator]
            if not isinstance(answer, Verdict):
                raise TypeError(f"retry strategy {strategy!r} must return PROCESS, SKIP or DISCARD, not {answer!r}")
            if answer is not Verdict.PROCESS:
                return answer
        return Verdict.PROCESS
