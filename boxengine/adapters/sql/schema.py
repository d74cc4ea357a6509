"""Tables and indexes of all boxes: made, verified, printed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, MetaData, Table, create_mock_engine, inspect
from sqlalchemy.engine.interfaces import Dialect

from boxengine.adapters.sql.errors import translated
from boxengine.adapters.sql.models import box_table
from boxengine.adapters.sql.tables import reflect
from boxengine.domain.box import Box, StrictOrder
from boxengine.errors import SchemaMismatch


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about a box's table that a person should know."""

    box: str
    severity: str
    """``error``: the box cannot run; ``warning``: it runs, something is missing or slow."""
    message: str


def tables(boxes: Iterable[Box], models: Iterable[type] = ()) -> list[Table]:
    """The tables of the boxes: that of the user's model where there is one, else one made for the box."""
    metadata = MetaData()
    by_name = {model.__table__.fullname: model.__table__ for model in models if hasattr(model, "__table__")}
    return [by_name[box.table] if box.table in by_name else box_table(box, metadata) for box in boxes]


def create(engine: Engine, boxes: Sequence[Box], models: Iterable[type] = ()) -> list[str]:
    """Makes what is missing of tables and indexes; returns the names of tables made. Doing it twice changes nothing."""
    made = []
    with translated(engine), engine.begin() as connection:
        present = inspect(connection)
        for table, box in zip(tables(boxes, models), boxes, strict=True):
            known: set[str | None] = set()
            if not present.has_table(table.name, schema=table.schema):
                table.create(connection)
                made.append(box.table)
            else:
                known = {index["name"] for index in present.get_indexes(table.name, schema=table.schema)}
                for index in table.indexes:
                    if index.name not in known and {column.name for column in index.columns} <= {
                        column["name"] for column in present.get_columns(table.name, schema=table.schema)
                    }:
                        index.create(connection, checkfirst=True)
            for statement in _tuning(engine.dialect, table, box, known):
                connection.exec_driver_sql(statement)
    return made


def ddl(dialect_name: str, boxes: Sequence[Box], models: Iterable[type] = ()) -> list[str]:
    """The same as SQL text, one statement each, without their semicolons."""
    statements: list[str] = []
    url = "mysql+pymysql://" if dialect_name in ("mysql", "mariadb") else "postgresql+psycopg://"

    def keep(statement: Any, *_: Any, **__: Any) -> None:
        statements.append(str(statement.compile(dialect=engine.dialect)).strip())

    engine = create_mock_engine(url, keep)
    for table, box in zip(tables(boxes, models), boxes, strict=True):
        table.create(engine, checkfirst=False)
        statements.extend(_tuning(engine.dialect, table, box, ()))
    return statements


def check(engine: Engine, boxes: Sequence[Box], models: Iterable[type] = ()) -> list[Finding]:
    """Compares the database with what the boxes need."""
    findings = []
    with translated(engine), engine.connect() as connection:
        present = inspect(connection)
        for table, box in zip(tables(boxes, models), boxes, strict=True):
            try:
                found = reflect(connection, box)
            except SchemaMismatch as error:
                findings.append(Finding(box.name, "error", str(error)))
                continue
            findings += [
                Finding(box.name, "warning", f"table {box.table} has no column {column}: {loss}")
                for column, loss in found.lacking.items()
            ]
            known = {index["name"] for index in present.get_indexes(table.name, schema=table.schema)}
            postgres, pending = engine.dialect.name == "postgresql", f"ix_{table.name}_pending"
            if (pending not in known) if postgres else (found.status_index is None):
                index = pending if postgres else f"ix_{table.name}_status"
                findings.append(
                    Finding(box.name, "warning", f"no index {index}: polls slow down as the table grows; db create")
                )
    return findings


def _tuning(dialect: Dialect, table: Table, box: Box, known: Container[str | None]) -> list[str]:
    """What else the table needs on this database, besides the indexes that are known to be there."""
    if dialect.name == "postgresql":
        return _postgresql_tuning(dialect, table, box)
    index = f"ix_{table.name}_troubled"
    if box.strict_order is not StrictOrder.KEY or index in known:
        return []
    # A key's earlier rows that are not delivered are looked for, with every row that is read.
    quote, name = dialect.identifier_preparer.quote, dialect.identifier_preparer.format_table(table)
    return [f"CREATE INDEX {quote(index)} ON {name} (event_key, status, id)"]


def _postgresql_tuning(dialect: Dialect, table: Table, box: Box) -> list[str]:
    name = dialect.identifier_preparer.format_table(table)
    # Every delivery leaves a dead row version behind; the default of 20 % of a large table comes too late.
    settings = (
        "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, "
        "autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05, "
        "autovacuum_vacuum_cost_delay = 0"
    )
    statements = [f"ALTER TABLE {name} SET ({settings})"]
    if box.strict_order is not StrictOrder.NONE:
        index = dialect.identifier_preparer.quote(f"ix_{table.name}_troubled")
        delayed = " OR available_at IS NOT NULL" if "available_at" in table.columns else ""
        troubled = f"status = 0 AND (errors_count > 0{delayed})"
        columns, rows = (
            ("bucket, id", troubled)
            if box.strict_order is StrictOrder.BUCKET
            else ("bucket, event_key, id", f"status = 1 OR ({troubled})")
        )
        statements.append(f"CREATE INDEX IF NOT EXISTS {index} ON {name} ({columns}) WHERE {rows}")
    return statements
