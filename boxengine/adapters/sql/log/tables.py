"""The tables of a log box, beside the side table: what they are called, made of and found as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Column, Connection, FetchedValue, MetaData, Table, inspect, make_url, text
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.schema import CreateColumn

from boxengine.adapters.sql.index_names import LONGEST_IDENTIFIER, index_name
from boxengine.adapters.sql.tables import BoxTable, quoted
from boxengine.errors import SchemaMismatch

BUCKET = "(t.bucket + 0)"
"""Of a row of the log, as the index by id has it."""
OLDEST_SERVER = (13,)
_OUTCOMES = frozenset({"status", "errors_count", "error_log", "processed_at", "updated_at"})
_NOT_IN_A_LOG = frozenset({"available_at", "dedup_key", "seq"})
"""What decides when an item goes out, or whether it is one: a log has no place for it."""
_COLUMNS = text(
    "SELECT attname FROM pg_attribute WHERE attrelid = CAST(:name AS regclass) AND attnum > 0 AND NOT attisdropped "
    "ORDER BY attnum"
)
"""Not by SQLAlchemy, which warns of types that it does not know."""
_LOG, _POSITIONS = "_log", "_positions"


def names_of(table: str) -> tuple[str, str]:
    """Names of the log and of its positions.

    Raises:
        SchemaMismatch: the side table's name leaves no room for them.
    """
    if len(table.encode()) + len(_POSITIONS) > LONGEST_IDENTIFIER:
        most = LONGEST_IDENTIFIER - len(_POSITIONS)
        raise SchemaMismatch(f"table {table!r}: with storage: log its name may have {most} bytes at most")
    return table + _LOG, table + _POSITIONS


def log_name(side: BoxTable) -> str:
    """The quoted name of the log beside a side table."""
    _, _, table = side.location.rpartition(".")
    return quoted(make_url("postgresql+psycopg://").get_dialect()(), side.schema, names_of(table)[0])


@dataclass(frozen=True, slots=True)
class LogTable:
    """What there is beside a side table; names are quoted."""

    log: str
    positions: str
    shared: tuple[str, ...]
    """Quoted columns that log and side table have both: what a copy consists of."""
    has_event_name: bool
    has_options: bool


def is_logged(column: str) -> bool:
    """Whether a column of the side table is one of the log, too."""
    return column not in _OUTCOMES | _NOT_IN_A_LOG


def log_table(side: Table) -> Table:
    """Where items are inserted: the side table's columns without those of outcomes."""
    columns = [column._copy() for column in side.columns if is_logged(column.name)]  # noqa: SLF001 - SQLAlchemy's way
    for column in columns:
        if column.name == "id":
            # The side table's sequence, as the database knows.
            column.server_default = FetchedValue()
    return Table(names_of(side.name)[0], MetaData(), *columns, schema=side.schema)


def ddl(dialect: Dialect, side: Table, buckets: int, *, sequence: str | None = None) -> list[str]:
    """What makes log and positions, unless they are there.

    Args:
        sequence: of the side table's ids, quoted; None: as PostgreSQL calls it by itself.
    """
    log, positions = names_of(side.name)
    schema = side.schema or ""
    sequence = sequence or quoted(dialect, schema, f"{side.name}_id_seq")
    columns = [_column(dialect, column, sequence) for column in side.columns if is_logged(column.name)]
    columns.append("xact xid8 NOT NULL DEFAULT pg_current_xact_id()")
    log_name, positions_name = quoted(dialect, schema, log), quoted(dialect, schema, positions)
    # Nothing in it dies, and every delivery looks at its end: the vacuum that insertions ask for keeps that cheap.
    settings = "autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05"
    position = (
        "bucket int PRIMARY KEY, passed pg_snapshot NOT NULL, batch pg_snapshot, place bigint NOT NULL DEFAULT 0, "
        "floor bigint, ceiling bigint, high bigint NOT NULL DEFAULT 0, turn bigint NOT NULL DEFAULT 0, server bigint NOT NULL"
    )
    # Room on each page for a row's next versions, so that moving on touches no index.
    room = "fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000"
    # From the first transaction on that a server has.
    beginning = f"SELECT bucket, '3:3:', system_identifier FROM generate_series(0, {buckets - 1}) AS bucket, pg_control_system()"
    return [
        f"CREATE TABLE IF NOT EXISTS {log_name} ({', '.join(columns)})",
        f"ALTER TABLE {log_name} SET ({settings})",
        _index(dialect, log, log_name, "xact", "bucket, xact, id"),
        _index(dialect, log, log_name, "id", "(bucket + 0), id"),
        f"CREATE TABLE IF NOT EXISTS {positions_name} ({position}) WITH ({room})",
        f"INSERT INTO {positions_name} (bucket, passed, server) {beginning} ON CONFLICT (bucket) DO NOTHING",
    ]


def _column(dialect: Dialect, column: Column[object], sequence: str) -> str:
    if column.name == "id":
        name = sequence.replace("'", "''")
        return f"id bigint NOT NULL DEFAULT nextval('{name}')"
    return str(CreateColumn(column).compile(dialect=dialect))


def _index(dialect: Dialect, log: str, name: str, purpose: str, columns: str) -> str:
    index = quoted(dialect, index_name("ix", log, purpose))
    return f"CREATE INDEX IF NOT EXISTS {index} ON {name} ({columns})"


def create(connection: Connection, side: Table, buckets: int) -> None:
    """Makes log and positions beside a side table that is there.

    Raises:
        SchemaMismatch: the server cannot keep a log.
    """
    refuse_old_servers(connection, side.name)
    dialect = connection.dialect
    query = text("SELECT pg_get_serial_sequence(:name, 'id')")
    sequence = connection.execute(query, {"name": quoted(dialect, side.schema or "", side.name)}).scalar()
    if sequence is None:
        raise SchemaMismatch(f"table {side.name!r}: its ids have no sequence of their own, which storage: log needs")
    for statement in ddl(dialect, side, buckets, sequence=sequence):
        connection.exec_driver_sql(statement.replace("%", "%%"))


def refuse_old_servers(connection: Connection, table: str) -> None:
    """Raises:
    SchemaMismatch: the server knows no ids of transactions that are never used again.
    """
    version = connection.dialect.server_version_info or (0,)
    if connection.dialect.name != "postgresql" or version < OLDEST_SERVER:
        raise SchemaMismatch(f"table {table!r}: storage: log needs PostgreSQL {OLDEST_SERVER[0]} or later")


def reflect_log(connection: Connection, side: BoxTable) -> LogTable:
    """Looks log and positions up in the database.

    Raises:
        SchemaMismatch: one is missing, or the side table cannot take what the log holds.
    """
    box = side.box
    refuse_old_servers(connection, box.table)
    _, _, table = side.location.rpartition(".")
    log, positions = names_of(table)
    found = inspect(connection)
    for name in (log, positions):
        if not found.has_table(name, schema=side.schema):
            raise SchemaMismatch(f"box {box.name}: there is no table {name!r}; make it with: boxengine db create")
    columns = connection.execute(_COLUMNS, {"name": quoted(connection.dialect, side.schema, log)}).scalars().all()
    own = [name for name in columns if name != "xact"]
    lacking = [name for name in own if not side.has(name)]
    if lacking or "xact" not in columns or side.payload != "payload" or not side.zoned:
        what = f"lacks {', '.join(lacking)}" if lacking else "was made for sbmt-outbox"
        raise SchemaMismatch(f"box {box.name}: table {box.table!r} {what}, so it cannot take items out of its log")
    quote = connection.dialect.identifier_preparer.quote
    return LogTable(
        log=quoted(connection.dialect, side.schema, log),
        positions=quoted(connection.dialect, side.schema, positions),
        shared=tuple(quote(name) for name in own),
        has_event_name="event_name" in own,
        has_options="options" in own,
    )


def may_read_positions(connection: Connection, found: LogTable) -> bool:
    """Whether the account of this connection has the privilege."""
    query = text("SELECT has_table_privilege(to_regclass(:name), 'SELECT')")
    return bool(connection.execute(query, {"name": found.positions}).scalar())


def missing_positions(connection: Connection, found: LogTable, buckets: Sequence[int]) -> int:
    """How many of these buckets have no position yet."""
    query = text(f"SELECT count(*) FROM {in_text(found.positions)} WHERE bucket = ANY(:buckets)")
    return len(buckets) - int(connection.execute(query, {"buckets": list(buckets)}).scalar() or 0)


def in_text(name: str) -> str:
    """A quoted name for SQLAlchemy's ``text``, to which a colon begins a parameter."""
    return name.replace(":", "\\:")
