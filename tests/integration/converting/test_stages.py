"""A box on its way from table to log and back, one claim at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Column, Computed, Text, make_url
from sqlalchemy.exc import DBAPIError

from boxengine.adapters.sql.checking.checkup import SqlCheckup
from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.converting import steps
from boxengine.adapters.sql.converting.conversion import Conversion
from boxengine.adapters.sql.converting.patience import Patience
from boxengine.adapters.sql.log.moving import Mover, Target
from boxengine.adapters.sql.log.stage import Stage
from boxengine.adapters.sql.making import checks, schema, sizes
from boxengine.adapters.system import SystemClock
from boxengine.domain.box import BoxType, Storage
from boxengine.domain.item import Status
from boxengine.domain.outcome import Settlement
from boxengine.embedded import EmbeddedPostgres
from boxengine.errors import SchemaMismatch, StoreConflict
from tests.integration.converting.bench import LOG, TABLE, Bench, bench
from tests.servers.postgres import PostgresFromWheel
from tests.servers.promised import promised_servers, require

EITHER = pytest.mark.parametrize("by", [TABLE, LOG], ids=["table", "log"])


@pytest.fixture
def box(postgres_url: str) -> Iterator[Bench]:
    with bench(postgres_url) as made:
        yield made


def test_there_and_back_in_four_steps_that_can_each_be_repeated(box: Bench) -> None:
    stages = [box.stage]
    command = box.conversion()
    for step in (command.prepare, command.finish_to_log, command.back, command.finish_to_table):
        step()
        stages.append(box.stage)
        step()
        assert box.stage is stages[-1]
    assert stages == [Stage.TABLE, Stage.BOTH, Stage.LOG, Stage.BOTH, Stage.TABLE]
    assert box.ask("SELECT proname FROM pg_proc WHERE proname LIKE 'order_items%'") == []
    assert (
        box.ask("SELECT tgname FROM pg_trigger WHERE tgrelid = 'order_items'::regclass".replace("::", "\\:\\:")) == []
    )
    command.prepare()
    command.finish_to_log()
    assert box.deliver(LOG) == []
    assert box.commit(LOG, "k") == box.deliver(LOG)


@pytest.mark.parametrize("stage", Stage)
def test_a_command_with_another_number_of_buckets_than_the_table_was_filled_with_changes_nothing(
    box: Bench, stage: Stage
) -> None:
    box.bring_to(stage)
    (comment,) = box.ask("SELECT obj_description(CAST('order_items' AS regclass))")
    (table,) = schema.tables([box.boxes[TABLE]])
    command = Conversion(box.engine, replace(box.boxes[TABLE], bucket_size=1), table, box.patience())
    for step in (command.prepare, command.finish_to_log, command.back, command.finish_to_table):
        with pytest.raises(SchemaMismatch, match="bucket_size is 1, but table 'order_items' was filled with 2"):
            step()
    assert box.stage is stage
    assert box.ask("SELECT obj_description(CAST('order_items' AS regclass))") == [comment]


def test_a_table_that_computes_a_column_and_its_ids_itself_there_and_back(box: Bench) -> None:
    tenant = "split_part(event_key, '/', 1)"
    box.run(
        "ALTER TABLE order_items ALTER id DROP DEFAULT; DROP SEQUENCE order_items_id_seq; "
        "ALTER TABLE order_items ALTER id ADD GENERATED ALWAYS AS IDENTITY; "
        f"ALTER TABLE order_items ADD tenant text GENERATED ALWAYS AS ({tenant}) STORED"
    )
    (table,) = schema.tables([box.boxes[TABLE]])
    table.append_column(Column("tenant", Text, Computed(tenant, persisted=True)))
    command = Conversion(box.engine, box.boxes[TABLE], table, box.patience())
    command.prepare()
    ids = box.commit(LOG, "acme/1") + box.commit(TABLE, "acme/2")
    command.finish_to_log()
    ids += box.commit(LOG, "acme/3") + box.commit(TABLE, "acme/4")
    assert box.in_log() == ids[2:]
    command.back()
    assert box.in_table() == ids
    assert box.ask("SELECT DISTINCT tenant FROM order_items") == [("acme",)]


def test_a_log_takes_what_the_table_takes_whatever_the_model_says(box: Bench) -> None:
    box.run("ALTER TABLE order_items ALTER event_key TYPE varchar(500), ADD region text NOT NULL DEFAULT 'eu'")
    (table,) = schema.tables([box.boxes[TABLE]])
    table.append_column(Column("region", Text, nullable=False))
    command, key = Conversion(box.engine, box.boxes[TABLE], table, box.patience()), "k" * 400
    command.prepare()
    ids = box.commit(LOG, key)
    command.finish_to_log()
    ids += box.commit(LOG, key) + box.commit(TABLE, key)
    assert box.ask("SELECT id, event_key, region FROM order_items_log") == [(each, key, "eu") for each in ids[1:]]
    assert box.deliver(LOG, fail=(ids[1],)) == ids
    assert box.ask("SELECT id, event_key, region FROM order_items WHERE errors_count = 1") == [(ids[1], key, "eu")]


def test_a_column_of_which_the_model_does_not_know_that_the_table_computes_it(box: Bench) -> None:
    box.run(
        "ALTER TABLE order_items ADD tenant text NOT NULL GENERATED ALWAYS AS (split_part(event_key, '/', 1)) STORED"
    )
    (table,) = schema.tables([box.boxes[TABLE]])
    table.append_column(Column("tenant", Text, nullable=False))
    command = Conversion(box.engine, box.boxes[TABLE], table, box.patience())
    command.prepare()
    ids = box.commit(LOG, "acme/1")
    command.finish_to_log()
    ids += box.commit(LOG, "acme/2", "acme/3")
    assert box.deliver(LOG, fail=(ids[1],)) == ids
    command.back()
    assert box.ask("SELECT id, tenant FROM order_items ORDER BY id") == [(each, "acme") for each in ids[:2]]


def test_a_column_that_both_tables_get_on_the_way_moves_with_the_items(box: Bench) -> None:
    def add(column: str) -> None:
        for table in ("order_items", "order_items_log"):
            box.run(f"ALTER TABLE {table} ADD {column} text")

    box.bring_to(Stage.BOTH)
    add("tenant")
    box.run(
        "INSERT INTO order_items_log (uuid, event_key, bucket, payload, tenant) "
        "VALUES (gen_random_uuid(), 'k', 0, '', 'acme')"
    )
    assert box.ask("SELECT tenant FROM order_items") == [("acme",)]
    box.conversion().finish_to_log()
    add("region")
    box.run(
        "INSERT INTO order_items (uuid, event_key, bucket, payload, updated_at, tenant, region) "
        "VALUES (gen_random_uuid(), 'k', 0, '', now(), 'acme', 'eu')"
    )
    assert box.ask("SELECT tenant, region FROM order_items_log") == [("acme", "eu")]


@EITHER
def test_between_the_two_all_items_are_in_the_table(box: Bench, by: Storage) -> None:
    box.bring_to(Stage.BOTH)
    ids = box.commit(TABLE, "a") + box.commit(LOG, "a", "b") + box.commit(TABLE, "c") + box.commit(LOG, "a")
    assert ids == box.in_table()
    assert box.in_log() == []
    assert box.deliver(by) == ids
    assert box.in_table() == []


@EITHER
def test_doctor_names_a_box_that_is_left_between_the_two(box: Bench, by: Storage) -> None:
    checkup, of = SqlCheckup(box.stores[by], now=SystemClock().now), [box.boxes[by]]

    def findings() -> list[str]:
        return [each.advice or "" for each in checkup.remarks(of) if "between table and log" in each.text]

    assert findings() == []
    box.bring_to(Stage.BOTH)
    finish = "everywhere, then run boxengine db convert order_item --to"
    assert findings() == [
        f"To a log: set storage: log {finish} log --finish. To a table: set storage: table {finish} table --finish."
    ]
    box.bring_to(Stage.LOG)
    assert findings() == []


def test_doctor_bears_a_name_that_leaves_no_room_for_a_log(box: Bench) -> None:
    longest = replace(box.boxes[TABLE], name="longest", table="t" * 60)
    schema.create(box.engine, [longest])
    found = SqlCheckup(box.stores[TABLE], now=SystemClock().now).remarks([longest])
    assert not [each.text for each in found if "between" in each.text or "name" in each.text]


@EITHER
def test_after_the_switch_all_items_are_in_the_log(box: Bench, by: Storage) -> None:
    box.bring_to(Stage.LOG)
    ids = box.commit(by, "a") + box.commit(by, "a", "b", "a")
    assert box.in_table() == []
    assert box.in_log() == ids
    assert box.deliver(LOG) == ids


def test_what_waited_in_the_table_goes_out_before_the_log(box: Bench) -> None:
    before = box.commit(TABLE, *"abab")
    box.bring_to(Stage.LOG)
    after = box.commit(TABLE, *"ab") + box.commit(LOG, *"ab")
    assert box.deliver(LOG, limit=3, buckets=(0,)) == before[:3]
    assert box.deliver(LOG) + box.deliver(LOG) == before[3:] + after


def test_a_key_goes_on_in_the_log_when_its_failed_item_in_the_table_is_settled(box: Bench) -> None:
    first, other = box.commit(TABLE, "a", "b")
    assert box.deliver(TABLE, fail=(first,)) == [first, other]
    box.bring_to(Stage.LOG)
    later, neighbour = box.commit(TABLE, "a", "b")
    assert box.deliver(LOG) == [neighbour]
    assert box.ask("SELECT id, errors_count FROM order_items WHERE status = 0 ORDER BY id") == [(first, 1), (later, 0)]
    box.run("UPDATE order_items SET processed_at = now() - interval '1 hour' WHERE errors_count > 0")
    assert box.deliver(LOG) == [first, later]


def test_back_in_the_table_what_waited_in_the_log_goes_out_first(box: Bench) -> None:
    box.bring_to(Stage.LOG)
    passed = box.commit(LOG, "a", "b")
    assert box.deliver(LOG) == passed
    waiting = box.commit(LOG, *"abab") + box.commit(LOG, *"ab", bucket=1)
    box.conversion().back()
    after = box.commit(LOG, "a") + box.commit(TABLE, "a")
    assert box.in_table() == waiting + after
    assert box.deliver(TABLE) == waiting + after
    assert box.deliver(LOG) == []
    box.conversion().finish_to_table()
    assert box.deliver(TABLE) == []


def test_a_log_with_partitions_there_and_back(postgres_url: str) -> None:
    with bench(postgres_url, log_partitions=timedelta(days=1)) as box:
        ids = box.commit(TABLE, "a")
        box.bring_to(Stage.LOG)
        assert box.ask("SELECT relkind = 'p' FROM pg_class WHERE relname = 'order_items_log'") == [(True,)]
        ids += box.commit(TABLE, "a") + box.commit(LOG, "a")
        assert box.in_log() == ids[1:]
        assert box.deliver(LOG, limit=2, buckets=(0,)) == ids[:2]
        box.conversion().back()
        ids += box.commit(LOG, "a")
        assert box.deliver(TABLE) == ids[2:]
        box.conversion().finish_to_table()
        assert box.stage is Stage.TABLE
        assert box.ask("SELECT relname FROM pg_class WHERE relname LIKE 'order_items_log%'") == []


def test_of_a_batch_under_way_only_what_was_not_passed_is_copied(box: Bench) -> None:
    box.bring_to(Stage.LOG)
    ids = box.commit(LOG, *"abcdef")
    assert box.deliver(LOG, limit=4, buckets=(0,)) == ids[:4]
    box.conversion().back()
    assert box.in_table() == ids[4:]
    assert box.deliver(LOG) == ids[4:]


def test_a_lower_id_that_was_committed_late_is_copied(box: Bench) -> None:
    box.bring_to(Stage.LOG)
    with box.engine.connect() as slow:
        late = box.put(slow, LOG, "a")
        quick = box.commit(LOG, "b")
        assert box.deliver(LOG) == quick
        slow.commit()
    box.conversion().back()
    assert box.in_table() == late


def test_a_writer_that_is_open_puts_the_switch_off_and_loses_nothing(box: Bench) -> None:
    box.bring_to(Stage.BOTH)
    with box.engine.connect() as writer:
        before = box.put(writer, TABLE, "a")
        with pytest.raises(StoreConflict, match=r"process \d+ \(.+\) is in the way, with a transaction of \d+ s"):
            box.conversion(attempts=2, lock_timeout=0.05).finish_to_log()
        assert box.stage is Stage.BOTH
        assert len(box.told) == 1
        box.conversion(attempts=2, lock_timeout=0.05, wait=lambda _seconds: writer.commit()).finish_to_log()
    after = box.commit(TABLE, "a")
    assert (box.in_table(), box.in_log()) == (before, after)


def test_what_was_written_to_the_log_past_its_triggers_is_not_passed(box: Bench) -> None:
    box.bring_to(Stage.BOTH)
    with box.engine.begin() as restoring:
        restoring.exec_driver_sql("SET LOCAL session_replication_role = replica")
        written = box.put(restoring, LOG, "a")
    with pytest.raises(SchemaMismatch, match=r"not delivered, .+ past its triggers: they would be skipped"):
        box.conversion().finish_to_log()
    assert box.stage is Stage.BOTH
    assert box.deliver(LOG) == written
    box.conversion().finish_to_log()
    after = box.commit(TABLE, "a")
    assert box.deliver(LOG) == after


def test_a_writer_of_a_copy_of_the_database_is_not_said_to_be_in_the_way(box: Bench, postgres_url: str) -> None:
    box.bring_to(Stage.BOTH)
    box.engine.dispose()  # a template must have no connections
    own = make_url(postgres_url).set(drivername="postgresql")
    copy, maintenance = (
        own.set(database=name).render_as_string(hide_password=False) for name in (f"{own.database}_copy", "postgres")
    )
    with psycopg.connect(maintenance, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {own.database}_copy TEMPLATE {own.database}".encode())
        try:
            with psycopg.connect(copy) as elsewhere, box.engine.connect() as writer:
                elsewhere.execute("LOCK TABLE order_items IN ROW EXCLUSIVE MODE")
                box.put(writer, TABLE, "a")
                pid = writer.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
                with pytest.raises(StoreConflict, match=rf"process {pid} \(.+\) is in the way"):
                    box.conversion(lock_timeout=0.05).finish_to_log()
        finally:
            server.execute(f"DROP DATABASE {own.database}_copy WITH (FORCE)".encode())


def test_a_writer_of_the_log_that_is_open_puts_the_way_back_off_and_is_not_forgotten(box: Bench) -> None:
    box.bring_to(Stage.LOG)
    with box.engine.connect() as writer:
        before = box.put(writer, LOG, "a")
        with pytest.raises(StoreConflict):
            box.conversion(lock_timeout=0.05).back()
        assert box.stage is Stage.LOG
        box.conversion(attempts=2, lock_timeout=0.05, wait=lambda _seconds: writer.commit()).back()
    after = box.commit(LOG, "a")
    assert box.in_table() == before + after
    assert box.deliver(TABLE) == before + after


@EITHER
def test_what_is_committed_while_a_switch_waits_for_it_comes_before_what_is_written_later(
    box: Bench, by: Storage
) -> None:
    """Forget the transactions that are open at the switch, and this item stays behind in the log, or goes out last."""
    box.bring_to(Stage.BOTH if by is TABLE else Stage.LOG)
    command = box.conversion()
    with box.engine.connect() as writer:
        ids = box.put(writer, by, "a")
        with box.waiting(command.finish_to_log if by is TABLE else command.back) as ended:
            writer.commit()
            assert ended() is None
    ids += box.commit(by, "a")
    assert box.in_table() == (ids[:1] if by is TABLE else ids)
    assert box.deliver(LOG) == ids


@EITHER
def test_a_writer_that_comes_while_a_switch_waits_is_not_in_its_way(box: Bench, by: Storage) -> None:
    """It is one whose items are moved: it needs both tables."""
    box.bring_to(Stage.LOG if by is TABLE else Stage.BOTH)
    command, ids = box.conversion(), list[int]()
    with box.engine.connect() as writer:
        ids += box.put(writer, LOG if by is TABLE else TABLE, "a")
        with (
            box.waiting(command.back if by is TABLE else command.finish_to_log) as ended,
            box.waiting(lambda: ids.extend(box.commit(by, "b")), beside=1) as written,
        ):
            writer.commit()
            assert (ended(), written()) == (None, None)
    assert box.deliver(LOG) == ids


def test_a_delivery_under_way_is_waited_for_and_not_repeated(box: Bench) -> None:
    box.bring_to(Stage.LOG)
    ids = box.commit(LOG, "a", "b")
    with (
        box.stores[LOG].plain_claims(box.boxes[LOG]).open({0: 0}, 100) as claim,
        box.waiting(box.conversion().back) as ended,
    ):
        assert claim.commit(Settlement(delivered=[int(item.id) for item in claim.items[:1]])) is None
        assert ended() is None
    assert box.in_table() == ids[1:]


def test_a_delivery_that_does_not_end_is_given_up_with_what_to_do(box: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "FOR_DELIVERIES", 0.05)
    box.bring_to(Stage.LOG)
    ids = box.commit(LOG, "a", "b")
    with (
        box.stores[LOG].plain_claims(box.boxes[LOG]).open({0: 0}, 100),
        pytest.raises(StoreConflict, match=r"a delivery takes longer .+ boxengine pause order_item, repeat"),
    ):
        box.conversion(attempts=60).back()
    assert box.told == []
    assert box.stage is Stage.LOG
    box.conversion().back()
    assert box.in_table() == ids


def test_a_prepared_transaction_in_the_way_is_named_with_what_ends_it(tmp_path: Path) -> None:
    require(PostgresFromWheel().offer(), promised_servers(os.environ))
    settings = {"max_prepared_transactions": "2"}
    with EmbeddedPostgres(tmp_path / "own", durable=False, settings=settings) as server, bench(server.url()) as box:
        box.bring_to(Stage.BOTH)
        with box.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as writer:
            writer.exec_driver_sql("BEGIN")
            (item,) = box.put(writer, TABLE, "a")
            writer.exec_driver_sql("PREPARE TRANSACTION 'shop 7'")
        with pytest.raises(
            StoreConflict, match=r"prepared \d+ s ago as shop 7 is in the way, until COMMIT PREPARED or"
        ):
            box.conversion(lock_timeout=0.1).finish_to_log()
        with box.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("COMMIT PREPARED 'shop 7'")
        box.conversion().finish_to_log()
        assert box.deliver(LOG) == [item]


def test_a_writer_in_the_way_is_named_where_the_server_does_not_tell_how_old_its_transaction_is(box: Bench) -> None:
    box.bring_to(Stage.BOTH)
    ((name,),) = box.ask("SELECT replace(current_database(), '-', '_')")
    role = f"owner_of_{name}"
    box.run(f"CREATE ROLE {role} LOGIN")
    try:
        box.run(f"GRANT SELECT, UPDATE ON order_items TO {role}")
        owned = connect(box.engine.url.set(username=role).render_as_string(hide_password=False), connections=1)
        patience = Patience(lock_timeout=60, attempts=1, wait=lambda _seconds: None, tell=box.told.append)

        def step() -> None:
            with translated(owned), owned.begin() as connection:
                connection.exec_driver_sql("SET LOCAL lock_timeout = '50ms'")
                connection.exec_driver_sql("LOCK TABLE order_items IN SHARE ROW EXCLUSIVE MODE")

        with box.engine.connect() as writer:
            box.put(writer, TABLE, "a")
            with pytest.raises(StoreConflict, match=r"^process \d+ \(.+\) is in the way; the same command"):
                patience.insist(owned, ["order_items", "order_items_log"], step)
        owned.dispose()
    finally:
        box.run(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_an_old_snapshot_writes_to_the_new_place(box: Bench) -> None:
    box.bring_to(Stage.BOTH)
    with box.engine.connect().execution_options(isolation_level="REPEATABLE READ") as writer:
        writer.exec_driver_sql("SELECT count(*) FROM order_items")
        box.conversion().finish_to_log()
        ids = box.put(writer, TABLE, "a", "b")
        writer.commit()
    assert box.in_log() == ids
    assert box.deliver(LOG) == ids


def test_a_row_that_is_no_new_item_stays_in_the_table(box: Bench) -> None:
    box.bring_to(Stage.LOG)
    box.commit(LOG, "a")
    box.run(
        "INSERT INTO order_items (uuid, event_key, bucket, status, errors_count, payload, created_at, updated_at) "
        "SELECT gen_random_uuid(), 'k', 0, status, 0, '', now(), now() FROM (VALUES (1), (2)) AS v(status)"
    )
    assert box.ask("SELECT status FROM order_items ORDER BY 1") == [(Status.FAILED,), (Status.DELIVERED,)]


def test_what_a_log_has_no_place_for_is_refused_before_anything_is_made(box: Bench) -> None:
    box.commit(TABLE, "a", dedup_key="once")
    with pytest.raises(SchemaMismatch, match="1 pending item with dedup_key: storage: log refuses"):
        box.conversion().prepare()
    assert box.stage is Stage.TABLE


@pytest.mark.parametrize("policy", [{}, {"log_partitions": timedelta(days=1)}], ids=["whole", "partitions"])
def test_writers_go_on_where_a_publication_has_all_tables(postgres_url: str, policy: dict[str, object]) -> None:
    """Without a replica identity, the server refuses to delete from a published table, as the log's trigger does."""
    with bench(postgres_url, **policy) as box:
        box.run("CREATE PUBLICATION everything FOR ALL TABLES")
        box.conversion().prepare()
        ids = box.commit(LOG, "a") + box.commit(TABLE, "a")
        box.conversion().finish_to_log()
        ids += box.commit(LOG, "a") + box.commit(TABLE, "a")
        box.conversion().back()
        ids += box.commit(LOG, "a") + box.commit(TABLE, "a")
        assert box.in_table() == ids
        box.conversion().finish_to_table()
        assert box.deliver(TABLE) == ids


def test_writers_go_on_once_the_first_step_is_repeated_beside_a_publication_that_came_after_it(box: Bench) -> None:
    box.bring_to(Stage.BOTH)
    box.run("CREATE PUBLICATION everything FOR ALL TABLES")
    with pytest.raises(DBAPIError, match="replica identity"):
        box.commit(LOG, "a")
    box.conversion().prepare()
    assert box.stage is Stage.BOTH
    assert box.commit(LOG, "a") == box.in_table()


def test_a_log_that_was_made_before_a_publication_is_brought_back_beside_it(box: Bench) -> None:
    box.bring_to(Stage.LOG)
    ids = box.commit(LOG, "a")
    box.run("CREATE PUBLICATION everything FOR ALL TABLES")
    box.conversion().back()
    ids += box.commit(LOG, "a")
    assert box.in_table() == ids


def test_a_table_that_refers_to_items_is_told_of_before_its_rows_are_refused(box: Bench) -> None:
    refer = 'CREATE TABLE "Notes" (item bigint CONSTRAINT of_item REFERENCES order_items (id))'
    told = r'"Notes" refers to table order_items by a foreign key.* First: ALTER TABLE "Notes" DROP CONSTRAINT of_item$'
    box.run(refer)
    with pytest.raises(SchemaMismatch, match=told):
        box.conversion().prepare()
    stages = [box.stage]
    box.run('DROP TABLE "Notes"')
    box.conversion().prepare()
    box.run(refer)
    with pytest.raises(SchemaMismatch, match=told):
        box.conversion().finish_to_log()
    stages.append(box.stage)
    box.run('ALTER TABLE "Notes" DROP CONSTRAINT of_item')
    box.conversion().finish_to_log()
    box.run('ALTER TABLE "Notes" ADD CONSTRAINT of_item FOREIGN KEY (item) REFERENCES order_items (id)')
    assert stages == [Stage.TABLE, Stage.BOTH]
    (finding,) = checks.check(box.engine, [box.boxes[LOG]])
    assert finding.message.startswith('"Notes" refers to table order_items by its foreign key of_item')


def test_an_application_that_still_says_dedup_key_is_not_refused(box: Bench) -> None:
    box.bring_to(Stage.LOG)
    (once,) = box.commit(TABLE, "a", dedup_key="once")
    assert box.commit(TABLE, "a", dedup_key="once") == [once]
    assert box.in_table() == [once]
    assert box.deliver(LOG) == [once]


def test_beside_a_table_that_had_items_db_create_makes_no_log(box: Bench) -> None:
    """Where delivery deletes, it is empty now and then, and applications write to it all the same."""
    box.commit(TABLE, "a")
    box.run("DELETE FROM order_items")
    with pytest.raises(SchemaMismatch, match="convert it with: boxengine db convert order_item --to log"):
        schema.create(box.engine, [box.boxes[LOG]])
    box.bring_to(Stage.LOG)
    assert schema.create(box.engine, [box.boxes[LOG]]) == []


@pytest.mark.parametrize("stage", [Stage.BOTH, Stage.LOG])
def test_the_number_of_buckets_stays_as_long_as_there_is_a_log(box: Bench, stage: Stage) -> None:
    box.bring_to(stage)
    other = replace(box.boxes[TABLE], bucket_size=4)
    for dry in (True, False):
        with pytest.raises(SchemaMismatch, match="boxengine db convert order_item --to table"):
            sizes.change(box.engine, other, dry=dry)
    box.conversion().back()
    box.conversion().finish_to_table()
    assert sizes.change(box.engine, other) == (2, 4)


def test_nothing_is_sent_back_into_a_log_that_only_some_workers_read(box: Bench) -> None:
    box.bring_to(Stage.LOG)
    first, *_ = box.commit(LOG, "a", "b")
    assert len(box.deliver(LOG)) == 2
    box.conversion().back()
    with pytest.raises(SchemaMismatch, match="order_item is between table and log: finish its conversion first"):
        Mover(box.engine, box.boxes[LOG]).back(Target(item=first))
    box.conversion().finish_to_table()


def test_a_table_that_keeps_its_keys_as_numbers_gets_no_log(box: Bench) -> None:
    box.run("ALTER TABLE order_items ALTER event_key TYPE bigint USING 0")
    with pytest.raises(SchemaMismatch, match="cannot take items out of its log"):
        box.conversion().prepare()
    assert box.stage is Stage.TABLE


def test_a_log_that_db_create_has_made_too_early_is_taken_while_it_is_empty(box: Bench) -> None:
    schema.create(box.engine, [box.boxes[LOG]])
    box.conversion().prepare()
    assert box.stage is Stage.BOTH
    ids = box.commit(LOG, "a") + box.commit(TABLE, "a")
    assert box.deliver(TABLE) == ids


def test_a_log_in_use_stays_one_and_catches_what_old_processes_write(box: Bench) -> None:
    schema.create(box.engine, [box.boxes[LOG]])
    first = box.commit(LOG, "a")
    box.conversion().prepare()
    assert box.stage is Stage.LOG
    box.conversion().finish_to_log()
    ids = first + box.commit(TABLE, "a")
    assert box.in_log() == ids
    assert box.deliver(LOG) == ids


def test_a_worker_of_the_other_storage_says_how_to_go_on(box: Bench) -> None:
    box.bring_to(Stage.LOG)
    with pytest.raises(
        SchemaMismatch,
        match="box order_item: storage is table, but its items are in a log: set storage: log, or convert it with: "
        "boxengine db convert order_item --to table",
    ):
        box.deliver(TABLE)
    (finding,) = [each for each in checks.check(box.engine, [box.boxes[TABLE]]) if each.severity == "error"]
    assert "but its items are in a log" in finding.message
    box.conversion().back()
    box.conversion().finish_to_table()
    with pytest.raises(SchemaMismatch, match=r"in a table: set storage: table, .* convert order_item --to log"):
        box.deliver(LOG)


def test_a_worker_of_an_inbox_is_not_sent_to_a_conversion_that_is_refused(box: Bench) -> None:
    inbox = replace(box.boxes[LOG], name="inbox_item", table="inbox_items", type=BoxType.INBOX)
    schema.create(box.engine, [inbox])
    sizes.record(box.engine, [inbox])
    with pytest.raises(SchemaMismatch, match=r"but its items are in a log: set storage: log$"):
        box.stores[TABLE].table(replace(inbox, storage=TABLE)).refuse_another_storage()


def test_a_worker_that_runs_notices_the_switch(box: Bench) -> None:
    box.bring_to(Stage.BOTH)
    store = box.stores[TABLE]
    assert box.deliver(TABLE) == []
    store.look_again()
    box.conversion().finish_to_log()
    assert store.look_again() == ["order_item"]
    with pytest.raises(SchemaMismatch, match="in a log"):
        store.poll(box.boxes[TABLE], [0, 1], 10)
    box.conversion().back()
    assert store.look_again() == ["order_item"]
    assert store.poll(box.boxes[TABLE], [0, 1], 10) == []


def test_steps_out_of_turn_name_the_one_before(box: Bench) -> None:
    with pytest.raises(SchemaMismatch, match="first boxengine db convert order_item --to log"):
        box.conversion().finish_to_log()
    box.bring_to(Stage.LOG)
    with pytest.raises(SchemaMismatch, match="first boxengine db convert order_item --to table"):
        box.conversion().finish_to_table()


def test_a_log_with_items_that_no_position_covers_is_not_dropped(box: Bench) -> None:
    box.bring_to(Stage.LOG)
    box.commit(LOG, "a", bucket=7)
    box.conversion().back()
    with pytest.raises(SchemaMismatch, match="nothing was dropped"):
        box.conversion().finish_to_table()
    assert len(box.in_log()) == 1


def test_writers_need_no_more_rights_than_they_had(box: Bench) -> None:
    ((name,),) = box.ask("SELECT replace(current_database(), '-', '_')")
    role = f"writer_of_{name}"
    box.run(f"CREATE ROLE {role}")
    try:
        box.run(f"GRANT INSERT, SELECT ON order_items TO {role}; GRANT USAGE ON SEQUENCE order_items_id_seq TO {role}")
        box.bring_to(Stage.LOG)
        with box.engine.begin() as connection:
            connection.exec_driver_sql(f"SET LOCAL ROLE {role}")
            ids = box.put(connection, TABLE, "a")
        assert box.deliver(LOG) == ids
    finally:
        box.run(f"DROP OWNED BY {role}; DROP ROLE {role}")
