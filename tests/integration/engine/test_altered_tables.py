"""Tables that are altered while a worker runs: it goes on with what is there, and repeats nothing."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

import pytest

from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.app.servers import database
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Failure
from boxengine.errors import SchemaMismatch
from tests.integration.engine.receivers import Receiver
from tests.integration.engine.rig import Rig
from tests.integration.engine.rigs import ON_POSTGRESQL, MakeRig

STATUS_INDEX = "ix_order_outbox_items_status"


def alter(rig: Rig, postgresql: str, mysql: str | None = None) -> None:
    text = mysql if mysql is not None and rig.engine.dialect.name != "postgresql" else postgresql
    rig.execute(f"ALTER TABLE {rig.box().table} {text}")
    rig.engine.dispose()


ALTERATIONS = {
    "a wider bucket": ("ALTER COLUMN bucket TYPE bigint", "MODIFY bucket bigint NOT NULL"),
    "no error_log": ("DROP COLUMN error_log", None),
    "no event_name": ("DROP COLUMN event_name", None),
    "no options": ("DROP COLUMN options", None),
    "no available_at": ("DROP COLUMN available_at", None),
    "a payload by its old name": ("RENAME COLUMN payload TO proto_payload", None),
}


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_a_running_worker_goes_on_with_an_altered_table(make_rig: MakeRig, alteration: str) -> None:
    rig = make_rig(box={"max_retries": 0})
    receiver = Receiver(lambda item: Failure("no") if item.errors_count == 0 and item.payload == b"bad" else None)
    rig.carry(receiver)
    payload = "payload" if "payload" not in alteration else "proto_payload"
    with rig.worker() as watcher:
        first = rig.insert()
        watcher.wait_for_settled(1)
        rig.insert(payload=b"bad")
        watcher.wait_for_settled(2)
        alter(rig, *ALTERATIONS[alteration])
        now = rig.now()
        values = {"event_key": "k", "bucket": 1, "created_at": now, "updated_at": now}
        bad = rig.put({**values, payload: b"bad", "uuid": "018f1e1e-0000-7000-8000-000000000001"})
        good = rig.put({**values, payload: b"x", "uuid": "018f1e1e-0000-7000-8000-000000000002"})
        watcher.wait_for_settled(4)
    found = dict(rig.ask(f"SELECT id, status FROM {rig.box().table}"))
    assert (found[first], found[bad], found[good]) == (Status.DELIVERED, Status.FAILED, Status.DELIVERED)
    assert len(receiver.ids) == len(set(receiver.ids)) == 4


@ON_POSTGRESQL
def test_statements_that_were_prepared_before_a_column_changed_its_type_are_prepared_anew(make_rig: MakeRig) -> None:
    rig = make_rig()
    store, box = database.connect_store(rig.boxes.resolved.settings), rig.box()
    row = rig.insert()
    assert [found.id for found in store.poll(box, [0], 10)] == [row]
    alter(rig, "ALTER COLUMN bucket TYPE bigint")
    assert [found.id for found in store.poll(box, [0], 10)] == [row]
    with store.claims(box).open({0: None}, 10) as claim:
        assert [item.id for item in claim.items] == [row]
    store.close()


def test_what_handlers_wrote_stands_though_a_column_of_the_outcome_is_gone(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 0})
    seen: list[int] = []

    def handler(item: Item, _payload: bytes, *, session: object) -> Failure | None:
        seen.append(item.id)
        assert session is not None
        return Failure("no") if item.bucket == 1 else None

    rig.carry(handler)
    with rig.worker() as watcher:
        rig.insert()
        watcher.wait_for_settled(1)
        alter(rig, "DROP COLUMN error_log")
        bad, good = rig.insert(bucket=1), rig.insert(bucket=2)
        watcher.wait_for_settled(3)
    found = dict(rig.ask(f"SELECT id, status FROM {rig.box().table}"))
    assert (found[bad], found[good]) == (Status.FAILED, Status.DELIVERED)
    assert sorted(seen) == [1, bad, good]


def test_an_added_column_and_a_dropped_index_are_seen_at_the_next_look(make_rig: MakeRig) -> None:
    rig = make_rig()
    alter(rig, "DROP COLUMN available_at")
    store, box = database.connect_store(rig.boxes.resolved.settings), rig.box()
    assert not store.table(box).has("available_at")
    assert store.look_again() == []
    alter(rig, "ADD COLUMN available_at timestamptz", "ADD COLUMN available_at datetime(6)")
    assert store.look_again() == [box.name]
    assert store.table(box).has("available_at")
    assert store.look_again() == []
    store.close()


def test_a_column_added_before_the_first_look_is_seen_at_it(make_rig: MakeRig) -> None:
    rig = make_rig()
    alter(rig, "DROP COLUMN available_at")
    store, box = database.connect_store(rig.boxes.resolved.settings), rig.box()
    assert not store.table(box).has("available_at")
    alter(rig, "ADD COLUMN available_at timestamptz", "ADD COLUMN available_at datetime(6)")
    assert store.look_again() == [box.name]
    assert store.table(box).has("available_at")
    store.close()


def test_an_index_that_is_dropped_stops_nothing(make_rig: MakeRig, database: str) -> None:
    rig = make_rig()
    rig.carry(lambda _item, _payload: None)
    with rig.worker() as watcher:
        rig.insert()
        watcher.wait_for_settled(1)
        index = "ix_order_outbox_items_pending" if database.startswith("postgresql") else STATUS_INDEX
        rig.execute(
            f"DROP INDEX {index}" if database.startswith("postgresql") else f"DROP INDEX {index} ON {rig.box().table}"
        )
        rig.insert()
        watcher.wait_for_settled(2)
    assert rig.statuses() == [Status.DELIVERED] * 2


def test_a_table_that_cannot_serve_any_more_is_told_once_and_nothing_of_it_is_sent(make_rig: MakeRig) -> None:
    rig = make_rig()
    receiver = Receiver()
    rig.carry(receiver)
    box = rig.box()
    with rig.worker() as watcher:
        rig.insert()
        watcher.wait_for_settled(1)
        alter(rig, "RENAME COLUMN updated_at TO changed_at")
        now = rig.now()
        values = {"event_key": "k", "bucket": 1, "uuid": "018f1e1e-0000-7000-8000-000000000001", "payload": b"x"}
        rig.put({**values, "created_at": now, "changed_at": now})
        watcher.wait_for(lambda: any("updated_at" in reason for _what, reason in watcher.outages))
        alter(rig, "RENAME COLUMN changed_at TO updated_at")
        watcher.wait_for_settled(2)
    assert [what for what, reason in watcher.outages if "updated_at" in reason].count(f"box {box.name}") <= 1
    store = SqlStore(rig.engine)
    rig.execute(f"DROP TABLE {box.table}")
    with pytest.raises(SchemaMismatch):
        store.poll(box, [0], 1)


@pytest.mark.parametrize(("type_", "largest"), [("integer", 2**31 - 1), ("bigint", 2**63 - 1)])
@ON_POSTGRESQL
def test_a_pause_with_jitter_is_the_domains_up_to_the_largest_id(make_rig: MakeRig, type_: str, largest: int) -> None:
    rig = make_rig(box={"max_retries": 5, "minimal_retry_interval": 100, "jitter_retry_interval": 1.0})
    alter(rig, f"ALTER COLUMN id TYPE {type_}")
    box, ago = rig.box(), timedelta(seconds=52)
    ids = [rig.insert(id=largest - step, errors_count=1, processed_at=rig.now() - ago) for step in range(20)]
    assert box.backoff is not None
    expected = {row for row in ids if box.backoff.pause(1, row) <= ago}
    with (
        closing(database.connect_store(rig.boxes.resolved.settings)) as store,
        store.claims(box).open({0: None}, 100) as claim,
    ):
        assert {item.id for item in claim.items} == expected
    assert 0 < len(expected) < len(ids)
