"""Whether PostgreSQL clears a box's table of dead rows in time, as the table's own settings say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlalchemy import Connection, text

from boxengine.adapters.sql.log.tables import LogTable, names_in
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.box import Box
from boxengine.ports.people.checkup import Remark

LATE = 500_000
"""Dead rows that polls should not have to walk over before autovacuum begins."""
_OFF = frozenset({"false", "off", "no", "0"})
_SCALE, _THRESHOLD = "autovacuum_vacuum_scale_factor", "autovacuum_vacuum_threshold"


def remarks(connection: Connection, table: BoxTable, *, area: str) -> Iterator[Remark]:
    """Whether autovacuum is on for the table, and after how many dead rows it begins."""
    found = _settings(connection, table.name)
    if found is None:
        return
    own, rows = found
    if _is_off(own):
        yield _off(
            table.box, table.name, table.box.table, "every delivery leaves a dead row that nothing removes", area
        )
    else:
        yield _on(table, area, begins=_begins_after(connection, own, rows))


def remarks_on_log(connection: Connection, box: Box, found: LogTable, *, area: str) -> Iterator[Remark]:
    """Whether autovacuum is on for the tables beside a log box's side table. When it begins does not matter to deliveries."""
    log, positions = names_in(box)
    for name, shown, why in (
        (found.log, log, "nothing removes the dead rows that retention leaves"),
        (found.positions, positions, "deliveries leave versions of its rows that nothing removes"),
    ):
        settings = _settings(connection, name)
        if settings is not None and _is_off(settings[0]):
            yield _off(box, name, shown, why, area)


def _settings(connection: Connection, name: str) -> tuple[dict[str, str], float] | None:
    """A table's own settings, and about how many rows it has."""
    query = "SELECT reloptions, greatest(reltuples, 0) FROM pg_class WHERE oid = to_regclass(:name)"
    row = connection.execute(text(query), {"name": name}).one_or_none()
    return None if row is None else (dict(option.split("=", 1) for option in row[0] or ()), float(row[1]))


def _is_off(own: Mapping[str, str]) -> bool:
    return own.get("autovacuum_enabled", "on").lower() in _OFF


def _off(box: Box, name: str, shown: str, why: str, area: str) -> Remark:
    return Remark(
        area=area,
        box=box.name,
        text=f"autovacuum is off for {shown}: {why}.",
        advice=f"ALTER TABLE {name} RESET (autovacuum_enabled)",
    )


def _on(table: BoxTable, area: str, *, begins: int) -> Remark:
    told = f"Autovacuum cleans {table.box.table} after about {begins:,} dead rows"
    if begins <= LATE:
        return Remark(area=area, box=table.box.name, text=f"{told}.")
    advice = f"ALTER TABLE {table.name} SET ({_SCALE} = 0.02), or boxengine db upgrade"
    return Remark(
        area=area, box=table.box.name, text=f"{told}, which is late: until then polls have to skip them.", advice=advice
    )


def _begins_after(connection: Connection, own: Mapping[str, str], rows: float) -> int:
    def setting(name: str) -> float:
        found = own.get(name)
        return float(connection.execute(text(f"SHOW {name}")).scalar_one() if found is None else found)

    return round(setting(_THRESHOLD) + setting(_SCALE) * rows)
