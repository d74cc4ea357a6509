"""The tables of job boxes: made, verified, printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import DDL, Connection, Engine, Table, create_mock_engine, inspect, text
from sqlalchemy.engine.interfaces import Dialect

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.jobs.models import schedule_table
from boxengine.adapters.sql.jobs.rows import JobRows
from boxengine.adapters.sql.making.checks import (
    ADDED_BY_UPGRADE,
    MADE_ANEW,
    UNFINISHED,
    Finding,
    check_engines,
    unless_refused,
)
from boxengine.adapters.sql.making.planning import is_set, one_at_a_time
from boxengine.adapters.sql.shape.tables import for_driver, quoted, unescaped, unfinished_indexes
from boxengine.domain.jobs import JobBox

_EQUAL_KEYS = (
    "table {table}: columns lock_key and holds have the collation {collation}, which takes different keys for one: jobs of such "
    "keys stop all others; make both VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
)
_COLLATION = text(
    "SELECT collation_name FROM information_schema.columns "
    "WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name AND column_name = 'holds'"
)
Models = Mapping[str, type]
"""The users' classes, by box."""


def tables(boxes: Iterable[JobBox], models: Models) -> list[tuple[JobBox, Table]]:
    """The tables of each box, that of the jobs first."""
    found = []
    for box in boxes:
        rows = JobRows(box, models.get(box.name))
        found += [(box, rows.jobs), (box, rows.journal), (box, schedule_table(rows.jobs)), (box, rows.after)]
    return found


def create(engine: Engine, boxes: Sequence[JobBox], models: Models) -> list[str]:
    """Makes what is missing of tables and indexes; returns the names of tables made. Doing it twice changes nothing."""
    made = []
    with translated(engine), engine.begin() as connection, one_at_a_time(connection):
        present = inspect(connection)
        for _, table in tables(boxes, models):
            if not present.has_table(table.name, schema=table.schema):
                table.create(connection)
                made.append(table.fullname)
            else:
                known = {
                    unescaped(index["name"] or "") for index in present.get_indexes(table.name, schema=table.schema)
                }
                for index in table.indexes:
                    if index.name not in known:
                        index.create(connection)
            for statement in tuning(engine.dialect, table):
                # Only the owner may run it, even where it would change nothing.
                if is_set(connection, table, statement):
                    continue
                connection.execute(DDL(for_driver(statement)))  # type: ignore[no-untyped-call] # SQLAlchemy's
    return made


def ddl(dialect_name: str, boxes: Sequence[JobBox], models: Models) -> list[str]:
    """The same as SQL text, one statement each, without their semicolons."""
    statements: list[str] = []
    url = "mysql+pymysql://" if dialect_name in ("mysql", "mariadb") else "postgresql+psycopg://"

    def keep(statement: Any, *_: Any, **__: Any) -> None:
        statements.append(str(statement.compile(dialect=engine.dialect)).strip().replace("%%", "%"))

    engine = create_mock_engine(url, keep)
    for _, table in tables(boxes, models):
        begin = len(statements)
        table.create(engine, checkfirst=False)
        # SQLAlchemy keeps indexes in a set: without an order of its own, the text would be another one each time.
        statements[begin + 1 :] = sorted(statements[begin + 1 :])
        statements += tuning(engine.dialect, table)
    return statements


def check(engine: Engine, boxes: Sequence[JobBox], models: Models) -> list[Finding]:
    """Compares the database with what the boxes need."""
    return [finding for box in boxes for finding in unless_refused(box, partial(_check, engine, box, models))]


def _check(engine: Engine, box: JobBox, models: Models) -> list[Finding]:
    findings = []
    with translated(engine), engine.connect() as connection:
        present = inspect(connection)
        for _, table in tables([box], models):
            if not present.has_table(table.name, schema=table.schema):
                findings.append(Finding(box.name, "error", f"table {table.fullname} does not exist: db create"))
                continue
            findings += check_engines(connection, box, [table.name], table.schema)
            columns = {column["name"] for column in present.get_columns(table.name, schema=table.schema)}
            indexes = {unescaped(index["name"] or "") for index in present.get_indexes(table.name, schema=table.schema)}
            unfinished = unfinished_indexes(connection, quoted(engine.dialect, table.schema or "", table.name))
            missing = sorted({column.name for column in table.columns} - columns)
            findings += [
                Finding(box.name, "error", f"table {table.fullname} has no column {name}", ADDED_BY_UPGRADE)
                for name in missing
            ]
            if "holds" in table.columns:
                findings += _check_collation(connection, table, box)
            for index in sorted(table.indexes, key=lambda each: str(each.name)):
                # Without the unique ones two jobs of one key could run, or one job be created twice.
                severity = "error" if index.unique else "warning"
                if index.name not in indexes:
                    findings.append(Finding(box.name, severity, f"no index {index.name}: db create"))
                elif index.name in unfinished:
                    findings.append(Finding(box.name, severity, UNFINISHED.format(index.name), MADE_ANEW))
    return findings


def _check_collation(connection: Connection, table: Table, box: JobBox) -> Iterator[Finding]:
    """A table that somebody has converted to another character set: claims compare lock keys to the byte."""
    if connection.dialect.name not in ("mysql", "mariadb"):
        return
    collation = connection.scalar(_COLLATION, {"schema": table.schema, "name": table.name})
    if collation is not None and not collation.endswith("_bin"):
        told = _EQUAL_KEYS.format(table=table.fullname, collation=collation)
        yield Finding(box.name, "error", told, "The same for idempotency_key.")


def tuning(dialect: Dialect, table: Table) -> list[str]:
    """Settings of the table: every job leaves several dead row versions, and the default of 20 % of a table comes too late."""
    if dialect.name != "postgresql":
        return []
    name = quoted(dialect, table.schema or "", table.name)
    settings = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, fillfactor = 80"
    return [f"ALTER TABLE {name} SET ({settings})"]
