"""``database.comments``: what the server sees behind the statements of a delivery."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from urllib.parse import unquote
from uuid import uuid4

import pytest
from opentelemetry.sdk.trace import TracerProvider

from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.app.servers import database
from boxengine.domain.box import Box, Retention
from boxengine.domain.item import Status
from boxengine.domain.outcome import FailedAttempt, Settlement
from tests.eventually import eventually
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.rigs import ON_POSTGRESQL, MakeRig

HOSTILE = "x*/; DROP TABLE order_outbox_items; -- '\"%s%%\\ :bucket /* é"
_COMMENT = re.compile(r"/\*((?:[a-z]+='[^'*]*',?)+)\*/$")


@contextmanager
def statements_seen(rig: Rig) -> Iterator[Callable[[], list[str]]]:
    """The statements over the box's table that the server saw: on PostgreSQL those that write, on MariaDB claims too."""
    table = rig.box().table
    if rig.engine.dialect.name == "postgresql":
        rig.execute("CREATE TABLE seen (id serial, query text)")
        rig.execute(
            "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO seen (query) VALUES (current_query()); RETURN NULL; END $$"
        )
        rig.execute(f"CREATE TRIGGER see AFTER UPDATE OR DELETE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION see()")
        yield lambda: [row.query for row in rig.ask("SELECT query FROM seen ORDER BY id")]
        return
    with rig.engine.connect() as guard:
        # The log is the server's, and another test may want it at the same time.
        guard.exec_driver_sql("SELECT GET_LOCK('general_log', 100)")
        ((before, output, since),) = rig.ask("SELECT @@global.general_log, @@global.log_output, NOW(6)")
        rig.execute("SET GLOBAL log_output = 'TABLE', GLOBAL general_log = 1")
        try:
            yield lambda: _logged(rig, since)
        finally:
            rig.execute(f"SET GLOBAL general_log = {before}, GLOBAL log_output = '{output}'")


def _logged(rig: Rig, since: datetime) -> list[str]:
    """What connections to the test's database have said to MariaDB about its table."""
    # While others write, a reader of the log may not see its latest rows yet. It sees them in order, so this one is the last.
    end = f"SELECT '{uuid4()}'"
    rig.ask(end)
    eventually(lambda: rig.ask("SELECT 1 FROM mysql.general_log WHERE argument = :end", end=end))
    rows = rig.ask(
        "SELECT argument FROM mysql.general_log WHERE event_time >= :since AND argument LIKE :table "
        "AND thread_id IN (SELECT thread_id FROM mysql.general_log WHERE event_time >= :since "
        "AND command_type = 'Connect' AND argument LIKE CONCAT('% on ', DATABASE(), ' %')) ORDER BY event_time",
        since=since,
        table=f"%{rig.box().table}%",
    )
    return [row.argument for row in rows if row.argument.startswith(("SELECT t.id", "UPDATE", "DELETE"))]


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    return make_rig(connection={"comments": True})


@pytest.fixture
def store(rig: Rig) -> Iterator[SqlStore]:
    with closing(database.connect_store(rig.boxes.resolved.settings)) as store:
        yield store


def insert(rig: Rig, count: int) -> list[int]:
    return [rig.insert(event_key=f"k{number}") for number in range(count)]


def deliver(store: SqlStore, box: Box, *, plain: bool = False, failed: bool = False) -> None:
    claims = store.plain_claims(box) if plain else store.claims(box)
    with claims.open({0: None}, 100) as claim:
        first, *others = [item.id for item in claim.items]
        attempts = [FailedAttempt(first, Status.FAILED, 1, "100 % refused")] if failed else []
        claim.commit(Settlement(delivered=others if failed else [first, *others], failed=attempts))


def comment_of(statement: str) -> dict[str, str]:
    found = _COMMENT.search(statement)
    assert found, f"no comment at the end of {statement}"
    return {name: unquote(value) for name, value in re.findall(r"([a-z]+)='([^']*)'", found[1])}


def test_the_server_sees_box_and_items_behind_every_outcome(rig: Rig, store: SqlStore) -> None:
    ids = insert(rig, 3)
    with statements_seen(rig) as seen:
        deliver(store, rig.box(), failed=True)
        statements = seen()
    assert rig.statuses() == [Status.FAILED, Status.DELIVERED, Status.DELIVERED]
    outcomes = [comment_of(each) for each in statements if each.startswith("UPDATE")]
    assert outcomes == [{"box": BOX, "items": f"{ids[0]}-{ids[-1]}"}] * 2


def test_the_server_sees_the_box_behind_the_claim(rig: Rig, store: SqlStore) -> None:
    box = replace(rig.box(), retention=Retention(delivered=timedelta(0)))
    insert(rig, 2)
    with statements_seen(rig) as seen:
        deliver(store, box, plain=True)
        claimed = comment_of(seen()[0])
    assert rig.rows() == {}
    assert claimed == {"box": BOX}


def test_the_trace_that_is_current_stands_in_the_comment(rig: Rig, store: SqlStore) -> None:
    insert(rig, 1)
    with statements_seen(rig) as seen:
        with TracerProvider().get_tracer("test").start_as_current_span("process") as span:
            deliver(store, rig.box())
        (outcome,) = [comment_of(each) for each in seen() if each.startswith("UPDATE")]
    context = span.get_span_context()
    assert outcome["traceparent"] == f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


@pytest.mark.parametrize("plain", [False, True])
def test_nothing_in_a_boxs_name_ends_the_comment(rig: Rig, store: SqlStore, plain: bool) -> None:
    box = replace(rig.box(), name=HOSTILE)
    insert(rig, 3)
    with statements_seen(rig) as seen:
        deliver(store, box, plain=plain, failed=True)
        names = {comment_of(each)["box"] for each in seen()}
    assert names == {HOSTILE}
    assert rig.statuses() == [Status.FAILED, Status.DELIVERED, Status.DELIVERED]


@ON_POSTGRESQL
def test_statements_with_comments_are_not_prepared(rig: Rig, store: SqlStore) -> None:
    for _ in range(8):
        insert(rig, 2)
        deliver(store, rig.box(), failed=True)
    with store.engine.connect() as connection:
        prepared = connection.exec_driver_sql("SELECT statement FROM pg_prepared_statements").scalars().all()
    assert [statement for statement in prepared if "/*" in statement] == []


def test_a_handlers_own_statements_carry_no_comment(rig: Rig, store: SqlStore) -> None:
    (item,) = insert(rig, 1)
    with statements_seen(rig) as seen:
        with store.claims(rig.box()).open({0: 0}, 10) as claim:
            with claim.savepoint():
                claim.session.connection().exec_driver_sql(
                    f"UPDATE {rig.box().table} SET event_key = 'mine' WHERE id = {item} /* my own */"
                )
            claim.commit(Settlement(delivered=[item]))
        statements = [each for each in seen() if each.startswith("UPDATE")]
    assert statements[0].endswith("/* my own */")
    assert comment_of(statements[1]) == {"box": BOX, "items": f"{item}-{item}"}


def test_without_the_key_there_is_no_comment(make_rig: MakeRig) -> None:
    rig = make_rig()
    insert(rig, 2)
    with closing(database.connect_store(rig.boxes.resolved.settings)) as store, statements_seen(rig) as seen:
        deliver(store, rig.box(), failed=True)
        assert [each for each in seen() if "/*box" in each] == []
    assert rig.statuses() == [Status.FAILED, Status.DELIVERED]
