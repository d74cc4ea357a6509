"""What people do with rows: look at them, and retry, discard or delete them, on PostgreSQL and on MariaDB."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.failures import MemoryFailures
from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.looking.items import SqlItems
from boxengine.domain.box import Backoff, Box, BoxType, StrictOrder
from boxengine.domain.item import Status
from boxengine.engine.item_actions import Action, ItemActions, Tally
from boxengine.errors import BoxError, QueueUnavailable, SchemaMismatch
from boxengine.ports import ItemFilter, RememberedFailure, Signal
from boxengine.ports.events import DiscardedByHand, Event
from tests.conformance.sql_stores import SqlHarness

ALL = ItemFilter()
PENDING, FAILED, DELIVERED, DISCARDED = map(int, Status)
BECOMES = {Action.RETRY: PENDING, Action.RESTART: PENDING, Action.DISCARD: DISCARDED, Action.DELETE: None}
"""The status of a failed row after each action."""


class Bench:
    """A box, its rows, and what looks at them and acts on them."""

    def __init__(self, harness: SqlHarness, **policy: Any) -> None:
        assert isinstance(harness.store, SqlStore)
        self.harness = harness
        self.engine = harness.store.engine
        self.box = harness.make_box(backoff=Backoff(minimal=timedelta(hours=1)), **policy)
        self.signals: list[Signal] = []
        self.store = SqlItems(harness.store, signal=self.signals.extend)
        self.memory = MemoryFailures(clock=ManualClock())
        self.actions = ItemActions(self.store, self.memory)

    def insert(self, status: int = FAILED, **columns: Any) -> int:
        tried = {} if status == PENDING else {"errors_count": 3, "processed_at": self.harness.now()}
        return self.harness.insert(self.box, status=status, **{**tried, **columns})

    def waiting(self, **columns: Any) -> int:
        """A pending row in its pause after a failed attempt."""
        return self.insert(PENDING, errors_count=1, processed_at=self.harness.now(), **columns)

    def statuses(self, *ids: int) -> list[int | None]:
        return self.harness.statuses(self.box, *ids)

    @property
    def dialect(self) -> str:
        return self.engine.dialect.name

    def execute(self, sql: str) -> None:
        with self.engine.begin() as connection:
            connection.execute(sa.text(sql))

    def run(self, action: Action, which: ItemFilter = ALL, *, limit: int | None = None) -> Tally:
        return self.actions.run(self.box, action, which, limit=limit)


@pytest.fixture
def bench(harness: SqlHarness) -> Bench:
    return Bench(harness)


def of(*statuses: int, **more: Any) -> ItemFilter:
    return ItemFilter(statuses=frozenset(statuses), **more)


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────


def test_each_part_of_a_filter_restricts_and_they_restrict_together(bench: Bench) -> None:
    old = bench.insert(FAILED, event_key="a", created_at=bench.harness.ago(hours=2))
    new = bench.insert(FAILED, event_key="a")
    other = bench.insert(DELIVERED, event_key="b")
    fresh = bench.insert(PENDING, event_key="b")
    waiting = bench.waiting(event_key="a")
    hour_ago = bench.harness.ago(hours=1)

    def found(which: ItemFilter) -> list[int]:
        ids = bench.store.ids(bench.box, which, after=0, limit=100)
        assert bench.store.count(bench.box, which) == len(ids)
        assert [row.id for row in bench.store.page(bench.box, which, after=0, limit=100)] == ids
        return ids

    assert found(ALL) == [old, new, other, fresh, waiting]
    assert found(of(FAILED, DELIVERED)) == [old, new, other]
    assert found(ItemFilter(ids=(new, fresh, 999_999))) == [new, fresh]
    assert found(ItemFilter(event_key="a")) == [old, new, waiting]
    assert found(ItemFilter(created_from=hour_ago)) == [new, other, fresh, waiting]
    assert found(ItemFilter(created_before=hour_ago)) == [old]
    assert found(ItemFilter(up_to=new)) == [old, new]
    assert found(ItemFilter(tried=True)) == [old, new, other, waiting]
    assert found(of(PENDING, tried=True)) == [waiting]
    assert found(of(FAILED, event_key="a", created_from=hour_ago)) == [new]


def test_keys_that_differ_in_case_are_two_keys_even_in_a_table_that_takes_them_for_one(bench: Bench) -> None:
    if bench.dialect == "mysql":
        bench.execute(f"ALTER TABLE {bench.box.table} MODIFY event_key varchar(255) COLLATE utf8mb4_general_ci")
    lower, _upper = bench.insert(event_key="a"), bench.insert(event_key="A")
    assert bench.store.ids(bench.box, ItemFilter(event_key="a"), after=0, limit=10) == [lower]


def test_pages_follow_one_another(bench: Bench) -> None:
    ids = [bench.insert() for _ in range(5)]
    first = bench.store.page(bench.box, ALL, after=0, limit=3)
    rest = bench.store.page(bench.box, ALL, after=first[-1].id, limit=3)
    assert [row.id for row in first + rest] == ids
    assert bench.store.last_id(bench.box) == ids[-1]


def test_an_empty_box_has_no_last_id(bench: Bench) -> None:
    assert bench.store.last_id(bench.box) is None


def test_a_row_is_shown_with_all_it_has_and_a_page_leaves_the_payload_out(bench: Bench) -> None:
    moment = bench.harness.ago(hours=1)
    item = bench.insert(
        FAILED, event_key="42", event_name="placed", payload=b"\x00\xff", options={"key": "7"}, error_log="no: why",
        bucket=3, created_at=moment, uuid="018f1e1e-0000-7000-8000-000000000001",
    )  # fmt: skip
    row = bench.store.get(bench.box, item)
    assert row is not None
    assert (row.id, row.event_key, row.event_name, row.bucket) == (item, "42", "placed", 3)
    assert (row.payload, row.options, row.error_log) == (b"\x00\xff", {"key": "7"}, "no: why")
    assert (row.status, row.errors_count, row.created_at) == (FAILED, 3, moment)
    assert row.uuid == "018f1e1e-0000-7000-8000-000000000001"
    assert isinstance(row.processed_at, datetime)
    assert row.processed_at.utcoffset() == timedelta(0)
    (listed,) = bench.store.page(bench.box, ALL, after=0, limit=10)
    assert listed.payload is None
    assert listed.options == {"key": "7"}


def test_a_row_that_is_not_there_is_none(bench: Bench) -> None:
    assert bench.store.get(bench.box, 1) is None


# ── acting ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_retry_makes_failed_rows_due_at_once_and_they_still_count_as_tried(bench: Bench) -> None:
    item = bench.insert(FAILED, error_log="the reason")
    before = bench.harness.row(bench.box, item)
    assert bench.run(Action.RETRY) == Tally(changed=1, left=0)
    row = bench.harness.row(bench.box, item)
    assert row is not None
    assert before is not None
    assert (row["status"], row["errors_count"], row["error_log"]) == (0, 0, "the reason")
    assert row["processed_at"] == before["processed_at"]
    assert [due.id for due in bench.harness.store.poll(bench.box, range(4), 10)] == [item]


def test_a_retried_row_that_no_attempt_has_a_moment_of_counts_as_tried(bench: Bench) -> None:
    """Imported, or rejected on its way in: the retry strategies are asked about it, too."""
    item = bench.insert(FAILED, processed_at=None)
    bench.run(Action.RETRY)
    row = bench.harness.row(bench.box, item)
    assert row is not None
    assert row["processed_at"] is not None
    assert [due.id for due in bench.harness.store.poll(bench.box, range(4), 10)] == [item]


def test_a_forced_retry_makes_rows_as_if_never_tried(bench: Bench) -> None:
    item = bench.insert(FAILED, error_log="the reason")
    assert bench.run(Action.RESTART) == Tally(changed=1, left=0)
    row = bench.harness.row(bench.box, item)
    assert row is not None
    assert (row["status"], row["errors_count"], row["processed_at"], row["error_log"]) == (0, 0, None, "the reason")
    assert [due.id for due in bench.harness.store.poll(bench.box, range(4), 10)] == [item]


def test_a_discard_by_hand_says_so_above_the_log_of_the_last_failure_and_is_told(bench: Bench) -> None:
    first, other = bench.insert(FAILED, error_log="the reason"), bench.insert(FAILED, error_log=None)
    told: list[int] = []

    class Watching:
        def see(self, event: Event) -> None:
            assert isinstance(event, DiscardedByHand)
            told.extend(event.ids)

    ItemActions(bench.store, bench.memory, observer=Watching()).run(bench.box, Action.DISCARD, ALL)
    for item, last in ((first, ["the reason"]), (other, [])):
        row = bench.store.get(bench.box, item)
        assert row is not None
        assert row.error_log is not None
        head, *rest = row.error_log.split("\n")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z discarded by hand", head)
        assert rest == last
    assert sorted(told) == [first, other]


def test_without_a_status_an_action_is_for_failed_rows_alone(bench: Bench) -> None:
    for action in Action:
        others = [bench.insert(status) for status in (PENDING, DELIVERED, DISCARDED)] + [bench.waiting()]
        failed = bench.insert(FAILED)
        assert bench.actions.count(bench.box, action, ALL) == 1
        assert bench.run(action) == Tally(changed=1, left=0)
        assert bench.statuses(*others) == [PENDING, DELIVERED, DISCARDED, PENDING]
        assert bench.statuses(failed) == [BECOMES[action]]


@pytest.mark.parametrize(
    ("action", "after"),
    [
        (Action.RETRY, [PENDING, PENDING, PENDING, DELIVERED, PENDING]),
        (Action.DISCARD, [DISCARDED, DISCARDED, DISCARDED, DELIVERED, DISCARDED]),
        (Action.DELETE, [PENDING, PENDING, None, None, None]),
    ],
)
def test_ids_are_enough_to_say_which_rows_are_meant_whatever_suitable_status_they_have(
    bench: Bench, action: Action, after: list[int | None]
) -> None:
    rows = [bench.insert(PENDING), bench.waiting(), bench.insert(FAILED), bench.insert(DELIVERED)]
    rows.append(bench.insert(DISCARDED))
    bench.run(action, ItemFilter(ids=tuple(rows)))
    assert bench.statuses(*rows) == after


def test_of_pending_rows_a_retry_takes_those_that_wait(bench: Bench) -> None:
    fresh, waiting = bench.insert(PENDING), bench.waiting()
    assert bench.run(Action.RETRY, of(PENDING)) == Tally(changed=1, left=0)
    assert [due.id for due in bench.harness.store.poll(bench.box, range(4), 10)] == [fresh, waiting]


def test_pending_rows_are_deleted_only_where_their_status_is_named(bench: Bench) -> None:
    item = bench.insert(PENDING)
    assert bench.run(Action.DELETE, ItemFilter(ids=(item,))) == Tally(changed=0, left=0)
    assert bench.statuses(item) == [PENDING]
    assert bench.run(Action.DELETE, of(PENDING)) == Tally(changed=1, left=0)
    assert bench.statuses(item) == [None]


@pytest.mark.parametrize(("action", "status"), [(Action.RETRY, DELIVERED), (Action.DISCARD, DELIVERED)])
def test_an_action_refuses_a_status_that_it_is_not_for(bench: Bench, action: Action, status: int) -> None:
    item = bench.insert(status)
    with pytest.raises(BoxError, match="is not for delivered items"):
        bench.run(action, of(status))
    assert bench.statuses(item) == [DELIVERED]


@pytest.mark.parametrize("action", list(Action))
def test_rows_that_a_worker_holds_are_passed_over_without_waiting_and_reported(bench: Bench, action: Action) -> None:
    # Few rows, and most of them held: where a database would rather read the table than its index.
    held = [bench.waiting(bucket=0) for _ in range(20)]
    free = [bench.insert(FAILED, bucket=0) for _ in range(5)]
    for item in held:
        bench.harness.set_row(bench.box, item, processed_at=bench.harness.ago(hours=2))
    with bench.harness.other.claims(bench.box).open({0: None}, 100) as claim:
        assert [item.id for item in claim.items] == held
        assert bench.run(action, of(PENDING, FAILED)) == Tally(changed=5, left=20)
    assert bench.statuses(*held) == [PENDING] * 20
    assert bench.statuses(*free) == [BECOMES[action]] * 5


def test_a_retry_forgets_what_was_remembered_outside_the_database(bench: Bench) -> None:
    retried, other = bench.insert(event_key="a"), bench.insert(event_key="b")
    failures = dict.fromkeys((retried, other), RememberedFailure(9, "no"))
    bench.memory.remember(bench.box, failures, ttl=timedelta(hours=1))
    bench.run(Action.RETRY, ItemFilter(event_key="a"))
    assert set(bench.memory.recall(bench.box, [retried, other])) == {other}


def test_a_retry_is_done_though_redis_is_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def out(*_: object) -> None:
        raise QueueUnavailable("Redis does not answer")

    monkeypatch.setattr(bench.memory, "forget", out)
    items = SqlItems(SqlStore(bench.engine), signal=out)
    item = bench.insert()
    assert ItemActions(items, bench.memory).run(bench.box, Action.RETRY, ALL) == Tally(changed=1, left=0)
    assert bench.statuses(item) == [PENDING]


def test_a_limit_takes_the_first_rows_by_id(bench: Bench) -> None:
    rows = [bench.insert() for _ in range(5)]
    assert bench.run(Action.DISCARD, limit=3) == Tally(changed=3, left=0)
    assert bench.statuses(*rows) == [DISCARDED] * 3 + [FAILED] * 2


def test_thousands_of_rows_go_batch_by_batch_and_so_do_thousands_of_ids(bench: Bench) -> None:
    rows = [bench.insert() for _ in range(2)]
    _multiply(bench, times=11)
    told: list[int] = []
    tally = bench.actions.run(bench.box, Action.DISCARD, ALL, progress=told.append)
    assert (tally, told) == (Tally(changed=4096, left=0), [1000, 1000, 1000, 1000, 96])
    last = bench.store.last_id(bench.box)
    assert last is not None
    named = ItemFilter(ids=tuple(range(rows[0], last + 1)))
    assert bench.actions.count(bench.box, Action.DELETE, named) == 4096
    assert bench.run(Action.DELETE, named) == Tally(changed=4096, left=0)
    assert bench.harness.rows(bench.box) == []


def test_what_comes_while_an_action_runs_does_not_keep_it_running(bench: Bench) -> None:
    first = bench.insert()
    came: list[int] = []

    def one_more(_done: int) -> None:
        assert not came, "it goes on with what came meanwhile"
        came.append(bench.insert())

    assert bench.actions.run(bench.box, Action.DISCARD, ALL, progress=one_more) == Tally(changed=1, left=0)
    assert bench.statuses(first, *came) == [DISCARDED, FAILED]


@pytest.mark.parametrize("strict", list(StrictOrder))
@pytest.mark.parametrize("action", list(Action))
def test_whatever_lets_other_rows_go_on_wakes_the_workers(
    harness: SqlHarness, strict: StrictOrder, action: Action
) -> None:
    bench = Bench(harness, strict_order=strict)
    bench.run(action)
    assert bench.signals == []
    bench.insert(FAILED)
    bench.run(action)
    again = action in (Action.RETRY, Action.RESTART)
    expected = again or strict is not StrictOrder.NONE
    assert bench.signals == ([Signal(bench.box.name, None, again=again)] if expected else [])


def _multiply(bench: Bench, *, times: int) -> None:
    """Doubles the rows so many times."""
    names = "event_key, bucket, status, payload, errors_count, processed_at, created_at, updated_at"
    uuid = "gen_random_uuid()" if bench.dialect == "postgresql" else "uuid()"
    for _ in range(times):
        bench.execute(f"INSERT INTO {bench.box.table} (uuid, {names}) SELECT {uuid}, {names} FROM {bench.box.table}")


# ── tables made elsewhere ────────────────────────────────────────────────────────────────────────────

BOX = Box(name="order_item", type=BoxType.OUTBOX, table="order_items", bucket_size=4)
OLD_POSTGRESQL = """
CREATE TABLE order_items (
  id bigserial PRIMARY KEY, uuid varchar NOT NULL, event_key {key} NOT NULL, bucket integer NOT NULL,
  status integer DEFAULT 0 NOT NULL, proto_payload bytea NOT NULL, errors_count integer DEFAULT 0 NOT NULL,
  processed_at timestamp(6), created_at timestamp(6) NOT NULL, updated_at timestamp(6) NOT NULL
)"""
OLD_MYSQL = """
CREATE TABLE order_items (
  id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY, uuid varchar(36) NOT NULL, event_key {key} NOT NULL,
  bucket int NOT NULL, status int NOT NULL DEFAULT 0, proto_payload blob NOT NULL,
  errors_count int NOT NULL DEFAULT 0, processed_at datetime(6), created_at datetime(6) NOT NULL,
  updated_at datetime(6) NOT NULL
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci"""


@pytest.mark.parametrize("key", ["bigint", "varchar(255)"])
@pytest.mark.parametrize("database", ["postgresql", "mysql"])
def test_an_old_table_shows_its_rows_and_takes_every_action(
    request: pytest.FixtureRequest, database: str, key: str
) -> None:
    url = request.getfixturevalue("postgres_url" if database == "postgresql" else "mysql_url")
    ddl = (OLD_POSTGRESQL if database == "postgresql" else OLD_MYSQL).format(key=key)
    columns = "uuid, event_key, bucket, status, proto_payload, errors_count, processed_at, created_at, updated_at"
    at = "'2026-02-03 04:05:06'"
    engine = connect(url, connections=2)
    with engine.begin() as connection:
        connection.exec_driver_sql(ddl)
        for n in (1, 2, 3, 4):
            row = f"'018f1e1e00007000800000000000000{n}', {n}, 1, 1, 'hi', 2, {at}, {at}, {at}"
            connection.exec_driver_sql(f"INSERT INTO order_items ({columns}) VALUES ({row})")
    items = SqlItems(SqlStore(engine))
    actions = ItemActions(items, MemoryFailures(clock=ManualClock()))
    shown = items.get(BOX, 2)
    assert shown is not None
    assert (shown.event_key, shown.payload, shown.options, shown.error_log) == ("2", b"hi", None, None)
    assert isinstance(shown.created_at, datetime)
    assert shown.created_at.isoformat() == "2026-02-03T04:05:06+00:00"
    wanted = ItemFilter(uuid="018f1e1e-0000-7000-8000-000000000002")
    assert items.ids(BOX, wanted, after=0, limit=9) == [2]
    for n, action in enumerate(Action, start=1):
        which = ItemFilter(event_key=str(n), created_from=shown.created_at)
        assert actions.run(BOX, action, which) == Tally(changed=1, left=0)
    with engine.connect() as connection:
        left = connection.exec_driver_sql("SELECT event_key, status FROM order_items ORDER BY id").all()
    assert [(str(event_key), status) for event_key, status in left] == [
        ("1", PENDING),
        ("2", PENDING),
        ("3", DISCARDED),
    ]
    engine.dispose()


# ── buckets that are gone ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("action", [Action.RETRY, Action.RESTART])
def test_what_goes_out_again_leaves_a_bucket_that_the_box_no_longer_has(bench: Bench, action: Action) -> None:
    gone, there = bench.insert(DISCARDED, bucket=40, event_key="7"), bench.insert(FAILED, bucket=1, event_key="7")
    assert bench.run(action, of(DISCARDED, FAILED)) == Tally(2, 0)
    assert [row["bucket"] for row in bench.harness.rows(bench.box)] == [3, 1], (
        "an application may choose buckets itself"
    )
    due = bench.harness.store.poll(bench.box, list(bench.box.buckets), 10)
    assert {row.id for row in due} == {gone, there}


def test_nothing_moves_under_a_configuration_with_another_number_of_buckets(bench: Bench) -> None:
    gone = bench.insert(DISCARDED, bucket=40)
    recorded = "boxengine bucket_size=64"
    bench.execute(
        f"COMMENT ON TABLE {bench.box.table} IS '{recorded}'"
        if bench.dialect == "postgresql"
        else f"ALTER TABLE {bench.box.table} COMMENT = '{recorded}'"
    )
    with pytest.raises(SchemaMismatch, match="was filled with 64"):
        bench.run(Action.RETRY, of(DISCARDED))
    assert bench.statuses(gone) == [DISCARDED]


def test_a_key_that_the_partition_strategy_does_not_take_is_named(harness: SqlHarness) -> None:
    bench = Bench(harness, partition_strategy=lambda key, size: key % size)
    gone = bench.insert(DISCARDED, bucket=40, event_key="seven")
    with pytest.raises(BoxError, match=f"item {gone} is in a bucket that the box no longer has, .* 'seven'"):
        bench.run(Action.RETRY, of(DISCARDED))
    assert bench.statuses(gone) == [DISCARDED]
