"""Deliberate bugs: each breaks one rule of the engine or of the database's twin, and the simulation must notice.

A mutant names the promise that must break; its docstring is the bug. To add one: a function that performs the surgery,
``@breaks(promise)`` above it, and its name in ``MUTANTS``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from boxengine.adapters.memory import queue as memory_queue
from boxengine.adapters.memory import rows as memory_rows
from boxengine.adapters.memory.claims import MemoryClaim
from boxengine.adapters.memory.in_hand import MemoryInHand
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.adapters.memory.rows import Begin
from boxengine.adapters.memory.store import MemoryStore
from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.item_id import ItemId
from boxengine.domain.job import Job
from boxengine.domain.outcome import FailedAttempt, Settlement, Verdict
from boxengine.engine.delivering import care
from boxengine.engine.delivering.batches import batch, reporting
from boxengine.engine.delivering.batches.delivery import Delivery
from boxengine.engine.delivering.batches.recording import Recording
from boxengine.engine.delivering.batches.strategies import Asking
from boxengine.engine.delivering.calls.deadline import Deadline
from boxengine.engine.delivering.calls.ordering import Ordering, Route
from boxengine.engine.delivering.calls.sending import Sending
from boxengine.engine.delivering.calls.sent import Failed, Sent
from boxengine.engine.delivering.calls.single import Single
from boxengine.engine.delivering.calls.transports import Carrier, Routes
from boxengine.engine.delivering.calls.whole import Carried, Whole
from boxengine.engine.delivering.care import Care
from boxengine.engine.delivering.holds import gathering
from boxengine.engine.delivering.holds.drain import Drain
from boxengine.engine.delivering.holds.gathering import Gathering
from boxengine.engine.delivering.holds.holding import Holding
from boxengine.engine.delivering.holds.processor import Processor
from boxengine.engine.delivering.holds.vacancies import Vacancies
from boxengine.engine.polling.checks import Checks
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.schedule import NEVER, Schedule
from boxengine.errors import StoreUnavailable
from boxengine.ports import Hold
from tests.simulation.mutation import Mutant, Surgery, breaks
from tests.simulation.promises import Promise
from tests.simulation.scenario import AWAY

# ── locks and leases ─────────────────────────────────────────────────────────────────────────────────


@breaks(Promise.ONCE, only=("worker pauses",), first=104)
def bucket_lock_absent(patch: Surgery) -> None:
    """The database does not lock buckets: leases alone decide, and they run out."""
    made = MemoryClaim.__init__

    def unlocked(claim: Any, database: Any, box: Box, *rest: Any, **options: Any) -> None:
        made(claim, database, box, *rest, **options)
        database.held_buckets.difference_update((box.name, bucket) for bucket in claim._granted)

    patch.setattr(MemoryClaim, "__init__", unlocked)


@breaks(Promise.PROMPT, only=(), first=6_941)
def done_without_a_word(patch: Surgery) -> None:
    """Who has worked without leases does not tell those that the database refused meanwhile."""
    patch.setattr(MemoryJobQueue, "finish", lambda *_: None)


@breaks(Promise.CARE, first=1_498)
def the_dead_forgotten(patch: Surgery) -> None:
    """Buckets are begun without leases though somebody died of them."""

    def take(vacancies: Vacancies, box: Box, jobs: Sequence[Job]) -> bool:
        return vacancies._locks_decide(box) and bool(jobs)

    patch.setattr(Vacancies, "take", take)
    patch.setattr(Vacancies, "free", lambda *_: None)


@breaks(Promise.FENCED)
def refused_buckets_ignored(patch: Surgery) -> None:
    """What the database refused is asked for again at once, instead of waiting until the lease has run out."""
    run = Delivery.run
    patch.setattr(Delivery, "run", lambda self, errand: replace(run(self, errand), refused=frozenset()))


@breaks(Promise.FENCED, only=("worker pauses",))
def leases_not_looked_at(patch: Surgery) -> None:
    """Sending goes on however late it is."""
    patch.setattr(Deadline, "passed", lambda _self, *, begun: False)


@breaks(Promise.FENCED, only=("leases lost", "wake-up twice", "transport slow", "commit acknowledged late"))
def lost_lease_comes_back(patch: Surgery) -> None:
    """Found by the simulation: the keeper renewed a hold whose buckets had been lost, and its thread went on sending."""

    def renewed(self: Any, lost: Collection[int], *, until: float) -> None:
        self.valid_until = until

    patch.setattr(Holding, "renewed", renewed)


@breaks(Promise.PROMPT, only=(), first=314)
def wanted_flag_dropped(patch: Surgery) -> None:
    """A bucket that was asked for while in work is let go without another look."""

    def release(self: Any, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        asked = frozenset(buckets)
        lane = self._lane(hold.box)
        for bucket in asked:
            if self._holder(lane, bucket) == hold.token:
                del lane.leases[bucket]
        return frozenset()

    patch.setattr(MemoryJobQueue, "release", release)


@breaks(Promise.PROMPT, only=(), first=2_000)
def shared_buckets_let_go(patch: Surgery) -> None:
    """Found by a benchmark: buckets that a thread shared were let go without a job, and stood still until the next poll."""

    def share(drain: Drain) -> None:
        shared = list(drain._positions)[len(drain._positions) // 2 :]
        for bucket in set(shared) - drain.holding.release(shared):
            del drain._positions[bucket]

    patch.setattr(Drain, "share", share)


@breaks(Promise.PROMPT, only=())
def released_with_rows_left(patch: Surgery) -> None:
    """Every bucket counts as exhausted after its first batch."""
    read = MemoryClaim._read

    def all_exhausted(self: MemoryClaim, begin: Mapping[int, Begin], limit: int) -> Any:
        items, _ = read(self, begin, limit)
        return items, frozenset(self._granted)

    patch.setattr(MemoryClaim, "_read", all_exhausted)


@breaks(Promise.ONCE, only=("pause", "transport slow"))
def cut_session_may_commit(patch: Surgery) -> None:
    """A session that the server has ended still records its outcomes: no fencing in the database."""

    def commit(self: Any, settlement: Settlement) -> None:
        self._fault("commit")
        with suppress(KeyError):  # others have delivered the row, and it is deleted
            self._write(settlement)
        self._database.effects += self.session.effects
        self.close()
        self._fault("committed")

    patch.setattr(MemoryClaim, "commit", commit)


# ── reading on ───────────────────────────────────────────────────────────────────────────────────────


@breaks(Promise.ORDER)
def cursor_past_unsettled_rows(patch: Surgery) -> None:
    """Rows that were claimed and not sent are passed over; their followers go first."""
    report = reporting.report

    def careless(
        box: Box, claim: Any, settlement: Settlement, positions: Mapping[int, int], sent: Any, **more: Any
    ) -> Any:
        found = report(box, claim, settlement, positions, sent, **more)
        return replace(found, positions={item.bucket: item.id for item in claim.items})

    patch.setattr(batch, "report", careless)


def _reads_on_after_settled(patch: Surgery, *, strict: bool) -> None:
    report = reporting.report

    def careless(
        box: Box, claim: Any, settlement: Settlement, positions: Mapping[int, int], sent: Any, **more: Any
    ) -> Any:
        found = report(box, claim, settlement, positions, sent, **more)
        settled = {*settlement.delivered, *(each.id for each in settlement.not_delivered)}
        if (box.strict_order is not StrictOrder.NONE) is strict and all(i.id in settled for i in claim.items):
            return replace(found, positions={item.bucket: item.id for item in claim.items})
        return found

    patch.setattr(batch, "report", careless)


@breaks(Promise.ORDER, only=("item refused",))
def cursor_past_failed_rows_under_strict_order(patch: Surgery) -> None:
    """Found by the simulation: a failed row whose pause ended while its bucket was drained was overtaken."""
    _reads_on_after_settled(patch, strict=True)


@breaks(Promise.ORDER, only=(), first=3_911)
def cursor_past_rows_not_yet_committed(patch: Surgery) -> None:
    """Found by the simulation: a row committed below the last id read was overtaken by the next of its key."""
    _reads_on_after_settled(patch, strict=False)


# ── sending ──────────────────────────────────────────────────────────────────────────────────────────


@breaks(Promise.ACKNOWLEDGED)
def delivered_before_sent(patch: Surgery) -> None:
    """A batch is marked delivered before the deadline is looked at and before a transport has it."""

    def in_waves(self: Any, send: Any, route: Route, items: Sequence[Item], sent: Sent) -> Sent:
        sent = sent.took(item.id for item in items)
        for wave in self._ordering.waves(items):
            if not self._deadline.passed(begun=True):
                send(route, wave, sent)
        return sent

    patch.setattr(Sending, "_in_waves", in_waves)


@breaks(Promise.ACKNOWLEDGED)
def first_transport_is_enough(patch: Surgery) -> None:
    """Of several transports only the first is called."""
    send = Whole.send
    patch.setattr(Whole, "send", lambda self, route, items, sent: send(self, route[:1], items, sent))


@breaks(Promise.ACKNOWLEDGED)
def refusals_ignored(patch: Surgery) -> None:
    """What a batch transport answers about single items is not looked at."""

    send = Carrier.send_batch
    patch.setattr(Carrier, "send_batch", lambda self, items, claim: [None for _ in send(self, items, claim)])


@breaks(Promise.ACKNOWLEDGED)
def results_in_wrong_order(patch: Surgery) -> None:
    """A batch's results are taken for those of other items."""
    send = Carrier.send_batch
    patch.setattr(Carrier, "send_batch", lambda self, items, claim: send(self, items, claim)[::-1])


@breaks(Promise.ACKNOWLEDGED)
def raised_is_delivered(patch: Surgery) -> None:
    """An error of a batch transport is taken for success."""
    patch.setattr(Whole, "_narrow", lambda _self, _carrier, items, _error, sent, **_first: Carried(items, sent))


@breaks(Promise.ISOLATED, only=())
def no_narrowing(patch: Surgery) -> None:
    """One poison item makes its whole batch fail."""

    def narrow(
        _self: Any, carrier: Any, items: Sequence[Item], error: Exception, sent: Sent, *, first: bool
    ) -> Carried:
        return Carried((), sent.judged(Failed(item, error, carrier.name) for item in items))

    patch.setattr(Whole, "_narrow", narrow)


@breaks(Promise.EFFECTS)
def savepoint_keeps_everything(patch: Surgery) -> None:
    """What a failed attempt wrote through the session is committed with the rest."""

    @contextmanager
    def savepoint(_self: MemoryClaim) -> Iterator[None]:
        yield

    patch.setattr(MemoryClaim, "savepoint", savepoint)


@breaks(Promise.EFFECTS, only=("item refused",))
def each_transport_has_its_own_savepoint(patch: Surgery) -> None:
    """What the first transport of a batch wrote for an item stays though the second refuses the item."""

    def in_session(
        self: Any, route: Route, items: Sequence[Item], sent: Sent, took: frozenset[Carrier] = frozenset()
    ) -> Sent:
        for carrier in route:
            with self._claim.savepoint():
                items, sent = self._carry(carrier, items, sent, first=carrier is route[0])
        return sent.took(item.id for item in items)

    patch.setattr(Whole, "_in_session", in_session)


@breaks(Promise.ONCE, only=("item refused",))
def all_transports_are_called_again(patch: Surgery) -> None:
    """After a refusal also those outside the session get the items again that they have already."""
    carry_on = Whole._carry_on

    def forgetful(self: Any, attempt: Any, route: Route) -> None:
        attempt.took.clear()
        carry_on(self, attempt, route)

    patch.setattr(Whole, "_carry_on", forgetful)


@breaks(Promise.EFFECTS)
def savepoint_inside_the_middlewares(patch: Surgery) -> None:
    """Found by the simulation: a middleware that failed after the transport left the transport's writes standing."""
    patch.setattr(Single, "_in_savepoint", lambda self, item: self._through_middlewares(item))


# ── order ────────────────────────────────────────────────────────────────────────────────────────────


@breaks(Promise.ORDER, only=("item refused",))
def waves_ignored(patch: Surgery) -> None:
    """Under strict order a whole batch goes out at once, keys twice and all."""
    patch.setattr(Ordering, "waves", lambda _self, items: [items])


@breaks(Promise.ORDER)
def blocked_keys_forgotten(patch: Surgery) -> None:
    """Under strict order the followers of an item that has just failed go on."""

    def noted(self: Any, before: Sent, after: Sent) -> Sent:
        self._ordering.hold(after.waiting[len(before.waiting) :])
        return after

    patch.setattr(Sending, "_noted", noted)


@breaks(Promise.ORDER, only=("payload builder raises",))
def unsent_failures_do_not_block(patch: Surgery) -> None:
    """Found by the simulation: an item that failed before it was sent did not hold back its followers in the batch."""
    patch.setattr(Sending, "hold_back", lambda _self, _items: None)


@breaks(Promise.ORDER)
def routes_one_after_the_other(patch: Surgery) -> None:
    """All items of one event name go before all of the next, whatever their keys."""

    def by_route(_self: Any, items: Sequence[Item], routes: Routes) -> Any:
        groups: dict[Any, list[Item]] = {}
        for item in items:
            groups.setdefault(routes.of(item), []).append(item)
        return list(groups.items())

    patch.setattr(Ordering, "by_route", by_route)


@breaks(Promise.ORDER, only=(), first=282)
def bucket_order_by_key_only(patch: Surgery) -> None:
    """Found by the simulation: strict order by bucket grouped items by event name as if only keys had an order."""
    by_route = Ordering.by_route
    patch.setattr(Ordering, "by_route", lambda _self, items, routes: by_route(Ordering(StrictOrder.KEY), items, routes))


@breaks(Promise.ORDER)
def parked_keys_go_on(patch: Surgery) -> None:
    """A failed item does not park its key."""
    patch.setattr(memory_rows, "UNFINISHED", frozenset({Status.PENDING}))


@breaks(Promise.ORDER)
def waiting_items_hold_nothing_back(patch: Surgery) -> None:
    """The query does not know strict order: followers of an item in its pause are due."""
    due = memory_rows.Rows.due

    def unordered(self: Any, box: Box, bucket: int, now: Any) -> Any:
        return due(self, replace(box, strict_order=StrictOrder.NONE), bucket, now)

    patch.setattr(memory_rows.Rows, "due", unordered)


@breaks(Promise.STOPPED, only=("box paused", "transport slow"))
def pauses_not_looked_at(patch: Surgery) -> None:
    """What is queued or held goes on, whatever people say."""
    patch.setattr(PauseWatch, "running", lambda _self, boxes: boxes)
    patch.setattr(PauseWatch, "paused", lambda _self, _box: False)


# ── items that end the process ───────────────────────────────────────────────────────────────────────


@breaks(Promise.CARE, only=("killing item",))
def two_deaths_accuse(patch: Surgery) -> None:
    """Two deaths with an item alone in hand are enough to fail it."""
    patch.setattr(care, "DEATHS", 2)


@breaks(Promise.CARE, only=("killing item",))
def deaths_forgotten(patch: Surgery) -> None:
    """What the last worker had in hand is overwritten by the next one, not counted."""

    def put(self: Any, box: Box, item: str) -> int:
        self._notes[box.name, item] = 0, self._worker
        return 0

    patch.setattr(MemoryInHand, "put", put)


@breaks(Promise.CARE, only=("killing item",))
def suspicion_never_grows(patch: Surgery) -> None:
    """A bucket whose workers died goes out whole, however many died of it: nothing is ever alone in hand."""
    patch.setattr(Care, "note", lambda self, box, bucket: self._in_hand.put(box, f"bucket:{bucket}") < 0)


# ── outcomes ─────────────────────────────────────────────────────────────────────────────────────────


@breaks(Promise.ATTEMPTS)
def one_retry_too_few(patch: Surgery) -> None:
    """An item is failed with its last retry still to come."""
    patch.setattr(
        Box, "exhausted", lambda self, count: self.max_retries is not None and count >= max(1, self.max_retries)
    )


@breaks(Promise.ORDER, only=(AWAY,))
def items_behind_those_that_wait_go_out_unasked(patch: Surgery) -> None:
    """Nobody looks whether an earlier item of the key waits for a receiver that is away."""
    patch.setattr(Sending, "hold_back_keys", lambda _self, _keys: None)


@breaks(Promise.ATTEMPTS)
def retries_without_end(patch: Surgery) -> None:
    """``max_retries`` is not looked at."""
    patch.setattr(Box, "exhausted", lambda _self, _count: False)


@breaks(Promise.ATTEMPTS)
def failures_not_counted(patch: Surgery) -> None:
    """A failed attempt leaves the row's count as it was."""
    attempts = Recording.attempts

    def uncounted(self: Any, failures: Sequence[Failed], *, now: datetime) -> list[FailedAttempt]:
        made = zip(failures, attempts(self, failures, now=now), strict=True)
        return [replace(each, errors_count=f.item.errors_count, status=Status.PENDING) for f, each in made]

    patch.setattr(Recording, "attempts", uncounted)


@breaks(Promise.PAUSES)
def backoff_ignored(patch: Surgery) -> None:
    """A failed item is due at once."""
    patch.setattr(memory_rows, "is_past_its_pause", lambda _box, _row, _now: True)


@breaks(Promise.OVERTAKEN, only=("item refused",))
def discarded_for_one_undelivered(patch: Surgery) -> None:
    """As the reference does it: a later item counts though it has not been delivered."""

    def later(self: Any, items: Sequence[Item]) -> Mapping[ItemId, ItemId]:
        last: dict[tuple[str, str | None], ItemId] = {}
        for row in self._database.rows(self._box):
            last[row.event_key, row.event_name] = row.id
        found = ((item.id, last.get((item.event_key, item.event_name), item.id)) for item in items)
        return {item_id: later for item_id, later in found if later > item_id}

    patch.setattr(MemoryClaim, "later_delivered", later)


@breaks(Promise.OVERTAKEN, only=("item refused", "operator"))
def strategies_asked_only_after_failed_attempts(patch: Surgery) -> None:
    """An item that an operator has had retried goes out unasked, after a later one of its key."""
    about = Asking.about
    patch.setattr(Asking, "about", lambda self, item: about(self, item) if item.errors_count > 0 else Verdict.PROCESS)


@breaks(Promise.EFFECTS, only=("commit fails",))
def failed_commit_writes_half(patch: Surgery) -> None:
    """No rollback: a commit that fails leaves the delivered marked and forgets the failed."""
    commit = MemoryClaim.commit

    def half(self: Any, settlement: Settlement) -> None:
        try:
            commit(self, settlement)
        except StoreUnavailable:
            self._write(Settlement(delivered=settlement.delivered))
            raise

    patch.setattr(MemoryClaim, "commit", half)


@breaks(Promise.FINAL)
def retention_takes_all(patch: Surgery) -> None:
    """Rows are deleted for their age alone."""

    def delete(self: Any, box: Box, statuses: Any, *, created_from: Any, created_before: Any, limit: int) -> int:
        rows = self._database.rows(box)
        doomed = [row for row in rows if row.created_at < created_before][:limit]
        for row in doomed:
            rows.remove(row.id)
        return len(doomed)

    patch.setattr(MemoryStore, "delete_finished", delete)


# ── loops ────────────────────────────────────────────────────────────────────────────────────────────


@breaks(Promise.ENDS)
def failed_polls_never_come_back(patch: Surgery) -> None:
    """A partition whose poll raised is not put back on the agenda."""
    done = Schedule.done

    def lose(self: Any, task: Any, *, next_in: float = NEVER, not_before: float = 0.0) -> None:
        if next_in != not_before:
            done(self, task, next_in=next_in, not_before=not_before)

    patch.setattr(Schedule, "done", lose)


@breaks(Promise.PROMPT, only=(), first=9_100)
def asked_during_a_poll_forgotten(patch: Surgery) -> None:
    """A wake-up that comes while its partition is polled is lost."""
    done = Schedule.done

    def forget(self: Any, task: Any, **options: float) -> None:
        self._taken[task.key] = NEVER
        done(self, task, **options)

    patch.setattr(Schedule, "done", forget)


@breaks(Promise.PROMPT, only=())
def hint_for_a_held_bucket_dropped(patch: Surgery) -> None:
    """A thread that is told of new rows in a bucket of its own lets the bucket go without another look."""

    def deaf(self: Any, buckets: Collection[int], *, now: float) -> frozenset[int]:
        return self.buckets.intersection(buckets) if now < self.valid_until else frozenset()

    patch.setattr(Holding, "want", deaf)


@breaks(Promise.PROMPT, only=())
def gathered_and_forgotten(patch: Surgery) -> None:
    """Nobody looks at what was gathered while a thread kept up."""
    patch.setattr(Gathering, "_first", lambda _self: None)


@breaks(Promise.PROMPT, only=())
def gathered_and_never_handed_out(patch: Surgery) -> None:
    """The buckets of a transaction are gathered, and no thread that waits is given them."""
    patch.setattr(Processor, "hand_out", lambda _self: None)


@breaks(Promise.PROMPT, only=())
def gathered_for_nobody(patch: Surgery) -> None:
    """Jobs are gathered though the thread that kept up has finished, and every other one sleeps at the queue."""
    patch.setattr(Gathering, "end", lambda _self, _hold: None)
    patch.setattr(gathering, "PATIENCE", 3600.0)


@breaks(Promise.SOUND)
def corrupt_jobs_raise(patch: Surgery) -> None:
    """A foreign element in the queue ends the turn of whoever pops it."""
    patch.setattr(memory_queue, "_decode", Job.decode)


@breaks(Promise.ENDS)
def checks_never_made(patch: Surgery) -> None:
    """The poller trusts wake-ups alone."""
    patch.setattr(Checks, "check", lambda _self, _box: 1.0)


@breaks(Promise.PROMPT)
def buckets_never_let_go(patch: Surgery) -> None:
    """A thread goes on with its buckets though nothing in them can be sent."""
    run = Delivery.run
    patch.setattr(
        Delivery, "run", lambda self, errand: replace(run(self, errand), progressed=True, exhausted=frozenset())
    )
    patch.setattr(Drain, "hand_back", lambda _self: None)
    patch.setattr(Drain, "end_turn", lambda _self: None)


MUTANTS: tuple[Mutant, ...] = (
    items_behind_those_that_wait_go_out_unasked,
    bucket_lock_absent,
    done_without_a_word,
    the_dead_forgotten,
    refused_buckets_ignored,
    leases_not_looked_at,
    lost_lease_comes_back,
    wanted_flag_dropped,
    hint_for_a_held_bucket_dropped,
    gathered_and_forgotten,
    gathered_and_never_handed_out,
    gathered_for_nobody,
    shared_buckets_let_go,
    released_with_rows_left,
    cut_session_may_commit,
    cursor_past_unsettled_rows,
    cursor_past_failed_rows_under_strict_order,
    cursor_past_rows_not_yet_committed,
    delivered_before_sent,
    first_transport_is_enough,
    refusals_ignored,
    results_in_wrong_order,
    raised_is_delivered,
    no_narrowing,
    savepoint_keeps_everything,
    each_transport_has_its_own_savepoint,
    all_transports_are_called_again,
    savepoint_inside_the_middlewares,
    waves_ignored,
    blocked_keys_forgotten,
    unsent_failures_do_not_block,
    routes_one_after_the_other,
    bucket_order_by_key_only,
    parked_keys_go_on,
    waiting_items_hold_nothing_back,
    pauses_not_looked_at,
    two_deaths_accuse,
    deaths_forgotten,
    suspicion_never_grows,
    one_retry_too_few,
    retries_without_end,
    failures_not_counted,
    backoff_ignored,
    discarded_for_one_undelivered,
    strategies_asked_only_after_failed_attempts,
    failed_commit_writes_half,
    retention_takes_all,
    failed_polls_never_come_back,
    asked_during_a_poll_forgotten,
    corrupt_jobs_raise,
    checks_never_made,
    buckets_never_let_go,
)
