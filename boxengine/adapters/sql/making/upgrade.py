"""Compares a database with what this version of boxengine would create, and makes the statements that add what is missing.

No step locks a table in use for long: on PostgreSQL indexes are created concurrently, and columns are added nullable,
which rewrites nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Column, Connection, Engine, Index, MetaData, Table
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from boxengine.adapters.sql.connecting.pooler import is_pooled
from boxengine.adapters.sql.creating.sequence import counters
from boxengine.adapters.sql.log import parts as log_parts
from boxengine.adapters.sql.log.tables import names_in, refuse_old_servers, refuse_used_table, with_sources
from boxengine.adapters.sql.making import schema
from boxengine.adapters.sql.making.planning import Step, TablePlanner, at_table
from boxengine.adapters.sql.shape.index_names import index_name
from boxengine.adapters.sql.shape.tables import (
    OPTIONAL,
    counters_of,
    for_driver,
    leads_to_keys,
    quoted,
    unescaped,
    unfinished_indexes,
)
from boxengine.domain.box import Box, Storage

LOCK_PATIENCE = timedelta(seconds=5)
"""How long a step waits for a lock that keeps writers out. While it waits, every later writer waits, too."""
_NO_LIMITS = (
    "SELECT set_config(name, '0', false) FROM pg_settings "
    "WHERE name IN ('lock_timeout', 'statement_timeout', 'transaction_timeout')"
)
"""Versions before 17 have not all of them."""


def plan(connection: Connection, boxes: Sequence[Box], models: Iterable[type] = ()) -> list[Step]:
    """The steps still to take, in order; none if the database has all it needs. Changes nothing."""
    return _planned(connection, boxes, models, _Planner.steps)


def plan_indexes(connection: Connection, boxes: Sequence[Box], models: Iterable[type] = ()) -> list[Step]:
    """Of these steps only the indexes of tables that are there, as far as these have the columns."""
    return [step for step in plan_beside_columns(connection, boxes, models) if step.concurrent]


def plan_beside_columns(connection: Connection, boxes: Sequence[Box], models: Iterable[type] = ()) -> list[Step]:
    """Of these steps only the indexes and settings of tables whose columns somebody else makes, as far as these are there."""
    return _planned(connection, boxes, models, _Planner.beside_columns)


def _planned(
    connection: Connection,
    boxes: Sequence[Box],
    models: Iterable[type],
    steps: Callable[[_Planner], list[Step]],
) -> list[Step]:
    boxes, found = with_sources(boxes), list[Step]()
    for table, box in zip(schema.tables(boxes, models), boxes, strict=True):
        with at_table(connection.engine, table.fullname):
            found += steps(_Planner(connection, table, box))
    return found


def apply(engine: Engine, steps: Iterable[Step], *, tell: Callable[[str], None] | None = None) -> Iterator[Step]:
    """Runs the steps one by one, each independently, and yields each when it is done.

    Args:
        tell: called with what a step is about to wait for, if it may wait long.

    Raises:
        StoreUnavailable, SchemaMismatch: a step failed; those before it stay done, and a new plan goes on from there.
    """
    for step in steps:
        with at_table(engine, step.table):
            if step.concurrent:
                if tell is not None:
                    tell(f"{step.table}: {step.purpose}: waits until older transactions have ended")
                _run_concurrently(engine, step.sql)
            else:
                _run_in_transaction(engine, step.sql)
        yield step


def _run_concurrently(engine: Engine, statement: str) -> None:
    """Runs it without a limit, whatever database and account have: its wait for older transactions holds up no writer, and what a
    limit cuts off leaves an index that every write maintains and no query uses."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        # Closed afterwards, so that the setting ends with it. A pooler would hand the setting to other clients.
        connection.detach()
        driver: Any = connection.connection.dbapi_connection
        if not (engine.driver == "psycopg" and is_pooled(driver)):
            connection.exec_driver_sql(_NO_LIMITS)
        connection.exec_driver_sql(for_driver(statement))


def _run_in_transaction(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            milliseconds = round(LOCK_PATIENCE / timedelta(milliseconds=1))
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {milliseconds}")
        else:
            connection.detach()  # closed afterwards, so that the setting ends with it
            connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {round(LOCK_PATIENCE.total_seconds())}")
        connection.exec_driver_sql(for_driver(statement))


def is_ours(dialect: Dialect, index: Index) -> bool:
    """Whether this database gets the index: MySQL has others than PostgreSQL (``models.box_indexes``)."""
    table = index.table
    if table is None:
        return True
    if dialect.name == "postgresql":
        return index.name != index_name("ix", table.name, "status")
    return index.name not in {index_name("ix", table.name, purpose) for purpose in ("pending", "failed")}


class _Planner(TablePlanner):
    def __init__(self, connection: Connection, table: Table, box: Box) -> None:
        super().__init__(connection, table, box.name)
        self._box = box

    def steps(self) -> list[Step]:
        if not self._is_there():
            return [*self._whole_table(), *self._log()]
        columns = list(self._columns())
        indexes = self._indexes(self._over_missing(added={str(step.column) for step in columns}))
        return [*columns, *indexes, *self._tuning(), *self._counters(), *self._log()]

    def beside_columns(self) -> list[Step]:
        """Those indexes and settings that the table can have now; none where it is not there."""
        if not self._is_there():
            return []
        return [*self._indexes(self._over_missing()), *self._tuning()]

    def _over_missing(self, added: Collection[str] = ()) -> set[str]:
        """The indexes over columns that the table does not have and, after these are added, still lacks: columns of the
        application's own, which its migration makes."""
        present = self._known_columns().union(added)
        return {
            str(index.name) for index in self._table.indexes if not {column.name for column in index.columns} <= present
        }

    # ── a table that is not there ────────────────────────────────────────────────────────────────────

    def _whole_table(self) -> list[Step]:
        indexes = [
            self._step("make the table", self._compiled(CreateIndex(index)), index=str(index.name))
            for index in sorted(self._table.indexes, key=lambda index: str(index.name))
            if is_ours(self._dialect, index)
        ]
        tuning = [self._step("make the table", each) for each in schema.tuning(self._dialect, self._table, self._box)]
        table = self._table_steps([self._compiled(CreateTable(self._table))])
        return [*table, *indexes, *tuning, *self._counters()]

    # ── one that is ──────────────────────────────────────────────────────────────────────────────────

    def _columns(self) -> Iterator[Step]:
        known = {
            column["name"]: column["type"]
            for column in self._present.get_columns(self._table.name, schema=self._table.schema)
        }
        zoned = bool(getattr(known.get("processed_at"), "timezone", True))
        wanted: list[Column[object]] = [self._table.c[name] for name in OPTIONAL if name in self._table.c]
        if self._box.sequence and "seq" in self._table.c:
            wanted.append(self._table.c.seq)
        for column in wanted:
            if column.name not in known:
                loss = OPTIONAL.get(column.name, "its items have no numbers (sequence)")
                yield self._column_step(f"add the column {column.name}: without it {loss}", column, zoned=zoned)

    def _indexes(self, without: Container[str] = ()) -> Iterator[Step]:
        known, broken, keyed = self._present_indexes()
        for index in sorted(self._table.indexes, key=lambda index: str(index.name)):
            name = str(index.name)
            there_by_another_name = keyed and name == index_name("ix", self._table.name, "key")
            if name in without or not is_ours(self._dialect, index) or there_by_another_name:
                continue
            yield from self._missing_index_steps(name, self._compiled(CreateIndex(index)), known, broken)

    def _present_indexes(self) -> tuple[set[str], dict[str, str], bool]:
        """The names of all, those left unfinished, and whether a finished one leads to keys."""
        found = {
            unescaped(index["name"] or ""): index
            for index in self._present.get_indexes(self._table.name, schema=self._table.schema)
        }
        broken = unfinished_indexes(self._connection, self._name)
        return set(found), broken, any(leads_to_keys(index) for name, index in found.items() if name not in broken)

    def _tuning(self) -> Iterator[Step]:
        known, broken, keyed = self._present_indexes()
        for statement in schema.tuning(self._dialect, self._table, self._box, known, keyed=keyed):
            made = schema.index_made_by(statement)
            if made is not None:
                yield from self._missing_index_steps(made, statement.replace("IF NOT EXISTS ", ""), known, broken)
            elif not self._is_set(statement):
                of_index = statement.startswith("ALTER INDEX")
                what = "fillfactor of the primary key's index" if of_index else "autovacuum settings"
                yield self._step(f"{what} for a table whose every row changes once", statement)

    def _counters(self) -> Iterator[Step]:
        name = counters_of(self._table.name)
        if self._box.sequence and not self._present.has_table(name, schema=self._table.schema):
            table = counters(self._table, MetaData())
            yield self._step(
                "make the table that counts its numbers",
                self._compiled(CreateTable(table)),
                undo=f"DROP TABLE {quoted(self._dialect, table.schema or '', table.name)}",
            )

    def _log(self) -> Iterator[Step]:
        """What a log has beside its side table, which is there, or is made by the steps before these."""
        if self._box.storage is not Storage.LOG:
            return
        refuse_old_servers(self._connection, self._table.name)
        refuse_used_table(self._connection, self._box)
        source = self._box.source.table.rpartition(".")[2]
        numbered = self._present.has_table(source, schema=self._table.schema)
        sequence = log_parts.sequence_of(self._connection, self._table, self._box) if numbered else None
        partitioned = log_parts.has_partitions(self._connection, self._table, self._box)
        log = quoted(self._dialect, self._table.schema or "", names_in(self._box)[0])
        broken = {} if partitioned else unfinished_indexes(self._connection, log)
        table = log_parts.as_it_is(self._connection, self._table) if self._is_there() else self._table
        for part in log_parts.parts(self._dialect, table, self._box, sequence=sequence):
            is_there = part.is_there(self._connection)
            # PostgreSQL makes no index over partitions concurrently.
            if part.index is not None and not partitioned:
                statement, known = part.sql.replace("IF NOT EXISTS ", ""), [part.index] if is_there else []
                yield from self._missing_index_steps(part.index, statement, known, broken)
            elif not is_there:
                undo = f"DROP TABLE {part.relation}" if part.is_table else None
                yield self._step(part.purpose, part.sql, undo=undo)
