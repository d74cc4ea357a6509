"""An inbox box with a log: a message that comes twice is one item, wherever the first one has got to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.making import checks, schema
from boxengine.adapters.sql.receiving.inbox import SqlInbox
from boxengine.domain.box import BoxType, Storage
from boxengine.domain.item import Status
from boxengine.errors import SchemaMismatch
from boxengine.ports import Attributes
from tests.eventually import eventually
from tests.integration.log.bench import Bench

UUID_1, UUID_2 = uuid4(), uuid4()
NOW = datetime.now(UTC)


@pytest.fixture
def bench(postgres_url: str) -> Iterator[Bench]:
    bench = Bench(postgres_url, type=BoxType.INBOX)
    yield bench
    bench.engine.dispose()


def message(uuid: UUID | None = None, **columns: object) -> Attributes:
    return {"event_key": "k", "bucket": 0, "payload": b"{}", "uuid": str(uuid or uuid4()), **columns}


def receive(bench: Bench, *messages: Attributes) -> tuple[list[int], set[int]]:
    """Commits them in one transaction; returns their ids, and which of them were there before."""
    with bench.engine.begin() as connection:
        inserted = bench.rows.insert(connection, list(messages))
    return list(inserted.ids), set(inserted.known)


def test_a_message_that_comes_again_is_the_item_of_the_first_and_is_delivered_once(bench: Bench) -> None:
    assert receive(bench, message(UUID_1), message(UUID_2), message(UUID_1)) == ([1, 2, 1], set())
    again = message(UUID_1)
    assert receive(bench, again, message()) == ([1, 5], {1})
    assert bench.take() == [1, 2, 5]
    assert receive(bench, again) == ([1], {1})
    assert bench.take() == []


def test_a_log_is_made_beside_a_table_that_has_messages(bench: Bench) -> None:
    """An inbox box cannot be converted: its consumers are stopped, and its storage is switched."""
    box = replace(bench.box, name="late_item", table="late_items", storage=Storage.TABLE)
    schema.create(bench.engine, [box])
    with bench.engine.begin() as connection:
        SqlRows(box).insert(connection, [message()])
    box = replace(box, storage=Storage.LOG)
    schema.create(bench.engine, [box])
    assert checks.check(bench.engine, [box]) == []


def test_a_dedup_key_is_known_as_a_uuid_is(bench: Bench) -> None:
    first, _ = receive(bench, message(dedup_key="a"))
    assert receive(bench, message(dedup_key="a")) == (first, set(first))
    assert bench.take() == first


def test_the_second_of_two_transactions_at_once_finds_the_item_of_the_first(bench: Bench) -> None:
    found: list[tuple[list[int], set[int]]] = []
    with bench.engine.begin() as connection:
        first = bench.rows.insert(connection, [message(UUID_1)]).ids
        second = threading.Thread(target=lambda: found.append(receive(bench, message(UUID_1))))
        second.start()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'"
        )
        eventually(lambda: bench.ask(waiting) == [(1,)])
    second.join()
    assert found == [(list(first), set(first))]
    assert bench.take() == list(first)


def test_a_message_is_known_while_its_item_waits_for_a_retry_and_after_its_row_of_the_log_was_deleted(
    bench: Bench,
) -> None:
    ids, _ = receive(bench, message(UUID_1))
    assert bench.take(fail=tuple(ids)) == ids
    bench.run("DELETE FROM order_items_log")
    assert receive(bench, message(UUID_1)) == (ids, set(ids))
    assert bench.ask("SELECT count(*) FROM order_items_log") == [(0,)]


def test_messages_from_before_the_box_had_a_log_are_known(bench: Bench) -> None:
    table = replace(bench.box, storage=Storage.TABLE)
    with bench.engine.begin() as connection:
        (before,) = SqlRows(table).insert(connection, [message(UUID_1)]).ids
    assert receive(bench, message(UUID_1), message(UUID_2))[1] == {before}
    assert bench.take() == [before, before + 1]


def test_an_item_that_somebody_puts_into_the_side_table_as_well_does_not_hold_up_the_log(bench: Bench) -> None:
    (item,), _ = receive(bench, message(UUID_1))
    copied = (
        "INSERT INTO order_items (uuid, event_key, bucket, payload, status, errors_count, updated_at) "
        "SELECT uuid, event_key, bucket, payload, 3, 0, now() FROM order_items_log RETURNING id"
    )
    ((twin,),) = bench.ask(copied)
    assert bench.take(fail=(item,)) == [item]
    assert bench.side() == [(twin, Status.DISCARDED, 0)]
    later, _ = receive(bench, message())
    assert bench.take() == later


# ── the consumer's transaction ───────────────────────────────────────────────────────────────────────


def test_a_message_that_cannot_be_stored_becomes_a_failed_item_and_is_not_delivered(bench: Bench) -> None:
    inbox = SqlInbox(bench.store)
    with inbox.transaction(bench.box) as transaction, transaction.savepoint():
        (item,) = bench.rows.insert(transaction.session, [message(UUID_1)]).ids
        transaction.reject(int(item), "no value")
    assert bench.ask("SELECT id, status, errors_count, error_log FROM order_items") == [(item, 1, 1, "no value")]
    assert bench.take() == []
    assert receive(bench, message(UUID_1)) == ([item], {item})


def test_a_message_that_cannot_be_stored_does_not_stop_the_consumer_where_a_publication_has_the_log(
    bench: Bench,
) -> None:
    bench.run("CREATE PUBLICATION everything FOR ALL TABLES")
    with SqlInbox(bench.store).transaction(bench.box) as transaction, transaction.savepoint():
        (item,) = bench.rows.insert(transaction.session, [message()]).ids
        transaction.reject(int(item), "no value")
    assert bench.side() == [(item, Status.FAILED, 1)]
    assert checks.check(bench.engine, [bench.box]) == []


def test_options_and_payloads_of_messages_are_found_in_log_and_side_table(bench: Bench) -> None:
    aside, _ = receive(bench, message(dedup_key="a", options={"n": 1}, payload=b"a"))
    bench.take(fail=tuple(aside))
    bench.run("DELETE FROM order_items_log")
    logged, _ = receive(bench, message(dedup_key="b", options={"n": 2}, payload=b"b"))
    with SqlInbox(bench.store).transaction(bench.box) as transaction:
        assert transaction.stored_options(["a", "b", "c"]) == {"a": {"n": 1}, "b": {"n": 2}}
        assert transaction.stored_payloads([*aside, *logged, 99]) == {aside[0]: b"a", logged[0]: b"b"}


def test_the_columns_of_an_item_are_those_of_the_log(bench: Bench) -> None:
    columns = SqlInbox(bench.store).columns(bench.box)
    assert {"uuid", "dedup_key", "options"} <= columns
    assert not {"available_at", "status"} & columns


def test_a_log_that_could_store_a_message_twice_is_refused(bench: Bench) -> None:
    bench.run("DROP INDEX ux_order_items_log_uuid")
    with pytest.raises(SchemaMismatch, match="no unique index over uuid"):
        SqlInbox(bench.store).columns(bench.box)
    schema.create(bench.engine, [bench.box])
    assert "uuid" in SqlInbox(bench.store).columns(bench.box)


def test_retention_forgets_delivered_messages_when_it_deletes_them(bench: Bench) -> None:
    ids, _ = receive(bench, message(UUID_1, created_at=NOW - timedelta(days=9)))
    bench.take()
    span = {"created_from": NOW - timedelta(days=10), "created_before": NOW - timedelta(days=7)}
    assert bench.store.delete_finished(bench.box, [Status.DELIVERED], limit=10, **span) == 1
    again, known = receive(bench, message(UUID_1))
    assert again != ids
    assert known == set()
