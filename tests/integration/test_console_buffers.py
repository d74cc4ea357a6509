"""How much each of the console's statements reads: pages of the table and its indexes, whose number no machine's speed changes.

The rows were delivered a moment ago and no vacuum has come by, as behind a busy worker: their index entries are still there.
A transaction that stays open keeps them from being marked as dead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import sql
from psycopg._queries import PostgresQuery
from psycopg.adapt import Transformer

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.delivering import fronts
from boxengine.adapters.sql.delivering.fronts import LARGE
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.looking import searching
from boxengine.adapters.sql.looking.census import SqlCensus
from boxengine.adapters.sql.looking.inspection import SqlInspector
from boxengine.adapters.sql.looking.items import SqlItems
from boxengine.adapters.sql.shape.index_names import index_name
from boxengine.app.overview.stuck import LOOKED_AT
from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Status
from boxengine.ports import ItemFilter
from boxengine.ports.people.inspection import Towards
from tests.conformance.sql_stores import SqlHarness, postgresql

ROWS, BUCKETS = 20_000, 4
CAP = 300
"""Rows that are counted at most."""
WINDOW, PAGE = 250, 50
BOUND = 500
"""Pages that a statement may read; the table alone has a thousand. The dearest looks at 500 rows of each bucket."""
FAILED = frozenset({Status.FAILED})
SEARCHES = {
    "all": ItemFilter(),
    "pending": ItemFilter(statuses=frozenset({Status.PENDING})),
    "failed": ItemFilter(statuses=FAILED),
    "discarded": ItemFilter(statuses=frozenset({Status.DISCARDED})),
    "failed, by error": ItemFilter(statuses=FAILED, error="nowhere"),
    "by error that none has": ItemFilter(error="nowhere"),
    "by event that none has": ItemFilter(event_name="never"),
    "by key that none has": ItemFilter(event_key="never"),
}


class Reading(psycopg.Cursor[Any]):
    """Notes how many pages each query reads."""

    read: dict[str, int]
    prepared: bool
    """By a plan for all values, as PostgreSQL may make it once the driver has prepared the query."""

    def execute(self, query: Any, params: Any = None, **how: Any) -> Any:
        if isinstance(query, str) and query.startswith(("SELECT", "WITH")):
            explain = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)"
            if self.prepared and params:
                super().execute("SET plan_cache_mode = force_generic_plan")
                own = PostgresQuery(Transformer(self))
                own.convert(query, params)
                super().execute(b"PREPARE own AS " + own.query)
                named = params if isinstance(params, Mapping) else dict(enumerate(params))
                values = [named[each] for each in own._order or named]
                super().execute(sql.SQL("{} EXECUTE own({})").format(sql.SQL(explain), sql.SQL(",").join(values)))
                ((plan,),) = self.fetchall()
                super().execute("DEALLOCATE own")
            else:
                super().execute(f"{explain} {query}", params)
                ((plan,),) = self.fetchall()
            pages = plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]
            self.read[query] = max(self.read.get(query, 0), pages)
        return super().execute(query, params, **how)


class Desk:
    """What the console asks, over one table."""

    old: sa.Connection

    def __init__(self, harness: SqlHarness, box: Box, *, prepared: bool) -> None:
        assert isinstance(harness.store, SqlStore)
        self.box = box
        self.read: dict[str, int] = {}
        self.engine = connect(harness.store.engine.url.render_as_string(hide_password=False), connections=2)
        cursor = type("Reading", (Reading,), {"read": self.read, "prepared": prepared})

        @sa.event.listens_for(self.engine, "connect")
        def notes(connection: Any, _record: object) -> None:
            connection.cursor_factory = cursor

        self.store = SqlStore(self.engine, only_looks=True)
        self.census = SqlCensus(self.store, small=2 * CAP, limit=CAP)
        self.inspector = SqlInspector(self.store, window=WINDOW, untidy=WINDOW)

    def look(self) -> None:
        """What the overview and a box's page show."""
        self.census.take(self.box)
        self.store.oldest_pending(self.box)
        self.store.stranded(self.box)
        failed = self.inspector.find(
            self.box, SEARCHES["failed"], start=None, towards=Towards.OLDER, limit=LOOKED_AT
        ).rows
        for row in [*failed, *self.inspector.tried(self.box, limit=LOOKED_AT)][:1]:
            self.inspector.followers(self.box, row, limit=CAP)

    def search(self, which: ItemFilter) -> None:
        windows = iter((False, False, True))
        for towards in Towards:
            self.inspector.find(
                self.box, which, start=None, towards=towards, limit=PAGE, enough=lambda: next(windows, True)
            )

    def show(self, item_id: int) -> None:
        row = SqlItems(self.store).get(self.box, item_id)
        assert row is not None
        self.inspector.holding_back(self.box, row)
        self.inspector.ahead(self.box, row, limit=CAP)
        self.inspector.followers(self.box, row, limit=CAP)
        self.inspector.neighbours(self.box, row, limit=3)
        self.inspector.table(self.box)

    def dearest(self) -> tuple[int, str]:
        return max((pages, query) for query, pages in self.read.items())


@pytest.fixture(params=[False, True], ids=["at once", "prepared"])
def desk(request: pytest.FixtureRequest, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    # However slow the machine is, no later look at the fronts begins at the start, and no statement is cut off.
    monkeypatch.setattr(fronts, "FROM_START", 1e9)
    monkeypatch.setattr(searching, "SHORT", timedelta(minutes=2))
    with ExitStack() as stack:
        harness = postgresql(postgres_url)
        stack.callback(harness.close)
        box = harness.make_box(bucket_size=BUCKETS, strict_order=StrictOrder.KEY)
        desk = Desk(harness, box, prepared=request.param)
        stack.callback(desk.engine.dispose)
        old = stack.enter_context(desk.engine.connect())
        desk.old = old
        fill(desk, old)
        desk.store.fronts(desk.box)  # walks over what was delivered, once
        desk.read.clear()
        yield desk


def fill(desk: Desk, old: sa.Connection) -> None:
    """Half of the rows were pending and are delivered, a tenth is pending, a hundredth failed.

    Args:
        old: has a transaction that stays open, so that no statement can mark the dead entries for the next one.
    """
    table = desk.box.table
    with desk.engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        connection.exec_driver_sql(
            f"INSERT INTO {table} (id, uuid, event_key, event_name, bucket, payload, created_at, updated_at, status, "
            f"errors_count, error_log) SELECT {LARGE} + n, gen_random_uuid(), (n %% 1009)::text, 'created', "
            f"n %% 1009 %% {BUCKETS}, decode(repeat('00', 300), 'hex'), now() - interval '1 s' * ({ROWS} - n), now(), "
            f"CASE WHEN n %% 100 = 0 THEN 1 WHEN n > {ROWS} * 0.4 THEN 0 ELSE 2 END, "
            "CASE WHEN n %% 100 = 0 THEN 4 ELSE 0 END, CASE WHEN n %% 100 = 0 THEN 'http: Timeout' END "
            f"FROM generate_series(1, {ROWS}) AS n"
        )
    old.execution_options(isolation_level="REPEATABLE READ").exec_driver_sql(f"SELECT count(*) FROM {table}").close()
    with desk.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {table} SET status = 2 WHERE status = 0 AND id <= {LARGE} + {ROWS} * 0.9")
        connection.exec_driver_sql(f"ANALYZE {table}")


def test_every_statement_of_a_look_reads_a_bounded_number_of_pages(desk: Desk) -> None:
    desk.look()
    assert len(desk.read) >= 8
    assert desk.dearest() < (BOUND,)


def test_every_statement_of_a_search_reads_a_bounded_number_of_pages(desk: Desk) -> None:
    for name, which in SEARCHES.items():
        desk.read.clear()
        desk.search(which)
        assert desk.read, name
        assert desk.dearest() < (BOUND,), name


def test_every_statement_of_an_items_page_reads_a_bounded_number_of_pages(desk: Desk) -> None:
    for item_id in (LARGE + 100, LARGE + 101, LARGE + ROWS):
        desk.read.clear()
        desk.show(item_id)
        assert desk.dearest() < (BOUND,), item_id


@pytest.mark.parametrize("purpose", ["pending", "failed"])
def test_without_an_index_the_bound_is_exceeded(desk: Desk, purpose: str) -> None:
    desk.old.rollback()  # it holds a lock on the table
    with desk.engine.begin() as connection:
        connection.exec_driver_sql(f"DROP INDEX {index_name('ix', desk.box.table, purpose)}")
    desk.read.clear()
    desk.look()
    desk.search(SEARCHES["discarded"])
    assert desk.dearest() > (BOUND,)
