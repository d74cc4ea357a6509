"""Records the number of buckets in force with a box's table: a worker with another number would break the order.
Beside it stands the storage that the box was made with, where that is a log, or converted to.

It is kept in the table's comment, after any text of the application. So it needs no table of its own, moves with dumps
and renames, and every account that may use the table can read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, MetaData, Table, inspect, text
from sqlalchemy.schema import SetTableComment

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.log.stage import Stage, stage_of
from boxengine.adapters.sql.log.tables import with_sources
from boxengine.adapters.sql.shape.tables import BoxTable, comment_of, reflect
from boxengine.domain.box import Box, Storage, StrictOrder
from boxengine.domain.item import Status
from boxengine.domain.words import plural
from boxengine.errors import BadUsage, SchemaMismatch

_MARK = re.compile(r"(?:; )?boxengine bucket_size=\d+(?: storage=\w+)?")
_LONGEST = 2048
"""Characters that MySQL allows in a comment."""
_PATIENCE = 5
"""Seconds to wait for a table's lock: meanwhile every later writer may have to wait, too."""
_MOST = 10_000
"""Rows counted at most, so that writers are not held up."""


def without_size(comment: str | None) -> str | None:
    """The application's part of the comment; None if there is none."""
    return _MARK.sub("", comment or "") or None


def record(engine: Engine, boxes: Sequence[Box]) -> list[str]:
    """Records the configured sizes, and that boxes have a log, where there is no record yet; returns the names of those boxes.

    Raises:
        SchemaMismatch: another size is recorded for one of the boxes.
    """
    recorded: list[str] = []
    with translated(engine), engine.begin() as connection:
        tables = [reflect(connection, box) for box in with_sources(boxes)]
        for table in tables:
            table.refuse_another_size()
        unknown = [table for table in tables if table.recorded_size is None or _is_unmarked_log(connection, table)]
        if unknown:
            _be_patient(connection, _PATIENCE)
            recorded = [table.box.name for table in unknown if _write(connection, table)]
            if connection.dialect.name != "postgresql":
                connection.execute(text("SET SESSION lock_wait_timeout = DEFAULT"))
    return recorded


def statements(connection: Connection, boxes: Sequence[Box]) -> Iterator[tuple[str, str]]:
    """What ``record`` would run: the name of each table and its statement. It leaves out tables that are still to be made."""
    for box in with_sources(boxes):
        schema, _, name = box.table.rpartition(".")
        if not inspect(connection).has_table(name, schema=schema or None):
            continue
        table = reflect(connection, box)
        if table.recorded_size is None or _is_unmarked_log(connection, table):
            statement = _statement(connection, table)
            if statement is not None:
                yield box.table, str(statement.compile(dialect=connection.dialect)).replace("%%", "%")


def change(engine: Engine, box: Box, *, dry: bool = False, patience: int = _PATIENCE) -> tuple[int | None, int]:
    """Records the configured size in place of another one; returns the old and the new size.

    Nobody else can write to the table meanwhile, so no row of the old size can arrive between the check and the record.

    Args:
        dry: only look.
        patience: seconds to wait for writers' transactions; writers that come later wait as long.

    Raises:
        BadUsage: the box has a log.
        SchemaMismatch: there are rows that would lose their order or their worker, or items are in a log.
    """
    if box.storage is Storage.LOG:
        raise BadUsage(f"box {box.name}: with storage: log the bucket_size of a table stays what it was")
    with translated(engine), engine.connect() as connection:
        table = reflect(connection, box)
        table.refuse_another_storage()
        if connection.dialect.name == "postgresql" and stage_of(connection, table) is not Stage.TABLE:
            raise SchemaMismatch(
                f"box {box.name}: it has a log, whose items stay in the buckets of the old size; first: boxengine db convert "
                f"{box.name} --to table --finish"
            )
        connection.rollback()  # what follows begins a transaction of its own
        if table.recorded_size != box.bucket_size:
            if dry:
                _refuse_rows_in_the_way(connection, table)
            else:
                with _locked(connection, table, patience):
                    _refuse_rows_in_the_way(connection, table)
                    _write(connection, table)
        return table.recorded_size, box.bucket_size


def marking(connection: Connection, table: BoxTable, storage: Storage | None) -> str:
    """PostgreSQL's statement that records the configured size, and the storage to which the box was converted.

    Args:
        storage: None: processes with either work together.
    """
    comment = _comment(connection, table, storage).replace("'", "''")
    return f"COMMENT ON TABLE {table.name} IS '{comment}'"


def _comment(connection: Connection, table: BoxTable, storage: Storage | None) -> str:
    own = without_size(comment_of(connection, table.schema, table.box.table.rpartition(".")[2]))
    mark = f"boxengine bucket_size={table.box.bucket_size}" + (f" storage={storage.value}" if storage else "")
    return f"{own}; {mark}" if own else mark


def _is_unmarked_log(connection: Connection, table: BoxTable) -> bool:
    """False while the box is converted: until that is finished, processes with either storage may work."""
    if table.box.storage is not Storage.LOG or table.recorded_storage is not None:
        return False
    return stage_of(connection, table) is Stage.LOG


def _write(connection: Connection, table: BoxTable) -> bool:
    statement = _statement(connection, table)
    if statement is not None:
        connection.execute(statement)
    return statement is not None


def _statement(connection: Connection, table: BoxTable) -> SetTableComment | None:
    """None where no room is left in the comment."""
    schema, _, name = table.box.table.rpartition(".")
    storage = Storage.LOG if _is_unmarked_log(connection, table) else table.recorded_storage
    comment = _comment(connection, table, storage)
    if len(comment) > _LONGEST:
        return None
    return SetTableComment(Table(name, MetaData(), schema=schema or None, comment=comment))


@contextmanager
def _locked(connection: Connection, table: BoxTable, patience: int) -> Iterator[None]:
    """Keeps writers out; they wait."""
    if connection.dialect.name == "postgresql":
        with connection.begin():
            _be_patient(connection, patience)
            connection.execute(text(_locking(table, postgres=True)))
            yield
        return
    try:
        _be_patient(connection, patience)
        connection.execute(text(_locking(table, postgres=False)))
        yield
    finally:
        connection.invalidate()  # closing it frees the lock, and nobody else gets a connection with this lock timeout


def _be_patient(connection: Connection, seconds: int) -> None:
    connection.execute(text(_patience(seconds, postgres=connection.dialect.name == "postgresql")))


def _patience(seconds: int, *, postgres: bool) -> str:
    return f"SET LOCAL lock_timeout = '{seconds:d}s'" if postgres else f"SET SESSION lock_wait_timeout = {seconds:d}"


def _locking(table: BoxTable, *, postgres: bool) -> str:
    name = table.in_text
    return f"LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE" if postgres else f"LOCK TABLES {name} WRITE"


def _refuse_rows_in_the_way(connection: Connection, table: BoxTable) -> None:
    box = table.box
    pending = _counted(connection, table, "pending item", f"status = {Status.PENDING:d}")
    if pending:
        raise SchemaMismatch(_pending_in_the_way(table, pending))
    failed = f"status = {Status.FAILED:d}"
    if lost := _counted(connection, table, "failed item", f"{failed} AND bucket >= {box.bucket_size:d}"):
        raise SchemaMismatch(_failed_in_the_way(table, lost))
    if box.strict_order is StrictOrder.KEY and (parked := _counted(connection, table, "failed item", failed)):
        raise SchemaMismatch(_parked_in_the_way(table, parked))


def _pending_in_the_way(table: BoxTable, pending: str) -> str:
    return (
        f"box {table.box.name}: the buckets of the old size hold {pending}, which would lose their order. Put back "
        f"{_old(table)}, keep applications from creating items, let workers deliver what is left (boxengine status "
        "shows when pending is 0), then set the new size and run this command again"
    )


def _failed_in_the_way(table: BoxTable, failed: str) -> str:
    return (
        f"box {table.box.name}: buckets from {table.box.bucket_size} on hold {failed}, where no worker would look "
        f"after a retry. Put back {_old(table)}, retry or discard them (boxengine items), then run this command again"
    )


def _parked_in_the_way(table: BoxTable, failed: str) -> str:
    return (
        f"box {table.box.name}: it holds {failed}, which would hold back later items of their keys no longer, as these come into "
        f"other buckets. Put back {_old(table)}, retry or discard them (boxengine items), then run this command again"
    )


def _old(table: BoxTable) -> str:
    return "the old bucket_size" if table.recorded_size is None else f"bucket_size: {table.recorded_size}"


def _counted(connection: Connection, table: BoxTable, noun: str, which: str) -> str:
    """Nothing where there is none."""
    count = int(connection.execute(text(_counting(table, which))).scalar_one())
    return plural(count, noun, or_more=count == _MOST) if count else ""


def _counting(table: BoxTable, which: str) -> str:
    return f"SELECT count(*) FROM (SELECT 1 FROM {table.in_text} WHERE {which} LIMIT {_MOST}) AS found"
