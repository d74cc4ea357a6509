"""Handlers that change the session they were given: the engine's outcomes go where they belong all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from boxengine.domain.item import Item, Status
from tests.integration.engine.rig import Rig
from tests.integration.engine.rigs import ON_MARIADB, ON_POSTGRESQL, MakeRig


class Handler:
    """Writes each item's id into ``effects``, after a statement of its own choice."""

    def __init__(self, *statements: str) -> None:
        self.statements = statements
        self.seen: list[Any] = []
        self.ask: str | None = None
        self.handled: list[int] = []

    def __call__(self, item: Item, _payload: bytes, *, session: Session) -> None:
        if self.ask is not None:
            self.seen.append(session.execute(sa.text(self.ask)).scalar())
        session.execute(sa.text("INSERT INTO effects (item) VALUES (:item)"), {"item": item.id})
        for statement in self.statements:
            session.execute(sa.text(statement))
        self.handled.append(item.id)


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    rig = make_rig(box={"max_retries": 0})
    rig.execute("CREATE TABLE effects (item bigint)")
    return rig


def effects(rig: Rig) -> list[int]:
    return sorted(row.item for row in rig.ask("SELECT item FROM effects"))


# ── PostgreSQL ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def tenant(rig: Rig) -> str:
    """Another tenant's schema with a table of the same name, whose rows have the same ids."""
    table = rig.box().table
    rig.execute("CREATE SCHEMA tenant")
    rig.execute(f"CREATE TABLE tenant.{table} (LIKE public.{table} INCLUDING ALL)")
    rig.execute(
        f"INSERT INTO tenant.{table} (id, uuid, event_key, bucket, payload) "
        f"SELECT n, '{uuid4()}', 'k', 0, 'x' FROM generate_series(1, 10) AS n"
    )
    rig.execute("CREATE TABLE tenant.effects (item bigint)")
    return f"tenant.{table}"


@ON_POSTGRESQL
@pytest.mark.parametrize("statement", ["SET LOCAL search_path TO tenant", "SET search_path TO tenant"])
def test_a_handler_that_sets_the_search_path_leaves_another_tenants_table_alone(
    rig: Rig, tenant: str, statement: str
) -> None:
    handler = Handler(statement)
    rig.carry(handler)
    ids = rig.create(1, 2, 3)
    rig.deliver(3)
    assert rig.statuses() == [Status.DELIVERED] * 3
    assert sorted(handler.handled) == ids
    assert {row.status for row in rig.ask(f"SELECT status FROM {tenant}")} == {Status.PENDING}


@ON_POSTGRESQL
@pytest.mark.parametrize(
    ("statement", "question"),
    [
        ("SET search_path TO tenant, public", "SHOW search_path"),
        (
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SHOW default_transaction_isolation",
        ),
        ("SELECT set_config('app.tenant', 'seven', false)", "SELECT coalesce(current_setting('app.tenant', true), '')"),
        (
            "SELECT pg_advisory_lock(7)",
            """SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())""",
        ),
        ("CREATE TEMP TABLE IF NOT EXISTS scratch (id int)", "SELECT to_regclass('pg_temp.scratch')::text"),
        ("SET ROLE other_role", "SELECT current_user"),
    ],
)
def test_a_connection_goes_back_to_the_pool_as_it_came(rig: Rig, statement: str, question: str) -> None:
    rig.execute("DO $$ BEGIN CREATE ROLE other_role; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    (before,) = rig.ask(question)
    handler = Handler(statement)
    handler.ask = question
    rig.carry(handler)
    with rig.worker(processor_threads=1) as watcher:
        for number in (1, 2, 3):
            rig.create(1)
            watcher.wait_for_settled(number)
    assert handler.seen == [before[0]] * 3
    assert rig.statuses() == [Status.DELIVERED] * 3


@ON_POSTGRESQL
def test_a_handler_under_another_role_and_row_security_cannot_hide_the_rows_from_their_outcomes(rig: Rig) -> None:
    table = rig.box().table
    rig.execute("DO $$ BEGIN CREATE ROLE row_reader; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    rig.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO row_reader")
    rig.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    rig.execute(f"CREATE POLICY nobody ON {table} TO row_reader USING (false)")
    handler = Handler("SET LOCAL ROLE row_reader")
    rig.carry(handler)
    ids = rig.create(1, 2)
    rig.deliver(2)
    assert rig.statuses() == [Status.DELIVERED] * 2
    assert effects(rig) == ids


@ON_POSTGRESQL
def test_a_handler_that_commits_by_hand_ends_its_batch_and_not_in_silence(rig: Rig) -> None:
    handler = Handler("COMMIT")
    rig.carry(handler)
    rig.create(1)
    with rig.worker() as watcher:
        watcher.wait_for(lambda: bool(watcher.outages))
    assert rig.statuses() == [Status.PENDING]
    assert "transaction" in watcher.outages[0][1]


# ── MariaDB ──────────────────────────────────────────────────────────────────────────────────────────


@ON_MARIADB
def test_a_handler_that_uses_another_database_leaves_its_table_alone(rig: Rig) -> None:
    table = rig.box().table
    (own,) = rig.ask("SELECT DATABASE() AS name")
    other = f"{own.name}_other"
    rig.execute(f"CREATE DATABASE {other}")
    try:
        rig.execute(f"CREATE TABLE {other}.{table} LIKE {own.name}.{table}")
        rig.execute(f"CREATE TABLE {other}.effects (item bigint)")
        ids = rig.create(1, 2, 3)
        for each in ids:
            rig.execute(
                f"INSERT INTO {other}.{table} (id, uuid, event_key, bucket, payload) VALUES ({each}, uuid(), 'k', 0, 'x')"
            )
        handler = Handler(f"USE {other}")
        rig.carry(handler)
        rig.deliver(3)
        assert rig.statuses() == [Status.DELIVERED] * 3
        assert {row.status for row in rig.ask(f"SELECT status FROM {other}.{table}")} == {Status.PENDING}
    finally:
        rig.execute(f"DROP DATABASE {other}")


@ON_MARIADB
@pytest.mark.parametrize(
    ("statement", "question"),
    [
        ("SET SESSION sql_mode = 'ANSI_QUOTES'", "SELECT @@SESSION.sql_mode"),
        ("SET @tenant = 'seven'", "SELECT @tenant"),
        ("SELECT GET_LOCK('handlers_own', 0)", "SELECT IS_USED_LOCK('handlers_own')"),
    ],
)
def test_a_connection_goes_back_to_mariadbs_pool_as_it_came(rig: Rig, statement: str, question: str) -> None:
    handler = Handler(statement)
    handler.ask = question
    rig.carry(handler)
    with rig.worker(processor_threads=1) as watcher:
        for number in (1, 2, 3):
            rig.create(1)
            watcher.wait_for_settled(number)
    assert len(set(handler.seen)) == 1
    assert "ANSI_QUOTES" not in str(handler.seen)
    assert rig.statuses() == [Status.DELIVERED] * 3


# ── outcomes that the table does not take ────────────────────────────────────────────────────────────

KEEP = (
    "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "IF {condition} THEN RETURN NULL; END IF; RETURN NEW; END $$"
)
RULES: dict[str, Callable[[str], list[str]]] = {
    "a trigger that returns NULL": lambda table: [
        KEEP.format(condition="OLD.event_key = '2' AND NEW.status = 2"),
        f"CREATE TRIGGER keep BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION keep()",
    ],
    "a constraint": lambda table: [
        f"ALTER TABLE {table} ADD CONSTRAINT never_two CHECK (NOT (event_key = '2' AND status = 2))"
    ],
}


def forbid(rig: Rig, rule: str) -> None:
    for statement in RULES[rule](rig.box().table):
        rig.execute(statement)


@pytest.mark.parametrize("rule", RULES)
def test_a_row_whose_delivery_cannot_be_recorded_fails_alone(make_rig: MakeRig, rule: str, database: str) -> None:
    if "trigger" in rule and not database.startswith("postgresql"):
        pytest.skip("no trigger of MariaDB's can pass over a row")
    rig = make_rig(box={"max_retries": 0, "bucket_size": 1})
    forbid(rig, rule)
    sent: list[int] = []
    rig.carry(lambda item, _payload: sent.append(item.id))
    ids = rig.create(1, 2, 3)
    with rig.worker() as watcher:
        watcher.wait_for_settled(3)
    assert rig.statuses() == [Status.DELIVERED, Status.FAILED, Status.DELIVERED]
    assert sent == ids
    assert "could not be recorded" in rig.row(ids[1]).error_log


@pytest.mark.parametrize("rule", RULES)
def test_what_a_handler_wrote_for_a_row_that_cannot_be_recorded_is_undone(rig: Rig, rule: str, database: str) -> None:
    if "trigger" in rule and not database.startswith("postgresql"):
        pytest.skip("no trigger of MariaDB's can pass over a row")
    forbid(rig, rule)
    rig.carry(Handler())
    ids = rig.create(1, 2, 3)
    with rig.worker() as watcher:
        watcher.wait_for_settled(3)
    assert rig.statuses() == [Status.DELIVERED, Status.FAILED, Status.DELIVERED]
    assert effects(rig) == [ids[0], ids[2]]


@ON_POSTGRESQL
def test_a_row_that_nothing_can_be_recorded_of_is_reported_and_not_sent_without_end(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 0, "bucket_size": 1})
    table = rig.box().table
    rig.execute(KEEP.format(condition="OLD.event_key = '1'"))
    rig.execute(f"CREATE TRIGGER keep BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION keep()")
    sent: list[int] = []
    rig.carry(lambda item, _payload: sent.append(item.id))
    ids = rig.create(1, 2, 3)
    with rig.worker() as watcher:
        watcher.wait_for_settled(2)
        rig.create(4)
        watcher.wait_for_settled(3)
    assert rig.statuses() == [Status.PENDING, Status.DELIVERED, Status.DELIVERED, Status.DELIVERED]
    assert sent.count(ids[0]) == 1
    assert [context["item_id"] for _error, context in rig.tracked] == [ids[0]]


def test_a_count_of_errors_at_its_maximum_repeats_no_neighbour(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 0, "bucket_size": 1})
    sent: list[int] = []

    def refuse_the_tired(item: Item, _payload: bytes) -> bool:
        sent.append(item.id)
        return item.errors_count == 0

    rig.carry(refuse_the_tired)
    tired = rig.insert(errors_count=2_147_483_647)
    others = rig.create(1, 2)
    rig.deliver(3)
    assert rig.statuses() == [Status.FAILED, Status.DELIVERED, Status.DELIVERED]
    assert sent == [tired, *others]
