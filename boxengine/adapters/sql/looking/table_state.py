"""What the database's statistics say of a table."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection, text

from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.ports.people.inspection import TableState


def table_state(found: BoxTable, connection: Connection) -> TableState:
    """How large the table is, as far as the database's statistics tell."""
    if connection.dialect.name == "postgresql":
        query = (
            "SELECT pg_total_relation_size(c.oid), s.n_dead_tup, s.n_live_tup, "
            "greatest(s.last_vacuum, s.last_autovacuum) FROM pg_class AS c "
            "LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid WHERE c.oid = to_regclass(:name)"
        )
        row = connection.execute(text(query), {"name": found.name}).one_or_none()
        size, dead, live, vacuumed = row if row is not None else (None, None, None, None)
        return TableState(
            bytes=size, dead_rows=dead, live_rows=live, vacuumed_at=None if vacuumed is None else _utc(vacuumed)
        )
    schema, _, name = found.location.rpartition(".")
    query = (
        "SELECT data_length + index_length, table_rows FROM information_schema.tables "
        "WHERE table_schema = :schema AND table_name = :name"
    )
    row = connection.execute(text(query), {"schema": schema, "name": name}).one_or_none()
    size, live = row if row is not None else (None, None)
    return TableState(
        bytes=None if size is None else int(size),
        dead_rows=None,
        live_rows=None if live is None else int(live),
        vacuumed_at=None,
    )


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
