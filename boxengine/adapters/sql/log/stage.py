"""Where a box is on its way between table and log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from sqlalchemy import Connection, text

from boxengine.adapters.sql.log.tables import names_of, reflect_log
from boxengine.adapters.sql.shape.tables import BoxTable, quoted, reflect
from boxengine.domain.box import Box, Storage
from boxengine.errors import SchemaMismatch

TO_LOG = "boxengine_to_log"
"""The trigger of the table."""
TO_TABLE = "boxengine_to_table"
"""The trigger of the log."""
_QUERY = text(
    "SELECT to_regclass(:log) IS NOT NULL, "
    "EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(:log) AND tgname = :to_table), "
    "EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(:log) AND tgname = :to_table AND tgenabled <> 'D'), "
    "EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(:side) AND tgname = :to_log), "
    "EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(:side) AND tgname = :to_log AND tgenabled <> 'D')"
)


class Stage(Enum):
    """Where a box's items are written to."""

    TABLE = "table"
    """There is no log."""
    BOTH = "both"
    """There is a log, and what is written to it is moved to the table."""
    LOG = "log"


@dataclass(frozen=True, slots=True)
class Standing:
    """What the database says of a box."""

    side: BoxTable
    """With ``storage: log``, whatever is configured."""
    stage: Stage
    log: str
    """Quoted, as are the positions."""
    positions: str
    columns: list[str] | None
    """The log's columns without the transaction, quoted. None: there is no log."""
    log_has_trigger: bool
    """Whether the log has the trigger that moves items to the table, on or off."""
    has_trigger: bool
    """Whether the table has the one that moves them to the log, on or off."""
    catches: bool
    """Whether that one is on."""


def standing_of(connection: Connection, box: Box) -> Standing:
    """Finds the stage by the tables and triggers.

    Raises:
        SchemaMismatch: the box has no table, or its name leaves no room for a log's.
    """
    side = reflect(connection, replace(box, storage=Storage.LOG))
    log, positions = _names(connection, side)
    stage, log_has_trigger, *of_table = _ask(connection, side)
    columns = None if stage is Stage.TABLE else list(reflect_log(connection, side).shared)
    return Standing(side, stage, log, positions, columns, log_has_trigger, *of_table)


def stage_of(connection: Connection, table: BoxTable) -> Stage:
    """The stage of a table that is known, and nothing else."""
    try:
        return _ask(connection, table)[0]
    except SchemaMismatch:
        return Stage.TABLE  # its name leaves no room for a log's


def _ask(connection: Connection, table: BoxTable) -> tuple[Stage, bool, bool, bool]:
    """The stage, and the last three of a ``Standing``."""
    log, _ = _names(connection, table)
    values = {"log": log, "side": table.name, "to_table": TO_TABLE, "to_log": TO_LOG}
    exists, log_has_trigger, bridged, has_trigger, catches = connection.execute(_QUERY, values).one()
    stage = Stage.TABLE if not exists else Stage.BOTH if bridged else Stage.LOG
    return stage, log_has_trigger, has_trigger, catches


def _names(connection: Connection, table: BoxTable) -> tuple[str, str]:
    """Of the log and the positions, quoted."""
    log, positions = names_of(table.box.table.rpartition(".")[2])
    return quoted(connection.dialect, table.schema, log), quoted(connection.dialect, table.schema, positions)
