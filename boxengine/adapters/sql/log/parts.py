"""What a log box has in the database beside its side table, part by part: the statement that makes it, and whether it is there.

``boxengine db create`` makes what is missing, ``db ddl`` prints all of it, ``db upgrade`` and Alembic plan with it. A part that
is there is left alone: even a statement that changes nothing would wait for writers, and make others wait behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Column, Connection, DefaultClause, MetaData, Table, inspect, text
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.schema import CreateColumn
from sqlalchemy.types import NullType

from boxengine.adapters.sql.log.partitions import default_of, first_of
from boxengine.adapters.sql.log.readers import READERS
from boxengine.adapters.sql.log.tables import (
    AUTOVACUUM,
    IDENTITIES,
    PARTITION_KEY,
    in_text,
    is_logged,
    is_partitioned,
    names_in,
    names_of,
    refuse_old_servers,
)
from boxengine.adapters.sql.shape.index_names import index_name
from boxengine.adapters.sql.shape.tables import for_driver, quoted
from boxengine.domain.box import Beginning, Box, BoxType, Subscription
from boxengine.errors import SchemaMismatch

_HAS_DEFAULT = (
    "SELECT atthasdef FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass(:relation) AND attname = 'id'"
)
_IS_SET = (
    # A log with partitions has no settings of its own: each of its partitions has them.
    "SELECT relkind = 'p' OR reloptions @> CAST(:settings AS text[]) FROM pg_catalog.pg_class "
    "WHERE oid = to_regclass(:relation)"
)
_IS_COMPLETE = (
    "SELECT c.relkind <> 'p' OR p.partdefid <> 0 FROM pg_catalog.pg_class AS c "
    "LEFT JOIN pg_catalog.pg_partitioned_table AS p ON p.partrelid = c.oid WHERE c.oid = to_regclass(:relation)"
)
"""Of a log with partitions: whether it has the default one, which is made last."""
_IS_IDENTIFIED = (
    "SELECT c.relreplident = 'f' OR EXISTS (SELECT FROM pg_catalog.pg_index WHERE indrelid = c.oid AND indisreplident) "
    "FROM pg_catalog.pg_class AS c WHERE c.oid = to_regclass(:relation)"
)
"""Of a log: whether something identifies its rows to a subscriber of a publication."""
_ROOM = "fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000"
"""Room on each page for a position's next versions, so that moves stay on a few pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One thing that a log box needs."""

    purpose: str
    """What its statement does, as a plan says it."""
    sql: str
    relation: str
    """Quoted: the part itself, or the relation that it belongs to."""
    check: str | None = None
    """A query for whether it is there, if the relation is; None: the relation is all there is to it."""
    settings: tuple[str, ...] = ()
    """The parameter of that query."""
    index: str | None = None
    """The name of the index that it is."""
    is_table: bool = False

    def is_there(self, connection: Connection) -> bool:
        """Whether the statement would change nothing."""
        exists = connection.execute(text("SELECT to_regclass(:name) IS NOT NULL"), {"name": self.relation}).scalar()
        if not exists or self.check is None:
            return bool(exists)
        query = text(self.check)
        known = {"relation": self.relation, "settings": list(self.settings)}
        return bool(connection.execute(query, {name: known[name] for name in query.compile().params}).scalar())


def create(connection: Connection, side: Table, box: Box) -> None:
    """Makes the missing parts beside an existing side table.

    Raises:
        SchemaMismatch: the server cannot keep a log, or the box's table has no sequence.
    """
    refuse_old_servers(connection, side.name)
    for part in parts(connection.dialect, as_it_is(connection, side), box, sequence=sequence_of(connection, side, box)):
        if not part.is_there(connection):
            connection.exec_driver_sql(for_driver(part.sql))


def as_it_is(connection: Connection, table: Table) -> Table:
    """The table with the types and defaults that its columns have in the database, where somebody may have widened them: what the
    log takes in must be what the table takes in."""
    found = {each["name"]: each for each in inspect(connection).get_columns(table.name, schema=table.schema)}
    columns = []
    for column in table.columns:
        copy = column._copy()  # noqa: SLF001 - SQLAlchemy's way to take a column over
        there = found.get(column.name)
        if there is not None and column.computed is None and not isinstance(there["type"], NullType):
            default = there["default"]
            # What the table computes by itself is NULL in a log that was not told of it.
            copy.type, copy.nullable = there["type"], there["nullable"] or "computed" in there
            copy.server_default = None if default is None else DefaultClause(text(in_text(default)))
        columns.append(copy)
    return Table(table.name, MetaData(), *columns, schema=table.schema)


def has_partitions(connection: Connection, side: Table, box: Box) -> bool:
    """Whether the log of the box has partitions, or will have them once it is made."""
    log = quoted(connection.dialect, side.schema or "", names_in(box)[0])
    exists = connection.execute(text("SELECT to_regclass(:name) IS NOT NULL"), {"name": log}).scalar()
    return is_partitioned(connection, log) if exists else box.log_partitions is not None


def sequence_of(connection: Connection, side: Table, box: Box) -> str:
    """The quoted sequence of the ids of a log whose side table is there.

    Raises:
        SchemaMismatch: there is none.
    """
    query = text("SELECT pg_get_serial_sequence(:name, 'id')")
    source = _source(box)
    found = connection.execute(query, {"name": quoted(connection.dialect, side.schema or "", source)}).scalar()
    if found is None:
        raise SchemaMismatch(f"table {source!r}: its ids have no sequence of their own, which storage: log needs")
    return str(found)


def parts(dialect: Dialect, side: Table, box: Box, *, sequence: str | None = None) -> list[Part]:
    """All parts, in the order in which they are made.

    Args:
        side: the side table of the box.
        sequence: of the ids, quoted; None: as PostgreSQL calls it by itself.
    """
    schema = side.schema or ""
    sequence = sequence or quoted(dialect, schema, f"{_source(box)}_id_seq")
    if box.subscription is not None:
        return [*_subscription(dialect, side, box, box.subscription, sequence), *_positions(dialect, schema, box)]
    log = [*_log(dialect, side, box, sequence)]
    return [*log, _list(dialect, schema, box)] if box.subscriptions else [*log, *_positions(dialect, schema, box)]


def _log(dialect: Dialect, side: Table, box: Box, sequence: str) -> Iterator[Part]:
    name, _ = names_of(side.name)
    log = quoted(dialect, side.schema or "", name)
    columns = [_column(dialect, column, sequence) for column in side.columns if is_logged(column.name, box.type)]
    columns.append("xact xid8 NOT NULL DEFAULT pg_current_xact_id()")
    made = f"CREATE TABLE IF NOT EXISTS {log} ({', '.join(columns)})"
    settings = ", ".join(AUTOVACUUM).replace("=", " = ")
    if box.log_partitions is None:
        yield Part(purpose="make the log", sql=made, relation=log, is_table=True)
        yield Part(
            purpose="autovacuum settings for a table whose rows never change",
            sql=f"ALTER TABLE {log} SET ({settings})",
            relation=log,
            check=_IS_SET,
            settings=AUTOVACUUM,
        )
    else:
        made += f" PARTITION BY RANGE ({PARTITION_KEY})"
        yield Part(purpose="make the log", sql=made, relation=log, is_table=True)
        for partition, bounds in (first_of(name), default_of(name)):
            own = quoted(dialect, side.schema or "", partition)
            yield Part(
                purpose=f"make its partition {partition}",
                sql=f"CREATE TABLE IF NOT EXISTS {own} PARTITION OF {log} {bounds} WITH ({settings})",
                relation=log,
                check=_IS_COMPLETE,
            )
    for of, indexed in (("xact", "bucket, xact, id"), ("id", "(bucket + 0), id")):
        index = index_name("ix", name, of)
        yield Part(
            purpose=f"make the index {index}",
            sql=f"CREATE INDEX IF NOT EXISTS {quoted(dialect, index)} ON {log} ({indexed})",
            relation=quoted(dialect, side.schema or "", index),
            index=index,
        )
    if box.type is BoxType.INBOX:
        yield from _identities(dialect, side, log)


def _identities(dialect: Dialect, side: Table, log: str) -> Iterator[Part]:
    name, _ = names_of(side.name)
    for column in IDENTITIES:
        if column in side.columns:
            index = index_name("ux", name, column)
            # As in the side table, an item without a key needs no entry.
            only = "" if column == "uuid" else f" WHERE {column} IS NOT NULL"
            yield Part(
                purpose=f"make the index {index}, by which a message that comes twice is known",
                sql=f"CREATE UNIQUE INDEX IF NOT EXISTS {quoted(dialect, index)} ON {log} ({column}){only}",
                relation=quoted(dialect, side.schema or "", index),
                index=index,
            )
    if "uuid" in side.columns and not side.columns["uuid"].nullable:
        # The consumer takes a message that cannot be stored out of the log again. The server refuses that where a publication has
        # the log and nothing identifies its rows.
        yield Part(
            purpose="identify its rows for publications",
            sql=f"ALTER TABLE {log} REPLICA IDENTITY USING INDEX {quoted(dialect, index_name('ux', name, 'uuid'))}",
            relation=log,
            check=_IS_IDENTIFIED,
        )


def _column(dialect: Dialect, column: Column[object], sequence: str) -> str:
    if column.name == "id":
        name = sequence.replace("'", "''")
        return f"id bigint NOT NULL DEFAULT nextval('{name}')"
    return str(CreateColumn(column).compile(dialect=dialect))


def _list(dialect: Dialect, schema: str, box: Box) -> Part:
    listed = quoted(dialect, schema, _source(box) + READERS)
    return Part(
        purpose="make the list of its subscriptions",
        sql=f"CREATE TABLE IF NOT EXISTS {listed} (name text PRIMARY KEY, since timestamptz NOT NULL DEFAULT now())",
        relation=listed,
        is_table=True,
    )


def _subscription(dialect: Dialect, side: Table, box: Box, subscription: Subscription, sequence: str) -> Iterator[Part]:
    own = quoted(dialect, side.schema or "", side.name)
    name = sequence.replace("'", "''")
    yield Part(
        purpose="number its items as the log does",  # an item has one id wherever it stands
        sql=f"ALTER TABLE {own} ALTER COLUMN id SET DEFAULT nextval('{name}')",
        relation=own,
        check=_HAS_DEFAULT,
    )
    listed = quoted(dialect, side.schema or "", _source(box) + READERS)
    # Before its positions are there, so that retention waits for them.
    yield Part(
        purpose="list the subscription",
        sql=f"INSERT INTO {listed} (name) VALUES ('{subscription.name}') ON CONFLICT (name) DO NOTHING",
        relation=listed,
        check=f"SELECT EXISTS (SELECT FROM {in_text(listed)} WHERE name = '{subscription.name}')",
    )


def _positions(dialect: Dialect, schema: str, box: Box) -> Iterator[Part]:
    positions = quoted(dialect, schema, names_in(box)[1])
    columns = (
        "bucket int NOT NULL, passed pg_snapshot NOT NULL, batch pg_snapshot, place bigint NOT NULL DEFAULT 0, "
        "floor bigint, ceiling bigint, high bigint NOT NULL DEFAULT 0, turn bigint NOT NULL DEFAULT 0, server bigint NOT NULL, "
        # By turn as well: an index by bucket alone would lead to all versions that died, and vacuum may not remove them for long.
        "PRIMARY KEY (bucket, turn)"
    )
    yield Part(
        purpose="make the table of positions",
        sql=f"CREATE TABLE IF NOT EXISTS {positions} ({columns}) WITH ({_ROOM})",
        relation=positions,
        is_table=True,
    )
    subscription = box.subscription
    # From the first transaction on that a server has.
    begins = "pg_current_snapshot()" if subscription and subscription.begins is Beginning.NOW else "'3:3:'::pg_snapshot"
    beginning = (
        f"SELECT bucket, {begins}, system_identifier FROM generate_series(0, {box.bucket_size - 1}) AS bucket, "
        f"pg_control_system() WHERE NOT EXISTS (SELECT FROM {positions} AS p WHERE p.bucket = bucket.bucket)"
    )
    yield Part(
        purpose="give each bucket a position",
        sql=f"INSERT INTO {positions} (bucket, passed, server) {beginning} ON CONFLICT DO NOTHING",
        relation=positions,
        check=f"SELECT count(DISTINCT bucket) = {box.bucket_size} FROM {in_text(positions)} WHERE bucket < {box.bucket_size}",
    )


def _source(box: Box) -> str:
    """The name, without its schema, of the table whose log the box reads."""
    return box.source.table.rpartition(".")[2]
