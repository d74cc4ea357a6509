"""Subscriptions: each reads the whole log by itself, and retention waits for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped

from boxengine import OutboxItem
from boxengine.adapters.memory.leases import MemoryLeases
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.log import moving
from boxengine.adapters.sql.log.foreign import reposition
from boxengine.adapters.sql.making import checks, schema, sizes
from boxengine.adapters.system import SystemClock
from boxengine.domain.box import Beginning, Retention
from boxengine.domain.item import Status
from boxengine.engine.observation import NullObserver
from boxengine.engine.retention import Retention as Cleaning
from boxengine.engine.running.outages import Outages
from boxengine.errors import SchemaMismatch
from boxengine.ports import events
from tests.eventually import eventually
from tests.integration.log.shared import NAMES, SharedLog, reader_of, send_back_during, shared_log

DELIVERED = [Status.DELIVERED]


@pytest.fixture
def log(postgres_url: str) -> Iterator[SharedLog]:
    with shared_log(postgres_url) as log:
        yield log


def delete_passed(log: SharedLog, name: str, *, limit: int = 100) -> int:
    later = datetime.now(UTC) + timedelta(hours=1)
    return log.store.delete_finished(
        log.readers[name], DELIVERED, created_from=datetime(1970, 1, 1, tzinfo=UTC), created_before=later, limit=limit
    )


def test_each_subscription_gets_every_item_in_order(log: SharedLog) -> None:
    ids = [log.commit(str(number)) for number in range(5)]
    assert log.read("billing") == ids
    assert log.read("search") == ids
    assert log.read("billing") == log.read("search") == []


def test_a_receiver_that_fails_does_not_hold_the_other_subscription(log: SharedLog) -> None:
    first, second = log.commit(), log.commit()
    log.read("billing", fail=(first, second))
    assert log.aside("billing") == [(first, 0, 1), (second, 0, 1)]
    assert log.read("search") == [first, second]
    assert log.aside("search") == []


def test_two_workers_hold_one_bucket_for_two_subscriptions_at_once(log: SharedLog) -> None:
    item = log.commit()
    with log.store.plain_claims(log.readers["billing"]).open({0: None}, 10) as claim:
        assert [each.id for each in claim.items] == [item]
        assert log.read("search") == [item]


def test_retention_deletes_only_what_every_subscription_has_passed(log: SharedLog) -> None:
    ids = [log.commit(str(number)) for number in range(4)]
    log.read("billing")
    assert delete_passed(log, "billing") == 0
    assert log.in_log() == ids
    log.read("search")
    last = log.commit()
    log.read("billing")
    assert delete_passed(log, "billing") == 4
    assert log.in_log() == [last]
    assert log.read("search") == [last]


def test_retention_heeds_a_subscription_that_this_worker_does_not_know(log: SharedLog) -> None:
    item = log.commit()
    log.read("billing")
    log.read("search")
    newer = replace(log.box, subscriptions=(*NAMES, "audit"))
    schema.create(log.engine, [reader_of(newer, "audit")])
    assert delete_passed(log, "billing") == 0
    assert log.in_log() == [item]


def test_retention_deletes_nothing_by_a_position_of_another_server(log: SharedLog) -> None:
    item = log.commit()
    log.read("billing")
    log.read("search")
    log.run("UPDATE order_items_search_positions SET server = server + 1")
    assert delete_passed(log, "billing") == 0
    assert log.in_log() == [item]


def test_retention_deletes_nothing_to_which_a_subscription_is_sent_back_meanwhile(log: SharedLog) -> None:
    ids = [log.commit(str(number)) for number in range(3)]
    for name in NAMES:
        log.read(name)
    send_back_during(log, ids[1], lambda: delete_passed(log, "billing"))
    assert log.read("billing") == ids[1:]
    assert delete_passed(log, "billing") == 3


def test_a_subscription_that_is_sent_back_waits_for_a_removal_that_is_under_way(log: SharedLog) -> None:
    ids = [log.commit(str(number)) for number in range(3)]
    for name in NAMES:
        log.read(name)
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with ThreadPoolExecutor(2) as threads:
        with log.engine.begin() as connection:
            connection.execute(sa.text(f"SELECT FROM order_items_log WHERE id = {ids[2]} FOR UPDATE"))
            removed = threads.submit(delete_passed, log, "billing")
            eventually(lambda: log.ask(waits) == [(1,)])
            back = threads.submit(moving.Mover(log.engine, log.readers["billing"]).back, moving.Target(item=ids[0]))
            eventually(lambda: log.ask(waits) == [(2,)])
        assert removed.result() == 3
        assert back.result().items == 0, "all of them are gone"


def test_what_is_over_the_limit_is_deleted_though_a_subscription_has_not_passed_it(log: SharedLog) -> None:
    old, young = log.commit(), log.commit()
    log.run(f"UPDATE order_items_log SET created_at = created_at - interval '3 days' WHERE id = {old}")
    log.read("billing")
    limited = replace(log.readers["billing"], retention=Retention(at_most=timedelta(days=2)))
    log.readers["billing"] = limited
    log.store.close()
    fresh = type(log.store)(log.engine)
    deleted = fresh.delete_finished(
        limited,
        DELIVERED,
        created_from=datetime(1970, 1, 1, tzinfo=UTC),
        created_before=datetime.now(UTC) + timedelta(hours=1),
        limit=100,
    )
    assert deleted == 1
    assert log.read("search") == [young]


def test_a_new_subscription_begins_where_it_is_told_to(log: SharedLog) -> None:
    before = log.commit()
    newer = replace(log.box, subscriptions=(*NAMES, "audit", "mails"))
    log.readers["audit"] = reader_of(newer, "audit", begins=Beginning.OLDEST)
    log.readers["mails"] = reader_of(newer, "mails", begins=Beginning.NOW)
    with log.engine.connect() as late, late.begin():
        open_item = log.put(late)
        schema.create(log.engine, [log.readers["audit"], log.readers["mails"]])
    after = log.commit()
    assert log.read("audit") == [before, open_item, after]
    assert log.read("mails") == [open_item, after]


def test_an_item_put_into_a_side_table_has_an_id_of_its_own(log: SharedLog) -> None:
    first = log.commit()
    log.run("INSERT INTO order_items_billing (uuid, event_key, bucket, payload) VALUES (gen_random_uuid(), 'k', 0, '')")
    last = log.commit()
    ((aside, _, _),) = log.aside("billing")
    assert first < aside < last
    assert log.read("billing") == [first, aside, last]


def test_making_the_tables_twice_changes_nothing_and_they_are_in_order(log: SharedLog) -> None:
    boxes = list(log.readers.values())
    sizes.record(log.engine, boxes)
    log.commit()
    log.read("billing")
    before = log.ask("SELECT * FROM order_items_billing_positions ORDER BY bucket")
    assert schema.create(log.engine, boxes) == []
    assert log.ask("SELECT * FROM order_items_billing_positions ORDER BY bucket") == before
    assert checks.check(log.engine, boxes) == []


def test_the_printed_statements_make_the_same_tables(log: SharedLog) -> None:
    columns = (
        "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns "
        "WHERE table_name LIKE 'order_items%' ORDER BY 1, 2"
    )
    indexes = "SELECT indexdef FROM pg_indexes WHERE tablename LIKE 'order_items%' ORDER BY 1"
    made = log.ask(columns), log.ask(indexes)
    names = ", ".join(
        str(name) for (name,) in log.ask("SELECT tablename FROM pg_tables WHERE tablename LIKE 'order_items%'")
    )
    log.run(f"DROP TABLE {names} CASCADE")
    for statement in schema.ddl("postgresql", list(log.readers.values())):
        log.run(statement.replace("%", "%%"))
    assert (log.ask(columns), log.ask(indexes)) == made


def test_a_subscription_that_the_configuration_has_lost_is_refused_with_what_to_do(log: SharedLog) -> None:
    smaller = replace(log.box, subscriptions=("search",))
    left = reader_of(smaller, "search")
    told = r"deploy the one that does or, if none does any more, .+ subscriptions drop order_item\.billing"
    with pytest.raises(SchemaMismatch, match=told):
        log.store.claims(left).open({0: None}, 1).__enter__()
    (finding,) = checks.check(log.engine, [left])
    assert "order_item.billing has a position" in finding.message


def test_a_log_that_was_read_without_subscriptions_is_refused_with_what_to_do(log: SharedLog) -> None:
    schema.create(log.engine, [replace(log.box, subscriptions=())])
    (finding, *_) = checks.check(log.engine, [log.readers["search"]])
    assert "subscriptions drop order_item" in finding.message


def test_a_log_with_subscriptions_is_not_read_without_them(log: SharedLog) -> None:
    plain = replace(log.box, subscriptions=())
    schema.create(log.engine, [plain])
    findings = checks.check(log.engine, [plain])
    assert any("order_item.billing, order_item.search" in finding.message for finding in findings)


def test_a_log_on_another_server_is_put_right_for_all_its_subscriptions_together(log: SharedLog) -> None:
    first = log.commit()
    log.read("billing")
    second = log.commit()
    for name in NAMES:
        log.run(f"UPDATE order_items_{name}_positions SET server = server + 1")
    assert reposition(log.engine, log.readers["billing"]) == 3
    assert reposition(log.engine, log.readers["search"]) is None
    assert log.read("billing") == [second]
    assert log.read("search") == [first, second]


def test_what_a_subscription_has_not_passed_has_an_age_of_its_own(log: SharedLog) -> None:
    first, second = log.commit(), log.commit()
    log.run(f"UPDATE order_items_log SET created_at = created_at - interval '9 days' WHERE id = {first}")
    log.read("billing", fail=(int(first),), send=1)
    ages = {name: log.store.unread_since(box) for name, box in log.readers.items()}
    (oldest,), (youngest,) = log.ask(
        f"SELECT created_at FROM order_items_log WHERE id IN ({first}, {second}) ORDER BY id"
    )
    assert ages == {"billing": youngest, "search": oldest}
    log.read("search")
    assert log.store.unread_since(log.readers["search"]) is None


def test_a_pass_of_retention_tells_of_a_subscription_that_holds_it_back(log: SharedLog) -> None:
    item = log.commit()
    log.run(f"UPDATE order_items_log SET created_at = created_at - interval '9 days' WHERE id = {item}")
    log.read("billing")
    told: list[events.RetentionHeld] = []

    class Telling(NullObserver):
        def see(self, event: events.Event) -> None:
            if isinstance(event, events.RetentionHeld):
                told.append(event)

    clock = SystemClock()
    retention = Cleaning(
        list(log.readers.values()),
        store=log.store,
        leases=MemoryLeases(clock=clock),
        outages=Outages(observer=Telling(), error_tracker=lambda *_, **__: None, clock=clock),
        observer=Telling(),
        clock=clock,
        token="t",
    )
    retention.turn()
    assert [(each.box.name, each.age.days) for each in told] == [("order_item.search", 9)]
    assert log.in_log() == [item]


def test_a_column_that_the_model_gets_goes_to_the_side_tables_of_all_subscriptions_before_the_log(
    log: SharedLog,
) -> None:
    class Base(DeclarativeBase):
        pass

    class OrderItem(OutboxItem, Base):
        __tablename__ = "order_items"
        tenant: Mapped[str | None]

    readers = list(log.readers.values())
    log.run("ALTER TABLE order_items ADD tenant varchar")
    (told,) = checks.check(log.engine, readers, [OrderItem])
    tables = ("order_items_billing", "order_items_search", "order_items_log")
    places = [told.remedy.index(f"{name} ADD COLUMN") for name in tables]
    assert places == sorted(places)
    log.run(told.remedy.removeprefix("As its owner: ").rstrip("."))
    assert checks.check(log.engine, readers, [OrderItem]) == []
    with log.engine.begin() as connection:
        item = {"event_key": "k", "bucket": 0, "payload": b"", "tenant": "acme"}
        (created,) = SqlRows(log.box, OrderItem).insert(connection, [item]).ids
    assert log.read("billing", fail=(int(created),)) == [created]
    assert log.ask("SELECT id, tenant FROM order_items_billing") == [(created, "acme")]
