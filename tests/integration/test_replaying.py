"""Delivered items once more, on PostgreSQL and on MariaDB."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.looking.items import SqlItems
from boxengine.domain.item import Status
from boxengine.engine.replaying import Contradiction, Replays, chosen
from boxengine.errors import BoxError
from boxengine.ports import Copying, ItemFilter, Overtaking, Replay, Signal
from tests.conformance.sql_stores import SqlHarness, mysql

PENDING, FAILED, DELIVERED, DISCARDED = map(int, Status)
MARKED = Copying()


class Bench:
    """A box, its rows, and what replays them."""

    def __init__(self, harness: SqlHarness) -> None:
        assert isinstance(harness.store, SqlStore)
        self.harness = harness
        self.engine = harness.store.engine
        self.box = harness.make_box()
        self.signals: list[Signal] = []
        self.replays = Replays(SqlItems(harness.store, signal=self.signals.extend))

    def insert(self, status: int = DELIVERED, **columns: Any) -> int:
        return self.harness.insert(self.box, status=status, **columns)

    def row(self, item_id: int) -> dict[str, Any]:
        found = dict(self.harness.row(self.box, item_id) or {})
        options = found["options"]
        # MariaDB gives JSON as its text.
        found["options"] = json.loads(options) if isinstance(options, str) and options[:1] in '{["' else options
        return found

    def copies(self, *originals: int) -> list[dict[str, Any]]:
        """The rows that were not there, in the order of their ids."""
        return [self.row(row["id"]) for row in self.harness.rows(self.box) if row["id"] not in originals]


@pytest.fixture
def bench(harness: SqlHarness) -> Bench:
    return Bench(harness)


def test_a_copy_has_the_applications_own_columns(bench: Bench) -> None:
    with bench.engine.begin() as connection:
        for column in (
            "tenant varchar(20) NOT NULL",
            "ticket int UNIQUE",
            "twice int GENERATED ALWAYS AS (bucket * 2) STORED",
        ):
            connection.execute(sa.text(f"ALTER TABLE {bench.box.table} ADD COLUMN {column}"))
        connection.execute(sa.text(f"CREATE UNIQUE INDEX of_tenant ON {bench.box.table} (tenant, uuid)"))
    original = bench.insert(bucket=3, tenant="acme", ticket=7)
    assert bench.replays.run(bench.box, ItemFilter(ids=(original,)), MARKED) == 1
    (copy,) = bench.copies(original)
    assert (copy["tenant"], copy["ticket"], copy["twice"]) == ("acme", None, 6)


def test_a_copy_is_pending_marked_and_otherwise_the_same(bench: Bench) -> None:
    options = {"key": "42", "headers": {"x": "y"}}
    original = bench.insert(
        event_key="a",
        bucket=3,
        payload=b"\x00\xff",
        event_name="paid",
        options=options,
        errors_count=2,
        dedup_key="once",
    )
    before = bench.row(original)
    assert bench.replays.run(bench.box, ItemFilter(ids=(original,)), MARKED) == 1
    (copy,) = bench.copies(original)
    assert bench.row(original) == before
    assert copy["options"] == {"key": "42", "headers": {"x": "y", "Replay-Of": str(before["uuid"])}}
    assert str(copy["uuid"]) != str(before["uuid"])
    same = ("event_key", "bucket", "payload", "event_name")
    assert {name: copy[name] for name in same} == {name: before[name] for name in same}
    assert (copy["status"], copy["errors_count"], copy["processed_at"], copy["dedup_key"]) == (PENDING, 0, None, None)
    assert abs((copy["created_at"] - bench.harness.now()).total_seconds()) < 60
    assert bench.signals == [Signal(bench.box.name, None, again=True)], "the workers are woken"


@pytest.mark.parametrize("options", [None, "[]", '"text"', '{"headers": 5}'])
def test_whatever_the_options_are_the_copy_is_marked(bench: Bench, options: str | None) -> None:
    original = bench.insert(**({} if options is None else {"options": json.loads(options)}))
    bench.replays.run(bench.box, ItemFilter(ids=(original,)), MARKED)
    (copy,) = bench.copies(original)
    assert copy["options"]["headers"] == {"Replay-Of": str(bench.row(original)["uuid"])}


def test_copies_stand_behind_all_items_of_their_key_in_the_order_of_their_originals(bench: Bench) -> None:
    first, second = bench.insert(event_key="a"), bench.insert(event_key="a")
    live = bench.insert(PENDING, event_key="a")
    bench.replays.run(bench.box, ItemFilter(event_key="a"), MARKED)
    copies = bench.copies(first, second, live)
    assert [copy["options"]["headers"]["Replay-Of"] for copy in copies] == [
        str(bench.row(each)["uuid"]) for each in (first, second)
    ]
    assert min(copy["id"] for copy in copies) > live


def test_a_delivered_copy_does_not_overtake_what_waits_for_its_retry(bench: Bench) -> None:
    original, waiting = bench.insert(event_key="a"), bench.insert(PENDING, event_key="a")
    bench.replays.run(bench.box, ItemFilter(ids=(original,)), MARKED)
    (copy,) = bench.copies(original, waiting)
    bench.harness.set_row(bench.box, copy["id"], status=DELIVERED)
    with bench.harness.store.claims(bench.box).open({0: None}, 10) as claim:
        assert [item.id for item in claim.items] == [waiting]
        assert claim.later_delivered(claim.items) == {}, (
            "the copy holds an older state: latest_available must not discard for it"
        )


def test_only_delivered_items_are_replayed_and_only_those_that_are_meant(bench: Bench) -> None:
    meant = bench.insert(event_key="a")
    others = [bench.insert(status, event_key="a") for status in (PENDING, FAILED, DISCARDED)]
    others.append(bench.insert(event_key="b"))
    which = ItemFilter(event_key="a")
    assert bench.replays.count(bench.box, which) == 1
    assert bench.replays.run(bench.box, which, MARKED) == 1
    assert len(bench.copies(meant, *others)) == 1
    old = bench.insert(created_at=bench.harness.ago(hours=2))
    span = ItemFilter(created_from=bench.harness.ago(hours=3), created_before=bench.harness.ago(hours=1))
    assert bench.replays.run(bench.box, span, MARKED) == 1
    assert bench.row(old)["status"] == DELIVERED


def test_everything_is_too_much_and_other_statuses_are_retried(bench: Bench) -> None:
    with pytest.raises(BoxError, match="too much"):
        bench.replays.count(bench.box, ItemFilter())
    with pytest.raises(BoxError, match="retried"):
        bench.replays.count(bench.box, ItemFilter(ids=(1,), statuses=frozenset({FAILED})))


def test_a_replay_ends_though_its_copies_are_delivered_meanwhile(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxengine.engine.replaying.BATCH", 2)
    originals = [bench.insert(event_key="a") for _ in range(5)]

    def deliver(_items: int, _last: int) -> None:
        for copy in bench.copies(*originals):
            bench.harness.set_row(bench.box, copy["id"], status=DELIVERED)

    assert bench.replays.run(bench.box, ItemFilter(event_key="a"), MARKED, progress=deliver) == 5
    assert len(bench.copies(*originals)) == 5
    assert bench.replays.run(bench.box, ItemFilter(event_key="a"), MARKED, limit=3) == 3


def test_copies_may_go_elsewhere_and_may_keep_their_identity(bench: Bench) -> None:
    original = bench.insert(event_name="paid", options={"topic": "orders", "headers": {"x": "y"}})
    copying = Copying(event_name="again", options={"topic": "orders-replay"}, same_identity=True)
    bench.replays.run(bench.box, ItemFilter(ids=(original,)), copying)
    (copy,) = bench.copies(original)
    uuid = str(bench.row(original)["uuid"])
    assert copy["event_name"] == "again"
    assert copy["options"] == {
        "topic": "orders-replay",
        "headers": {"x": "y", "Replay-Of": uuid, "Idempotency-Key": uuid},
    }


def test_a_copys_uuid_has_no_dashes_where_there_is_no_room_for_them(mysql_url: str) -> None:
    bench = Bench(mysql(mysql_url))
    with bench.engine.begin() as connection:
        connection.execute(sa.text(f"ALTER TABLE {bench.box.table} MODIFY uuid CHAR(32) NOT NULL"))
    original = bench.insert(uuid=uuid4().hex)
    assert bench.replays.run(bench.box, ItemFilter(ids=(original,)), MARKED) == 1
    (copy,) = bench.copies(original)
    assert len(copy["uuid"]) == 32
    bench.harness.close()


def test_a_table_without_options_could_not_mark_a_copy(bench: Bench) -> None:
    original = bench.insert()
    with bench.engine.begin() as connection:
        connection.execute(sa.text(f"ALTER TABLE {bench.box.table} DROP COLUMN options"))
    with pytest.raises(BoxError, match="has no column options"):
        bench.replays.run(bench.box, ItemFilter(ids=(original,)), MARKED)


def test_nothing_of_an_earlier_replay_is_left_in_a_copy_of_a_copy(bench: Bench) -> None:
    original = bench.insert(options={"a": 1})
    first = replace(MARKED, transport="kafka", same_identity=True)
    bench.replays.run(bench.box, ItemFilter(ids=(original,)), first)
    (copy,) = bench.copies(original)
    uuid = str(bench.row(original)["uuid"])
    assert copy["options"] == {"a": 1, "replay_to": "kafka", "headers": {"Replay-Of": uuid, "Idempotency-Key": uuid}}
    bench.harness.set_row(bench.box, copy["id"], status=DELIVERED)
    bench.replays.run(bench.box, ItemFilter(ids=(copy["id"],)), MARKED)
    (again,) = bench.copies(original, copy["id"])
    assert again["options"] == {"a": 1, "headers": {"Replay-Of": str(copy["uuid"])}}


def test_a_key_that_the_application_chose_is_the_one_that_is_kept(bench: Bench) -> None:
    original = bench.insert(options={"headers": {"Idempotency-Key": "order-42"}})
    bench.replays.run(bench.box, ItemFilter(ids=(original,)), replace(MARKED, same_identity=True))
    (copy,) = bench.copies(original)
    assert copy["options"]["headers"]["Idempotency-Key"] == "order-42"


def test_what_overtakes_is_the_item_itself_in_its_old_place(bench: Bench) -> None:
    done, other = bench.insert(event_key="a", errors_count=2, options={"x": 1}), bench.insert(event_key="b")
    live = bench.insert(PENDING, event_key="a")
    before = bench.row(done)
    overtaking = Overtaking(transport="kafka")
    assert bench.replays.run(bench.box, ItemFilter(event_key="a"), overtaking) == 1
    assert bench.copies(done, other, live) == []
    row = bench.row(done)
    assert (row["status"], row["errors_count"], row["processed_at"]) == (PENDING, 0, None)
    assert (row["uuid"], row["created_at"]) == (before["uuid"], before["created_at"])
    headers = row["options"]["headers"]
    assert row["options"] == {"x": 1, "replay_to": "kafka", "headers": headers}
    assert headers["Replay-Of"] == str(before["uuid"])
    assert headers["Idempotency-Key"] not in ("", str(before["uuid"])), "receivers take it for a new one"
    assert bench.signals == [Signal(bench.box.name, None, again=True)]
    assert bench.replays.run(bench.box, ItemFilter(event_key="a"), overtaking) == 0, "it is not delivered yet"


def test_several_that_overtake_have_each_a_key_of_its_own_or_keep_theirs(bench: Bench) -> None:
    ids = [bench.insert(event_key="a") for _ in range(3)]
    bench.replays.run(bench.box, ItemFilter(event_key="a"), Overtaking())
    assert len({bench.row(each)["options"]["headers"]["Idempotency-Key"] for each in ids}) == 3
    for each in ids:
        bench.harness.set_row(bench.box, each, status=DELIVERED, options=None)
    bench.replays.run(bench.box, ItemFilter(event_key="a"), Overtaking(same_identity=True))
    for each in ids:
        assert bench.row(each)["options"]["headers"]["Idempotency-Key"] == str(bench.row(each)["uuid"])


@pytest.mark.parametrize("how", [MARKED, Overtaking()], ids=["copied", "overtaking"])
def test_what_is_replayed_leaves_a_bucket_that_the_box_no_longer_has(bench: Bench, how: Replay) -> None:
    gone = bench.insert(event_key="7", bucket=40)
    assert bench.replays.run(bench.box, ItemFilter(ids=(gone,)), how) == 1
    due = bench.harness.store.poll(bench.box, list(bench.box.buckets), 10)
    assert [row.bucket for row in due] == [7 % bench.box.bucket_size]


def test_a_replay_that_cannot_be_meant_is_refused() -> None:
    with pytest.raises(Contradiction, match="no transport 'ftp'; it has http, kafka"):
        chosen(transports=["http", "kafka"], transport="ftp")
    with pytest.raises(Contradiction, match="2 transports 'http', and a replay would go to all of them"):
        chosen(transports=["http", "kafka", "http"], transport="http")
    with pytest.raises(Contradiction, match="the item itself"):
        chosen(transports=["http"], overtaking=True, event_name="again")
    for name in ("headers", "replay_to"):
        with pytest.raises(Contradiction, match=name):
            chosen(transports=["http"], options={name: "x"})
    assert chosen(transports=["http"], transport="http", overtaking=True).transport == "http"
