"""One batch of one box over memory: strategies, remembered failures, payload builders, what is written about failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from boxengine.domain.box import Backoff, Box
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import DISCARD, PROCESS, SKIP, Failure, Verdict
from boxengine.domain.retry import ExponentialBackoff, LatestAvailable, NoDelay, RetryContext
from boxengine.engine.attempt import TRACEBACK_LINES, error_log, reason_of
from boxengine.engine.delivering.batches.delivery import Limits
from boxengine.engine.delivering.calls.pipeline import Middlewares
from boxengine.engine.delivering.work import Errand
from boxengine.errors import StoreUnavailable
from boxengine.ports import RememberedFailure
from tests.unit.engine.bench import Batches, Bench, Single, Until, spec

AGED = 2 * Limits().new
"""Old enough to have failed before."""

RETRIES: dict[str, Any] = {"max_retries": 2, "backoff": Backoff(minimal=timedelta(seconds=10))}
AGES_AGO = timedelta(days=1)


def tried(bench: Bench, key: object = 1, *, errors: int = 1) -> int:
    """A row that has failed before and whose pause is over."""
    (row_id,) = bench.insert(key, errors_count=errors, processed_at=bench.clock.now() - AGES_AGO)
    return row_id


def says(verdict: Verdict) -> Any:
    def strategy(_item: Item, _context: RetryContext) -> Verdict:
        return verdict

    return strategy


# ── ends ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_delivered_item_has_status_and_time() -> None:
    bench = Bench()
    (row_id,) = bench.insert(1)
    report = bench.deliver(spec(Single()))
    assert (bench.row(row_id).status, bench.row(row_id).processed_at) == (Status.DELIVERED, bench.clock.now())
    assert (report.claimed, report.progressed) == (1, True)
    assert report.exhausted == frozenset(bench.box.buckets)


def test_a_failed_attempt_with_retries_left_stays_pending_and_says_when_it_is_due_again() -> None:
    bench = Bench(**RETRIES)
    (row_id,) = bench.insert(1)
    report = bench.deliver(spec(Single(lambda _item: False)))
    row = bench.row(row_id)
    assert (row.status, row.errors_count, row.processed_at) == (Status.PENDING, 1, bench.clock.now())
    assert report.next_due == {1: timedelta(seconds=10)}
    assert bench.tracked == []


def test_attempts_beyond_max_retries_fail_the_item_and_tell_the_error_tracker() -> None:
    bench = Bench(**RETRIES)
    row_id = tried(bench, errors=2)
    error = ValueError("no")

    def explode(_item: Item) -> None:
        raise error

    report = bench.deliver(spec(Single(explode)))
    assert (bench.row(row_id).status, bench.row(row_id).errors_count) == (Status.FAILED, 3)
    context = {"box_name": bench.box.name, "bucket": 1, "item_id": row_id, "event_key": "1", "where": "receiver"}
    assert bench.tracked == [(error, context)]
    assert report.next_due == {}


def test_with_no_retries_the_first_failure_is_the_last() -> None:
    bench = Bench()
    (row_id,) = bench.insert(1)
    bench.deliver(spec(Single(lambda _item: Failure("no"))))
    assert bench.row(row_id).status == Status.FAILED
    assert bench.tracked[0][0] == "receiver: no"


def test_a_box_that_keeps_nothing_deletes_on_delivery() -> None:
    bench = Bench()
    bench.box = replace(bench.box, retention=replace(bench.box.retention, delivered=timedelta(0)))
    bench.insert(1)
    bench.deliver(spec(Single()))
    assert bench.store.rows(bench.box) == []


# ── strategies ───────────────────────────────────────────────────────────────────────────────────────


def test_a_row_that_was_never_tried_is_not_put_to_the_strategies() -> None:
    bench = Bench()
    (row_id,) = bench.insert(1)
    bench.deliver(spec(Single()), strategies=[says(DISCARD)])
    assert bench.row(row_id).status == Status.DELIVERED


@pytest.mark.parametrize(
    ("verdict", "status", "sent"),
    [(PROCESS, Status.DELIVERED, True), (SKIP, Status.PENDING, False), (DISCARD, Status.DISCARDED, False)],
)
def test_a_strategy_decides_about_a_row_that_was_tried(verdict: Verdict, status: Status, sent: bool) -> None:
    bench, transport = Bench(**RETRIES), Single()
    row_id = tried(bench)
    before = bench.row(row_id)
    bench.deliver(spec(transport), strategies=[says(verdict)])
    assert bench.row(row_id).status == status
    assert bool(transport.ids) is sent
    if verdict is SKIP:
        assert bench.row(row_id) == before


def test_rows_that_a_strategy_skips_do_not_keep_back_those_behind_them() -> None:
    bench, transport = Bench(bucket_size=1, **RETRIES), Single()
    for _ in range(3):
        tried(bench)
    (fresh,) = bench.insert(2)
    delivery, positions = bench.delivery(spec(transport), strategies=[says(SKIP)]), {0: None}
    for _ in range(2):
        report = delivery.run(Errand(positions=positions, rows=2, until=1e9, term=Until()))
        assert report.progressed, "or the drain lets the bucket rest, and begins with the same rows again"
        positions.update(report.positions)
    assert transport.ids == [fresh]


def test_the_first_strategy_that_does_not_say_process_has_the_last_word() -> None:
    bench = Bench(**RETRIES)
    row_id = tried(bench)
    bench.deliver(spec(Single()), strategies=[says(PROCESS), says(DISCARD), says(SKIP)])
    assert bench.row(row_id).status == Status.DISCARDED


@pytest.mark.parametrize("strategy", [lambda _item, _context: 1 / 0, lambda _item, _context: "process"])
def test_a_strategy_that_raises_or_answers_nonsense_is_a_failed_attempt(strategy: Any) -> None:
    bench = Bench(**RETRIES)
    row_id, neighbour = tried(bench, 1), tried(bench, 2)

    def only_the_first(item: Item, context: RetryContext) -> Any:
        return strategy(item, context) if item.id == row_id else PROCESS

    bench.deliver(spec(Single()), strategies=[only_the_first])
    row = bench.row(row_id)
    assert (row.status, row.errors_count) == (Status.PENDING, 2)
    assert "retry strategy: " in row.error_log
    assert bench.row(neighbour).status == Status.DELIVERED


def test_latest_available_discards_what_a_later_delivered_item_has_overtaken() -> None:
    bench = Bench(**RETRIES)
    overtaken, current = tried(bench, 1), tried(bench, 2)
    (later,) = bench.insert(1, status=Status.DELIVERED)
    bench.insert(2)  # still undelivered: it does not count
    bench.deliver(spec(Single()), strategies=[LatestAvailable()])
    assert bench.row(overtaken).status == Status.DISCARDED
    told = f"discarded by LatestAvailable: item {later}, a later one of its key, was delivered"
    assert bench.row(overtaken).error_log.partition("\n")[0].endswith(told)
    assert bench.row(current).status == Status.DELIVERED


def test_an_item_that_a_users_strategy_discards_says_which() -> None:
    def too_old(item: Item, context: RetryContext) -> Verdict:
        return DISCARD

    bench = Bench(**RETRIES)
    row_id = tried(bench, 1)
    bench.deliver(spec(Single()), strategies=[too_old])
    assert bench.row(row_id).status == Status.DISCARDED
    assert "too_old: says DISCARD" in bench.row(row_id).error_log.partition("\n")[0]


def test_latest_available_looks_at_the_same_event_name_only() -> None:
    bench = Bench(**RETRIES)
    row_id = tried(bench, 1)
    bench.insert(1, status=Status.DELIVERED, event_name="other")
    bench.deliver(spec(Single()), strategies=[LatestAvailable()])
    assert bench.row(row_id).status == Status.DELIVERED


def test_backoff_skips_what_reaches_the_processor_before_its_pause_is_over() -> None:
    bench = Bench(**RETRIES)
    with bench.store.claims(bench.box).open({1: None}, 1) as claim:
        (item_id,) = bench.insert(1)
        item = bench.row(item_id).as_item(bench.box, dispatched_at=claim.now)
        context = type("Context", (), {"box": bench.box, "now": claim.now})()
        fresh = item._replace(errors_count=1, processed_at=claim.now - timedelta(seconds=9))
        rested = item._replace(errors_count=1, processed_at=claim.now - timedelta(seconds=10))
        assert ExponentialBackoff()(fresh, context) is SKIP
        assert ExponentialBackoff()(rested, context) is PROCESS
        assert NoDelay()(fresh, context) is PROCESS


# ── remembered failures ──────────────────────────────────────────────────────────────────────────────


def test_failures_that_the_database_refused_to_store_are_remembered_elsewhere() -> None:
    def refuse(step: str) -> None:
        if step == "commit":
            raise StoreUnavailable("disk full")

    bench = Bench(fault=refuse, **RETRIES)
    (row_id,) = bench.insert(1)
    with pytest.raises(StoreUnavailable):
        bench.deliver(spec(Single(lambda _item: Failure("no"))))
    assert bench.row(row_id).errors_count == 0
    remembered = bench.memory.recall(bench.box, [row_id])[row_id]
    assert remembered.errors_count == 1
    assert remembered.uuid == str(bench.row(row_id).uuid)
    assert "receiver: no" in remembered.error_msg
    assert bench.observer.settlements == []


def test_a_higher_remembered_count_stands_over_the_rows() -> None:
    bench = Bench(**RETRIES)
    (row_id,) = bench.insert(1)
    bench.memory.remember(bench.box, {row_id: RememberedFailure(2, "no")}, ttl=timedelta(minutes=1))
    bench.clock.advance(AGED)
    bench.deliver(spec(Single(lambda _item: Failure("no"))))
    assert (bench.row(row_id).status, bench.row(row_id).errors_count) == (Status.FAILED, 3)


@pytest.mark.parametrize("max_retries", [0, 2])
def test_what_is_remembered_never_fails_an_item_by_itself(max_retries: int) -> None:
    bench, transport = Bench(**{**RETRIES, "max_retries": max_retries}), Single()
    (row_id,) = bench.insert(1)
    bench.memory.remember(bench.box, {row_id: RememberedFailure(99, "a stranger's")}, ttl=timedelta(minutes=1))
    bench.clock.advance(AGED)
    bench.deliver(spec(transport))
    assert (transport.ids, bench.row(row_id).status) == ([row_id], Status.DELIVERED)


def test_what_is_remembered_of_another_row_with_the_same_id_does_not_count() -> None:
    """Ids are used again after a TRUNCATE or a restore."""
    bench = Bench(**RETRIES)
    (row_id,) = bench.insert(1)
    memory = {row_id: RememberedFailure(2, "no", uuid="that of a row which is gone")}
    bench.memory.remember(bench.box, memory, ttl=timedelta(minutes=1))
    bench.clock.advance(AGED)
    bench.deliver(spec(Single(lambda _item: Failure("no"))))
    assert (bench.row(row_id).status, bench.row(row_id).errors_count) == (Status.PENDING, 1)
    assert bench.memory.recall(bench.box, [row_id]) == {}


@pytest.mark.parametrize("answer", [None, Failure("no")], ids=["delivered", "failed again"])
def test_what_was_remembered_is_forgotten_once_an_outcome_is_recorded(answer: Failure | None) -> None:
    bench = Bench(**RETRIES)
    (row_id,) = bench.insert(1)
    memory = {row_id: RememberedFailure(1, "no", uuid=str(bench.row(row_id).uuid))}
    bench.memory.remember(bench.box, memory, ttl=timedelta(minutes=1))
    bench.clock.advance(AGED)
    bench.deliver(spec(Single(lambda _item: answer)))
    assert bench.row(row_id).errors_count == (0 if answer is None else 2)
    assert bench.memory.recall(bench.box, [row_id]) == {}


@pytest.mark.parametrize(("age", "asked"), [(timedelta(0), []), (AGED, [1, 2]), (-AGED, [1, 2])])
def test_items_that_are_too_new_to_have_failed_are_not_asked_about(
    monkeypatch: pytest.MonkeyPatch, age: timedelta, asked: list[int]
) -> None:
    bench = Bench(**RETRIES)
    bench.insert(1, created_at=bench.clock.now() - age)
    bench.insert(2)
    recall, seen = bench.memory.recall, list[int]()

    def recalling(box: Box, ids: Sequence[int]) -> Mapping[int, RememberedFailure]:
        seen.extend(ids)
        return recall(box, ids)

    monkeypatch.setattr(bench.memory, "recall", recalling)
    bench.deliver(spec(Single()))
    assert seen == asked


def test_a_lower_remembered_count_is_ignored() -> None:
    bench = Bench(**RETRIES)
    row_id = tried(bench, errors=2)
    bench.memory.remember(bench.box, {row_id: RememberedFailure(1, "old")}, ttl=timedelta(minutes=1))
    bench.deliver(spec(Single()))
    assert (bench.row(row_id).status, bench.row(row_id).errors_count) == (Status.DELIVERED, 2)


# ── payload builders ─────────────────────────────────────────────────────────────────────────────────


def test_a_payload_builder_makes_what_goes_out() -> None:
    bench, single = Bench(payload_builder=lambda item: f"{item.id}:{item.payload.decode()}"), Single()
    (row_id,) = bench.insert(1, payload=b"raw")
    bench.deliver(spec(single))
    assert single.payloads == [f"{row_id}:raw"]


@pytest.mark.parametrize("builder", [lambda _item: 1 / 0, lambda _item: Failure("no such order"), lambda _item: False])
def test_a_payload_that_cannot_be_built_is_a_failed_attempt_of_its_item_alone(builder: Any) -> None:
    bench = Bench(**RETRIES)
    (bad,) = bench.insert(1)
    (good,) = bench.insert(2)
    bench.box = replace(bench.box, payload_builder=lambda item: builder(item) if item.id == bad else item.payload)
    bench.deliver(spec(Batches()))
    assert (bench.row(bad).status, bench.row(bad).errors_count) == (Status.PENDING, 1)
    assert "payload builder: " in bench.row(bad).error_log
    assert bench.row(good).status == Status.DELIVERED


# ── error_log ────────────────────────────────────────────────────────────────────────────────────────


def test_the_error_log_has_time_transport_reason_and_traceback() -> None:
    bench = Bench()
    (row_id,) = bench.insert(1)

    def explode(_item: Item) -> None:
        raise ConnectionError("broker down") from OSError("refused")

    bench.deliver(spec(Single(explode), name="kafka"))
    first, *frames = bench.row(row_id).error_log.splitlines()
    assert first == "2026-01-01T00:00:00.000000Z kafka: OSError: refused. ConnectionError: broker down"
    assert any("explode" in line for line in frames)


def test_the_error_log_is_replaced_at_each_failure() -> None:
    bench = Bench(**RETRIES)
    (row_id,) = bench.insert(1)
    for reason in ("first", "second"):
        bench.deliver(spec(Single(lambda _item, reason=reason: Failure(reason))))  # type: ignore[misc]
        bench.clock.advance(timedelta(minutes=10))
    assert "second" in bench.row(row_id).error_log
    assert "first" not in bench.row(row_id).error_log


@pytest.mark.parametrize(("where", "told"), [("http", "http: 500 No"), ("billing", "billing: http: 500 No")])
def test_a_reason_that_names_its_transport_does_not_name_it_twice(where: str, told: str) -> None:
    log = error_log(Failure("http: 500 No"), where=where, now=datetime(2026, 1, 31, tzinfo=UTC))
    assert log == f"2026-01-31T00:00:00.000000Z {told}"


def test_a_deep_traceback_is_cut_to_its_innermost_lines() -> None:
    def dive(depth: int) -> None:
        if depth == 0:
            raise ValueError("the bottom")
        dive_further(depth)

    def dive_further(depth: int) -> None:  # a function that only calls itself would be shown once, with a count
        dive(depth - 1)

    bench = Bench()
    with pytest.raises(ValueError, match="the bottom") as caught:
        dive(100)
    log = error_log(caught.value, where="here", now=bench.clock.now())
    assert len(log.splitlines()) == 1 + TRACEBACK_LINES
    assert 'raise ValueError("the bottom")' in log


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (False, "returned False"),
        (Failure("no money"), "no money"),
        (Failure(""), "returned a Failure that says nothing"),
        (ValueError("x"), "ValueError: x"),
        ("text", "text"),
    ],
)
def test_every_kind_of_failure_has_a_reason(problem: object, reason: str) -> None:
    assert reason_of(problem) == reason


# ── the batch as a whole ─────────────────────────────────────────────────────────────────────────────


def test_past_the_cutoff_one_item_is_sent_and_the_rest_stays_pending() -> None:
    bench, transport = Bench(), Single()
    first, *rest = bench.insert(1, 2, 3)
    report = bench.run(bench.delivery(spec(transport)), until=0.0)
    assert transport.ids == [first]
    assert [bench.row(each).status for each in rest] == [Status.PENDING] * 2
    assert report.progressed


def test_a_lease_that_has_run_out_stops_the_sending() -> None:
    bench = Bench()

    def take_long(_item: Item) -> None:
        bench.clock.advance(timedelta(seconds=5))

    ids = bench.insert(0, 0, 0)
    report = bench.run(bench.delivery(spec(Single(take_long)), flush_after=60.0), valid_until=7.0)
    assert [bench.row(each).status for each in ids] == [Status.DELIVERED, Status.DELIVERED, Status.PENDING]
    assert 0 not in report.exhausted


def test_a_slow_batch_is_recorded_early_so_that_a_crash_repeats_little() -> None:
    bench = Bench()

    def take_long(_item: Item) -> None:
        bench.clock.advance(timedelta(seconds=0.6))

    ids = bench.insert(0, 0, 0, 0)
    bench.deliver(spec(Single(take_long)))
    assert [bench.row(each).status for each in ids].count(Status.DELIVERED) == 2


def test_a_batch_middleware_that_raises_leaves_every_row_as_it_was() -> None:
    bench = Bench()
    (row_id,) = bench.insert(1)

    def explode(_batch: Any, _call_next: Any) -> Any:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        bench.deliver(spec(Single()), middlewares=Middlewares(batch_process=(explode,)))
    assert bench.row(row_id).status == Status.PENDING


def test_a_bucket_that_somebody_else_holds_is_refused_and_not_read() -> None:
    bench, transport = Bench(), Single()
    mine, theirs = bench.insert(1, 2)
    with bench.store.twin().claims(bench.box).open({2: None}, 10):
        report = bench.deliver(spec(transport))
    assert transport.ids == [mine]
    assert report.refused == {2}
    assert bench.row(theirs).status == Status.PENDING


def test_closing_a_delivery_closes_its_transports() -> None:
    class Closing(Single):
        closed = False

        def close(self) -> None:
            self.closed = True

    bench, transport = Bench(), Closing()
    bench.delivery(spec(transport)).close()
    assert transport.closed


# ── the kind of claim ────────────────────────────────────────────────────────────────────────────────


class InSession:
    def __call__(self, _item: Item, _payload: Any, *, session: Any) -> None:
        """Writes in the engine's transaction."""


@pytest.mark.parametrize(
    ("transport", "strategies", "kind"),
    [(Batches(), [], "plain_claims"), (InSession(), [], "claims"), (Batches(), [says(PROCESS)], "claims")],
)
def test_only_where_no_users_code_takes_part_may_the_store_write_ahead(
    transport: Any, strategies: list[Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, asked = Bench(), list[str]()

    def noting(name: str) -> Any:
        make = getattr(bench.store, name)

        def noted(box: Box) -> Any:
            asked.append(name)
            return make(box)

        return noted

    for name in ("plain_claims", "claims"):
        monkeypatch.setattr(bench.store, name, noting(name))
    bench.delivery(spec(transport), strategies=strategies)
    assert asked[0] == kind
