"""Rows that no driver can read: each fails by itself, under its own id, and people can look at it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.domain.item import Status
from tests.integration.engine.rig import Rig
from tests.integration.engine.rigs import ON_MARIADB, ON_POSTGRESQL, MakeRig

NO_CHECKS = "SET SESSION sql_mode = ''"


def spoil(rig: Rig, row_id: int, change: str) -> None:
    """What another program may have written; MariaDB takes some of it without its checks alone."""
    with rig.engine.begin() as connection:
        if connection.dialect.name != "postgresql":
            connection.exec_driver_sql(NO_CHECKS)
        connection.execute(sa.text(f"UPDATE {rig.box().table} SET {change} WHERE id = {row_id}"))
    rig.engine.dispose()


def check_that_it_fails_alone(rig: Rig, change: str, *, event_key: str = "b") -> None:
    sent: list[int] = []
    rig.carry(lambda item, _payload: sent.append(item.id))
    ids = rig.create("a", event_key, "c")
    spoil(rig, ids[1], change)
    rig.deliver(3)
    statuses = dict(rig.ask(f"SELECT id, status FROM {rig.box().table}"))
    assert statuses == {ids[0]: Status.DELIVERED, ids[1]: Status.FAILED, ids[2]: Status.DELIVERED}
    assert sorted(sent) == [ids[0], ids[2]]
    ((log,),) = rig.ask(f"SELECT error_log FROM {rig.box().table} WHERE id = {ids[1]}")
    assert "cannot be read" in log
    assert [context["item_id"] for _error, context in rig.tracked] == [ids[1]]


@ON_POSTGRESQL
@pytest.mark.parametrize(
    "change",
    [
        "created_at = 'infinity'",
        "created_at = '-infinity'",
        "created_at = '294276-12-31 23:59:59+00'",
        "created_at = '0044-03-15 00:00:00+00 BC'",
        "processed_at = '0044-03-15 00:00:00+00 BC'",
    ],
)
def test_a_moment_that_python_cannot_hold_fails_its_row_alone(make_rig: MakeRig, change: str) -> None:
    check_that_it_fails_alone(make_rig(box={"max_retries": 0}), change)


@ON_POSTGRESQL
def test_such_rows_fail_alone_where_rows_are_deleted_as_they_are_claimed(make_rig: MakeRig) -> None:
    rig = make_rig(
        box={"max_retries": 0, "retention_delivered_items": "PT0S", "delivered_min_retention_period": "PT0S"}
    )
    rig.carry(lambda _item, _payload: None)
    ids = rig.create("a", "b", "c")
    spoil(rig, ids[1], "created_at = 'infinity'")
    rig.deliver(3)
    assert dict(rig.ask(f"SELECT id, status FROM {rig.box().table}")) == {ids[1]: Status.FAILED}


@ON_POSTGRESQL
def test_an_unreadable_row_fails_though_it_is_the_last_of_its_batch(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 0})
    rig.carry(lambda _item, _payload: None)
    ids = rig.create("a", "a")
    spoil(rig, ids[1], "created_at = 'infinity'")
    rig.deliver(2)
    assert dict(rig.ask(f"SELECT id, status FROM {rig.box().table}")) == {
        ids[0]: Status.DELIVERED,
        ids[1]: Status.FAILED,
    }


@ON_MARIADB
@pytest.mark.parametrize("change", ["created_at = '0000-00-00 00:00:00'", "uuid = 'no uuid at all'"])
def test_a_value_that_python_cannot_hold_fails_its_row_alone_on_mariadb(make_rig: MakeRig, change: str) -> None:
    check_that_it_fails_alone(make_rig(box={"max_retries": 0}), change)


@pytest.mark.parametrize("column", ["created_at", "event_key", "uuid"])
def test_a_row_without_a_value_that_every_item_has_fails_alone(make_rig: MakeRig, column: str, database: str) -> None:
    rig = make_rig(box={"max_retries": 0})
    if database.startswith("postgresql"):
        rig.execute(f"ALTER TABLE {rig.box().table} ALTER COLUMN {column} DROP NOT NULL")
    else:
        types = {"created_at": "datetime(6)", "event_key": "varchar(255)", "uuid": "char(36)"}
        rig.execute(f"ALTER TABLE {rig.box().table} MODIFY {column} {types[column]} NULL")
    check_that_it_fails_alone(rig, f"{column} = NULL")


def test_a_row_without_a_count_of_errors_is_delivered(make_rig: MakeRig, database: str) -> None:
    rig = make_rig()
    change = (
        "ALTER COLUMN errors_count DROP NOT NULL" if database.startswith("postgresql") else "MODIFY errors_count int"
    )
    rig.execute(f"ALTER TABLE {rig.box().table} {change}")
    rig.carry(lambda _item, _payload: None)
    (row_id,) = rig.create("a")
    spoil(rig, row_id, "errors_count = NULL")
    rig.deliver(1)
    assert rig.statuses() == [Status.DELIVERED]


@pytest.mark.parametrize("options", ["[1, 2]", '"text"', "17"])
def test_options_that_are_no_object_fail_their_row_alone(make_rig: MakeRig, options: str) -> None:
    rig = make_rig(box={"max_retries": 0})
    rig.carry(lambda item, _payload: item.headers["Idempotency-Key"] and None)
    ids = rig.create("a", "b", "c")
    spoil(rig, ids[1], f"options = '{options}'")
    rig.deliver(3)
    statuses = dict(rig.ask(f"SELECT id, status FROM {rig.box().table}"))
    assert statuses == {ids[0]: Status.DELIVERED, ids[1]: Status.FAILED, ids[2]: Status.DELIVERED}


@ON_POSTGRESQL
def test_options_nested_deeper_than_python_reads_fail_their_row_alone(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 0})
    rig.carry(lambda item, _payload: item.headers["Idempotency-Key"] and None)
    ids = rig.create("a", "b", "c")
    spoil(rig, ids[1], f"""options = '{{"note": "replay_to", "deep": {"[" * 3_000}{"]" * 3_000}}}'""")
    rig.deliver(3)
    statuses = dict(rig.ask(f"SELECT id, status FROM {rig.box().table}"))
    assert statuses == {ids[0]: Status.DELIVERED, ids[1]: Status.FAILED, ids[2]: Status.DELIVERED}
    ((log,),) = rig.ask(f"SELECT error_log FROM {rig.box().table} WHERE id = {ids[1]}")
    assert "nested too deeply" in log


# ── nothing else stops ───────────────────────────────────────────────────────────────────────────────


@ON_POSTGRESQL
def test_moments_at_the_end_of_time_stop_neither_polls_nor_measurements(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 3, "retry_strategies": ["exponential_backoff"]})
    rig.insert(errors_count=1, processed_at="294276-12-31 23:59:59+00")
    rig.insert(available_at="infinity")
    rig.insert(created_at="-infinity", available_at="9999-01-01")
    rig.insert(status=Status.DELIVERED, created_at="infinity")
    good = rig.insert()
    store, box = SqlStore(rig.engine), rig.box()
    assert [row.id for row in store.poll(box, list(box.buckets), 10)] == [good]
    assert store.outlook(box, list(box.buckets)).due == [0]
    assert store.oldest_pending(box) is not None
    assert store.oldest_finished(box, [Status.DELIVERED]) is None


@ON_MARIADB
def test_zero_dates_stop_neither_polls_nor_measurements(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 3, "retry_strategies": ["exponential_backoff"]})
    tried, old, good = rig.insert(errors_count=1), rig.insert(status=Status.DELIVERED), rig.insert()
    spoil(rig, tried, "processed_at = '0000-00-00 00:00:00', created_at = '0000-00-00 00:00:00'")
    spoil(rig, old, "created_at = '0000-00-00 00:00:00'")
    store, box = SqlStore(rig.engine), rig.box()
    assert [row.id for row in store.poll(box, list(box.buckets), 10)] == [tried, good]
    assert store.oldest_pending(box) is not None
    assert store.oldest_finished(box, [Status.DELIVERED]) is None


def run(rig: Rig, *arguments: str) -> Any:
    from boxengine.cli.main import cli

    result = CliRunner().invoke(cli, ["--config", str(Path(rig.path)), *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_people_can_look_at_such_rows(make_rig: MakeRig, database: str) -> None:
    rig = make_rig()
    ids = rig.create("a", "b", "c")
    moment = "infinity" if database.startswith("postgresql") else "0000-00-00 00:00:00"
    spoil(rig, ids[1], f"created_at = '{moment}', processed_at = '{moment}', errors_count = 1")
    listed = json.loads(run(rig, "items", "list", rig.box().name, "--json"))
    assert [row["id"] for row in listed] == ids
    assert str(listed[1]["created_at"]).startswith(moment)
    assert str(listed[0]["created_at"]).endswith("Z")
    assert moment in run(rig, "items", "show", rig.box().name, str(ids[1]))
    assert json.loads(run(rig, "status", "--json"))
    run(rig, "audit", rig.box().name)
