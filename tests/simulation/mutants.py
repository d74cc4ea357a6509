"""Deliberate bugs: each breaks one rule of the engine or of the database's twin, and the simulation must notice.

A mutant is a patch that a test applies for as long as it runs histories. Its docstring is the bug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from boxengine.adapters.memory import queue as memory_queue
from boxengine.adapters.memory import rows as memory_rows
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.adapters.memory.store import MemoryClaim, MemoryStore
from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.job import Job
from boxengine.domain.outcome import Settlement
from boxengine.engine.delivery import Delivery
from boxengine.engine.keeper import LeaseKeeper
from boxengine.engine.poller import Poller
from boxengine.engine.processor import Processor
from boxengine.engine.schedule import NEVER, Schedule
from boxengine.engine.sending import Sending
from boxengine.engine.transports import Carrier
from boxengine.errors import QueueUnavailable, StoreUnavailable
from boxengine.ports import Hold

Mutant = Callable[[pytest.MonkeyPatch], None]


# ── locks and leases ─────────────────────────────────────────────────────────────────────────────────


def bucket_lock_absent(patch: pytest.MonkeyPatch) -> None:
    """The database does not lock buckets: leases alone decide, and they run out."""
    made = MemoryClaim.__init__

    def unlocked(claim: Any, database: Any, box: Box, *rest: Any, **options: Any) -> None:
        made(claim, database, box, *rest, **options)
        database.held_buckets.difference_update((box.name, bucket) for bucket in claim._granted)

    patch.setattr(MemoryClaim, "__init__", unlocked)


def refused_buckets_ignored(patch: pytest.MonkeyPatch) -> None:
    """What the database refused is asked for again at once, instead of waiting until the lease has run out."""
    run = Delivery.run

    def forgetful(self: Delivery, hold: Hold, after: Mapping[int, int], **options: Any) -> Any:
        return replace(run(self, hold, after, **options), refused=frozenset())

    patch.setattr(Delivery, "run", forgetful)


def leases_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """Sending goes on however late it is."""
    patch.setattr(Sending, "_must_stop", lambda _self: False)


def lost_lease_comes_back(patch: pytest.MonkeyPatch) -> None:
    """Found by the simulation: the keeper renewed a hold whose buckets had been lost, and its thread went on sending."""

    def renew(self: Any, hold: Hold) -> None:
        before = self._clock.monotonic()
        try:
            self._queue.extend(hold, ttl=self._ttl)
        except QueueUnavailable:
            return
        hold.valid_until = before + self._ttl.total_seconds()

    patch.setattr(LeaseKeeper, "_renew", renew)


def wanted_flag_dropped(patch: pytest.MonkeyPatch) -> None:
    """A bucket that was asked for while in work is let go without another look."""

    def release(self: Any, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        asked = frozenset(buckets)
        lane = self._lane(hold.box)
        for bucket in asked:
            if self._holder(lane, bucket) == hold.token:
                del lane.leases[bucket]
        hold.buckets -= asked
        return frozenset()

    patch.setattr(MemoryJobQueue, "release", release)


def released_with_rows_left(patch: pytest.MonkeyPatch) -> None:
    """Every bucket counts as exhausted after its first batch."""
    read = MemoryClaim._read

    def all_exhausted(self: MemoryClaim, buckets: Mapping[int, int], limit: int) -> Any:
        items, _ = read(self, buckets, limit)
        return items, frozenset(self._granted)

    patch.setattr(MemoryClaim, "_read", all_exhausted)


def cut_session_may_commit(patch: pytest.MonkeyPatch) -> None:
    """A session that the server has ended still records its outcomes: no fencing in the database."""

    def commit(self: Any, settlement: Settlement) -> None:
        self._fault("commit")
        self._write(settlement)
        self._database.effects += self.session.effects
        self.close()
        self._fault("committed")

    patch.setattr(MemoryClaim, "commit", commit)


# ── reading on ───────────────────────────────────────────────────────────────────────────────────────


def cursor_past_unsettled_rows(patch: pytest.MonkeyPatch) -> None:
    """Rows that were claimed and not sent are passed over; their followers go first."""
    report = Delivery._report

    def careless(self: Delivery, claim: Any, settlement: Settlement, after: Mapping[int, int]) -> Any:
        found = report(self, claim, settlement, after)
        return replace(found, last_ids={item.bucket: item.id for item in claim.items})

    patch.setattr(Delivery, "_report", careless)


def _reads_on_after_settled(patch: pytest.MonkeyPatch, *, strict: bool) -> None:
    report = Delivery._report

    def careless(self: Delivery, claim: Any, settlement: Settlement, after: Mapping[int, int]) -> Any:
        found = report(self, claim, settlement, after)
        settled = {*settlement.delivered, *settlement.discarded, *(attempt.id for attempt in settlement.failed)}
        if (self.box.strict_order is not StrictOrder.NONE) is strict and all(i.id in settled for i in claim.items):
            return replace(found, last_ids={item.bucket: item.id for item in claim.items})
        return found

    patch.setattr(Delivery, "_report", careless)


def cursor_past_failed_rows_under_strict_order(patch: pytest.MonkeyPatch) -> None:
    """Found by the simulation: a failed row whose pause ended while its bucket was drained was overtaken."""
    _reads_on_after_settled(patch, strict=True)


def cursor_past_rows_not_yet_committed(patch: pytest.MonkeyPatch) -> None:
    """Found by the simulation: a row committed below the last id read was overtaken by the next of its key."""
    _reads_on_after_settled(patch, strict=False)


# ── sending ──────────────────────────────────────────────────────────────────────────────────────────


def delivered_before_sent(patch: pytest.MonkeyPatch) -> None:
    """A batch is marked delivered before the deadline is looked at and before a transport has it."""

    def send_whole(self: Any, carriers: Sequence[Any], items: Sequence[Item]) -> None:
        self.delivered += [item.id for item in items]
        if not self._must_stop():
            for carrier in carriers:
                items = self._carry_batch(carrier, items)

    patch.setattr(Sending, "_send_whole", send_whole)


def first_transport_is_enough(patch: pytest.MonkeyPatch) -> None:
    """Of several transports only the first is called."""
    send = Sending._send_whole
    patch.setattr(Sending, "_send_whole", lambda self, carriers, items: send(self, carriers[:1], items))


def refusals_ignored(patch: pytest.MonkeyPatch) -> None:
    """What a batch transport answers about single items is not looked at."""

    def carry_batch(self: Any, carrier: Any, items: Sequence[Item]) -> Sequence[Item]:
        try:
            self._call_batch_in_savepoint(carrier, items)
        except Exception as error:
            return tuple(self._narrow(carrier, items, error))
        return items

    patch.setattr(Sending, "_carry_batch", carry_batch)


def results_in_wrong_order(patch: pytest.MonkeyPatch) -> None:
    """A batch's results are taken for those of other items."""
    send = Carrier.send_batch
    patch.setattr(Carrier, "send_batch", lambda self, items, claim: send(self, items, claim)[::-1])


def raised_is_delivered(patch: pytest.MonkeyPatch) -> None:
    """An error of a batch transport is taken for success."""
    patch.setattr(Sending, "_narrow", lambda _self, _carrier, items, _error: items)


def no_narrowing(patch: pytest.MonkeyPatch) -> None:
    """One poison item makes its whole batch fail."""

    def narrow(self: Any, carrier: Any, items: Sequence[Item], error: Exception) -> Sequence[Item]:
        for item in items:
            self._fail(item, error, carrier.name)
        return ()

    patch.setattr(Sending, "_narrow", narrow)


def savepoint_keeps_everything(patch: pytest.MonkeyPatch) -> None:
    """What a failed attempt wrote through the session is committed with the rest."""

    @contextmanager
    def savepoint(_self: MemoryClaim) -> Iterator[None]:
        yield

    patch.setattr(MemoryClaim, "savepoint", savepoint)


def savepoint_inside_the_middlewares(patch: pytest.MonkeyPatch) -> None:
    """Found by the simulation: a middleware that failed after the transport left the transport's writes standing."""
    patch.setattr(Sending, "_one_in_savepoint", lambda self, item: self._one(item))


# ── order ────────────────────────────────────────────────────────────────────────────────────────────


def waves_ignored(patch: pytest.MonkeyPatch) -> None:
    """Under strict order a whole batch goes out at once, keys twice and all."""
    patch.setattr(Sending, "_waves", lambda _self, items: [items])


def blocked_keys_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Under strict order the followers of an item that has just failed go on."""

    def fail(self: Any, item: Item, problem: object, where: str) -> None:
        self.failed.append((item, problem, where))

    patch.setattr(Sending, "_fail", fail)


def unsent_failures_do_not_block(patch: pytest.MonkeyPatch) -> None:
    """Found by the simulation: an item that failed before it was sent did not hold back its followers in the batch."""
    patch.setattr(Sending, "hold_back", lambda _self, _items: None)


def routes_one_after_the_other(patch: pytest.MonkeyPatch) -> None:
    """All items of one event name go before all of the next, whatever their keys."""

    def by_route(self: Any, items: Sequence[Item]) -> Any:
        groups: dict[Any, list[Item]] = {}
        for item in items:
            groups.setdefault(self._routes.of(item), []).append(item)
        return list(groups.items())

    patch.setattr(Sending, "_by_route", by_route)


def bucket_order_by_key_only(patch: pytest.MonkeyPatch) -> None:
    """Found by the simulation: strict order by bucket grouped items by event name as if only keys had an order."""
    by_route = Sending._by_route

    def by_key(self: Any, items: Sequence[Item]) -> Any:
        strict, self._strict = self._strict, StrictOrder.KEY
        try:
            return by_route(self, items)
        finally:
            self._strict = strict

    patch.setattr(Sending, "_by_route", by_key)


def parked_keys_go_on(patch: pytest.MonkeyPatch) -> None:
    """A failed item does not park its key."""
    patch.setattr(memory_rows, "UNFINISHED", frozenset({Status.PENDING}))


def waiting_items_hold_nothing_back(patch: pytest.MonkeyPatch) -> None:
    """The query does not know strict order: followers of an item in its pause are due."""
    due = memory_rows.Rows.due

    def unordered(self: Any, box: Box, bucket: int, now: Any) -> Any:
        return due(self, replace(box, strict_order=StrictOrder.NONE), bucket, now)

    patch.setattr(memory_rows.Rows, "due", unordered)


# ── outcomes ─────────────────────────────────────────────────────────────────────────────────────────


def one_retry_too_few(patch: pytest.MonkeyPatch) -> None:
    """An item is failed with its last retry still to come."""
    patch.setattr(
        Box, "exhausted", lambda self, count: self.max_retries is not None and count >= max(1, self.max_retries)
    )


def retries_without_end(patch: pytest.MonkeyPatch) -> None:
    """``max_retries`` is not looked at."""
    patch.setattr(Box, "exhausted", lambda _self, _count: False)


def failures_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A failed attempt leaves the row's count as it was."""
    record = Delivery._record_failure

    def uncounted(self: Any, settlement: Settlement, item: Item, problem: object, **options: Any) -> None:
        record(self, settlement, item, problem, **options)
        last = settlement.failed.pop()
        settlement.failed.append(replace(last, errors_count=item.errors_count, status=Status.PENDING))

    patch.setattr(Delivery, "_record_failure", uncounted)


def backoff_ignored(patch: pytest.MonkeyPatch) -> None:
    """A failed item is due at once."""
    patch.setattr(memory_rows, "_is_past_its_pause", lambda _box, _row, _now: True)


def discarded_for_one_undelivered(patch: pytest.MonkeyPatch) -> None:
    """As the reference does it: a later item counts though it has not been delivered."""

    def later(self: Any, items: Sequence[Item]) -> frozenset[int]:
        last: dict[tuple[str, str | None], int] = {}
        for row in self._database.rows(self._box):
            last[row.event_key, row.event_name] = row.id
        return frozenset(item.id for item in items if last.get((item.event_key, item.event_name), 0) > item.id)

    patch.setattr(MemoryClaim, "later_delivered", later)


def failed_commit_writes_half(patch: pytest.MonkeyPatch) -> None:
    """No rollback: a commit that fails leaves the delivered marked and forgets the failed."""
    commit = MemoryClaim.commit

    def half(self: Any, settlement: Settlement) -> None:
        try:
            commit(self, settlement)
        except StoreUnavailable:
            self._write(Settlement(delivered=settlement.delivered))
            raise

    patch.setattr(MemoryClaim, "commit", half)


def retention_takes_all(patch: pytest.MonkeyPatch) -> None:
    """Rows are deleted for their age alone."""

    def delete(self: Any, box: Box, statuses: Any, *, created_from: Any, created_before: Any, limit: int) -> int:
        rows = self._database.rows(box)
        doomed = [row for row in rows if row.created_at < created_before][:limit]
        for row in doomed:
            rows.remove(row.id)
        return len(doomed)

    patch.setattr(MemoryStore, "delete_finished", delete)


# ── loops ────────────────────────────────────────────────────────────────────────────────────────────


def failed_polls_never_come_back(patch: pytest.MonkeyPatch) -> None:
    """A partition whose poll raised is not put back on the agenda."""
    done = Schedule.done

    def lose(self: Any, task: Any, *, next_in: float = NEVER, not_before: float = 0.0) -> None:
        if next_in != not_before:
            done(self, task, next_in=next_in, not_before=not_before)

    patch.setattr(Schedule, "done", lose)


def asked_during_a_poll_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A wake-up that comes while its partition is polled is lost."""
    done = Schedule.done

    def forget(self: Any, task: Any, **options: float) -> None:
        self._taken[task] = NEVER
        done(self, task, **options)

    patch.setattr(Schedule, "done", forget)


def corrupt_jobs_raise(patch: pytest.MonkeyPatch) -> None:
    """A foreign element in the queue ends the turn of whoever pops it."""
    patch.setattr(memory_queue, "_decode", Job.decode)


def checks_never_made(patch: pytest.MonkeyPatch) -> None:
    """The poller trusts wake-ups alone."""
    patch.setattr(Poller, "_check", lambda _self, _box: 1.0)


def buckets_never_let_go(patch: pytest.MonkeyPatch) -> None:
    """A thread goes on with its buckets though nothing in them can be sent."""
    run = Delivery.run

    def busy(self: Delivery, hold: Hold, after: Mapping[int, int], **options: Any) -> Any:
        return replace(run(self, hold, after, **options), progressed=True, exhausted=frozenset())

    patch.setattr(Delivery, "run", busy)
    patch.setattr(Processor, "_hand_back", lambda _self, _hold, _after, timed_out: "processed")


MUTANTS: tuple[Mutant, ...] = (
    bucket_lock_absent,
    refused_buckets_ignored,
    leases_not_looked_at,
    lost_lease_comes_back,
    wanted_flag_dropped,
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
    savepoint_inside_the_middlewares,
    waves_ignored,
    blocked_keys_forgotten,
    unsent_failures_do_not_block,
    routes_one_after_the_other,
    bucket_order_by_key_only,
    parked_keys_go_on,
    waiting_items_hold_nothing_back,
    one_retry_too_few,
    retries_without_end,
    failures_not_counted,
    backoff_ignored,
    discarded_for_one_undelivered,
    failed_commit_writes_half,
    retention_takes_all,
    failed_polls_never_come_back,
    asked_during_a_poll_forgotten,
    corrupt_jobs_raise,
    checks_never_made,
    buckets_never_let_go,
)

BEGINNING: Mapping[Mutant, int] = {
    cursor_past_rows_not_yet_committed: 2_900,
    asked_during_a_poll_forgotten: 2_650,
    lost_lease_comes_back: 1_500,
}
"""The seed from which rare ones are looked for; before it nothing is found for a minute."""

FOCUS: Mapping[Mutant, tuple[str, ...]] = {
    bucket_lock_absent: ("worker pauses",),
    lost_lease_comes_back: ("leases lost", "wake-up twice", "transport slow", "commit acknowledged late"),
    cut_session_may_commit: ("pause", "transport slow"),
    cursor_past_rows_not_yet_committed: (),
    asked_during_a_poll_forgotten: (),
    wanted_flag_dropped: (),
    unsent_failures_do_not_block: ("payload builder raises",),
    failed_commit_writes_half: ("commit fails",),
    discarded_for_one_undelivered: ("item refused",),
    leases_not_looked_at: ("worker pauses",),
    released_with_rows_left: (),
    bucket_order_by_key_only: (),
    waves_ignored: ("item refused",),
    cursor_past_failed_rows_under_strict_order: ("item refused",),
    no_narrowing: (),
}
"""Mutants that few histories meet are looked for in histories with these faults; found without, too, but later."""
