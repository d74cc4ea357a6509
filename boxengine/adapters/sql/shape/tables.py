"""Reads how a box's table really looks: tables of sbmt-outbox lack some columns and name one differently."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BINARY, BigInteger, Connection, Integer, LargeBinary, Numeric, SmallInteger, inspect, text
from sqlalchemy.engine.interfaces import Dialect, ReflectedColumn, ReflectedIndex
from sqlalchemy.exc import NoSuchTableError

from boxengine.adapters.sql.shape import catalog
from boxengine.adapters.sql.shape.texts import EVERY_TEXT, TextColumn, text_column
from boxengine.domain.box import Box, BoxType, Storage, StrictOrder
from boxengine.errors import SchemaMismatch

REQUIRED = ("id", "uuid", "event_key", "bucket", "status", "errors_count", "processed_at", "created_at", "updated_at")
OPTIONAL = {
    "event_name": "transports cannot be chosen by event name",
    "options": "items carry no options, so no key and no headers of their own",
    "error_log": "the reason of a failure is only in the logs",
    "available_at": "items cannot be delayed (available_at)",
    "dedup_key": "items cannot be deduplicated (dedup_key)",
}
"""Columns a table may lack, each with the feature that then does not work."""
_NEEDED = frozenset({"uuid", "event_key", "errors_count", "created_at"})
"""Columns without which a row cannot become an item."""
_RECORDED_SIZE = re.compile(r"boxengine bucket_size=(\d{1,9})")
_RECORDED_STORAGE = re.compile(r"boxengine bucket_size=\d+ storage=(table|log)\b")
_BARE = 32
"""Characters of a uuid without dashes."""
PENDING_BY_BUCKET = "ORDER BY bucket, id"
"""The order in which the index that ``db create`` makes returns pending rows."""
NO_KEY_INDEX = "who looks for a key's later items (latest_available) reads the whole table; db create makes it"
NO_INDEX_OF_PARKED_KEYS = "strict_order: key reads the whole table at each poll; db create makes it"
_UNFINISHED = text(
    "SELECT i.relname, quote_ident(n.nspname) || '.' || quote_ident(i.relname) FROM pg_index AS x "
    "JOIN pg_class AS i ON i.oid = x.indexrelid JOIN pg_namespace AS n ON n.oid = i.relnamespace "
    "WHERE x.indrelid = to_regclass(:name) AND NOT x.indisvalid"
)


def counters_of(table: str) -> str:
    """Name of the table that counts a table's numbers."""
    return f"{table}_seqs"


@dataclass(frozen=True, slots=True)
class BoxTable:
    """The table of one box: its quoted name, the columns it has, and the name of the payload's column."""

    box: Box
    name: str
    """Quoted, always with its schema (in MySQL its database), so that no session setting can redirect it; percent signs are
    not doubled."""
    columns: frozenset[str]
    """The usable columns: ``dedup_key`` is not usable without its unique index."""
    payload: str
    """``payload``, or ``proto_payload`` as in old tables of sbmt-outbox."""
    zoned: frozenset[str]
    """The columns that store moments with a zone; the others' are UTC, as ActiveRecord writes them."""
    numeric_keys: bool = False
    """Whether event keys are stored as numbers, as tables of sbmt-outbox may."""
    bare_uuids: bool = False
    """Whether uuids are stored as text that has no room for dashes."""
    schema: str = ""
    """Its schema or database, unquoted."""
    location: str = ""
    """Database or schema, and table, unquoted."""
    status_index: str | None = None
    """Quoted name of an index that begins with status and bucket, which serves MySQL's polls."""
    pending_first: str = ""
    """The order in which an index returns pending rows: with it, stale statistics cannot lead to a walk over the table."""
    ambiguous_dedup: bool = False
    """Whether there is a column ``dedup_key``, but no unique index over it."""
    delayed_index: str | None = None
    """Quoted name of an index over ``available_at``, by which the next delayed row is found."""
    numbered: bool = False
    """Whether rows carry gapless numbers (``seq``), counted in a table beside this one."""
    key_index: bool = False
    """Whether an index finds all rows of a key."""
    parked_index: bool = False
    """Whether an index finds the rows that hold back others of their key."""
    status_of_key_index: str | None = None
    """Quoted name of an index over key, status and id, which serves MySQL's claims under strict order by key."""
    unique: frozenset[tuple[str | None, ...]] = frozenset()
    """The columns of each unique index; None for an expression."""
    nullable: frozenset[str] = frozenset()
    """Columns that every box needs and that may be NULL here."""
    most_errors: int = 2**31 - 1
    """The highest ``errors_count`` that its column can store."""
    log: TextColumn = EVERY_TEXT
    """What ``error_log`` can store."""
    recorded_size: int | None = None
    """The number of buckets in force, as recorded by ``db create``; None if it is not recorded."""
    recorded_storage: Storage | None = None
    """To which ``db convert`` has brought the box; None: either goes."""

    @property
    def in_text(self) -> str:
        """The name escaped for SQLAlchemy's ``text``, where a colon begins a parameter."""
        return self.name.replace(":", "\\:")

    def has(self, column: str) -> bool:
        return column in self.columns

    @property
    def may_have_other_workers(self) -> bool:
        """Whether workers of sbmt-outbox, which know nothing of the locks of claims, may deliver its items as well.

        Every table of its migrations has a unique index over ``uuid``. Those that boxengine makes have one in an inbox only.
        """
        return self.box.type is BoxType.INBOX or any("uuid" in columns for columns in self.unique)

    @property
    def lacking(self) -> dict[str, str]:
        """The optional columns that the table lacks, with the feature that does not work without each."""
        absent = {column: loss for column, loss in OPTIONAL.items() if column not in self.columns}
        unique = "unique index over" if self.ambiguous_dedup else "column"
        lost = {f"{unique if name == 'dedup_key' else 'column'} {name}": loss for name, loss in absent.items()}
        if self.box.key_index and not self.key_index:
            lost["index over event_key and id"] = NO_KEY_INDEX
        if self.box.strict_order is StrictOrder.KEY and not (self.parked_index or self.key_index):
            lost["index over event_key"] = NO_INDEX_OF_PARKED_KEYS
        return lost

    @property
    def passes_delayed(self) -> bool:
        """Whether bounds on PostgreSQL pass pending rows that have an ``available_at``: the due ones are found by an index.

        Under strict order they do not. A claim needs the rows of a bucket in their order there.
        """
        has_bounds = self.box.storage is Storage.TABLE
        return has_bounds and self.box.strict_order is StrictOrder.NONE and self.delayed_index is not None

    def refuse_another_size(self) -> None:
        """Refuses a second size: it would put items of one key into two buckets, which are delivered concurrently.

        Raises:
            SchemaMismatch: the configured ``bucket_size`` is not the one in force.
        """
        refuse_another_size(self.box, self.recorded_size)

    def refuse_another_storage(self) -> None:
        """Refuses a worker that would leave alone what is written to the other storage.

        Raises:
            SchemaMismatch: the box was made with, or converted to, another storage than is configured.
        """
        there, here = self.recorded_storage, self.box.storage
        if there not in (None, here):
            # A conversion of an inbox is refused.
            convert = f", or convert it with: boxengine db convert {self.box.name} --to {here.value}"
            raise SchemaMismatch(
                f"box {self.box.name}: storage is {here.value}, but its items are in a {there.value}: set storage: "
                f"{there.value}{'' if self.box.type is BoxType.INBOX else convert}"
            )


def reflect(connection: Connection, box: Box) -> BoxTable:
    """Looks the table up in the database.

    Raises:
        SchemaMismatch: there is no such table, it lacks a column that every box needs, or its ids are no numbers.
    """
    schema, _, name = box.table.rpartition(".")
    columns = _columns(connection, box)
    if connection.dialect.name == "postgresql":
        asked = quoted(connection.dialect, schema, name)
        place = catalog.places(connection, [asked]).get(asked)
        if place is None:
            raise _missing(box)  # somebody has dropped it meanwhile
    else:
        own = schema or str(connection.dialect.default_schema_name or "")
        place = catalog.Place(own, comment_of(connection, own, name), ())
    return _table(connection, box, columns, inspect(connection).get_indexes(name, schema=schema or None), place)


def reflect_all(connection: Connection, boxes: Sequence[Box]) -> dict[str, BoxTable]:
    """The same of many boxes, by name, in a few statements. Boxes whose table cannot serve are left out: ``reflect`` says why.

    None on other databases than PostgreSQL, which answer about one table at a time.
    """
    if connection.dialect.name != "postgresql":
        return {}
    keys = {box.name: catalog.key_of(box) for box in boxes}
    columns, indexes = catalog.columns_and_indexes(connection, keys.values())
    names = {box.name: quoted(connection.dialect, keys[box.name][0] or "", keys[box.name][1]) for box in boxes}
    places = catalog.places(connection, list(names.values()))
    found = {}
    for box in boxes:
        key, place = keys[box.name], places.get(names[box.name])
        if place is not None and key in columns:
            with suppress(SchemaMismatch):
                found[box.name] = _table(connection, box, columns[key], indexes.get(key, []), place)
    return found


def _table(
    connection: Connection,
    box: Box,
    found: Sequence[ReflectedColumn],
    indexes: Sequence[ReflectedIndex],
    place: catalog.Place,
) -> BoxTable:
    """Raises:
    SchemaMismatch: see ``reflect``.
    """
    schema, _, name = box.table.rpartition(".")
    types = {column["name"]: column["type"] for column in found}
    payload = _payload(box, types)
    if not isinstance(types["id"], Integer | Numeric):
        raise SchemaMismatch(
            f"box {box.name}: table {box.table!r} has an id of type {types['id']}; expected a whole number"
        )
    indexes = [index for index in indexes if index["name"] not in place.unfinished]
    unique = frozenset(tuple(index["column_names"]) for index in indexes if index["unique"])
    ambiguous = "dedup_key" in types and ("dedup_key",) not in unique
    return BoxTable(
        box=box,
        name=quoted(connection.dialect, place.schema, name),
        columns=frozenset(types).difference(["dedup_key"] if ambiguous else ()),
        payload=payload,
        zoned=frozenset(name for name, kind in types.items() if getattr(kind, "timezone", False)),
        numeric_keys=isinstance(types["event_key"], Integer),
        bare_uuids=getattr(types["uuid"], "length", None) == _BARE
        and not isinstance(types["uuid"], LargeBinary | BINARY),
        schema=place.schema,
        location=f"{place.schema}.{name}",
        status_index=_name_of(connection, indexes, ["status", "bucket"], ["status", "bucket", "id"]),
        pending_first=_pending_first(connection, indexes),
        ambiguous_dedup=ambiguous,
        delayed_index=_name_of(connection, indexes, ["available_at"]),
        # Without a table of counters, a column of that name belongs to the application.
        numbered="seq" in types and inspect(connection).has_table(counters_of(name), schema=schema or None),
        key_index=any(map(leads_to_keys, indexes)),
        parked_index=any(_leads_to_parked(index, partial=connection.dialect.name == "postgresql") for index in indexes),
        status_of_key_index=_name_of(connection, indexes, ["event_key", "status", "id"]),
        unique=unique,
        nullable=frozenset(column["name"] for column in found if column["nullable"] and column["name"] in _NEEDED),
        most_errors=_highest(types["errors_count"]),
        log=text_column(connection, place.schema, name, "error_log", types["error_log"])
        if "error_log" in types
        else EVERY_TEXT,
        recorded_size=size_in(place.comment),
        recorded_storage=_storage_in(place.comment),
    )


def _columns(connection: Connection, box: Box) -> list[ReflectedColumn]:
    schema, _, name = box.table.rpartition(".")
    try:
        return inspect(connection).get_columns(name, schema=schema or None)
    except NoSuchTableError as error:
        raise _missing(box) from error


def _missing(box: Box) -> SchemaMismatch:
    return SchemaMismatch(f"box {box.name}: there is no table {box.table!r}; make it with: boxengine db create")


def _payload(box: Box, columns: Container[str]) -> str:
    """The name of the payload's column.

    Raises:
        SchemaMismatch: there is none, or no other that every box needs.
    """
    payload = next((column for column in ("payload", "proto_payload") if column in columns), None)
    missing = [column for column in REQUIRED if column not in columns] + ([] if payload else ["payload"])
    if missing or payload is None:
        raise SchemaMismatch(f"box {box.name}: table {box.table!r} lacks {', '.join(missing)}")
    return payload


def comment_of(connection: Connection, schema: str, name: str) -> str:
    """A table's comment; empty where it has none."""
    match connection.dialect.name:
        case "postgresql":
            query = (
                "SELECT obj_description(c.oid, 'pg_class') FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
                "WHERE n.nspname = :schema AND c.relname = :name"
            )
        case "mysql" | "mariadb":
            query = "SELECT table_comment FROM information_schema.tables WHERE table_schema = :schema AND table_name = :name"
        case _:
            return ""  # SQLite has no comments
    return str(connection.execute(text(query), {"schema": schema, "name": name}).scalar() or "")


def refuse_another_size(box: Box, recorded: int | None) -> None:
    """See ``BoxTable.refuse_another_size``."""
    if recorded not in (None, box.bucket_size):
        way = f", or change it once the box is empty, with: boxengine db rebucket {box.name}"
        if box.storage is Storage.LOG:
            way = "; with storage: log it stays what it was"
        raise SchemaMismatch(
            f"box {box.name}: bucket_size is {box.bucket_size}, but table {box.table!r} was filled with {recorded}: "
            f"set it back to {recorded}{way}"
        )


def size_in(comment: str) -> int | None:
    """The number of buckets that a table's comment records; None where it records none."""
    found = _RECORDED_SIZE.search(comment)
    return int(found[1]) if found else None


def _storage_in(comment: str) -> Storage | None:
    found = _RECORDED_STORAGE.search(comment)
    return Storage(found[1]) if found else None


def _pending_first(connection: Connection, indexes: Sequence[Any]) -> str:
    if connection.dialect.name != "postgresql":
        return ""  # MySQL finds an index that begins with the status by itself
    own = any(index["column_names"][:2] == ["bucket", "id"] for index in indexes)
    return PENDING_BY_BUCKET if own else "ORDER BY status, id"


def _highest(column: Any) -> int:
    """The highest number that an integer column of this type can store; no more than four bytes' worth is ever needed."""
    bits = 31
    # MySQL's own types by their names: their classes come with all of its dialect.
    if column.__visit_name__ == "TINYINT":
        bits = 7
    elif isinstance(column, SmallInteger):
        bits = 15
    elif column.__visit_name__ == "MEDIUMINT":
        bits = 23
    elif isinstance(column, BigInteger) or not isinstance(column, Integer):
        return 2**31 - 1
    return int(min(2**31, 2 ** (bits + bool(getattr(column, "unsigned", False))))) - 1


def _name_of(connection: Connection, indexes: Sequence[ReflectedIndex], *columns: list[str]) -> str | None:
    """The quoted name of an index over one of these lists of columns."""
    for index in indexes:
        if index["column_names"] in columns and index["name"]:
            return quoted(connection.dialect, unescaped(index["name"]))
    return None


def unfinished_indexes(connection: Connection, table: str) -> dict[str, str]:
    """Indexes whose concurrent creation was broken off, or is under way: no query uses them, but every write maintains them.

    Args:
        table: quoted.

    Returns:
        Each one's name, with the same quoted and with its schema, in which another index of that name is out of reach.
    """
    if connection.dialect.name != "postgresql":
        return {}
    return dict(connection.execute(_UNFINISHED, {"name": table}).all())


def finished_indexes(connection: Connection, schema: str, name: str) -> list[ReflectedIndex]:
    """The indexes of a table without those: what queries can use, and what keeps a value unique."""
    unfinished = unfinished_indexes(connection, quoted(connection.dialect, schema, name))
    found = inspect(connection).get_indexes(name, schema=schema or None)
    return [index for index in found if index["name"] not in unfinished]


def leads_to_keys(index: ReflectedIndex) -> bool:
    """Whether the index has all rows, ordered by key and then by id."""
    whole = index.get("dialect_options", {}).get("postgresql_where") is None
    return whole and index["column_names"][:2] in (["event_key"], ["event_key", "id"])


def _leads_to_parked(index: ReflectedIndex, *, partial: bool) -> bool:
    columns = index["column_names"]
    return columns[:2] == ["bucket", "event_key"] if partial else columns[:1] == ["event_key"]


def quoted(dialect: Dialect, *parts: str) -> str:
    """The name made of the non-empty parts, quoted where necessary, with percent signs not doubled.

    SQLAlchemy doubles them for drivers that look for placeholders; a caller that passes a driver values beside the
    statement must do so, too.
    """
    quote = dialect.identifier_preparer.quote
    name = ".".join(quote(part) for part in parts if part)
    return name.replace("%%", "%") if "%%" in quote("%") else name


def for_driver(sql: str) -> str:
    """SQL, or a name in it, for ``exec_driver_sql``, ``DDL`` or a cursor, to which a percent sign begins a parameter."""
    return sql.replace("%", "%%")


def unescaped(index: str) -> str:
    """An index's real name; SQLAlchemy reads MySQL's from a statement and leaves doubled backticks in."""
    return index.replace("``", "`")
