"""SQLAlchemy declarative mixins for users' models, and the columns of a box's table.

The columns are those of sbmt-outbox and optional ones of boxengine (``available_at``, ``dedup_key``; ``seq`` where a box
wants it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Generic
from uuid import UUID, uuid4

from sqlalchemy import DDL, BigInteger, Connection, Dialect, Index, Integer, MetaData, SmallInteger, Table, event, text
from sqlalchemy.orm import DeclarativeBase, Mapped, declared_attr, mapped_column

from boxengine.adapters.payload import Payload as Codec
from boxengine.adapters.sql.shape.columns import Id, Identity, Json, Log, Moment, Name, Payload
from boxengine.adapters.sql.shape.index_names import index_name
from boxengine.adapters.sql.shape.now import utc_now
from boxengine.adapters.sql.shape.tables import for_driver, quoted
from boxengine.domain.attributes import P
from boxengine.domain.box import Box, BoxType

# SQLAlchemy accepts several names; its annotation allows only one.
_PARTIAL: Any = ("postgresql", "sqlite")
_LEADING_STATUS: Any = ("mysql", "mariadb")


class ModelMixin:
    """Refuses bases under which a mixin cannot work, and says which base to take instead."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        """
        Raises:
            TypeError: the class is a pydantic model. Pydantic's own error says nothing of what helps.
        """
        if any(each.__module__.startswith("pydantic.") for each in cls.__mro__):
            raise TypeError(
                f"{cls.__name__}: a box's model cannot be a pydantic model, such as an SQLModel. Give it a base of SQLAlchemy's "
                "that shares the metadata: class BoxBase(DeclarativeBase): metadata = SQLModel.metadata"
            )
        super().__init_subclass__(**arguments)


class _BoxItem(ModelMixin):
    """Columns common to both sides."""

    __box_type__: ClassVar[BoxType]
    __box_key_index__: ClassVar[bool] = False
    """Whether the table has an index over ``(event_key, id)``; see ``box_indexes`` for who needs it."""

    id: Mapped[int] = mapped_column(Id, primary_key=True, autoincrement=True)
    uuid: Mapped[UUID] = mapped_column(Identity, default=uuid4)
    event_name: Mapped[str | None] = mapped_column(Name)
    event_key: Mapped[str] = mapped_column(Name)
    bucket: Mapped[int] = mapped_column(Integer)
    status: Mapped[int] = mapped_column(SmallInteger, default=0, server_default=text("0"))
    options: Mapped[dict[str, Any] | None] = mapped_column(Json)
    payload: Mapped[bytes] = mapped_column(Payload)
    errors_count: Mapped[int] = mapped_column(Integer, default=0, server_default=text("0"))
    error_log: Mapped[str | None] = mapped_column(Log)
    processed_at: Mapped[datetime | None] = mapped_column(Moment)
    created_at: Mapped[datetime] = mapped_column(Moment, server_default=utc_now())
    updated_at: Mapped[datetime] = mapped_column(Moment, server_default=utc_now())
    available_at: Mapped[datetime | None] = mapped_column(Moment)
    dedup_key: Mapped[str | None] = mapped_column(Name)

    @classmethod
    def __table_cls__(cls, *arguments: Any, **options: Any) -> Table:
        """Makes the table, and has ``create_all`` also apply PostgreSQL settings that SQLAlchemy cannot express."""
        indexes = box_indexes(arguments[0], cls.__box_type__, key_index=cls.__box_key_index__)
        table = Table(*arguments, *indexes_beside(arguments, options, indexes), **options)
        event.listen(table, "after_create", _set_storage)
        return table

    # For a class that puts arguments of its own behind those of its base. Without them, ``__table_cls__`` adds the indexes.
    @declared_attr.directive
    def __table_args__(cls) -> tuple[Any, ...]:  # noqa: N805 - SQLAlchemy passes the class
        return box_indexes(cls.__tablename__, cls.__box_type__, key_index=cls.__box_key_index__)  # type: ignore[attr-defined]


class OutboxItem(_BoxItem, Generic[P]):
    """Mixin: a row of an outbox. ``class OrderOutboxItem(OutboxItem, Base): __tablename__ = "order_outbox_items"``.

    ``__box_key_index__ = True`` beside it adds an index over ``(event_key, id)``, which a box with the retry strategy
    ``latest_available`` needs; ``boxengine db create`` and ``db ddl`` add it to such a box by themselves.

    ``__payload__`` is the codec of its payloads. Their type goes into brackets, for type checkers:
    ``class OrderOutboxItem(OutboxItem[Order], Base)`` with ``__payload__ = Payload.pydantic(Order)``.
    """

    __box_type__ = BoxType.OUTBOX
    __payload__: Codec[P] | None = None


class InboxItem(_BoxItem, Generic[P]):
    """Mixin: a row of an inbox; ``uuid`` is unique, so that a message received twice is stored once.

    ``__box_key_index__`` and ``__payload__`` as in ``OutboxItem``.
    """

    __box_type__ = BoxType.INBOX
    __payload__: Codec[P] | None = None


class SequencedItem:
    """Mixin to use together with ``OutboxItem`` or ``InboxItem`` in a box with ``sequence: true``: gapless numbers per event key.

    ``boxengine db create`` makes the table that counts them.
    """

    __box_sequence__: ClassVar[bool] = True

    seq: Mapped[int | None] = mapped_column(BigInteger)


def box_indexes(table: str, box_type: BoxType, *, key_index: bool = False) -> tuple[Index, ...]:
    """The indexes of a box's table besides the primary key.

    Each further index costs every delivery an insertion, because a changed status rules out heap-only updates; so
    there are as few as the queries allow. Pending rows are found by bucket through a partial index that holds nothing
    else.

    Args:
        key_index: also ``(event_key, id)``, through which ``latest_available`` finds a key's later rows. It speeds up
            audits, and searches for one key, which also work without it.
    """
    pending = text("status = 0")
    indexes = [
        Index(index_name("ix", table, "pending"), "bucket", "id", postgresql_where=pending).ddl_if(dialect=_PARTIAL),
        # MySQL has no partial indexes: there the index begins with the status instead.
        Index(index_name("ix", table, "status"), "status", "bucket", "id").ddl_if(dialect=_LEADING_STATUS),
        # A delivery never writes to it; people and retention find failed and discarded rows without reading all delivered ones.
        Index(index_name("ix", table, "failed"), "status", "id", postgresql_where=text("status IN (1, 3)")).ddl_if(
            dialect=_PARTIAL
        ),
        # Rows that were never delayed have no entry on PostgreSQL, and on MySQL one that no delivery changes.
        Index(
            index_name("ix", table, "delayed"),
            "available_at",
            postgresql_where=text("status = 0 AND available_at IS NOT NULL"),
        ),
        Index(
            index_name("ux", table, "dedup"), "dedup_key", unique=True, postgresql_where=text("dedup_key IS NOT NULL")
        ),
    ]
    if key_index:
        indexes.append(Index(index_name("ix", table, "key"), "event_key", "id"))
    if box_type is BoxType.INBOX:
        indexes.append(Index(index_name("ux", table, "uuid"), "uuid", unique=True))
    return tuple(indexes)


def indexes_beside(arguments: Iterable[object], options: Mapping[str, Any], indexes: Iterable[Index]) -> list[Index]:
    """Those of the indexes that a table made of these arguments still needs.

    A class that says ``__table_args__``, for a schema perhaps, says it in place of its mixin.
    """
    named = {each.name for each in arguments if isinstance(each, Index)}
    # A unique index of a partitioned table has to hold the columns of the partitions, which boxengine does not know.
    partitioned = any(options.get(f"{dialect}_partition_by") for dialect in ("postgresql", *_LEADING_STATUS))
    return [each for each in indexes if each.name not in named and not (partitioned and each.unique)]


def storage_settings(dialect: Dialect, table: Table, *, deletes_on_delivery: bool = False) -> list[str]:
    """How PostgreSQL keeps a box's table and its primary key's index.

    None for a partitioned table: PostgreSQL takes such settings for the partitions only.
    """
    if table.dialect_options["postgresql"]["partition_by"]:
        return []
    # Every delivery leaves a dead row version behind; at the default, 20 % of a large table, autovacuum starts too late.
    settings = (
        "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, "
        "autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05, "
        "autovacuum_vacuum_cost_delay = 0"
    )
    return [
        f"ALTER TABLE {quoted(dialect, table.schema or '', table.name)} SET ({settings})",
        # Every row gets a second entry when it is delivered. Where the page has no room for it, the server searches the
        # page for entries to drop, and then splits it after all. A row that is deleted gets no second entry.
        f"ALTER INDEX IF EXISTS {primary_key_name(dialect, table)} "
        + ("RESET (fillfactor)" if deletes_on_delivery else "SET (fillfactor = 50)"),
    ]


def primary_key_name(dialect: Dialect, table: Table) -> str:
    """The quoted name of the primary key's index: the model's, or the server's default. A table made elsewhere may differ."""
    own = table.name.encode()[: dialect.max_identifier_length - len("_pkey")].decode(errors="ignore") + "_pkey"
    return quoted(dialect, table.schema or "", str(table.primary_key.name or own))


def _set_storage(table: Table, connection: Connection, **_options: Any) -> None:
    if connection.dialect.name == "postgresql":
        for statement in storage_settings(connection.dialect, table):
            connection.execute(DDL(for_driver(statement)))  # type: ignore[no-untyped-call] # SQLAlchemy's


def own_columns(table: Table) -> list[str]:
    """The columns that a user's class has beside those of every box."""
    return [name for name in table.columns.keys() if name not in _BoxItem.__annotations__]  # noqa: SIM118 - no mapping


def box_table(box: Box, metadata: MetaData) -> Table:
    """The table of a box for which the user wrote no class."""
    known = metadata.tables.get(box.table)
    if known is not None:
        return known
    mixin = OutboxItem if box.type is BoxType.OUTBOX else InboxItem

    class Base(DeclarativeBase):
        pass

    Base.metadata = metadata
    schema, _, name = box.table.rpartition(".")
    attributes: dict[str, Any] = {"__tablename__": name, "__box_name__": box.name}
    if schema:
        attributes["__table_args__"] = {"schema": schema}
    model = type("Item", (SequencedItem, mixin, Base) if box.sequence else (mixin, Base), attributes)
    table: Table = model.__table__  # type: ignore[attr-defined]
    return table
