"""A subscription that a person sends back or ahead, or gives up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.log import moving
from boxengine.adapters.sql.log.moving import Moved, Mover, Target, give_up, unread_by
from boxengine.adapters.sql.making import checks, schema, sizes
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.errors import SchemaMismatch, StoreConflict, StoreUnavailable
from tests.eventually import eventually
from tests.integration.log.shared import SharedLog, reader_of, shared_log


@pytest.fixture
def log(postgres_url: str) -> Iterator[SharedLog]:
    with shared_log(postgres_url) as log:
        yield log


def of(log: SharedLog, name: str = "billing") -> Mover:
    return Mover(log.engine, log.readers[name])


def all_of(log: SharedLog, name: str = "billing", *, limit: int = 100) -> list[int]:
    """Everything that the subscription still delivers, claim by claim."""
    found: list[int] = []
    while ids := log.read(name, limit=limit):
        found += ids
    return found


def aged(log: SharedLog, item: int, hours: int) -> None:
    log.run(f"UPDATE order_items_log SET created_at = created_at - interval '{hours} hours' WHERE id = {item}")


def ago(hours: float) -> datetime:
    return datetime.now(UTC) - timedelta(hours=hours)


@pytest.mark.parametrize("limit", [2, 100])
def test_what_is_sent_back_goes_out_again_in_order_and_the_other_stays(log: SharedLog, limit: int) -> None:
    ids = [log.commit(str(number)) for number in range(7)]
    all_of(log)
    all_of(log, "search")
    assert of(log).back(Target(item=ids[3])) == Moved(4, at_least=False)
    assert all_of(log, limit=limit) == ids[3:]
    assert all_of(log, "search") == []


def test_it_is_sent_back_by_time(log: SharedLog) -> None:
    ids = [log.commit(str(number)) for number in range(5)]
    for hours, item in zip((5, 4, 3, 2, 1), ids, strict=True):
        aged(log, int(item), hours)
    all_of(log)
    assert of(log).back(Target(since=ago(3.5))) == Moved(3, at_least=False)
    assert all_of(log) == ids[2:]


def test_nothing_that_still_waited_is_lost_by_a_way_back(log: SharedLog) -> None:
    first = log.commit()
    with log.engine.connect() as late, late.begin():
        waits = log.put(late)
        second = log.commit()
        all_of(log)
    assert of(log).back(Target(item=int(second))) == Moved(1, at_least=False)
    assert all_of(log) == [waits, second]
    assert first < waits < second


def test_a_transaction_that_is_open_during_a_way_back_is_delivered_once(log: SharedLog) -> None:
    with log.engine.connect() as late, late.begin():
        open_item = log.put(late)
        passed = log.commit()
        all_of(log)
        of(log).back(Target(item=int(passed)))
        assert all_of(log) == [passed]
    assert all_of(log) == [open_item]


def test_in_the_middle_of_a_batch_a_way_back_and_a_way_ahead_are_exact(log: SharedLog) -> None:
    with log.engine.begin() as connection:
        ids = [log.put(connection, str(number)) for number in range(10)]
    assert log.read("billing", limit=4) == ids[:4]
    of(log).back(Target(item=int(ids[2])))
    assert log.read("billing", limit=3) == ids[2:5]
    assert of(log).ahead(Target(item=int(ids[8]))) == Moved(3, at_least=False)
    assert all_of(log) == ids[8:]


def test_items_that_had_failed_begin_anew(log: SharedLog) -> None:
    ids = [log.commit("k") for _ in range(3)]
    log.read("billing", fail=(int(ids[0]), int(ids[2])))
    of(log).back(Target(item=int(ids[1])))
    assert log.aside("billing") == [(ids[0], 0, 1)]
    log.read("billing", fail=(int(ids[2]),))
    assert log.aside("billing") == [(ids[0], 0, 1), (ids[2], 0, 1)]


def test_an_item_that_somebody_has_discarded_goes_out_again_as_all_others_do(log: SharedLog) -> None:
    ids = [log.commit("k") for _ in range(2)]
    log.read("billing", fail=(int(ids[0]),))
    log.run("UPDATE order_items_billing SET status = 3")
    of(log).back(Target(item=int(ids[0])))
    assert all_of(log) == ids


def test_a_way_back_tells_which_items_begin_anew(log: SharedLog) -> None:
    ids = [int(log.commit("k")) for _ in range(3)]
    log.read("billing", fail=(ids[0], ids[2]))
    assert of(log).back(Target(item=ids[1]), dry=True).anew == ()
    assert of(log).back(Target(item=ids[1])).anew == (ids[2],)


def test_a_way_back_counts_only_what_was_passed_and_never_leads_ahead(log: SharedLog) -> None:
    ids = [log.commit(str(number)) for number in range(6)]
    assert of(log).ahead(Target(item=int(ids[4]))) == Moved(4, at_least=False)
    before = log.ask("SELECT * FROM order_items_billing_positions ORDER BY bucket")
    assert of(log).back(Target(item=int(ids[4]))) == Moved(0, at_least=False)
    assert of(log).back(Target(since=ago(-1))) == Moved(0, at_least=False)
    assert log.ask("SELECT * FROM order_items_billing_positions ORDER BY bucket") == before
    assert of(log).back(Target(item=int(ids[2])), dry=True) == Moved(2, at_least=False)
    assert of(log).back(Target(item=int(ids[2]))) == Moved(2, at_least=False)
    assert all_of(log) == ids[2:]


def test_what_is_passed_by_a_way_ahead_never_goes_out_and_the_rest_does(log: SharedLog) -> None:
    ids = [log.commit(str(number)) for number in range(6)]
    assert of(log).ahead(Target(item=int(ids[4]))) == Moved(4, at_least=False)
    assert all_of(log) == ids[4:]
    assert all_of(log, "search") == ids


def test_it_is_sent_ahead_by_time(log: SharedLog) -> None:
    ids = [log.commit(str(number)) for number in range(4)]
    for hours, item in zip((4, 3, 2, 1), ids, strict=True):
        aged(log, int(item), hours)
    of(log).ahead(Target(since=ago(2.5)))
    assert all_of(log) == ids[2:]


def test_a_way_ahead_of_everything_leaves_what_is_not_committed_yet(log: SharedLog) -> None:
    log.commit()
    with log.engine.connect() as late, late.begin():
        open_item = log.put(late)
        assert of(log).ahead(None) == Moved(1, at_least=False)
        assert all_of(log) == []
    after = log.commit()
    assert all_of(log) == [open_item, after]


def test_a_late_item_below_the_place_of_a_batch_is_not_passed_over(log: SharedLog) -> None:
    with log.engine.connect() as late, late.begin():
        below = log.put(late)
        with log.engine.begin() as connection:
            ids = [log.put(connection, str(number)) for number in range(6)]
        assert log.read("billing", limit=3) == ids[:3]
    of(log).ahead(Target(item=int(below)))
    assert all_of(log) == [*ids[3:], below]


def test_a_trial_counts_and_moves_nothing(log: SharedLog) -> None:
    ids = [log.commit(str(number)) for number in range(3)]
    log.read("billing", send=2)
    before = log.ask("SELECT * FROM order_items_billing_positions ORDER BY bucket")
    assert of(log).back(Target(item=int(ids[0])), dry=True) == Moved(2, at_least=False)
    assert of(log).ahead(None, dry=True) == Moved(1, at_least=False)
    assert log.ask("SELECT * FROM order_items_billing_positions ORDER BY bucket") == before


def test_the_count_has_an_end(log: SharedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "COUNTED_TO", 2)
    ids = [log.commit(str(number)) for number in range(4)]
    all_of(log)
    assert of(log).back(Target(item=int(ids[0]))) == Moved(2, at_least=True)


def test_it_waits_for_a_delivery_under_way_and_says_so_if_that_does_not_end(
    log: SharedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "PATIENCE", 0.1)
    log.commit()
    with (
        log.store.plain_claims(log.readers["billing"]).open({0: None}, 10),
        pytest.raises(StoreConflict, match=r"boxengine pause order_item\.billing, repeat the command"),
    ):
        of(log).ahead(None)
    assert len(all_of(log)) == 1


def test_with_another_number_of_buckets_than_the_log_was_filled_with_nothing_is_moved(log: SharedLog) -> None:
    item = log.commit(bucket=1)
    sizes.record(log.engine, [log.readers["billing"]])
    for other in (replace(log.readers["billing"], bucket_size=number) for number in (1, 3)):
        with pytest.raises(SchemaMismatch, match="was filled with 2"):
            Mover(log.engine, other).ahead(None)
    assert log.read("billing", buckets=(1,)) == [item]


def test_positions_of_another_server_are_not_moved(log: SharedLog) -> None:
    log.commit()
    log.run("UPDATE order_items_billing_positions SET server = server + 1")
    with pytest.raises(StoreUnavailable, match="db reposition"):
        of(log).ahead(None)


def test_a_subscription_that_is_given_up_holds_nothing_back_any_more(log: SharedLog) -> None:
    item = log.commit()
    log.read("billing", fail=(int(item),))
    log.read("search")
    for _ in range(2):
        log.commit()
    assert give_up(log.engine, log.box, "billing", dry=True) == 1
    assert unread_by(log.engine, replace(log.box, subscriptions=("search",)), "billing") == Moved(2, at_least=False)
    assert give_up(log.engine, log.box, "billing") == 1
    left = reader_of(replace(log.box, subscriptions=("search",)), "search")
    assert checks.check(log.engine, [left]) == []
    with pytest.raises(SchemaMismatch, match=r"no positions of order_item\.billing"):
        give_up(log.engine, log.box, "billing")


@pytest.mark.parametrize(
    "gone", ["order_items_billing_positions", "order_items_billing_positions, order_items_billing"]
)
def test_a_subscription_whose_tables_somebody_has_dropped_can_be_given_up(log: SharedLog, gone: str) -> None:
    item = log.commit()
    log.run(f"DROP TABLE {gone}")
    left = reader_of(replace(log.box, subscriptions=("search",)), "search")
    (told,) = checks.check(log.engine, [left])
    assert told.message.endswith("boxengine subscriptions drop order_item.billing")
    assert unread_by(log.engine, log.box, "billing") is None
    assert give_up(log.engine, log.box, "billing") == 0
    assert checks.check(log.engine, [left]) == []
    assert log.read("search") == [item]


def test_a_log_box_moves_to_subscriptions_once_its_own_position_is_given_up(log: SharedLog) -> None:
    schema.create(log.engine, [replace(log.box, subscriptions=())])
    log.commit()
    assert unread_by(log.engine, log.box, "") == Moved(1, at_least=False)
    log.run("UPDATE order_items_positions SET server = server + 1")
    assert unread_by(log.engine, log.box, "") is None
    log.run("INSERT INTO order_items (uuid, event_key, bucket, payload) VALUES (gen_random_uuid(), 'k', 0, 'x')")
    for dry in True, False:
        with pytest.raises(
            SchemaMismatch, match="1 in all: with a configuration in which the box has no subscriptions yet"
        ):
            give_up(log.engine, log.box, "", dry=dry)
    log.run("DELETE FROM order_items")
    assert give_up(log.engine, log.box, "") == 0
    assert checks.check(log.engine, list(log.readers.values())) == []


def test_an_item_that_goes_out_while_a_way_back_by_time_is_sought_goes_out_once_more(
    log: SharedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with log.engine.connect() as writer:
        late = log.put(writer)
        second = log.commit("b")
        assert all_of(log) == [second]
        take_locks = moving.take_locks

        def meanwhile(connection: sa.Connection, side: BoxTable) -> None:
            writer.commit()
            assert all_of(log) == [late]
            take_locks(connection, side)

        monkeypatch.setattr(moving, "take_locks", meanwhile)
        assert of(log).back(Target(since=ago(1))) == Moved(2, at_least=False)
    assert all_of(log) == [late, second]


@contextmanager
def reading(log: SharedLog) -> Iterator[list[int]]:
    """The most rows that each question has read while deliveries were held up."""
    read, held = list[int](), list[str]()

    def explain(connection: sa.Connection, _cursor: Any, statement: str, values: Any, *_rest: Any) -> None:
        if "pg_advisory_xact_lock" in statement:
            held.append(statement)
        if held and statement.startswith("SELECT") and "order_items_log" in statement:
            driver: Any = connection.connection.driver_connection
            ((plan,),) = driver.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", values)
            read.append(rows_read(plan[0]["Plan"]))

    def ended(_connection: sa.Connection) -> None:
        held.clear()

    sa.event.listen(log.engine, "before_cursor_execute", explain)
    for end in ("commit", "rollback"):
        sa.event.listen(log.engine, end, ended)
    yield read
    sa.event.remove(log.engine, "before_cursor_execute", explain)


def rows_read(plan: dict[str, Any]) -> int:
    """The most that one step of a plan has read, with the rows at which it looked in vain."""
    own = max(plan["Actual Rows"], plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return max([int(own), *map(rows_read, plan.get("Plans", ()))])


def passed_since_all_ended(connection: sa.Connection) -> bool:
    """Passes all items; whether no transaction is open that began before theirs, in whatever database of the server."""
    connection.exec_driver_sql("UPDATE order_items_billing_positions SET passed = pg_current_snapshot()")
    return bool(
        connection.exec_driver_sql(
            "SELECT pg_snapshot_xmin(passed) > (SELECT max(xact) FROM order_items_log) FROM order_items_billing_positions"
        ).scalar()
    )


@pytest.mark.parametrize("statistics", [[], ["VACUUM ANALYZE order_items_log"]], ids=["never analyzed", "analyzed"])
def test_while_nothing_is_delivered_nothing_is_read_that_was_passed_long_ago(
    log: SharedLog, statistics: list[str]
) -> None:
    """Retention may have kept weeks of items."""
    with log.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(
            "INSERT INTO order_items_log (uuid, event_key, bucket, payload, created_at) "
            "SELECT gen_random_uuid(), 'k', 0, 'x', now() - interval '2 hours' FROM generate_series(1, 20000)"
        )
        eventually(lambda: passed_since_all_ended(connection))
        for statement in statistics:
            connection.exec_driver_sql(statement)
    item = log.commit()
    with reading(log) as read:
        assert of(log).ahead(None) == Moved(1, at_least=False)
        assert of(log).back(Target(since=ago(1))) == Moved(1, at_least=False)
        assert of(log).ahead(Target(since=ago(1))) == Moved(0, at_least=False)
        assert unread_by(log.engine, replace(log.box, subscriptions=("search",)), "billing") == Moved(1, at_least=False)
    assert read
    assert max(read) <= 1
    assert all_of(log) == [item]
