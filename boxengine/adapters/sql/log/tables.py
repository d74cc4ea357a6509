"""A log box's tables beside its side table: their names, their columns, and how they are found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Connection, FetchedValue, MetaData, Table, inspect, make_url, text

from boxengine.adapters.sql.log.readers import Readers, refuse_others
from boxengine.adapters.sql.shape.index_names import LONGEST_IDENTIFIER
from boxengine.adapters.sql.shape.tables import BoxTable, quoted, reflect
from boxengine.domain.box import Box, BoxType, Storage
from boxengine.domain.new_values import NOT_IN_A_LOG
from boxengine.errors import SchemaMismatch

BUCKET = "(t.bucket + 0)"
"""Of a row of the log, as the index by id has it."""
ID_IS_GIVEN = "OVERRIDING SYSTEM VALUE"
"""In an insertion into the side table, whose ids may be an identity that is generated always."""
PARTITION_KEY = "(greatest(xact, '0'::xid8))"
"""An expression, so that a condition for leaving out partitions is none that an index could be chosen for."""
XACT = PARTITION_KEY.replace("xact", "t.xact", 1)
"""The same of a row of the log."""
AUTOVACUUM = ("autovacuum_vacuum_insert_scale_factor=0.05", "autovacuum_analyze_scale_factor=0.05")
"""Nothing in a log dies, and every delivery looks at its end: the vacuum that insertions ask for keeps that cheap."""
OLDEST_SERVER = (13,)
_OUTCOMES = frozenset({"status", "errors_count", "error_log", "processed_at", "updated_at"})
IDENTITIES = ("uuid", "dedup_key")
"""Columns with a unique index in the log of an inbox box: a message that comes twice is one item there as well."""
_COLUMNS = text(
    "SELECT l.attname FROM pg_attribute AS l WHERE l.attrelid = CAST(:log AS regclass) AND l.attnum > 0 AND NOT l.attisdropped "
    "AND l.attgenerated = '' AND NOT EXISTS (SELECT FROM pg_attribute AS s WHERE s.attrelid = CAST(:side AS regclass) "
    "AND s.attname = l.attname AND s.attgenerated <> '') ORDER BY l.attnum"
)
"""Not by SQLAlchemy, which warns of types that it does not know. Without what the database computes: nobody may copy that."""
_IS_PARTITIONED = text("SELECT relkind = 'p' FROM pg_catalog.pg_class WHERE oid = to_regclass(:name)")
_KEYS = "ARRAY(SELECT pg_get_indexdef({0}.indexrelid, place, true) FROM generate_series(1, {0}.indnkeyatts) AS place)"
_HERE, _THERE = _KEYS.format("here"), _KEYS.format("there")
_STRICTER = text(
    "SELECT CAST(conname AS text) FROM pg_constraint AS here "
    "WHERE conrelid = to_regclass(:side) AND contype IN ('c', 'f') AND NOT EXISTS ("
    "SELECT FROM pg_constraint AS there WHERE there.conrelid = to_regclass(:log) AND there.contype = here.contype "
    "AND pg_get_constraintdef(there.oid) = pg_get_constraintdef(here.oid)) "
    "UNION ALL SELECT relname FROM pg_index AS here JOIN pg_class ON pg_class.oid = here.indexrelid "
    f"WHERE here.indrelid = to_regclass(:side) AND here.indisunique AND NOT {_HERE} <@ ARRAY['id', 'uuid', 'dedup_key'] "
    "AND NOT EXISTS (SELECT FROM pg_index AS there WHERE there.indrelid = to_regclass(:log) AND there.indisunique "
    f"AND {_THERE} <@ {_HERE} AND (there.indpred IS NULL "
    "OR pg_get_expr(there.indpred, there.indrelid) = pg_get_expr(here.indpred, here.indrelid))) ORDER BY 1"
)
"""An index over these three columns alone is boxengine's own, or as good as one: no row of the log breaks it."""
LOG, POSITIONS = "_log", "_positions"


def names_of(table: str) -> tuple[str, str]:
    """Names of the log and of its positions.

    Raises:
        SchemaMismatch: the side table's name leaves no room for them.
    """
    if len(table.encode()) + len(POSITIONS) > LONGEST_IDENTIFIER:
        most = LONGEST_IDENTIFIER - len(POSITIONS)
        raise SchemaMismatch(f"table {table!r}: with storage: log its name may have {most} bytes at most")
    return table + LOG, table + POSITIONS


def names_in(box: Box) -> tuple[str, str]:
    """Names of the log that the box reads, and of its positions there."""
    log, own = (names_of(each.table.rpartition(".")[2]) for each in (box.source, box))
    return log[0], own[1]


def log_name(side: BoxTable) -> str:
    """The quoted name of the log beside a side table."""
    return quoted(make_url("postgresql+psycopg://").get_dialect()(), side.schema, names_in(side.box)[0])


@dataclass(frozen=True, slots=True)
class LogTable:
    """What there is beside a side table; names are quoted."""

    log: str
    positions: str
    """Of this reader."""
    readers: Readers
    shared: tuple[str, ...]
    """Quoted columns that log and side table have both: what a copy consists of."""
    has_event_name: bool
    has_options: bool
    partitioned: bool


def is_logged(column: str, box_type: BoxType) -> bool:
    """Whether a column of the side table is one of the log, too."""
    if box_type is BoxType.INBOX and column in IDENTITIES:
        return True
    return column not in _OUTCOMES | NOT_IN_A_LOG.keys()


def log_table(side: Table, box_type: BoxType) -> Table:
    """Where items are inserted: the side table's columns without those of outcomes."""
    columns = [column._copy() for column in side.columns if is_logged(column.name, box_type)]  # noqa: SLF001 - SQLAlchemy's way
    for column in columns:
        if column.name == "id":
            # The side table's sequence, as the database knows.
            column.server_default = FetchedValue()
    return Table(names_of(side.name)[0], MetaData(), *columns, schema=side.schema)


def lengths_in_log(connection: Connection, log: Table) -> dict[str, int]:
    """How many characters each column of a log takes that takes a limited number. Not by SQLAlchemy, as above."""
    name = quoted(connection.dialect, log.schema or "", log.name)
    # The number is stored with four bytes more.
    query = text(
        "SELECT attname, atttypmod - 4 FROM pg_attribute WHERE attrelid = to_regclass(:name) AND attnum > 0 AND atttypmod > 4 "
        "AND NOT attisdropped AND atttypid IN (CAST('varchar' AS regtype), CAST('bpchar' AS regtype))"
    )
    return {str(column): int(length) for column, length in connection.execute(query, {"name": name})}


def with_sources(boxes: Iterable[Box]) -> list[Box]:
    """The boxes, and before its first subscription each box whose log they read: all whose tables are needed."""
    return list({each.name: each for box in boxes for each in (box.source, box)}.values())


def side_table(source: Table, box: Box) -> Table:
    """The side table of a subscription: it can take every column of the log, and takes its ids from there."""
    from boxengine.adapters.sql.shape.models import box_indexes  # noqa: PLC0415 - the ORM, which a look at an item does without

    columns = [column._copy() for column in source.columns if column.name != "id"]  # noqa: SLF001 - as above
    name = box.table.rpartition(".")[2]
    key = Column("id", BigInteger, primary_key=True, autoincrement=False)
    return Table(name, MetaData(), key, *columns, *box_indexes(name, box.type), schema=source.schema)


def refuse_old_servers(connection: Connection, table: str) -> None:
    """Raises:
    SchemaMismatch: the server knows no ids of transactions that are never used again.
    """
    version = connection.dialect.server_version_info or (0,)
    if connection.dialect.name != "postgresql" or version < OLDEST_SERVER:
        raise SchemaMismatch(f"table {table!r}: storage: log needs PostgreSQL {OLDEST_SERVER[0]} or later")


def refuse_used_table(connection: Connection, box: Box) -> None:
    """Refuses a log that is still to be made beside a table that has, or had, items. Applications may still write to that table,
    and nothing would keep the order between both. Inbox boxes cannot be converted: their consumers are stopped for the change.

    Raises:
        SchemaMismatch: the box has to be converted.
    """
    source, present = box.source, inspect(connection)
    schema, _, name = source.table.rpartition(".")
    if source.type is BoxType.INBOX or not present.has_table(name, schema=schema or None):
        return
    if present.has_table(names_in(source)[0], schema=schema or None):
        return
    side = reflect(connection, source)
    side.refuse_another_storage()
    if side.recorded_storage is Storage.LOG:
        return  # it had a log, which somebody has dropped
    # Where delivery deletes, the table is empty most of the time; its sequence tells that there were items.
    used = text(
        f"SELECT EXISTS (SELECT FROM {side.in_text}) OR EXISTS ("
        "SELECT FROM (SELECT CAST(pg_get_serial_sequence(:name, 'id') AS regclass) AS id) AS ids "
        "WHERE has_sequence_privilege(ids.id, 'SELECT') AND pg_sequence_last_value(ids.id) IS NOT NULL)"
    )
    if connection.execute(used, {"name": side.name}).scalar():
        alone = "without its subscriptions for now, " if source.subscriptions else ""
        raise SchemaMismatch(
            f"box {source.name}: storage is log, but its items go into table {source.table!r}, which has no log yet: {alone}set "
            f"storage: table, and convert it with: boxengine db convert {source.name} --to log"
        )


def stricter_constraints(connection: Connection, side: BoxTable, log: LogTable) -> list[str]:
    """Names of the side table's foreign keys, checks and unique indexes that the log lacks."""
    return list(connection.execute(_STRICTER, {"side": side.name, "log": log.log}).scalars())


def columns_of(connection: Connection, log: LogTable) -> frozenset[str]:
    """The names of all columns of the log."""
    query = text(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(:log) AND attnum > 0 AND NOT attisdropped"
    )
    return frozenset(connection.execute(query, {"log": log.log}).scalars())


def unlike_columns(connection: Connection, side: BoxTable, log: LogTable) -> list[tuple[str, str, str]]:
    """Columns that the side table and the log have with different types: name, and both types. Not the id, of which the log's
    sequence gives no more than the side table takes."""
    query = text(
        "SELECT s.attname, format_type(s.atttypid, s.atttypmod), format_type(l.atttypid, l.atttypmod) "
        "FROM pg_attribute AS s JOIN pg_attribute AS l ON l.attname = s.attname AND l.attrelid = to_regclass(:log) "
        "WHERE s.attrelid = to_regclass(:side) AND s.attnum > 0 AND NOT s.attisdropped AND s.attname <> 'id' "
        # A varchar without a limit is a text.
        "AND replace(format_type(s.atttypid, s.atttypmod), 'text', 'character varying') "
        "<> replace(format_type(l.atttypid, l.atttypmod), 'text', 'character varying') ORDER BY s.attnum"
    )
    found = connection.execute(query, {"side": side.name, "log": log.log})
    return [(str(name), str(here), str(there)) for name, here, there in found]


def what_the_log_lacks(connection: Connection, side: BoxTable, log: LogTable) -> list[str]:
    """What the table that the log stands for does to rows that are inserted, and the log does not."""
    query = text(
        "SELECT 'trigger ' || quote_ident(t.tgname) FROM pg_trigger AS t WHERE t.tgrelid = to_regclass(:side) "
        # 4: on INSERT.
        "AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 4 <> 0 AND t.tgname <> 'boxengine_to_log' "
        "AND NOT EXISTS (SELECT FROM pg_trigger AS l WHERE l.tgrelid = to_regclass(:log) AND l.tgfoid = t.tgfoid) "
        "UNION ALL SELECT 'row-level security' FROM pg_class AS s JOIN pg_class AS l ON l.oid = to_regclass(:log) "
        "WHERE s.oid = to_regclass(:side) AND s.relrowsecurity AND NOT l.relrowsecurity ORDER BY 1"
    )
    found = connection.execute(query, {"side": Readers.of(side).side(""), "log": log.log})
    return [str(name) for (name,) in found]


def referring_constraints(connection: Connection, side: BoxTable) -> list[tuple[str, str]]:
    """Foreign keys of other tables that refer to the table that the log stands for, where its items are not: table and name,
    quoted."""
    query = text(
        "SELECT CAST(CAST(conrelid AS regclass) AS text), quote_ident(conname) FROM pg_constraint WHERE contype = 'f' "
        "AND confrelid = to_regclass(:side) AND conrelid <> confrelid AND conparentid = 0 ORDER BY 1, 2"
    )
    return [(str(table), str(name)) for table, name in connection.execute(query, {"side": Readers.of(side).side("")})]


def with_partitions(log: str) -> str:
    """A query for a log and each partition that it has.

    Args:
        log: an expression for its quoted name.
    """
    return f"SELECT to_regclass({log}) UNION SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass({log})"


def publications_in_the_way(
    connection: Connection, log: LogTable, *, of: Sequence[str] = ("pubdelete", "pubupdate")
) -> list[str]:
    """Names of publications because of which the server refuses to change rows of the log, or of some of its partitions: these
    have no replica identity.

    Retention empties whole partitions, which needs none, but deletes rows by themselves where their partition takes too long.

    Args:
        of: the changes in question, as ``pg_publication`` calls them.
    """
    changes = " OR ".join(f"p.{each}" for each in of)
    query = text(
        "SELECT DISTINCT p.pubname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
        "JOIN pg_publication_tables AS t ON t.schemaname = n.nspname AND t.tablename = c.relname "
        f"JOIN pg_publication AS p ON p.pubname = t.pubname WHERE c.oid IN ({with_partitions(':log')}) AND ({changes}) "
        f"AND EXISTS (SELECT FROM pg_class AS each WHERE each.oid IN ({with_partitions(':log')}) AND each.relkind <> 'p' AND ("
        "each.relreplident = 'n' OR (each.relreplident = 'd' AND NOT EXISTS ("
        "SELECT FROM pg_index AS i WHERE i.indrelid = each.oid AND i.indisprimary)))) ORDER BY p.pubname"
    )
    return [str(name) for (name,) in connection.execute(query, {"log": log.log})]


def identifying(log: str) -> str:
    """The statement that gives a log, and each partition that it has, the replica identity without which a server refuses
    deletions from published tables.

    Args:
        log: its quoted name.
    """
    name = "'" + log.replace("'", "''") + "'"
    return (
        "DO $$ DECLARE part regclass; BEGIN "
        f"FOR part IN {with_partitions(name)} "
        "LOOP EXECUTE 'ALTER TABLE ' || part || ' REPLICA IDENTITY FULL'; END LOOP; END $$"
    )


def arriving_by(connection: Connection, log: LogTable) -> list[str]:
    """Names of subscriptions of logical replication by which rows of the log arrive from another server at the moment."""
    query = text(
        "SELECT DISTINCT s.subname FROM pg_stat_subscription AS s JOIN pg_subscription_rel AS r ON r.srsubid = s.subid "
        "WHERE s.pid IS NOT NULL AND (r.srrelid = to_regclass(:log) OR r.srrelid IN ("
        "SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass(:log))) ORDER BY s.subname"
    )
    return [str(name) for (name,) in connection.execute(query, {"log": log.log})]


def reflect_log(connection: Connection, side: BoxTable) -> LogTable:
    """Looks log and positions up in the database.

    Raises:
        SchemaMismatch: one is missing, or the side table cannot take what the log holds.
    """
    box = side.box
    refuse_old_servers(connection, box.table)
    everyone = Readers.of(side)
    log, positions = names_in(box)
    found = inspect(connection)
    for name in (log, positions):
        if not found.has_table(name, schema=side.schema):
            if name == log:
                refuse_used_table(connection, box)
            raise SchemaMismatch(f"box {box.name}: there is no table {name!r}; make it with: boxengine db create")
    refuse_others(connection, everyone, box)
    names = {"log": quoted(connection.dialect, side.schema, log), "side": side.name}
    columns = connection.execute(_COLUMNS, names).scalars().all()
    own = [name for name in columns if name != "xact"]
    lacking = [name for name in own if not side.has(name)]
    old = side.payload != "payload" or "processed_at" not in side.zoned or side.numeric_keys
    if lacking or old or "xact" not in columns:
        what = f"lacks {', '.join(lacking)}" if lacking else "was made for sbmt-outbox"
        raise SchemaMismatch(f"box {box.name}: table {box.table!r} {what}, so it cannot take items out of its log")
    return LogTable(
        log=quoted(connection.dialect, side.schema, log),
        positions=quoted(connection.dialect, side.schema, positions),
        readers=everyone,
        shared=tuple(quoted(connection.dialect, name) for name in own),
        has_event_name="event_name" in own,
        has_options="options" in own,
        partitioned=is_partitioned(connection, quoted(connection.dialect, side.schema, log)),
    )


def is_partitioned(connection: Connection, log: str) -> bool:
    """Whether the log with this quoted name is there, and has partitions."""
    return bool(connection.execute(_IS_PARTITIONED, {"name": log}).scalar())


def may_read_positions(connection: Connection, found: LogTable) -> bool:
    """Whether the account of this connection has the privilege."""
    query = text("SELECT has_table_privilege(to_regclass(:name), 'SELECT')")
    return bool(connection.execute(query, {"name": found.positions}).scalar())


def missing_positions(connection: Connection, found: LogTable, buckets: Sequence[int]) -> int:
    """How many of these buckets have no position yet."""
    query = text(f"SELECT count(DISTINCT bucket) FROM {in_text(found.positions)} WHERE bucket = ANY(:buckets)")
    return len(buckets) - int(connection.execute(query, {"buckets": list(buckets)}).scalar() or 0)


def doubled_positions(connection: Connection, found: LogTable) -> int:
    """How many buckets have more than one position: the data of a dump was restored beside what ``db create`` had made.

    No index prevents it: one by bucket alone would lead each move over all versions that died.
    """
    query = text(
        f"SELECT count(*) FROM (SELECT FROM {in_text(found.positions)} GROUP BY bucket HAVING count(*) > 1) AS doubled"
    )
    return int(connection.execute(query).scalar() or 0)


def foreign_positions(connection: Connection, found: LogTable) -> int:
    """How many positions are in another server's numbers, and no worker has brought them over yet."""
    query = text(
        f"SELECT count(*) FROM {in_text(found.positions)} "
        "WHERE server <> (SELECT system_identifier FROM pg_catalog.pg_control_system())"
    )
    return int(connection.execute(query).scalar() or 0)


def in_text(name: str) -> str:
    """A quoted name for SQLAlchemy's ``text``, to which a colon begins a parameter."""
    return name.replace(":", "\\:")
