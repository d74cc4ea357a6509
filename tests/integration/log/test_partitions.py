"""The partitions of a log: made ahead, removed once every reader has passed them, and never in a writer's way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.checking import postgresql
from boxengine.adapters.sql.checking.checkup import SqlCheckup
from boxengine.adapters.sql.log import turnover
from boxengine.adapters.sql.log.partitions import AHEAD, FIRST_STEP
from boxengine.adapters.sql.making import checks, schema, upgrade
from boxengine.domain.box import Retention
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from boxengine.errors import StoreUnavailable
from boxengine.ports import Turnover
from tests.eventually import eventually
from tests.integration.log.bench import Bench
from tests.integration.log.parted import close, partitions

DAY = timedelta(days=1)
SOON = timedelta(minutes=1)


@pytest.fixture
def bench(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(turnover, "ATTEMPTS", 1)
    bench = Bench(postgres_url, log_partitions=DAY)
    yield bench
    bench.engine.dispose()


@pytest.fixture
def whole(postgres_url: str) -> Iterator[Bench]:
    """A log without partitions."""
    bench = Bench(postgres_url)
    yield bench
    bench.engine.dispose()


def turn(bench: Bench, *, old: bool = True) -> Turnover:
    """A pass for which everything is old enough, or nothing is."""
    age = SOON if old else -SOON
    done = bench.store.turn_over(bench.box, created_before=datetime.now(UTC) + age)
    assert done is not None
    return done


def home(bench: Bench, item: object) -> object:
    """The partition in which an item stands."""
    ((name,),) = bench.ask(f"SELECT tableoid::regclass::text FROM order_items_log WHERE id = {item}")
    return name


def rows_of(bench: Bench, partition: str) -> object:
    ((rows,),) = bench.ask(f"SELECT count(*) FROM {partition}")
    return rows


def delete_one_by_one(bench: Bench) -> int:
    """What retention deletes once everything is old, however long a partition takes."""
    later = datetime.now(UTC) + 3 * DAY
    span = {"created_from": later - 9 * DAY, "created_before": later}
    return bench.store.delete_finished(bench.box, [Status.DELIVERED], limit=10, **span)


# ── made ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_log_takes_its_first_items_into_a_partition_and_making_it_again_changes_nothing(bench: Bench) -> None:
    assert home(bench, bench.commit()) == "order_items_log_p0"
    assert schema.create(bench.engine, [bench.box]) == []
    assert partitions(bench).default == "order_items_log_default"
    assert [each.name for each in partitions(bench).ranges] == ["order_items_log_p0"]
    assert checks.check(bench.engine, [bench.box]) == []


def test_a_pass_makes_partitions_ahead_and_the_next_one_makes_nothing(bench: Bench) -> None:
    made = turn(bench).made
    assert made
    present = partitions(bench)
    assert present.reach == present.ranges[-1].high
    assert all(one.high == other.low for one, other in zip(present.ranges, present.ranges[1:], strict=False))
    # Other tests' transactions count, too: the first pass may have ended right at the edge.
    assert turn(bench) == Turnover() or present.reach < partitions(bench).current + AHEAD * FIRST_STEP
    assert turn(bench) == Turnover()


def test_a_log_that_computes_a_column_gets_partitions(bench: Bench) -> None:
    computed = "tenant text GENERATED ALWAYS AS (split_part(event_key, '/', 1)) STORED"
    bench.run(f"ALTER TABLE order_items ADD {computed}; ALTER TABLE order_items_log ADD {computed}")
    bench.run("DROP TABLE order_items_log_p0")
    (made, *_) = turn(bench).made
    of_it = f"attrelid = to_regclass('{made}') AND attname = 'tenant'"
    assert bench.ask(f"SELECT CAST(attgenerated AS text) FROM pg_attribute WHERE {of_it}") == [("s",)]


def test_partitions_are_made_while_a_transaction_has_written_and_is_not_over(bench: Bench) -> None:
    with bench.engine.connect() as writer:
        item = bench.put(writer)
        assert turn(bench).made
        writer.commit()
    assert bench.take() == [item]


def test_items_for_which_there_is_no_partition_are_taken_by_the_default_one_and_delivered(bench: Bench) -> None:
    bench.run("DROP TABLE order_items_log_p0")
    first = bench.commit()
    assert home(bench, first) == "order_items_log_default"
    (finding,) = checks.check(bench.engine, [bench.box])
    assert "no partition for what is written now" in finding.message
    done = turn(bench)
    assert done.made
    assert "the next partition begins in" in str(done.trouble)
    second = bench.commit()
    assert home(bench, second) == "order_items_log_default"
    assert bench.take() == [first, second]
    assert delete_one_by_one(bench) == 2
    assert rows_of(bench, "order_items_log") == 0


def test_a_pass_ends_between_two_partitions_and_the_next_one_goes_on_from_there(bench: Bench) -> None:
    closed, items = [], []
    for _ in range(2):
        items.append(bench.commit())
        closed.append(close(bench))
    assert bench.take() == items
    answers = iter([True, False, False])
    later = datetime.now(UTC) + SOON
    done = bench.store.turn_over(bench.box, created_before=later, go_on=lambda: next(answers))
    assert done is not None
    assert done.made
    assert (done.deleted, list(done.dropped)) == (1, [])
    assert [rows_of(bench, each) for each in closed] == [0, 1]
    done = turn(bench)
    assert (done.deleted, list(done.dropped)) == (1, closed)


def test_a_pass_that_meets_a_lock_makes_nothing_and_items_go_out_all_the_same(bench: Bench) -> None:
    bench.run("DROP TABLE order_items_log_p0")
    with bench.engine.connect() as reader:
        reader.execute(sa.text("SELECT FROM order_items_log")).all()
        done = turn(bench)
        assert done.made == ()
        assert "somebody held locks" in str(done.trouble)
        item = bench.commit()
    assert bench.take() == [item]
    assert turn(bench).made


def test_a_pass_that_meets_locked_positions_removes_nothing_and_the_next_one_does(bench: Bench) -> None:
    item = bench.commit()
    assert bench.take() == [item]
    close(bench)
    with bench.engine.connect() as other:
        other.execute(sa.text("LOCK TABLE order_items_positions IN ACCESS EXCLUSIVE MODE"))
        assert turn(bench).deleted == 0
    assert turn(bench).deleted == 1


def test_a_run_killed_between_making_a_partition_and_adding_it_leaves_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = turnover._Turn._run

    def die(self: turnover._Turn, statement: str) -> None:
        if "ATTACH" in statement:
            raise StoreUnavailable("killed")
        run(self, statement)

    with monkeypatch.context() as patch:
        patch.setattr(turnover._Turn, "_run", die)
        with pytest.raises(StoreUnavailable, match="killed"):
            turn(bench)
    assert bench.ask(
        "SELECT count(*) FROM pg_class WHERE relname ~ '^order_items_log_p[1-9a-f]' AND relkind = 'r'"
    ) == [(0,)]
    assert turn(bench).made


def test_the_printed_statements_make_the_same_partitions(bench: Bench) -> None:
    shapes = (
        "SELECT relname, pg_get_expr(relpartbound, oid) ~ '^FOR|^DEF' FROM pg_class "
        "WHERE relname ~ '^order_items' ORDER BY 1"
    )
    made = bench.ask(shapes)
    bench.run("DROP TABLE order_items_log, order_items, order_items_positions")
    for statement in schema.ddl("postgresql", [bench.box]):
        bench.run(statement.replace("%", "%%"))
    assert bench.ask(shapes) == made
    item = bench.commit()
    assert home(bench, item) == "order_items_log_p0"
    assert bench.take() == [item]


def test_an_upgrade_finishes_a_log_whose_making_was_cut_off(bench: Bench) -> None:
    bench.run("DROP TABLE order_items_log_default; DROP INDEX ix_order_items_log_id")
    with bench.engine.connect() as connection:
        steps = upgrade.plan(connection, [bench.box])
    list(upgrade.apply(bench.engine, steps))
    with bench.engine.connect() as connection:
        assert upgrade.plan(connection, [bench.box]) == []
    assert partitions(bench).default == "order_items_log_default"


@contextmanager
def waiting_turn(bench: Bench, monkeypatch: pytest.MonkeyPatch, mode: str) -> Iterator[list[Turnover]]:
    """A pass that waits for such a lock inside the block, and what it has done after it: for a reader of the whole log."""
    monkeypatch.setattr(turnover, "PATIENCE", "1min")
    done: list[Turnover] = []
    passing = threading.Thread(target=lambda: done.append(turn(bench)))
    waits = (
        "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation::regclass::text LIKE 'order_items_log%' "
        f"AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND mode = '{mode}')"
    )
    with bench.engine.connect() as reader:
        reader.execute(sa.text("SELECT FROM order_items_log")).all()
        passing.start()
        try:
            eventually(lambda: bench.ask(waits) == [(True,)])
            yield done
        finally:
            reader.rollback()
            passing.join()


def commit_without_waiting(bench: Bench) -> ItemId:
    with bench.engine.begin() as writer:
        writer.execute(sa.text("SET LOCAL lock_timeout = '10ms'"))
        return bench.put(writer)


def test_writers_do_not_wait_while_a_pass_waits_to_add_a_partition(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with waiting_turn(bench, monkeypatch, "AccessExclusiveLock") as done:
        item = commit_without_waiting(bench)
    assert done[0].made
    assert bench.take() == [item]


# ── removed ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_partition_that_everybody_has_passed_goes_as_a_whole(bench: Bench) -> None:
    ids = [bench.commit(), bench.commit(bucket=1)]
    closed = close(bench)
    assert bench.take(buckets=(0, 1)) == ids
    assert turn(bench, old=False).deleted == 0
    done = turn(bench)
    assert (done.dropped, done.deleted) == ([closed], 2)
    assert bench.ask(f"SELECT to_regclass('{closed}')") == [(None,)]
    fresh = bench.commit()
    assert bench.take() == [fresh]


def test_one_item_that_was_not_passed_keeps_its_partition(bench: Bench) -> None:
    first, second = bench.commit(), bench.commit(bucket=1)
    close(bench)
    assert bench.take(buckets=(0,)) == [first]
    assert turn(bench).deleted == 0
    assert bench.take(buckets=(1,)) == [second]
    assert turn(bench).deleted == 2


def test_a_batch_that_was_half_given_keeps_its_partition(bench: Bench) -> None:
    with bench.engine.begin() as connection:
        ids = [bench.put(connection) for _ in range(4)]
    close(bench)
    assert bench.take(limit=2) == ids[:2]
    assert turn(bench).deleted == 0
    assert bench.take(limit=2) == ids[2:]
    assert bench.take() == []
    assert turn(bench).deleted == 4


def test_a_partition_stays_while_a_transaction_may_still_write_into_it(bench: Bench) -> None:
    with bench.engine.connect() as writer:
        writer.execute(sa.text("SELECT pg_current_xact_id()"))
        done = bench.commit()
        closed = close(bench, wait=False)
        assert bench.take() == [done]
        assert turn(bench).deleted == 0
        late = bench.put(writer)
        writer.commit()
    assert home(bench, late) == closed
    eventually(lambda: closed in {each.name for each in partitions(bench).closed})
    assert turn(bench).deleted == 0
    assert bench.take() == [late]
    assert turn(bench).deleted == 2


def test_items_of_the_next_partition_go_out_while_a_transaction_of_this_one_is_open(bench: Bench) -> None:
    with bench.engine.connect() as writer:
        writer.execute(sa.text("SELECT pg_current_xact_id()"))
        closed = close(bench, wait=False)
        item = bench.commit()
        assert bench.take() == [item]
        late = bench.put(writer)
        writer.commit()
    assert (home(bench, late), home(bench, item) == closed) == (closed, False)
    assert bench.take() == [late]


def test_a_young_item_keeps_its_partition_wherever_it_stands_in_it(bench: Bench) -> None:
    items = [bench.commit(), bench.commit()]
    bench.run(f"UPDATE order_items_log SET created_at = created_at - interval '2 days' WHERE id = {items[1]}")
    close(bench)
    assert bench.take() == items
    yesterday = datetime.now(UTC) - DAY
    done = bench.store.turn_over(bench.box, created_before=yesterday)
    assert done is not None
    assert done.deleted == 0
    assert turn(bench).deleted == 2


def test_items_that_stepped_aside_go_out_after_their_partition_went(bench: Bench) -> None:
    item = bench.commit()
    closed = close(bench)
    assert bench.take(fail=(item,)) == [item]
    assert turn(bench).dropped == [closed]
    bench.run("UPDATE order_items SET processed_at = now() - interval '1 hour'")
    assert bench.take() == [item]


def test_a_writers_open_transaction_delays_a_drop_and_nobody_waits_for_it(bench: Bench) -> None:
    item = bench.commit()
    closed = close(bench)
    assert bench.take() == [item]
    with bench.engine.connect() as writer:
        open_one = bench.put(writer)
        done = turn(bench)
        assert (done.deleted, done.dropped) == (1, ())
        assert rows_of(bench, closed) == 0
        written = bench.commit()
        writer.commit()
    assert turn(bench).dropped == [closed]
    assert bench.take() == [open_one, written]


def test_while_writers_wait_for_a_drop_no_partition_with_rows_is_searched(bench: Bench) -> None:
    item = bench.commit()
    closed = close(bench)
    assert bench.take() == [item]
    bench.commit()
    kept = close(bench)
    statements: list[str] = []
    sa.event.listen(bench.engine, "before_cursor_execute", lambda _connection, _cursor, sql, *_: statements.append(sql))
    assert turn(bench).dropped == [closed]
    assert any(kept in sql for sql in statements)
    (locked,) = (number for number, sql in enumerate(statements) if "IN ACCESS EXCLUSIVE MODE" in sql)
    assert not any(kept in sql for sql in statements[locked:])


def test_a_reader_of_the_log_delays_the_removal_and_writers_go_on(bench: Bench) -> None:
    item = bench.commit()
    closed = close(bench)
    assert bench.take() == [item]
    with bench.engine.connect() as reader:
        reader.execute(sa.text("SELECT FROM order_items_log")).all()
        assert turn(bench).deleted == 0
        written = bench.commit()
    assert turn(bench).dropped == [closed]
    assert bench.take() == [written]


def test_writers_do_not_wait_while_a_pass_waits_to_empty_a_partition(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = bench.commit()
    close(bench)
    assert bench.take() == [item]
    turn(bench, old=False)
    with waiting_turn(bench, monkeypatch, "AccessExclusiveLock") as done:
        written = commit_without_waiting(bench)
    assert done[0].deleted == 1
    assert bench.take() == [written]


def test_two_passes_at_once_make_and_remove_each_partition_once(bench: Bench) -> None:
    item = bench.commit()
    closed = close(bench)
    assert bench.take() == [item]
    start = threading.Barrier(2)
    done: list[Turnover] = []

    def run() -> None:
        start.wait()
        done.append(turn(bench))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.append(turn(bench))
    assert [name for each in done for name in each.dropped] == [closed]
    assert sum(each.deleted for each in done) == 1
    made = [name for each in done for name in each.made]
    assert len(made) == len(set(made))


def test_nothing_is_removed_by_positions_of_another_server(bench: Bench) -> None:
    item = bench.commit()
    close(bench)
    assert bench.take() == [item]
    bench.run("UPDATE order_items_positions SET server = 1")
    assert turn(bench).deleted == 0


def test_rows_are_deleted_one_by_one_where_their_partition_takes_too_long(bench: Bench) -> None:
    item = bench.commit()
    assert bench.take() == [item]
    now = datetime.now(UTC)
    span = {"created_from": now - 9 * DAY, "created_before": now + DAY}
    assert bench.store.delete_finished(bench.box, [Status.DELIVERED], limit=10, **span) == 0
    assert delete_one_by_one(bench) == 1


def test_db_check_tells_of_a_publication_that_keeps_rows_in_their_partition_and_its_remedy_lasts(bench: Bench) -> None:
    bench.run("CREATE PUBLICATION everything FOR ALL TABLES")
    first = bench.commit()
    assert bench.take() == [first]
    with pytest.raises(StoreUnavailable, match="replica identity"):
        delete_one_by_one(bench)
    (told,) = checks.check(bench.engine, [bench.box])
    assert (
        "partitions of order_items_log have no replica identity, and a publication has them (everything)"
        in told.message
    )
    bench.run(told.remedy.removeprefix("As its owner: ").rstrip("."))
    assert checks.check(bench.engine, [bench.box]) == []
    assert delete_one_by_one(bench) == 1
    assert turn(bench).made
    assert checks.check(bench.engine, [bench.box]) == []


def test_doctor_tells_of_more_partitions_than_the_server_has_room_to_lock(bench: Bench) -> None:
    def told() -> list[str]:
        remarks = SqlCheckup(bench.store, now=lambda: datetime.now(UTC)).remarks([bench.box])
        return [remark.text for remark in remarks if "out of shared memory" in remark.text]

    assert told() == []
    ((room,),) = bench.ask(postgresql._LOCKS)
    number = int(str(room)) // (3 * postgresql._AT_ONCE) + 1
    high = partitions(bench).ranges[-1].high
    bench.run(
        "; ".join(
            f"CREATE TABLE order_items_log_p{low:x} PARTITION OF order_items_log FOR VALUES FROM ('{low}') TO ('{low + 1}')"
            for low in range(high, high + number - 1)
        )
    )
    (text,) = told()
    assert f"order_items_log has {number} partitions. Each delivery takes {3 * number:,} locks" in text


def test_rows_at_the_same_place_of_two_partitions_are_not_taken_for_each_other(bench: Bench) -> None:
    delivered = bench.commit()
    close(bench)
    assert bench.take() == [delivered]
    pending = bench.commit()
    assert bench.ask("SELECT count(DISTINCT ctid), count(DISTINCT tableoid) FROM order_items_log") == [(1, 2)]
    assert delete_one_by_one(bench) == 1
    assert bench.ask("SELECT id FROM order_items_log") == [(pending,)]


def test_a_worker_that_knows_of_no_partitions_deletes_nothing_once_somebody_has_made_some(whole: Bench) -> None:
    delivered = whole.commit()
    assert whole.take() == [delivered]
    whole.run(
        "ALTER TABLE order_items_log RENAME TO old; "
        "CREATE TABLE order_items_log (LIKE old INCLUDING DEFAULTS) PARTITION BY RANGE ((greatest(xact, '0'::xid8))); "
        "CREATE TABLE order_items_log_default PARTITION OF order_items_log DEFAULT"
    )
    ((high,),) = whole.ask("SELECT pg_current_xact_id()")
    whole.run(f"ALTER TABLE order_items_log ATTACH PARTITION old FOR VALUES FROM ('0') TO ('{high}')")
    pending = whole.commit()
    assert whole.ask("SELECT count(DISTINCT ctid), count(DISTINCT tableoid) FROM order_items_log") == [(1, 2)]
    delete_one_by_one(whole)
    assert whole.take() == [pending]


# ── what there was before ────────────────────────────────────────────────────────────────────────────


def test_a_log_without_partitions_stays_as_it_is_whatever_the_configuration_says(whole: Bench) -> None:
    bench = whole
    bench.box = replace(bench.box, log_partitions=DAY)
    assert schema.create(bench.engine, [bench.box]) == []
    item = bench.commit()
    assert bench.take() == [item]
    assert bench.store.turn_over(bench.box, created_before=datetime.now(UTC)) is None
    (finding,) = checks.check(bench.engine, [bench.box])
    assert "is one table" in finding.message
    now = datetime.now(UTC) + SOON
    span = {"created_from": now - DAY, "created_before": now}
    assert bench.store.delete_finished(bench.box, [Status.DELIVERED], limit=10, **span) == 1


def test_partitions_are_kept_up_where_the_configuration_no_longer_names_them(bench: Bench) -> None:
    bench.box = replace(bench.box, log_partitions=None, retention=Retention())
    assert schema.create(bench.engine, [bench.box]) == []
    assert checks.check(bench.engine, [bench.box]) == []
    assert turn(bench).made
