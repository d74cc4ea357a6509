"""What plans of all kinds of tables have in common: a step, and the comparison of one table with the database."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Column, Connection, Engine, Table, inspect, text
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from boxengine.adapters.sql.connecting.engine import ROW_LOCK_WAIT
from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.log.tables import is_partitioned
from boxengine.adapters.sql.shape.models import primary_key_name
from boxengine.adapters.sql.shape.tables import quoted, unescaped
from boxengine.errors import BoxError, StoreConflict

LOCKED = "End the transaction that has locked it, or wait until it is over."
_ENGINE = text(
    "SELECT t.engine FROM information_schema.tables AS t JOIN information_schema.engines AS e ON e.engine = t.engine "
    "WHERE t.table_schema = COALESCE(:schema, DATABASE()) AND t.table_name = :name AND COALESCE(e.transactions, 'NO') <> 'YES'"
)
_UNDER_WAY = text("SELECT pid FROM pg_stat_progress_create_index WHERE index_relid = to_regclass(:index)")
_TELLS_WHAT_IS_UNDER_WAY = (12,)
"""The first version of PostgreSQL."""
_LOCK = f"{zlib.crc32(b'boxengine')}, -3"
"""The numbers of PostgreSQL's lock. The second one is no bucket's."""
_LOCK_OF_MYSQL = {"name": "boxengine tables", "seconds": ROW_LOCK_WAIT}


@dataclass(frozen=True, slots=True)
class Step:
    """One statement, and what it is for."""

    box: str
    table: str
    """With its schema, where the box names one."""
    purpose: str
    sql: str
    """With percent signs not doubled."""
    concurrent: bool = False
    """Whether it must run outside a transaction, and lets others write meanwhile."""
    creates_table: bool = False
    column: str | None = None
    """The one that it adds."""
    index: str | None = None
    """The one that it makes, where the table has none of this name."""
    undo: str | None = None
    """The statement that takes it back; ``concurrent`` holds for it, too. None for a setting, which may stay."""


@contextmanager
def at_table(engine: Engine, name: str) -> Iterator[None]:
    """Errors that a lock causes name the table.

    Raises:
        StoreUnavailable: what the database refused.
        StoreConflict: somebody has locked the table for longer than the connection waits.
    """
    try:
        with translated(engine):
            yield
    except StoreConflict as error:
        raise StoreConflict(f"{no_answer(name, error)}. {LOCKED}") from error


@contextmanager
def one_at_a_time(connection: Connection) -> Iterator[None]:
    """Within the block no other run makes tables in this database: containers that a deployment starts at once may each begin by
    making them. On PostgreSQL the transaction holds the lock to its end."""
    match connection.dialect.name:
        case "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
            yield
        case "mysql" | "mariadb":
            connection.execute(text("SELECT GET_LOCK(:name, :seconds)"), _LOCK_OF_MYSQL)
            try:
                yield
            finally:
                connection.execute(text("SELECT RELEASE_LOCK(:name)"), _LOCK_OF_MYSQL)
        case _:
            yield


def no_answer(table: str, reason: object) -> str:
    """What a person reads of a table that somebody has locked; ``LOCKED`` is what to do."""
    return f"table {table} does not answer: {reason}"


def engine_without_transactions(connection: Connection, table: str, schema: str | None) -> str | None:
    """The storage engine of a table on MySQL or MariaDB whose writes no rollback takes back; None for every other table."""
    if connection.dialect.name not in ("mysql", "mariadb"):
        return None
    found: str | None = connection.execute(_ENGINE, {"schema": schema, "name": table}).scalar()
    return found


def is_set(connection: Connection, table: Table, statement: str) -> bool:
    """Whether ``ALTER ... SET (...)`` or ``RESET (...)`` of the table or its primary key would change no storage parameter."""
    settings = statement[statement.rindex("(") + 1 : statement.rindex(")")]
    wanted = {part.replace(" ", "").replace('"', "") for part in settings.split(",")}
    dialect = connection.dialect
    of_index = statement.startswith("ALTER INDEX")
    relation = primary_key_name(dialect, table) if of_index else quoted(dialect, table.schema or "", table.name)
    found = connection.execute(
        text("SELECT reloptions FROM pg_class WHERE oid = to_regclass(:name)"), {"name": relation}
    ).one_or_none()
    # ``ALTER INDEX IF EXISTS`` of an index by another name does nothing, today and at the next plan.
    if found is None:
        return True
    present = set(found[0] or ())
    if " RESET (" in statement:
        return not any(each.partition("=")[0] in wanted for each in present)
    return wanted <= present


class TablePlanner:
    """Compares one table with the database."""

    def __init__(self, connection: Connection, table: Table, box_name: str) -> None:
        self._connection = connection
        self._dialect = connection.dialect
        self._postgres = connection.dialect.name == "postgresql"
        self._table = table
        self._box_name = box_name
        self._present = inspect(connection)

    # ── looking things up ────────────────────────────────────────────────────────────────────────────

    def _is_there(self) -> bool:
        return self._present.has_table(self._table.name, schema=self._table.schema)

    def _known_columns(self) -> set[str]:
        return {column["name"] for column in self._present.get_columns(self._table.name, schema=self._table.schema)}

    def _known_indexes(self) -> set[str]:
        found = self._present.get_indexes(self._table.name, schema=self._table.schema)
        return {unescaped(index["name"] or "") for index in found}

    def _is_set(self, statement: str) -> bool:
        return is_set(self._connection, self._table, statement)

    # ── making steps ─────────────────────────────────────────────────────────────────────────────────

    @property
    def _name(self) -> str:
        return quoted(self._dialect, self._table.schema or "", self._table.name)

    def _compiled(self, element: CreateTable | CreateIndex | CreateColumn) -> str:
        return str(element.compile(dialect=self._dialect)).strip().replace("%%", "%")

    def _index_step(self, name: str, statement: str) -> Step:
        purpose = f"make the index {name}"
        # PostgreSQL makes no index over partitions concurrently.
        if self._postgres and is_partitioned(self._connection, self._name):
            purpose += ", for which writers wait, as the table has partitions"
            undo = f"DROP INDEX {quoted(self._dialect, self._table.schema or '', name)}"
            return self._step(purpose, statement, undo=undo)
        if self._postgres:
            statement = statement.replace("INDEX ", "INDEX CONCURRENTLY ", 1)
            undo = f"DROP INDEX CONCURRENTLY {quoted(self._dialect, self._table.schema or '', name)}"
        else:
            undo = f"DROP INDEX {quoted(self._dialect, '', name)} ON {self._name}"
        return self._step(purpose, statement, concurrent=self._postgres, undo=undo)

    def _step(self, purpose: str, sql: str, **more: Any) -> Step:
        return Step(self._box_name, self._table.fullname, purpose, sql, **more)

    def _column_step(self, purpose: str, column: Column[object], *, zoned: bool = True) -> Step:
        """Args:
        zoned: whether the table stores moments with a zone.
        """
        definition = self._compiled(CreateColumn(column))
        if not zoned:
            definition = definition.replace("WITH TIME ZONE", "WITHOUT TIME ZONE")
        undo = f"ALTER TABLE {self._name} DROP COLUMN {quoted(self._dialect, '', column.name)}"
        return self._step(purpose, f"ALTER TABLE {self._name} ADD COLUMN {definition}", column=column.name, undo=undo)

    def _missing_index_steps(
        self, name: str, statement: str, known: Collection[str], broken: Mapping[str, str]
    ) -> Iterator[Step]:
        """The steps that make the index by the statement; none if it is there and valid."""
        if name in broken:
            self._refuse_while_made(name, broken[name])
            drop = f"DROP INDEX CONCURRENTLY {broken[name]}"
            yield self._step(f"drop what an attempt left of {name}", drop, concurrent=True)
        elif name in known:
            return
        yield replace(self._index_step(name, statement), index=None if name in broken else name)

    def _refuse_while_made(self, name: str, index: str) -> None:
        """A session goes on making its index after its client was killed: to drop that one would throw away the work of hours.

        Raises:
            BoxError: one is making it.
        """
        if (self._dialect.server_version_info or ()) < _TELLS_WHAT_IS_UNDER_WAY:
            return
        pid = self._connection.execute(_UNDER_WAY, {"index": index}).scalar()
        if pid is not None:
            raise BoxError(
                f"table {self._table.fullname}: session {pid} is making the index {name}; run this command again once it has "
                f"ended, or end it: SELECT pg_cancel_backend({pid})"
            )

    def _table_steps(self, statements: Sequence[str]) -> list[Step]:
        """The steps that make the table (its first statement) and what belongs to it."""
        first, *others = statements
        return [
            self._step("make the table", first, creates_table=True, undo=f"DROP TABLE {self._name}"),
            *(self._step("make the table", statement) for statement in others),
        ]
