"""What stands around the delivery of a log box: its tables, counts, retention, moves to other servers, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from boxengine import OutboxItem
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.log.foreign import reposition
from boxengine.adapters.sql.looking.census import SqlCensus
from boxengine.adapters.sql.looking.items import SqlItems
from boxengine.adapters.sql.looking.log_rows import LogRows
from boxengine.adapters.sql.making import checks, schema, sizes
from boxengine.domain.box import Storage
from boxengine.domain.item import Status
from boxengine.domain.outcome import Settlement
from boxengine.errors import BadUsage, StoreUnavailable
from boxengine.ports import Count, ItemFilter, Precision
from boxengine.ports.people.items import PASSED
from tests.integration.log.bench import Bench

DELIVERED = [Status.DELIVERED]


@pytest.fixture
def bench(postgres_url: str) -> Iterator[Bench]:
    bench = Bench(postgres_url)
    yield bench
    bench.engine.dispose()


def test_making_the_tables_twice_changes_nothing_and_they_are_in_order(bench: Bench) -> None:
    bench.commit()
    bench.take()
    before = bench.ask("SELECT * FROM order_items_positions ORDER BY bucket")
    assert schema.create(bench.engine, [bench.box]) == []
    assert bench.ask("SELECT * FROM order_items_positions ORDER BY bucket") == before
    assert checks.check(bench.engine, [bench.box]) == []


def test_the_printed_statements_make_the_same_tables(bench: Bench) -> None:
    columns = (
        "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns "
        "WHERE table_name LIKE 'order_items%' ORDER BY 1, 2"
    )
    indexes = "SELECT indexdef FROM pg_indexes WHERE tablename LIKE 'order_items%' ORDER BY 1"
    made = bench.ask(columns), bench.ask(indexes)
    bench.run("DROP TABLE order_items_log, order_items, order_items_positions")
    for statement in schema.ddl("postgresql", [bench.box]):
        bench.run(statement.replace("%", "%%"))
    assert (bench.ask(columns), bench.ask(indexes)) == made


def test_a_log_that_is_not_there_is_found_and_told(bench: Bench) -> None:
    bench.run("DROP TABLE order_items_log")
    (finding,) = checks.check(bench.engine, [bench.box])
    assert finding.severity == "error"
    assert "order_items_log" in finding.message
    assert "db create" in finding.message


def test_buckets_without_a_position_are_told_and_not_passed_over(bench: Bench) -> None:
    bench.commit(bucket=1)
    bench.ask("DELETE FROM order_items_positions WHERE bucket = 1 RETURNING 1")
    (finding,) = checks.check(bench.engine, [bench.box])
    assert "has no position for 1 bucket: db create" in finding.message
    with pytest.raises(StoreUnavailable, match="no position"):
        bench.take(buckets=(0, 1))


@pytest.mark.parametrize("partitioned", [False, True])
def test_people_find_an_item_in_the_log_and_whether_its_position_has_passed_it(
    postgres_url: str, partitioned: bool
) -> None:
    span = {"log_partitions": timedelta(days=1)} if partitioned else {}
    bench = Bench(postgres_url, **span)
    passed, failed, skipped, waits = [bench.commit(key=str(n), bucket=n % 2, payload=b"%d" % n) for n in range(4)]
    with bench.engine.connect() as slow, slow.begin():
        unseen = bench.put(slow)
        assert bench.take(limit=2, fail=(failed,), buckets=(0, 1)) == [passed, failed]
        log = LogRows(bench.store)
        found = {each: log.get(bench.box, each) for each in (passed, skipped, waits, unseen, waits + 100)}
    bench.engine.dispose()
    assert {each: row and row.status for each, row in found.items()} == {
        passed: PASSED,
        skipped: Status.PENDING,
        waits: Status.PENDING,
        unseen: None,
        waits + 100: None,
    }
    row = found[waits]
    assert row is not None
    assert (row.event_key, row.bucket, row.payload, row.errors_count) == ("3", 1, b"3", 0)


def test_a_box_without_a_log_has_nothing_in_it(bench: Bench) -> None:
    log, box = LogRows(bench.store), replace(bench.box, storage=Storage.TABLE)
    item = log.get(bench.box, bench.commit())
    assert item is not None
    assert log.get(box, item.id) is None
    assert (log.waiting(box, limit=9), log.next(box, 0, limit=9), log.ahead(box, item, limit=9)) == ([], (), Count(0))


@pytest.mark.parametrize("partitioned", [False, True])
def test_people_see_what_waits_in_each_bucket_of_the_log_and_what_comes_next(
    postgres_url: str, partitioned: bool
) -> None:
    bench = Bench(postgres_url, **({"log_partitions": timedelta(days=1)} if partitioned else {}))
    even = [bench.commit(bucket=0) for _ in range(4)]
    odd = [bench.commit(bucket=1) for _ in range(2)]
    log = LogRows(bench.store)
    assert bench.take(limit=1) == even[:1]
    with bench.engine.connect() as slow, slow.begin():
        bench.put(slow, bucket=1)  # not committed, so that nobody sees it
        waiting = log.waiting(bench.box, limit=2)
        rows = log.next(bench.box, 1, limit=10)
    assert [(each.bucket, each.waiting, each.first) for each in waiting] == [
        (0, Count(2, Precision.AT_LEAST), even[1]),
        (1, Count(2), odd[0]),
    ], "the one that waits longest first; three wait in bucket 0, of which two are counted"
    assert waiting[0].since <= waiting[1].since <= datetime.now(UTC)
    assert [(row.id, row.status, row.event_key, row.payload) for row in rows] == [
        (each, Status.PENDING, "k", None) for each in odd
    ]
    assert [row.id for row in log.next(bench.box, 0, limit=2)] == even[1:3]
    last = log.get(bench.box, even[3])
    assert last is not None
    assert (log.ahead(bench.box, last, limit=10), log.ahead(bench.box, last, limit=2)) == (
        Count(2),
        Count(2, Precision.AT_LEAST),
    )
    bench.take(buckets=(0, 1))
    assert (log.waiting(bench.box, limit=2), log.next(bench.box, 0, limit=2)) == ([], [])
    bench.engine.dispose()


def test_pending_items_of_log_and_side_table_are_counted_together(bench: Bench) -> None:
    ids = [bench.commit(key=str(n)) for n in range(5)]
    bench.take(limit=3, fail=(ids[0],))
    counts = SqlCensus(bench.store).take(bench.box)
    assert (counts.pending, counts.retrying, counts.delivered) == (Count(3), Count(1), None)
    assert bench.store.counts(bench.box)[Status.PENDING] == 3
    assert bench.store.pending([bench.box]) == {bench.box.name}
    assert SqlItems(bench.store).count(bench.box, ItemFilter(statuses=frozenset({Status.PENDING}))) == 1


def test_nothing_is_pending_once_all_is_passed(bench: Bench) -> None:
    bench.commit()
    oldest = bench.store.oldest_pending(bench.box)
    assert oldest is not None
    assert oldest <= datetime.now(UTC)
    bench.take()
    assert bench.store.oldest_pending(bench.box) is None
    assert bench.store.pending([bench.box]) == frozenset()
    assert bench.store.outlook(bench.box, bench.box.buckets).due == []


def test_a_look_finds_the_buckets_with_rows_behind_their_positions(bench: Bench) -> None:
    bench.commit(bucket=1)
    assert bench.store.outlook(bench.box, [0, 1]).due == [1]
    assert [row.bucket for row in bench.store.poll(bench.box, [0, 1], 10)] == [1]


def test_retention_deletes_what_was_passed_and_is_old_and_nothing_else(bench: Bench) -> None:
    first, second = bench.commit(), bench.commit()
    assert bench.take() == [first, second]
    pending = bench.commit()
    bench.ask(f"UPDATE order_items_log SET created_at = now() - interval '9 days' WHERE id <> {second} RETURNING 1")
    week_ago = datetime.now(UTC) - timedelta(days=7)
    oldest = bench.store.oldest_finished(bench.box, DELIVERED)
    assert oldest is not None
    assert oldest < week_ago
    deleted = bench.store.delete_finished(
        bench.box, DELIVERED, created_from=oldest, created_before=week_ago, limit=1000
    )
    assert deleted == 1
    assert bench.ask("SELECT id FROM order_items_log ORDER BY id") == [(second,), (pending,)]
    assert bench.take() == [pending]


def test_retention_finds_old_items_behind_those_of_a_clock_that_was_ahead(bench: Bench) -> None:
    ahead = [bench.commit(bucket=bucket) for bucket in (0, 1, 0)]
    old = bench.commit()
    assert bench.take(buckets=(0, 1)) == [*ahead, old]
    bench.run(
        f"UPDATE order_items_log SET created_at = now() + CASE id WHEN {old} THEN interval '-9 days' ELSE '9 years' END"
    )
    week_ago = datetime.now(UTC) - timedelta(days=7)
    oldest = bench.store.oldest_finished(bench.box, DELIVERED)
    assert oldest is not None
    assert oldest < week_ago
    assert (
        bench.store.delete_finished(bench.box, DELIVERED, created_from=oldest, created_before=week_ago, limit=10) == 1
    )
    assert bench.ask("SELECT id FROM order_items_log ORDER BY id") == [(each,) for each in ahead]


def test_dates_that_python_has_no_room_for_stop_neither_retention_nor_measurements_nor_people(bench: Bench) -> None:
    moments = ("infinity", "-infinity", "20000-01-01", "0044-03-15 BC")
    strange = [bench.commit() for _ in moments]
    for item_id, moment in zip(strange, moments, strict=True):
        bench.run(f"UPDATE order_items_log SET created_at = '{moment}' WHERE id = {item_id}")
    assert (bench.store.unread_since(bench.box), bench.store.oldest_pending(bench.box)) == (None, None)
    log = LogRows(bench.store)
    assert [(each.waiting, each.first) for each in log.waiting(bench.box, limit=10)] == [(Count(4), strange[0])]
    assert [row.id for row in log.next(bench.box, 0, limit=10)] == strange
    assert [row and row.id for row in (log.get(bench.box, each) for each in strange)] == strange
    good = bench.commit()
    assert bench.store.unread_since(bench.box) is not None
    assert bench.take() == [*strange, good]
    now = bench.store.now()
    oldest = bench.store.oldest_finished(bench.box, DELIVERED)
    assert oldest is not None
    ends = {"created_from": oldest, "created_before": now + timedelta(hours=1)}
    bench.store.delete_finished(bench.box, DELIVERED, **ends, limit=100)
    assert bench.ask("SELECT id FROM order_items_log ORDER BY id") == [(strange[0],), (strange[2],)]
    assert bench.store.oldest_finished(bench.box, DELIVERED) is None


def test_db_check_tells_of_a_publication_that_keeps_retention_from_the_log_and_its_remedy_helps(bench: Bench) -> None:
    bench.run("CREATE PUBLICATION everything FOR ALL TABLES")
    item = bench.commit()
    assert bench.take() == [item]
    since = datetime.now(UTC) - timedelta(days=1)
    until = since + timedelta(days=2)
    delete = partial(
        bench.store.delete_finished, bench.box, DELIVERED, created_from=since, created_before=until, limit=10
    )
    with pytest.raises(StoreUnavailable, match="replica identity"):
        delete()
    (told,) = checks.check(bench.engine, [bench.box])
    assert "order_items_log has no replica identity, and a publication has it (everything)" in told.message
    bench.run(told.remedy.removeprefix("As its owner: ").rstrip("."))
    assert checks.check(bench.engine, [bench.box]) == []
    assert delete() == 1


def test_db_check_tells_of_a_column_that_a_migration_gave_to_the_table_alone_and_its_remedy_helps(bench: Bench) -> None:
    class Base(DeclarativeBase):
        pass

    class OrderItem(OutboxItem, Base):
        __tablename__ = "order_items"
        tenant: Mapped[str] = mapped_column(server_default="acme")

    assert checks.check(bench.engine, [bench.box], [OrderItem]) == []
    bench.run("ALTER TABLE order_items ADD tenant text NOT NULL DEFAULT 'acme'")
    (told,) = checks.check(bench.engine, [bench.box], [OrderItem])
    assert "order_items_log lacks tenant, which the model has: an item that sets it cannot be created" in told.message
    item = {"event_key": "k", "bucket": 0, "payload": b"", "tenant": "umbrella"}
    rows = SqlRows(bench.box, OrderItem)
    with pytest.raises(ProgrammingError, match="tenant"), bench.engine.begin() as connection:
        rows.insert(connection, [item])
    bench.run(told.remedy.removeprefix("As its owner: ").rstrip("."))
    assert checks.check(bench.engine, [bench.box], [OrderItem]) == []
    with bench.engine.begin() as connection:
        (created,) = rows.insert(connection, [item]).ids
    assert bench.ask("SELECT id, tenant FROM order_items_log") == [(created, "umbrella")]


def test_db_check_tells_of_columns_that_the_table_and_its_log_have_with_different_types(bench: Bench) -> None:
    bench.run("ALTER TABLE order_items_log ALTER event_key TYPE varchar(500)")
    (told,) = checks.check(bench.engine, [bench.box])
    assert "(event_key: character varying(255), and character varying(500) in the log)" in told.message
    bench.run("ALTER TABLE order_items ALTER event_key TYPE varchar(500)")
    assert checks.check(bench.engine, [bench.box]) == []


def test_db_check_tells_of_what_the_table_does_to_inserted_rows_and_its_log_does_not(bench: Bench) -> None:
    bench.run("CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
    audit = "CREATE TRIGGER {0} BEFORE {0} ON {1} FOR EACH ROW EXECUTE FUNCTION seen()"
    for change in ("insert", "update"):
        bench.run(audit.format(change, "order_items"))
    bench.run("ALTER TABLE order_items ENABLE ROW LEVEL SECURITY")
    (told,) = checks.check(bench.engine, [bench.box])
    assert "has what order_items_log has not (row-level security, trigger insert)" in told.message
    bench.run(audit.format("insert", "order_items_log"))
    bench.run("ALTER TABLE order_items_log ENABLE ROW LEVEL SECURITY")
    assert checks.check(bench.engine, [bench.box]) == []


@pytest.fixture
def odd(bench: Bench) -> Bench:
    """Tables with a generated column, whose ids are taken only from their sequence."""
    for table in ("order_items", "order_items_log"):
        bench.run(f"ALTER TABLE {table} ADD tenant text GENERATED ALWAYS AS (split_part(event_key, '/', 1)) STORED")
    bench.run(
        "ALTER TABLE order_items_log ALTER id DROP DEFAULT; DROP SEQUENCE order_items_id_seq CASCADE; "
        "ALTER TABLE order_items ALTER id ADD GENERATED ALWAYS AS IDENTITY; "
        "ALTER TABLE order_items_log ALTER id SET DEFAULT nextval('order_items_id_seq')"
    )
    bench.store = SqlStore(bench.engine)
    return bench


def test_an_item_steps_aside_whatever_the_table_computes_by_itself(odd: Bench) -> None:
    failed, other = odd.commit(key="acme/1"), odd.commit(key="acme/2")
    assert odd.take(fail=(failed,)) == [failed, other]
    assert odd.ask("SELECT id, tenant FROM order_items") == [(failed, "acme")]
    moved = odd.commit(key="umbrella/1")
    odd.run("UPDATE order_items_positions SET server = 1")
    assert moved in odd.take()
    assert (moved, "umbrella") in odd.ask("SELECT id, tenant FROM order_items")


def test_a_column_that_the_log_gets_after_its_side_table_steps_aside_with_the_item(bench: Bench) -> None:
    bench.run("ALTER TABLE order_items ADD tenant text")
    passed = bench.commit()
    assert bench.take() == [passed]
    bench.run("ALTER TABLE order_items_log ADD tenant text NOT NULL DEFAULT 'acme'")
    assert bench.store.look_again() == [bench.box.name]
    item = bench.commit()
    assert bench.take(fail=(int(item),)) == [item]
    assert bench.ask("SELECT id, tenant FROM order_items") == [(item, "acme")]
    assert bench.store.look_again() == []


# ── other servers ────────────────────────────────────────────────────────────────────────────────────


def test_on_another_server_the_box_goes_on_by_itself_says_so_once_and_loses_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    delivered = [bench.commit(), bench.commit()]
    assert bench.take() == delivered
    before = bench.commit()
    # As a dump of a server that had counted further is restored: rows and positions with its numbers.
    bench.ask("UPDATE order_items_log SET xact = (xact::text::bigint + 1000000)::text::xid8 RETURNING 1")
    bench.ask(
        "UPDATE order_items_positions SET server = 1, passed = (SELECT format('%s\\:%s\\:', x, x)::pg_snapshot FROM "
        f"(SELECT min(xact::text::bigint) AS x FROM order_items_log WHERE id = {before}) AS m) RETURNING 1"
    )
    after = bench.commit()
    assert bench.take() == [before, after]
    (told,) = [each.getMessage() for each in caplog.records if "another server" in each.getMessage()]
    assert told.startswith("box order_item: its positions are in the numbers of another server's transactions")
    assert "with 2 items that may not have been delivered" in told
    # Once this server has counted as far, the old numbers would bring the rows back.
    ahead = "SELECT count(*) FROM order_items_log WHERE NOT pg_visible_in_snapshot(xact, pg_current_snapshot())"
    assert bench.ask(ahead) == [(0,)]
    fresh = bench.commit()
    assert bench.take() == [fresh]
    assert bench.take() == []


def test_a_box_that_moves_twice_lets_nothing_step_aside_twice(bench: Bench) -> None:
    ids = [bench.commit(), bench.commit()]
    for moved in (2, 0):
        bench.ask("UPDATE order_items_positions SET server = 1 RETURNING 1")
        assert reposition(bench.engine, bench.box) == moved
    assert bench.take() == ids


def test_numbers_that_have_gone_back_are_noticed(bench: Bench) -> None:
    bench.ask("UPDATE order_items_positions SET passed = '900000000\\:900000000\\:' RETURNING 1")
    item = bench.commit()
    assert bench.store.outlook(bench.box, [0]).due == [0]
    assert bench.take() == [item]


def test_a_look_finds_positions_of_another_server_though_nothing_lies_behind_them(bench: Bench) -> None:
    assert bench.store.outlook(bench.box, [0]).due == []
    bench.run("UPDATE order_items_positions SET server = 1")
    assert bench.store.outlook(bench.box, [0]).due == [0]


def test_rows_of_transactions_that_the_server_has_yet_to_begin_are_delivered(bench: Bench) -> None:
    item = bench.commit()
    bench.run("UPDATE order_items_log SET xact = '900000000'")  # as a copy of the log alone leaves them
    assert bench.take() == [item]
    assert bench.take() == []


def test_such_rows_are_looked_for_again_once_the_server_was_started_anew(bench: Bench) -> None:
    assert bench.take() == []
    item = bench.commit()
    bench.run("UPDATE order_items_log SET xact = '900000000'")
    assert bench.take() == []
    bench.store._going_on._looked["order_item"] = None
    bench.store._going_on.unsure()
    assert bench.take() == [item]


def test_such_rows_are_looked_for_again_after_a_connection_was_lost_in_the_middle_of_a_batch(bench: Bench) -> None:
    bench.commit()
    lost = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
        "AND state = 'idle in transaction'"
    )

    def deliver() -> None:
        with bench.store.plain_claims(bench.box).open({0: None}, 10) as claim:
            bench.ask(lost)
            claim.commit(Settlement(delivered=[item.id for item in claim.items]))

    with pytest.raises(StoreUnavailable):
        deliver()
    bench.store._going_on._looked["order_item"] = None  # another server
    ahead = bench.commit()
    bench.run(f"UPDATE order_items_log SET xact = '900000000' WHERE id = {ahead}")
    assert ahead in bench.take()


def test_an_item_with_an_id_below_what_was_passed_goes_out_if_it_was_created_later(bench: Bench) -> None:
    ((low,),) = bench.ask("SELECT nextval('order_items_id_seq')")
    passed = [bench.commit() for _ in range(3)]
    assert bench.take() == passed
    bench.run("UPDATE order_items_positions SET server = 1")
    # As written on the new server before somebody moved its sequence on: visible in the old position, and with a low id.
    bench.run(
        "INSERT INTO order_items_log (id, uuid, event_key, bucket, payload, xact, created_at) "
        f"VALUES ({low}, gen_random_uuid(), 'k', 0, '', '3', now() + interval '1 second')"
    )
    assert bench.take() == [low]


def test_an_item_that_a_slow_clock_dates_back_goes_out_by_its_higher_id(bench: Bench) -> None:
    passed = bench.commit()
    assert bench.take() == [passed]
    item = bench.commit()
    bench.run(
        f"UPDATE order_items_log SET xact = '3', created_at = now() - interval '1 hour' WHERE id = {item}; "
        "UPDATE order_items_positions SET server = 1"
    )
    assert bench.take() == [item]


def test_where_retention_has_deleted_what_was_passed_last_the_rest_is_in_doubt(bench: Bench) -> None:
    first, second = bench.commit(), bench.commit()
    assert bench.take() == [first, second]
    bench.run(f"DELETE FROM order_items_log WHERE id = {second}; UPDATE order_items_positions SET server = 1")
    assert bench.take() == [first]


def test_an_item_that_waits_in_the_side_table_does_not_step_aside_again(bench: Bench) -> None:
    failed = bench.commit()
    assert bench.take(fail=(failed,)) == [failed]
    bench.run(
        "UPDATE order_items_positions SET server = 1, high = 0; UPDATE order_items SET processed_at = now() - interval '1 day'"
    )
    assert bench.take() == [failed]
    assert bench.side() == [(failed, Status.DELIVERED, 1)]


def test_what_a_worker_will_send_again_on_another_server_is_counted_as_pending_before(bench: Bench) -> None:
    ids = [bench.commit(key=str(n), bucket=n % 2) for n in range(6)]
    assert bench.take(fail=(ids[0],)) == ids[::2]
    census = SqlCensus(bench.store)
    bench.run("UPDATE order_items_positions SET server = 1")
    assert census.take(bench.box).pending == census.take_exactly(bench.box).pending == Count(1 + 3)
    assert bench.store.counts(bench.box)[Status.PENDING] == 4
    bench.take(buckets=(0, 1))
    assert census.take(bench.box).pending == Count(1), "the one that failed"


def test_rows_of_transactions_that_this_server_has_not_begun_are_counted_as_pending(bench: Bench) -> None:
    bench.commit()
    bench.run("UPDATE order_items_log SET xact = (xact::text::bigint + 1000000)::text::xid8")
    assert SqlCensus(bench.store).take(bench.box).pending == Count(1)


def test_of_a_large_log_from_another_server_the_youngest_rows_are_counted_and_none_is_no_zero(bench: Bench) -> None:
    for key in "abcdef":
        bench.commit(key=key)
    bench.run("UPDATE order_items_positions SET server = 1")
    # Of each bucket, 4 / 2 + 1 rows are looked at.
    census = SqlCensus(bench.store, limit=4)
    assert census.take(bench.box).pending == Count(3, Precision.AT_LEAST)
    bench.take()
    bench.commit(key="g")
    bench.run("UPDATE order_items_positions SET server = 1")
    assert census.take(bench.box).pending == Count(1, Precision.ABOUT)
    bench.take()
    bench.run("UPDATE order_items_positions SET server = 1")
    assert census.take(bench.box).pending is None
    assert census.take_exactly(bench.box).pending == Count(0)


def test_positions_of_another_server_are_told_of_until_a_worker_has_brought_them_over(bench: Bench) -> None:
    waiting = bench.commit()
    bench.run("UPDATE order_items_positions SET server = 1")
    (told,) = checks.check(bench.engine, [bench.box])
    assert told.severity == "warning"
    assert "another server's transactions" in told.message
    assert bench.take() == [waiting]
    assert checks.check(bench.engine, [bench.box]) == []


@pytest.mark.parametrize("server", ["server", "1"], ids=["the same server", "another server"])
def test_data_restored_beside_the_positions_of_db_create_goes_on_where_it_was(bench: Bench, server: str) -> None:
    delivered = [bench.commit(bucket=bucket) for bucket in (0, 1)]
    assert bench.take(buckets=(0, 1)) == delivered
    waiting = bench.commit()
    # What db create gives a bucket: the data of a dump comes beside it, as the turns differ.
    bench.run(
        f"UPDATE order_items_positions SET server = {server}; "
        "INSERT INTO order_items_positions (bucket, passed, server) "
        "SELECT bucket, '3:3:', system_identifier FROM generate_series(0, 1) AS bucket, pg_control_system()"
    )
    (told,) = [finding for finding in checks.check(bench.engine, [bench.box]) if finding.severity == "error"]
    assert "two positions for 2 buckets" in told.message
    bench.store = SqlStore(bench.engine)  # a worker that starts now
    assert bench.take(buckets=(0, 1)) == [waiting]
    assert checks.check(bench.engine, [bench.box]) == []
    assert bench.store.outlook(bench.box, [0, 1]).due == []
    assert bench.store.oldest_finished(bench.box, DELIVERED) is not None, "nothing keeps retention from the log"


def test_a_publication_because_of_which_rows_keep_their_numbers_is_told_of_with_what_to_do(bench: Bench) -> None:
    bench.run("CREATE PUBLICATION everything FOR ALL TABLES")
    item = bench.commit()
    bench.run("UPDATE order_items_positions SET server = 1")
    assert bench.take() == [item], "where the server has reached all numbers, nothing is in the way"
    bench.run("ALTER PUBLICATION everything SET (publish = 'insert')")
    ahead = bench.commit()
    bench.run(f"UPDATE order_items_log SET xact = '999999999999' WHERE id = {ahead}")
    bench.run("ALTER PUBLICATION everything SET (publish = 'insert, update')")
    with pytest.raises(
        StoreUnavailable, match=r"a publication has it .everything.; it goes on by itself after"
    ) as told:
        reposition(bench.engine, bench.box)
    bench.run(str(told.value).partition("as the owner: ")[2])
    assert reposition(bench.engine, bench.box) == 1
    assert bench.take() == [ahead]


def test_ids_that_begin_anew_are_told_of_with_what_to_do_and_nothing_is_lost(bench: Bench) -> None:
    passed = [bench.commit() for _ in range(3)]
    assert bench.take() == passed
    bench.run("UPDATE order_items_positions SET server = 1; ALTER SEQUENCE order_items_id_seq RESTART")
    with pytest.raises(StoreUnavailable, match=r"stands at 0, and an item has the id 3; .* after: SELECT") as refused:
        bench.take()
    bench.run(str(refused.value).partition("after: ")[2])
    item = bench.commit()
    assert bench.take() == [item]


def test_a_person_can_say_that_numbers_mean_nothing_where_nothing_tells(bench: Bench) -> None:
    item = bench.commit()
    bench.run("UPDATE order_items_log SET xact = '3'; UPDATE order_items_positions SET passed = pg_current_snapshot()")
    assert bench.take() == []
    assert reposition(bench.engine, bench.box, anyway=True) == 1
    assert bench.take() == [item]


def test_positions_that_mean_something_stay(bench: Bench) -> None:
    item = bench.commit()
    assert reposition(bench.engine, bench.box) is None
    assert bench.take() == [item]


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_number_of_buckets_stays(bench: Bench) -> None:
    with pytest.raises(BadUsage, match="storage: log"):
        sizes.change(bench.engine, bench.box)
