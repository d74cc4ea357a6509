"""Moves a subscription back or ahead in its log, or gives its position up, as a person decides; workers may run meanwhile.

Positions are written under the locks of their buckets, all in one transaction. So no delivery is under way meanwhile, and the
next one reads the new positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, text

from boxengine.adapters.sql.connecting.cursors import cursor_of
from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.connecting.limiting import unlimited
from boxengine.adapters.sql.dialects.postgresql import lock_space
from boxengine.adapters.sql.log.readers import Readers
from boxengine.adapters.sql.log.stage import Stage, stage_of
from boxengine.adapters.sql.log.tables import BUCKET, in_text, log_name, reflect_log
from boxengine.adapters.sql.log.under_way import waiting_for_deliveries
from boxengine.adapters.sql.shape.tables import BoxTable, reflect
from boxengine.adapters.sql.waking.listen import CHANNEL
from boxengine.domain.box import Box
from boxengine.domain.log_moves import sent_ahead, sent_back
from boxengine.domain.log_progress import Position, has_gone_back
from boxengine.errors import SchemaMismatch, StoreUnavailable
from boxengine.ports import Signal

PATIENCE = 30
"""Seconds to wait for the deliveries of all buckets."""
COUNTED_TO = 100_000
"""Items of a bucket that are counted."""
_FIELDS = ("bucket", "passed", "batch", "place", "floor", "ceiling", "high", "turn")
_PASSED = (
    "(pg_visible_in_snapshot(t.xact, CAST(:passed AS pg_snapshot)) OR (CAST(:batch AS text) IS NOT NULL "
    "AND t.id <= :place AND pg_visible_in_snapshot(t.xact, CAST(CAST(:batch AS text) AS pg_snapshot))))"
)
_THERE = f"{BUCKET} = :bucket AND pg_visible_in_snapshot(t.xact, CAST(:now AS pg_snapshot))"
"""A row of the bucket that was visible at the moment of the move."""
_SINCE = (
    "t.bucket = :bucket AND t.xact >= pg_snapshot_xmin(CAST(:{snapshot} AS pg_snapshot)) "
    "AND pg_visible_in_snapshot(t.xact, CAST(:now AS pg_snapshot))"
)
"""One of them that may not be visible in a snapshot, by the index that leads past all that were committed long before."""
_WAITS = f"{_SINCE.format(snapshot='passed')} AND NOT {_PASSED}"
"""One of them that was not passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A place in the log; one of the two is given."""

    since: datetime | None = None
    """Items that were created then or later."""
    item: int | None = None
    """This id and higher ones."""

    @property
    def condition(self) -> str:
        return "t.created_at >= :since" if self.item is None else "t.id >= :item"


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of a move."""

    items: int
    """That go out again, or never."""
    at_least: bool
    """Whether there are more than were counted."""
    anew: tuple[int, ...] = field(default=(), compare=False)
    """Ids of those that stood in the side table and begin anew: what is remembered of their failures elsewhere is void."""


class Mover:
    """Moves one subscription, or a log box without subscriptions."""

    def __init__(self, engine: Engine, box: Box) -> None:
        self._engine = engine
        self._box = box

    def back(self, target: Target, *, dry: bool = False) -> Moved:
        """Delivers the items from this place on that have been passed once more, in order. Those that failed begin anew.

        Raises:
            StoreConflict: deliveries did not end in time.
            StoreUnavailable: the positions mean nothing on this server.
        """
        sought = None if dry or target.since is None else self._seek(target)
        with self._moving(dry=dry) as move:
            move.refuse_between_storages()
            return _sum([move.back(position, target, sought) for position in move.positions()])

    def ahead(self, target: Target | None, *, dry: bool = False) -> Moved:
        """Never delivers the items before this place that wait in the log; those in the side table stay there.

        Args:
            target: None: behind all items that are there.

        Raises:
            StoreConflict, StoreUnavailable: as ``back``.
        """
        with self._moving(dry=dry) as move:
            return _sum([move.ahead(position, target) for position in move.positions()])

    def _seek(self, target: Target) -> _Sought:
        """No index leads to a time, so the log is read from its beginning: while deliveries go on."""
        with self._moving(dry=True) as move:
            positions = move.positions()
            return _Sought(move.now, {position.bucket: move.lowest(position, target) for position in positions})

    @contextmanager
    def _moving(self, *, dry: bool) -> Iterator[_Move]:
        with translated(self._engine), self._engine.connect() as connection, connection.begin() as transaction:
            unlimited(connection)
            side = reflect(connection, self._box)
            side.refuse_another_size()  # others of its buckets may be in a delivery
            found = reflect_log(connection, side)
            move = _Move(connection, side, found.log, found.positions, dry=dry)
            if not dry:
                take_locks(connection, side)
            yield move
            if dry:
                transaction.rollback()
            else:
                signal = Signal(self._box.name, None).encode()
                connection.execute(text("SELECT pg_notify(:channel, :signal)"), {"channel": CHANNEL, "signal": signal})


@dataclass(frozen=True, slots=True)
class _Sought:
    """Where the items of a time begin, as it was shortly before the locks were taken."""

    snapshot: str
    lowest: Mapping[int, int | None]
    """By bucket, the lowest id among those that are visible in the snapshot; None: there are none."""


class _Move:
    """One transaction's view of the log, and what it writes."""

    def __init__(self, connection: Connection, side: BoxTable, log: str, positions: str, *, dry: bool) -> None:
        self._connection = connection
        self._side = side
        self._log, self._positions = in_text(log), in_text(positions)
        self._dry = dry
        self.now = ""
        """The snapshot of this moment, once the positions were read."""

    def positions(self) -> Sequence[Position]:
        # The snapshot comes first: what is committed later is behind every new position.
        self.now = str(self._one("SELECT pg_current_snapshot()::text"))
        columns = ", ".join(f"{name}::text" if name in ("passed", "batch") else name for name in _FIELDS)
        server = "server = (SELECT system_identifier FROM pg_control_system()) AS is_ours"
        rows = self._connection.execute(text(f"SELECT {columns}, {server} FROM {self._positions} ORDER BY bucket"))
        found = []
        for *fields, is_ours in rows:
            position = Position(**dict(zip(_FIELDS, fields, strict=True)))
            if not is_ours or has_gone_back(position.batch or position.passed, self.now):
                name = self._side.box.name
                raise StoreUnavailable(
                    f"box {name}: its positions are in the numbers of another server's transactions; first: "
                    f"boxengine db reposition {name}"
                )
            found.append(position)
        return found

    def refuse_between_storages(self) -> None:
        """Raises:
        SchemaMismatch: what goes back to the log would be out of reach of workers that read the table alone.
        """
        if stage_of(self._connection, self._side) is Stage.BOTH:
            name = self._side.box.name
            raise SchemaMismatch(
                f"box {name} is between table and log: finish its conversion first, as boxengine doctor says"
            )

    def lowest(self, position: Position, target: Target) -> int | None:
        """The lowest id of the bucket's items from the target on."""
        found = self._one(
            f"SELECT min(t.id) FROM {self._log} AS t WHERE {_THERE} AND {target.condition}", position, target
        )
        return None if found is None else int(found)

    def back(self, position: Position, target: Target, sought: _Sought | None = None) -> Moved:
        # What still waits goes out anyway: it is neither counted, nor a place to go back to.
        passed = f"FROM {self._log} AS t WHERE {_THERE} AND {_PASSED}"
        to = self._first_passed(position, target, sought)
        if to is None:
            return Moved(0, at_least=False)
        from_there = f"{passed} AND t.id >= :to"
        moved = self._counted(from_there, position, to=to)
        if not self._dry:
            began = self._one(f"SELECT min(t.xact)::text {from_there}", position, to=to)
            waiting = self._one(f"SELECT min(t.id) FROM {self._log} AS t WHERE {_WAITS}", position)
            back = sent_back(position, int(to), now=self.now, began=int(began), waiting=waiting)
            self._write(back)
            # Their rows come out of the log again: a second copy of one would find its id taken.
            removed = self._connection.execute(
                text(
                    f"DELETE FROM {self._side.in_text} AS s USING {self._log} AS t WHERE s.id = t.id AND {_THERE} "
                    f"AND NOT {_PASSED} RETURNING s.id"
                ),
                self._values(back),
            )
            moved = replace(moved, anew=tuple(removed.scalars()))
        return moved

    def _first_passed(self, position: Position, target: Target, sought: _Sought | None) -> int | None:
        """The lowest id from the target on that was passed."""
        where: dict[str, dict[str, Any]] = {_THERE: {}}
        if sought is not None:
            where = {_SINCE.format(snapshot="sought"): {"sought": sought.snapshot}}
            if (lowest := sought.lowest.get(position.bucket)) is not None:
                where[f"{_THERE} AND t.id >= :lowest"] = {"lowest": lowest}
        query = f"SELECT min(t.id) FROM {self._log} AS t WHERE {_PASSED} AND {target.condition} AND "
        found = [self._one(query + rows, position, target, **values) for rows, values in where.items()]
        return min((int(each) for each in found if each is not None), default=None)

    def ahead(self, position: Position, target: Target | None) -> Moved:
        waiting = f"FROM {self._log} AS t WHERE {_WAITS}"
        kept = (
            None
            if target is None
            else self._one(f"SELECT min(t.id) {waiting} AND {target.condition}", position, target)
        )
        highest = self._one(f"SELECT max(t.id) FROM {self._log} AS t WHERE {_THERE}", position) or 0
        to = sent_ahead(position, kept, now=self.now, highest=highest)
        if to is None:
            return Moved(0, at_least=False)
        moved = self._counted(waiting if kept is None else f"{waiting} AND t.id < :to", position, to=kept)
        if not self._dry:
            self._write(to)
        return moved

    def _counted(self, rows: str, position: Position, **values: Any) -> Moved:
        query = f"SELECT count(*) FROM (SELECT 1 {rows} LIMIT {COUNTED_TO + 1}) AS counted"
        number = int(self._one(query, position, **values))
        return Moved(min(number, COUNTED_TO), number > COUNTED_TO)

    def _write(self, position: Position) -> None:
        new = ", ".join(f"{name} = :{name}" for name in ("place", "floor", "ceiling", "high"))
        statement = (
            f"UPDATE {self._positions} SET passed = CAST(:passed AS pg_snapshot), "
            f"batch = CAST(CAST(:batch AS text) AS pg_snapshot), {new}, turn = turn + 1 WHERE bucket = :bucket"
        )
        self._connection.execute(text(statement), self._values(position))

    def _one(self, query: str, position: Position | None = None, target: Target | None = None, **values: Any) -> Any:
        given = values if position is None else self._values(position) | values
        if target is not None:
            given |= {"since": target.since, "item": target.item}
        return self._connection.execute(text(query.replace("::text", "\\:\\:text")), given).scalar()

    def _values(self, position: Position) -> dict[str, Any]:
        return {name: getattr(position, name) for name in _FIELDS} | {"now": self.now}


def take_locks(connection: Connection, side: BoxTable) -> None:
    """Takes the locks of all buckets until the transaction ends, and keeps retention from the log.

    Raises:
        StoreConflict: a delivery or a removal did not end in time.
    """
    connection.execute(text(f"SET LOCAL lock_timeout = '{PATIENCE}s'"))
    with closing(cursor_of(connection)) as cursor:
        Readers.of(side).forbid_removal(cursor)
    lock = text("SELECT pg_advisory_xact_lock(:space, :bucket)")
    with waiting_for_deliveries(side.box):
        for bucket in side.box.buckets:
            connection.execute(lock, {"space": lock_space(side), "bucket": bucket})


def give_up(engine: Engine, log: Box, name: str, *, dry: bool = False) -> int:
    """Drops what a subscription has of its own: its positions, and its side table. Returns how many items there are lost.

    Args:
        log: the box that is written to.
        name: of the subscription; empty: of the box itself, from the time before it had subscriptions.

    Raises:
        SchemaMismatch: there is no such position, or items of the box itself would be left behind in its table.
    """
    table = log.table if not name else f"{log.table}_{name}"
    with translated(engine), engine.begin() as connection:
        unlimited(connection)
        source = reflect(connection, log)
        readers = Readers.of(source)
        with closing(cursor_of(connection)) as cursor:
            known = readers.names(cursor)
        # Somebody may have dropped one of its tables already. Nothing is delivered as long as its name is listed.
        if name not in known and not _exists(connection, readers.positions(name)):
            raise SchemaMismatch(
                f"box {log.name}: there are no positions of {_called(log, name)}; {_those_of(connection, log)}"
            )
        side = in_text(readers.side(name))
        unfinished = f"SELECT count(*) FROM {side} WHERE status IN (0, 1)"
        lost = int(connection.execute(text(unfinished)).scalar() or 0) if _exists(connection, readers.side(name)) else 0
        if not name and lost:
            raise SchemaMismatch(
                f"box {log.name}: pending or failed items stand in table {table}, {lost:,} in all: with a "
                "configuration in which the box has no subscriptions yet, deliver, discard or delete them first"
            )
        if dry:
            return lost
        connection.execute(text(f"SET LOCAL lock_timeout = '{PATIENCE}s'"))
        connection.execute(text(f"DROP TABLE IF EXISTS {in_text(readers.positions(name))}"))
        if name:
            connection.execute(text(f"DROP TABLE IF EXISTS {side}"))
            connection.execute(text(f"DELETE FROM {in_text(readers.listed)} WHERE name = :name"), {"name": name})
        return lost


def is_read(engine: Engine, log: Box) -> bool:
    """Whether the log has a reader: the box itself, or a subscription, whatever the configuration says of it.

    Args:
        log: as for ``give_up``.
    """
    with translated(engine), engine.connect() as connection, closing(cursor_of(connection)) as cursor:
        return bool(Readers.of(reflect(connection, log)).tables(cursor))


def unread_by(engine: Engine, log: Box, name: str) -> Moved | None:
    """How many items of the log a subscription has not passed, whether or not the configuration has it; None: its position
    means nothing on this server, or is gone.

    Args:
        log, name: as for ``give_up``.
    """
    with translated(engine), engine.connect() as connection:
        source = reflect(connection, log)
        own = Readers.of(source).positions(name)
        if not _exists(connection, own):
            return None
        move = _Move(connection, source, log_name(source), own, dry=True)
        try:
            positions = move.positions()
        except StoreUnavailable:
            return None
        return _sum([move.ahead(position, None) for position in positions])


def _exists(connection: Connection, table: str) -> bool:
    return bool(connection.execute(text("SELECT to_regclass(:name) IS NOT NULL"), {"name": table}).scalar())


def _called(log: Box, name: str) -> str:
    return f"{log.name}.{name}" if name else log.name


def _those_of(connection: Connection, log: Box) -> str:
    with closing(cursor_of(connection)) as cursor:
        names = Readers.of(reflect(connection, log)).names(cursor)
    return f"the log has those of {', '.join(_called(log, each) for each in names)}" if names else "the log has none"


def _sum(parts: Sequence[Moved]) -> Moved:
    anew = tuple(each for part in parts for each in part.anew)
    return Moved(sum(part.items for part in parts), any(part.at_least for part in parts), anew)
