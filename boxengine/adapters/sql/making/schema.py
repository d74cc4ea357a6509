"""Creates and prints the tables and indexes of all boxes; ``checks`` compares them with what is there."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Inspector, MetaData, Table, create_mock_engine, inspect
from sqlalchemy.engine.interfaces import Dialect

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.creating.sequence import counters
from boxengine.adapters.sql.log import parts as log_parts
from boxengine.adapters.sql.log import tables as logs
from boxengine.adapters.sql.making.planning import at_table, is_set, one_at_a_time
from boxengine.adapters.sql.shape.index_names import index_name
from boxengine.adapters.sql.shape.models import box_table, storage_settings
from boxengine.adapters.sql.shape.tables import for_driver, leads_to_keys, quoted, unescaped
from boxengine.domain.box import Box, Storage, StrictOrder


def tables(boxes: Iterable[Box], models: Iterable[type] = ()) -> list[Table]:
    """The tables of the boxes: that of the user's model where there is one, else one made for the box."""
    metadata = MetaData()
    by_name = {model.__table__.fullname: model.__table__ for model in models if hasattr(model, "__table__")}

    def table_of(box: Box) -> Table:
        if box.subscription is not None:
            return logs.side_table(table_of(box.source), box)
        return by_name[box.table] if box.table in by_name else box_table(box, metadata)

    return [table_of(box) for box in boxes]


def create(engine: Engine, boxes: Sequence[Box], models: Iterable[type] = ()) -> list[str]:
    """Creates missing tables and indexes; returns the names of the tables created. A second call changes nothing.

    Raises:
        SchemaMismatch: a box with ``storage: log`` has items in a table without a log; nothing is created then.
        StoreConflict: somebody has locked a table for longer than the connection waits.
    """
    made = []
    boxes = logs.with_sources(boxes)
    with translated(engine), engine.begin() as connection, one_at_a_time(connection):
        present = inspect(connection)
        for box in boxes:
            if box.storage is Storage.LOG:
                with at_table(engine, box.table):
                    logs.refuse_used_table(connection, box)
        for table, box in zip(tables(boxes, models), boxes, strict=True):
            with at_table(engine, table.fullname):
                if _create(connection, present, table, box):
                    made.append(box.table)
    return made


def _create(connection: Connection, present: Inspector, table: Table, box: Box) -> bool:
    """Returns whether the table was missing."""
    is_there = present.has_table(table.name, schema=table.schema)
    known, keyed = set[str](), False
    if is_there:
        known, keyed = known_indexes(present, table), _is_keyed(present, table)
        _add_indexes(connection, present, table, known, keyed=keyed)
    else:
        table.create(connection)
    if box.sequence:
        _add_numbers(connection, table)
    for statement in tuning(connection.dialect, table, box, known, keyed=keyed):
        # Only the owner may run them, even where they would change nothing.
        if not _is_done(connection, table, statement, known):
            connection.exec_driver_sql(for_driver(statement))
    if box.storage is Storage.LOG:
        log_parts.create(connection, table, box)
    return not is_there


def ddl(dialect_name: str, boxes: Sequence[Box], models: Iterable[type] = ()) -> list[str]:
    """The same as SQL text, one statement each, without their semicolons."""
    statements: list[str] = []
    boxes = logs.with_sources(boxes)
    url = "mysql+pymysql://" if dialect_name in ("mysql", "mariadb") else "postgresql+psycopg://"

    def keep(statement: Any, *_: Any, **__: Any) -> None:
        # Doubled for the driver, which these do not go through.
        statements.append(str(statement.compile(dialect=engine.dialect)).strip().replace("%%", "%"))

    engine = create_mock_engine(url, keep)
    for table, box in zip(tables(boxes, models), boxes, strict=True):
        begin = len(statements)
        table.create(engine, checkfirst=False)
        # SQLAlchemy keeps indexes in a set: unsorted, the text would differ from call to call.
        statements[begin + 1 :] = sorted(statements[begin + 1 :])
        if box.sequence:
            counters(table, MetaData()).create(engine, checkfirst=False)
        statements.extend(tuning(engine.dialect, table, box))
        if box.storage is Storage.LOG:
            statements.extend(part.sql for part in log_parts.parts(engine.dialect, table, box))
    return list(dict.fromkeys(statements))


def known_indexes(present: Inspector, table: Table) -> set[str]:
    """The names of the indexes that the table has."""
    return {unescaped(index["name"] or "") for index in present.get_indexes(table.name, schema=table.schema)}


def _is_keyed(present: Inspector, table: Table) -> bool:
    """Whether the database has an index that leads to keys."""
    return any(map(leads_to_keys, present.get_indexes(table.name, schema=table.schema)))


def _add_indexes(
    connection: Connection, present: Inspector, table: Table, known: Container[str], *, keyed: bool
) -> None:
    """Adds the indexes that an existing table lacks, and has the columns for."""
    columns = {column["name"] for column in present.get_columns(table.name, schema=table.schema)}
    for index in table.indexes:
        if keyed and index.name == index_name("ix", table.name, "key"):
            continue  # exists under another name; a second one would only cost
        if index.name not in known and {column.name for column in index.columns} <= columns:
            index.create(connection, checkfirst=True)


def _add_numbers(connection: Connection, table: Table) -> None:
    """Adds what gapless numbers need: a column, also in an existing table, and the table of counters."""
    if "seq" not in {column["name"] for column in inspect(connection).get_columns(table.name, schema=table.schema)}:
        name = quoted(connection.dialect, table.schema or "", table.name)
        connection.exec_driver_sql(for_driver(f"ALTER TABLE {name} ADD COLUMN seq BIGINT"))
    counters(table, MetaData()).create(connection, checkfirst=True)


def tuning(dialect: Dialect, table: Table, box: Box, known: Container[str] = (), *, keyed: bool = False) -> list[str]:
    """What else the table needs on this database, besides the indexes that are known to be there; percent signs are not doubled.

    Args:
        keyed: whether one of them leads to keys.
    """
    statements = []
    index = index_name("ix", table.name, "key")
    # A model may have asked for it.
    if box.key_index and not keyed and index not in {each.name for each in table.indexes}:
        name = quoted(dialect, table.schema or "", table.name)
        statements.append(f"CREATE INDEX {quoted(dialect, index)} ON {name} (event_key, id)")
    if dialect.name == "postgresql":
        return statements + _postgresql_tuning(dialect, table, box)
    return statements + _mysql_tuning(dialect, table, box, known)


def index_made_by(statement: str) -> str | None:
    """The name of the index that a statement of ``tuning`` makes; None where it makes none."""
    if not statement.startswith("CREATE INDEX"):
        return None
    name = statement.removeprefix("CREATE INDEX ").removeprefix("IF NOT EXISTS ").partition(" ON ")[0]
    return name.strip('"`').replace('""', '"').replace("``", "`")


def _is_done(connection: Connection, table: Table, statement: str, known: Container[str]) -> bool:
    made = index_made_by(statement)
    return is_set(connection, table, statement) if made is None else made in known


def _mysql_tuning(dialect: Dialect, table: Table, box: Box, known: Container[str]) -> list[str]:
    index = index_name("ix", table.name, "troubled")
    if box.strict_order is not StrictOrder.KEY or index in known:
        return []
    # Every row that is read causes a search for its key's earlier, undelivered rows.
    name = quoted(dialect, table.schema or "", table.name)
    return [f"CREATE INDEX {quoted(dialect, index)} ON {name} (event_key, status, id)"]


def _postgresql_tuning(dialect: Dialect, table: Table, box: Box) -> list[str]:
    name = quoted(dialect, table.schema or "", table.name)
    statements = storage_settings(dialect, table, deletes_on_delivery=box.retention.deletes_on_delivery)
    if box.strict_order is not StrictOrder.NONE:
        index = quoted(dialect, index_name("ix", table.name, "troubled"))
        delayed = " OR available_at IS NOT NULL" if "available_at" in table.columns else ""
        troubled = f"status = 0 AND (errors_count > 0{delayed})"
        columns, rows = (
            ("bucket, id", troubled)
            if box.strict_order is StrictOrder.BUCKET
            else ("bucket, event_key, id", f"status = 1 OR ({troubled})")
        )
        statements.append(f"CREATE INDEX IF NOT EXISTS {index} ON {name} ({columns}) WHERE {rows}")
    return statements
