"""Creates, checks and prints the tables and indexes of all boxes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import TIMESTAMP, Connection, Engine, Inspector, MetaData, Table, create_mock_engine, inspect, text
from sqlalchemy.engine.interfaces import Dialect

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.creating.sequence import counters
from boxengine.adapters.sql.log import parts as log_parts
from boxengine.adapters.sql.log import tables as logs
from boxengine.adapters.sql.log.foreign import STILL_ARRIVING
from boxengine.adapters.sql.log.partitions import partitions_of
from boxengine.adapters.sql.making.planning import (
    LOCKED,
    at_table,
    engine_without_transactions,
    is_set,
    no_answer,
)
from boxengine.adapters.sql.shape.index_names import index_name
from boxengine.adapters.sql.shape.models import box_table, storage_settings
from boxengine.adapters.sql.shape.tables import (
    BoxTable,
    counters_of,
    for_driver,
    leads_to_keys,
    quoted,
    reflect,
    unescaped,
)
from boxengine.domain.box import Box, BoxType, Storage, StrictOrder
from boxengine.domain.jobs import JobBox
from boxengine.domain.words import plural
from boxengine.errors import SchemaMismatch, StoreConflict

MADE_BY_CREATE = "boxengine db create makes it."
ADDED_BY_UPGRADE = "boxengine db upgrade adds it."
_NO_DELIVERY = "Until then, workers deliver nothing of this box."
_IDENTIFY = "As its owner: ALTER TABLE {} REPLICA IDENTITY FULL."
_MOMENTS = ("available_at", "created_at", "processed_at", "updated_at")
_ONE_KEPT = "A worker that starts keeps the right one, as does boxengine db reposition."
_AS_THEY_COME = (
    "ALTER SEQUENCE {} CACHE 1; then restart the applications, whose sessions use up the ids that they have."
)
_CACHED_IDS = text(
    "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), q.seqcache FROM pg_catalog.pg_attribute AS a "
    "LEFT JOIN pg_catalog.pg_attrdef AS f ON f.adrelid = a.attrelid AND f.adnum = a.attnum "
    "JOIN pg_catalog.pg_depend AS d ON (d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid) "
    "OR (d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum AND d.deptype = 'i') "
    "JOIN pg_catalog.pg_sequence AS q ON q.seqrelid IN (d.objid, d.refobjid) "
    "JOIN pg_catalog.pg_class AS c ON c.oid = q.seqrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
    "WHERE a.attrelid = to_regclass(:table) AND a.attname = 'id' AND q.seqcache > 1 LIMIT 1".replace("::", "\\:\\:")
)
"""The sequence of a table's ids, by a default or as an identity, if a session draws several at once."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about a box's table that a person should know."""

    box: str
    severity: str
    """``error``: the box cannot run; ``warning``: it runs, something is missing or slow."""
    message: str
    remedy: str = MADE_BY_CREATE
    """What to do about it."""


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
    with translated(engine), engine.begin() as connection:
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
        known, keyed = _known_indexes(present, table), _is_keyed(present, table)
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


def check(engine: Engine, boxes: Sequence[Box], models: Sequence[type] = ()) -> list[Finding]:
    """Compares the database with what the boxes need."""
    return [finding for box in boxes for finding in unless_locked(box, partial(_check, engine, box, models))]


def unless_locked(box: Box | JobBox, look: Callable[[], list[Finding]]) -> list[Finding]:
    """What the look finds; or that somebody has locked the table, which must not hide what is found of others."""
    try:
        return look()
    except StoreConflict as error:
        return [Finding(box.name, "error", no_answer(box.table, error), LOCKED)]


def _check(engine: Engine, box: Box, models: Sequence[type]) -> list[Finding]:
    (table,) = tables([box], models)
    with translated(engine), engine.connect() as connection:
        return list(_check_box(connection, inspect(connection), table, box))


def _check_box(connection: Connection, present: Inspector, table: Table, box: Box) -> Iterator[Finding]:
    try:
        found = reflect(connection, box)
    except SchemaMismatch as error:
        is_there = present.has_table(table.name, schema=table.schema)
        remedy = "boxengine db ddl shows the columns: add them in a migration." if is_there else MADE_BY_CREATE
        yield _mismatch(box, error, remedy)
        return
    contradictions = list(_check_configuration(found))
    yield from contradictions
    yield from check_engines(connection, box, [table.name, counters_of(table.name)], table.schema)
    yield from _check_columns(found)
    yield from _check_moments(present, table, box)
    yield from _check_ids(connection, found)
    if box.storage is Storage.LOG:
        # That the items are in the other storage is said once.
        yield from (each for each in _check_log(connection, found) if each not in contradictions)
    if box.sequence and not found.numbered:
        lack = "column seq" if not found.has("seq") else f"table {counters_of(table.name)} beside it"
        message = f"table {box.table} has no {lack}, which its sequence needs: no item can be created; db create"
        yield Finding(box.name, "error", message)
    yield from _check_indexes(present, table, found)


def check_engines(
    connection: Connection, box: Box | JobBox, tables: Iterable[str], schema: str | None
) -> Iterator[Finding]:
    """Those of the tables, as far as they are there, that MySQL or MariaDB keeps without transactions."""
    for table in tables:
        engine = engine_without_transactions(connection, table, schema)
        if engine is not None:
            name = f"{schema}.{table}" if schema else table
            told = (
                f"table {name} has the storage engine {engine}, without transactions: items are delivered though their "
                f"transaction was rolled back; ALTER TABLE {name} ENGINE = InnoDB"
            )
            yield Finding(box.name, "error", told, "New tables get it from the server's default_storage_engine.")


def _check_configuration(found: BoxTable) -> Iterator[Finding]:
    """What the table was made for, and the configuration says otherwise."""
    for refuse in (found.refuse_another_size, found.refuse_another_storage):
        try:
            refuse()
        except SchemaMismatch as error:
            yield _mismatch(found.box, error, _NO_DELIVERY)


def _check_columns(found: BoxTable) -> Iterator[Finding]:
    box = found.box
    for what, loss in found.lacking.items():
        yield Finding(box.name, "warning", f"table {box.table} has no {what}: {loss}", ADDED_BY_UPGRADE)
    if found.has("error_log") and not found.log.takes_everything:
        message = (
            f"table {box.table}: column error_log has the character set {found.log.charset}: characters that it lacks are "
            "replaced in the reasons of failures, and keys and options that hold them are refused"
        )
        yield Finding(box.name, "warning", message, "Convert the table to utf8mb4.")


def _check_moments(present: Inspector, table: Table, box: Box) -> Iterator[Finding]:
    if present.dialect.name == "postgresql":
        return
    columns = {column["name"]: column["type"] for column in present.get_columns(table.name, schema=table.schema)}
    names = [name for name in _MOMENTS if isinstance(columns.get(name), TIMESTAMP)]
    if names:
        told = (
            f"table {box.table} has columns of the type timestamp ({', '.join(names)}): their moments depend on each session's "
            "time zone, and are hours off where sessions have different ones; make them datetime(6)"
        )
        yield Finding(box.name, "warning", told, "Change the type in a session that has the workers' time zone.")


def _check_ids(connection: Connection, found: BoxTable) -> Iterator[Finding]:
    box = found.box
    if connection.dialect.name != "postgresql" or _is_told_of_another(box):
        return
    cached = connection.execute(_CACHED_IDS, {"table": found.name}).one_or_none()
    if cached is not None:
        sequence, number = cached
        told = (
            f"table {box.table}: each session draws {number} ids at once from sequence {sequence}, so what is written later may "
            "have the lower id, and overtakes earlier items of its key"
        )
        yield Finding(box.name, "warning", told, _AS_THEY_COME.format(sequence))


def _check_indexes(present: Inspector, table: Table, found: BoxTable) -> Iterator[Finding]:
    box = found.box
    if present.dialect.name == "postgresql":
        index = index_name("ix", table.name, "pending")
        is_missing = index not in _known_indexes(present, table)
    else:
        index = index_name("ix", table.name, "status")
        is_missing = found.status_index is None
    if is_missing:
        yield Finding(box.name, "warning", f"no index {index}: polls slow down as the table grows; db create")
    if box.type is BoxType.INBOX and not _has_unique_uuids(present, table):
        told = f"table {box.table} has no unique index over uuid: a message that comes twice is stored twice; db create"
        yield Finding(box.name, "warning", told)
    if found.has("available_at") and found.delayed_index is None:
        loss = f"no index {index_name('ix', table.name, 'delayed')}: delayed items may be up to 5 s late; db create"
        yield Finding(box.name, "warning", loss)


def _mismatch(box: Box, error: SchemaMismatch, remedy: str) -> Finding:
    """The error without its own mention of the box, which stands beside every finding."""
    return Finding(box.name, "error", str(error).removeprefix(f"box {box.name}: "), remedy)


def _check_log(connection: Connection, found: BoxTable) -> list[Finding]:
    box = found.box
    try:
        log = logs.reflect_log(connection, found)
    except SchemaMismatch as error:
        return [_mismatch(box, error, MADE_BY_CREATE if "db create" in str(error) else _NO_DELIVERY)]
    if not logs.may_read_positions(connection, log):
        told = f"this account may not SELECT on {logs.names_in(box)[1]}"
        return [Finding(box.name, "error", told, remedy=f"As its owner: GRANT SELECT ON {log.positions} to it.")]
    absent = logs.missing_positions(connection, log, box.buckets)
    told = f"the log of table {box.table} has no position for {plural(absent, 'bucket')}: db create"
    doubled = logs.doubled_positions(connection, log)
    twice = (
        f"the log of table {box.table} has two positions for {plural(doubled, 'bucket')}: the data of a dump was restored beside "
        "those of db create"
    )
    arriving = logs.arriving_by(connection, log)
    return [
        *([Finding(box.name, "error", STILL_ARRIVING.format(", ".join(arriving)), _NO_DELIVERY)] if arriving else []),
        *([Finding(box.name, "error", told)] if absent else []),
        *([Finding(box.name, "error", twice, _ONE_KEPT)] if doubled else []),
        *_check_constraints(connection, found, log),
        *_check_publications(connection, box, log),
        *_check_partitions(connection, box, log),
    ]


def _check_constraints(connection: Connection, side: BoxTable, log: logs.LogTable) -> Iterator[Finding]:
    names = logs.stricter_constraints(connection, side, log)
    if names:
        told = (
            f"table {side.box.table} has constraints that its log has not ({', '.join(names)}): an item that violates one cannot "
            "be copied there when it fails, so its bucket waits in front of it"
        )
        yield Finding(
            side.box.name, "warning", told, remedy="Drop them, or keep what they refer to until items are delivered."
        )


def _check_publications(connection: Connection, box: Box, log: logs.LogTable) -> Iterator[Finding]:
    names = [] if _is_told_of_another(box) else logs.publications_in_the_way(connection, log)
    if names:
        told = (
            f"{logs.names_in(box)[0]} has no replica identity, and a publication has it ({', '.join(names)}): PostgreSQL refuses "
            "each deletion, so retention deletes nothing of the box"
        )
        yield Finding(box.name, "warning", told, remedy=_IDENTIFY.format(log.log))


def _is_told_of_another(box: Box) -> bool:
    """What is said of a log is said of its first reader."""
    return box.subscription is not None and box.name != box.readers[0].name


def _check_partitions(connection: Connection, box: Box, log: logs.LogTable) -> Iterator[Finding]:
    if _is_told_of_another(box):
        return
    name, _ = logs.names_in(box)
    partitions = partitions_of(connection, log.log)
    if partitions is None:
        if box.source.log_partitions is not None:
            told = f"{name} is one table, for good: log_partitions is for logs that are still to be made"
            yield Finding(
                box.name, "warning", told, remedy="Leave log_partitions out, and retention deletes rows as before."
            )
    elif partitions.reach == partitions.current:
        told = f"{name} has no partition for what is written now: its default partition takes it"
        remedy = (
            f"As {partitions.owner}: boxengine cleanup makes partitions where nobody holds a lock on the log for long."
        )
        yield Finding(box.name, "warning", told, remedy=remedy)


def _known_indexes(present: Inspector, table: Table) -> set[str]:
    return {unescaped(index["name"] or "") for index in present.get_indexes(table.name, schema=table.schema)}


def _has_unique_uuids(present: Inspector, table: Table) -> bool:
    indexes = present.get_indexes(table.name, schema=table.schema)
    keys = present.get_unique_constraints(table.name, schema=table.schema)
    return ["uuid"] in [each["column_names"] for each in indexes if each["unique"]] + [
        each["column_names"] for each in keys
    ]


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
