"""Compares the tables of all boxes with what boxengine needs of them: what is missing, slow, or loses items."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import TIMESTAMP, Connection, Engine, Inspector, Table, inspect, text
from sqlalchemy.schema import CreateColumn

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.log import tables as logs
from boxengine.adapters.sql.log.foreign import STILL_ARRIVING
from boxengine.adapters.sql.log.partitions import partitions_of
from boxengine.adapters.sql.making.planning import LOCKED, engine_without_transactions, no_answer
from boxengine.adapters.sql.making.schema import known_indexes, tables
from boxengine.adapters.sql.shape.index_names import index_name, index_names
from boxengine.adapters.sql.shape.tables import BoxTable, counters_of, reflect, unfinished_indexes
from boxengine.domain.box import Box, BoxType, Storage
from boxengine.domain.jobs import JobBox
from boxengine.domain.words import plural
from boxengine.errors import NotPermitted, SchemaMismatch, StoreConflict

MADE_BY_CREATE = "boxengine db create makes it."
ADDED_BY_UPGRADE = "boxengine db upgrade adds it."
MADE_ANEW = "boxengine db upgrade makes it anew."
UNFINISHED = (
    "index {} is not finished, because its creation was broken off, or is still under way: no query uses it, and it does not "
    "keep values unique"
)
_NO_DELIVERY = "Until then, workers deliver nothing of this box."
_GRANTED = "boxengine doctor shows the GRANT."
_IDENTIFY = "As its owner: ALTER TABLE {} REPLICA IDENTITY FULL."
_MOMENTS = ("available_at", "created_at", "processed_at", "updated_at")
_ONE_KEPT = "A worker that starts keeps the right one, as does boxengine db reposition."
_BROUGHT_OVER = (
    "Once the restore has ended, start a worker, which does so at its first claim, or run boxengine db reposition."
)
_INDEXES_OF_A_LOG = (("ix", "xact"), ("ix", "id"), ("ux", "uuid"), ("ux", "dedup_key"))
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

    @property
    def told(self) -> str:
        """Both in one line. Where ``db create`` helps, or the remedy only says what waits, the message is enough by itself."""
        alone = self.remedy in (MADE_BY_CREATE, _NO_DELIVERY)
        return self.message if alone else f"{self.message}. {self.remedy}"


def check(engine: Engine, boxes: Sequence[Box], models: Sequence[type] = ()) -> list[Finding]:
    """Compares the database with what the boxes need."""
    return [finding for box in boxes for finding in unless_refused(box, partial(_check, engine, box, models))]


def unless_refused(box: Box | JobBox, look: Callable[[], list[Finding]]) -> list[Finding]:
    """What the look finds; or that somebody has locked the table, or that this account may not read it, which must not hide what
    is found of others."""
    try:
        return look()
    except StoreConflict as error:
        return [Finding(box.name, "error", no_answer(box.table, error), LOCKED)]
    except NotPermitted as error:
        return [Finding(box.name, "error", str(error), _GRANTED)]


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
        yield from (each for each in _check_log(connection, found, table) if each not in contradictions)
    if box.sequence and not found.numbered:
        lack = "column seq" if not found.has("seq") else f"table {counters_of(table.name)} beside it"
        message = f"table {box.table} has no {lack}, which its sequence needs: no item can be created; db create"
        yield Finding(box.name, "error", message)
    yield from _check_indexes(present, table, found)
    names = {str(index.name) for index in table.indexes} | index_names(table.name)
    yield from _unfinished(connection, box, found.name, names)


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


def _unfinished(connection: Connection, box: Box, table: str, names: Container[str]) -> Iterator[Finding]:
    """Of these indexes, those that are there and serve nobody.

    Args:
        table: quoted.
    """
    for name in unfinished_indexes(connection, table):
        if name in names:
            yield Finding(box.name, "warning", UNFINISHED.format(name), MADE_ANEW)


def _check_indexes(present: Inspector, table: Table, found: BoxTable) -> Iterator[Finding]:
    box = found.box
    if present.dialect.name == "postgresql":
        index = index_name("ix", table.name, "pending")
        is_missing = index not in known_indexes(present, table)
    else:
        index = index_name("ix", table.name, "status")
        is_missing = found.status_index is None
    if is_missing:
        yield Finding(box.name, "warning", f"no index {index}: polls slow down as the table grows; db create")
    if box.type is BoxType.INBOX and ("uuid",) not in found.unique:
        told = f"table {box.table} has no unique index over uuid: a message that comes twice is stored twice; db create"
        yield Finding(box.name, "warning", told)
    if found.has("available_at") and found.delayed_index is None:
        loss = f"no index {index_name('ix', table.name, 'delayed')}: delayed items may be up to 5 s late; db create"
        yield Finding(box.name, "warning", loss)


def _mismatch(box: Box, error: SchemaMismatch, remedy: str) -> Finding:
    """The error without its own mention of the box, which stands beside every finding."""
    return Finding(box.name, "error", str(error).removeprefix(f"box {box.name}: "), remedy)


def _check_log(connection: Connection, found: BoxTable, table: Table) -> list[Finding]:
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
    foreign = logs.foreign_positions(connection, log)
    elsewhere = (
        f"the log of table {box.table} has positions in the numbers of another server's transactions (a restored dump, a logical "
        f"copy) for {plural(foreign, 'bucket')}: until a worker brings them over, all that may not have been delivered is pending"
    )
    arriving = logs.arriving_by(connection, log)
    return [
        *([Finding(box.name, "error", STILL_ARRIVING.format(", ".join(arriving)), _NO_DELIVERY)] if arriving else []),
        *([Finding(box.name, "error", told)] if absent else []),
        *([Finding(box.name, "error", twice, _ONE_KEPT)] if doubled else []),
        *([Finding(box.name, "warning", elsewhere, _BROUGHT_OVER)] if foreign else []),
        *_check_indexes_of_log(connection, box, log),
        *_check_own_columns(connection, found, log, table),
        *_check_constraints(connection, found, log),
        *_check_types(connection, found, log),
        *_check_inserts(connection, found, log),
        *_check_references(connection, found),
        *_check_publications(connection, box, log),
        *_check_partitions(connection, box, log),
    ]


def _check_indexes_of_log(connection: Connection, box: Box, log: logs.LogTable) -> Iterator[Finding]:
    name, _ = logs.names_in(box)
    names = {index_name(kind, name, of) for kind, of in _INDEXES_OF_A_LOG}
    if not _is_told_of_another(box):
        yield from _unfinished(connection, box, log.log, names)


def _check_own_columns(connection: Connection, side: BoxTable, log: logs.LogTable, table: Table) -> Iterator[Finding]:
    """Migrations give a column of the model's to its table, and know nothing of the tables beside it."""
    box = side.box
    wanted = [each for each in table.columns if each.computed is None and logs.is_logged(each.name, box.type)]
    there = logs.columns_of(connection, log)
    lacking = [each for each in wanted if each.name not in there]
    if box.subscription is None:
        lacking = [each for each in lacking if side.has(each.name)]  # before its migration, nothing is wrong yet
    if lacking and not _is_told_of_another(box):
        names = ", ".join(each.name for each in lacking)
        columns = ", ".join(
            f"ADD COLUMN IF NOT EXISTS {CreateColumn(each).compile(dialect=connection.dialect)}" for each in lacking
        )
        # The log comes last: what a side table cannot take would stop its deliveries.
        tables = [*map(log.readers.side, box.subscriptions), log.log]
        yield Finding(
            box.name,
            "error",
            f"{logs.names_in(box)[0]} lacks {names}, which the model has: an item that sets it cannot be created",
            remedy=f"As its owner: {'; '.join(f'ALTER TABLE {each} {columns}' for each in tables)}.",
        )


def _check_constraints(connection: Connection, side: BoxTable, log: logs.LogTable) -> Iterator[Finding]:
    names = logs.stricter_constraints(connection, side, log)
    if names:
        told = (
            f"table {side.box.table} has constraints that its log has not ({', '.join(names)}): the log takes an item that "
            "violates one, which cannot be copied to the table when it fails, so its bucket waits in front of it"
        )
        remedy = (
            "Drop them, or create them for the log, too; keep what a foreign key refers to until items are delivered."
        )
        yield Finding(side.box.name, "warning", told, remedy)


def _check_types(connection: Connection, side: BoxTable, log: logs.LogTable) -> Iterator[Finding]:
    unlike = logs.unlike_columns(connection, side, log)
    if unlike:
        box, name = side.box, logs.names_in(side.box)[0]
        columns = ", ".join(f"{column}: {here}, and {there} in the log" for column, here, there in unlike)
        told = (
            f"table {box.table} and {name} have columns of different types ({columns}): an item that does not fit the log is "
            "refused when it is created; one that does not fit the table cannot be copied there when it fails, so its bucket "
            "waits in front of it"
        )
        yield Finding(box.name, "warning", told, remedy="Give both tables the wider type.")


def _check_inserts(connection: Connection, side: BoxTable, log: logs.LogTable) -> Iterator[Finding]:
    box = side.box
    lacking = [] if _is_told_of_another(box) else logs.what_the_log_lacks(connection, side, log)
    if lacking:
        name = logs.names_in(box)[0]
        told = (
            f"table {box.source.table} has what {name} has not ({', '.join(lacking)}): items are inserted into the log, and "
            "reach the table only if they fail or wait for one that does"
        )
        yield Finding(box.name, "warning", told, remedy=f"Where it is needed, create it for {name}, too.")


def _check_references(connection: Connection, side: BoxTable) -> Iterator[Finding]:
    box = side.box
    for table, name in [] if _is_told_of_another(box) else logs.referring_constraints(connection, side):
        told = (
            f"{table} refers to table {box.source.table} by its foreign key {name}, and items are in the log: rows that refer to "
            "one are refused"
        )
        yield Finding(box.name, "warning", told, remedy=f"ALTER TABLE {table} DROP CONSTRAINT {name}")


def _check_publications(connection: Connection, box: Box, log: logs.LogTable) -> Iterator[Finding]:
    names = [] if _is_told_of_another(box) else logs.publications_in_the_way(connection, log)
    if names:
        log_name, published = logs.names_in(box)[0], ", ".join(names)
        if log.partitioned:
            told = (
                f"partitions of {log_name} have no replica identity, and a publication has them ({published}): PostgreSQL "
                "refuses to delete their rows, so retention fails where a partition cannot be emptied as a whole in time"
            )
            remedy = f"As its owner: {logs.identifying(log.log)}."  # new partitions follow the log
        else:
            told = (
                f"{log_name} has no replica identity, and a publication has it ({published}): PostgreSQL refuses each deletion, "
                "so retention deletes nothing of the box"
            )
            remedy = _IDENTIFY.format(log.log)
        yield Finding(box.name, "warning", told, remedy=remedy)


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
