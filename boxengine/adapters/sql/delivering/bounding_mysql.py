"""What MariaDB shows of a box, so that its bounds can move.

Nothing lists who has drawn an id. But whoever has drawn one and keeps it beyond the statement has put its row into the table,
and a dirty read sees that row, committed or not, prepared or not. So only statements under way are waited for: an INSERT has
drawn ids whose rows are not in the index yet. A statement is over once its thread is seen at rest, or gone; and all statements
on the table are over if it is seen unused. After that, a look is two reads:

1. A dirty one finds rows that are pending, or will be once somebody commits.
2. A committed one finds rows that somebody is delivering: a dirty read sees them delivered, though the transaction may still be
   rolled back. It comes second: what is rolled back between the two is pending again by then.

A transaction that stays open after it has created items holds back only the bounds of their buckets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any, NamedTuple, Self

from boxengine.adapters.sql.connecting.cursors import Cursor, Opened
from boxengine.adapters.sql.dialects.branch import NEAR
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.bounds import RENAMED, Range, Seen
from boxengine.domain.box import Storage, StrictOrder
from boxengine.domain.item import Status
from boxengine.errors import StoreUnavailable

_NO_PRIVILEGE = 1227
_SEES_EVERYBODY = "SELECT COUNT(*) FROM information_schema.innodb_cmp"
"""Fails without the privilege PROCESS, without which the list of threads would silently be incomplete."""
_KIND = "t.engine = 'InnoDB' AND t.create_options NOT LIKE '%%partitioned%%'"
"""Somebody may change that under a running worker."""
_SUITABLE = f"""
SELECT 1 FROM information_schema.tables AS t JOIN information_schema.columns AS c
ON c.table_schema = t.table_schema AND c.table_name = t.table_name AND c.column_name = 'id'
WHERE t.table_schema = %s AND t.table_name = %s AND VERSION() LIKE '%%MariaDB%%'
AND {_KIND} AND t.table_type = 'BASE TABLE'
AND c.extra LIKE '%%auto_increment%%'
"""
_LAST = f"""
SELECT t.auto_increment - 1, CONCAT_WS(' ', @@hostname, @@port, @@server_id),
(SELECT s.variable_value FROM information_schema.global_status AS s WHERE s.variable_name = 'UPTIME'),
(SELECT p.query_id FROM information_schema.processlist AS p WHERE p.id = CONNECTION_ID()),
(SELECT v.variable_value FROM information_schema.global_variables AS v WHERE v.variable_name = 'WSREP_ON'),
t.create_time
FROM information_schema.tables AS t WHERE t.table_schema = %s AND t.table_name = %s AND {_KIND}
"""
_UNDER_WAY = """
SELECT p.id, p.user FROM information_schema.processlist AS p
WHERE p.id <> CONNECTION_ID() AND p.command NOT IN ('Daemon', 'Binlog Dump') AND (p.command <> 'Sleep' OR p.user = 'system user')
"""
_REPLICATION = "system user"
"""Applies what another server has written, with ids that were drawn there."""
_IN_USE = "SHOW OPEN TABLES FROM {} WHERE `Table` = %s"
_SLACK = 2.0
"""Seconds by which the server's uptime, in whole seconds by its own clock, may lag behind this machine's clock."""


class _Run(NamedTuple):
    """Which server answered, and for how long it and the table had been as they were."""

    server: str
    table: str
    """When somebody last altered the table, or renamed another one to its name, in whole seconds."""
    uptime: float
    query: int
    """The number of this statement, counted since the server was started."""
    at: float
    """By this machine's clock."""

    def goes_on_in(self, later: _Run) -> bool:
        """Either number alone could catch up: the first after a quick restart, the second after a slow one."""
        lasted = later.uptime >= self.uptime + (later.at - self.at) - _SLACK
        return (later.server, later.table) == (self.server, self.table) and later.query > self.query and lasted


class MySqlSight:
    """``Sight`` of one table. One thread uses it."""

    def __init__(self, table: BoxTable, opened: Opened, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._opened = opened
        self._monotonic = monotonic
        self._place = place_of(table)
        self._in_use = _IN_USE.format("`" + self._place[0].replace("`", "``").replace("%", "%%") + "`")
        self._run: _Run | None = None
        self._names: dict[int, str] = {}
        """By thread under way, the name of what it does. A thread that was seen at rest gets another one."""
        self._numbers = count(1)

    @classmethod
    def of(cls, table: BoxTable, opened: Opened) -> Self | None:
        """None where no bound would be safe, or would spare nothing."""
        box = table.box
        if box.storage is not Storage.TABLE or table.status_index is None:
            return None
        if box.strict_order is StrictOrder.BUCKET:
            return None  # each look also reads what waits before its place, so it would walk all the same
        try:
            with opened() as cursor:
                cursor.execute(_SUITABLE, place_of(table))
                if cursor.fetchone() is None:
                    return None
                _demand_full_list(cursor)
        except StoreUnavailable as error:
            if error.__cause__ is not None and next(iter(error.__cause__.args), None) == _NO_PRIVILEGE:
                return None
            raise
        return cls(table, opened)

    def last_drawn(self) -> int:
        """0 also for a server that was restarted or a table that was altered or replaced, which may draw ids again that were
        lost, for one of several servers that write, and for a table of another kind.
        """
        with self._opened() as cursor:
            cursor.execute(_LAST, self._place)
            row = cursor.fetchone()
            replicates = any(user == _REPLICATION for _, user in _under_way(cursor))
        if row is None or row[0] is None or row[4] not in (None, "OFF") or replicates:
            return 0
        before, self._run = self._run, _Run(str(row[1]), str(row[5]), float(row[2]), int(row[3]), self._monotonic())
        return int(row[0]) if before is None or before.goes_on_in(self._run) else 0

    def writers(self) -> Collection[str]:
        """The statements that may insert into the table, those of others among them: nothing tells which table they are for."""
        with self._opened() as cursor:
            threads = _under_way(cursor)
            cursor.execute(self._in_use, (self._place[1],))
            used = [int(row[2]) for row in cursor.fetchall()]
        if any(user == _REPLICATION for _, user in threads):
            return {RENAMED}
        if used and not any(used):
            self._names = {}
            return ()
        known = self._names
        self._names = {thread: known.get(thread) or f"{thread}:{next(self._numbers)}" for thread, _ in threads}
        return self._names.values()

    def look(self, ranges: Mapping[int, Range]) -> Seen:
        text = first_stops(self._table, ranges)
        with self._opened() as cursor:
            # Of the next one, whatever becomes of it.
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
            uncommitted = _read(cursor, text)
            cursor.connection.commit()
            began = self._monotonic()
            committed = _read(cursor, text)
            longest = self._monotonic() - began
        first: dict[int, int] = {}
        for bucket, item_id, _ in (*uncommitted[1:-1], *committed[1:-1]):
            if item_id <= ranges[bucket].up_to:
                first[bucket] = min(item_id, first.get(bucket, item_id))
        walked = (_moment(committed[-1][2]) - _moment(committed[0][2])).total_seconds()
        return Seen(first, min(max(walked, 0.0), longest))  # the server's clock may be set meanwhile


def place_of(table: BoxTable) -> tuple[str, str]:
    """The table's database and name, unquoted."""
    return table.schema, table.location.removeprefix(f"{table.schema}.")


def first_stops(table: BoxTable, ranges: Mapping[int, Range]) -> str:
    """Finds what no bound may pass: the first pending row of each range and, under strict order, its first failed and first
    discarded rows: if people retry one, it must go out before its followers.

    The first row and the last one say when the walk began and ended. Branches run one after the other. Short ranges are read
    by primary key, and ids beyond the end of long ones may be among what is found: see ``dialects.branch``.
    """
    statuses = [Status.PENDING]
    if table.box.strict_order is not StrictOrder.NONE:
        statuses += [Status.FAILED, Status.DISCARDED]
    now = "(SELECT NULL AS bucket, NULL AS id, SYSDATE(6) AS moment)"
    branches = []
    near: dict[Range, list[int]] = {}
    for bucket, each in ranges.items():
        if each.up_to - each.after <= NEAR:
            near.setdefault(each, []).append(bucket)
            continue
        beyond = f"AND t.id > {each.after}" if each.after else ""
        branches += [
            f"(SELECT {bucket}, t.id, NULL FROM {table.name} AS t FORCE INDEX ({table.status_index}) "
            f"WHERE t.status = {status:d} AND t.bucket = {bucket} {beyond} ORDER BY t.id LIMIT 1)"
            for status in statuses
        ]
    branches += [
        f"(SELECT t.bucket, MIN(t.id), NULL FROM {table.name} AS t FORCE INDEX (PRIMARY) WHERE t.id > {each.after} "
        f"AND t.id <= {each.up_to} AND t.status IN ({', '.join(map(str, map(int, statuses)))}) "
        f"AND t.bucket IN ({', '.join(map(str, buckets))}) GROUP BY t.bucket)"
        for each, buckets in near.items()
    ]
    return " UNION ALL ".join([now, *branches, now])


def _demand_full_list(cursor: Cursor) -> None:
    """Fails if this connection may not see everybody's threads: its privileges are those of the moment it was made."""
    cursor.execute(_SEES_EVERYBODY)
    cursor.fetchone()


def _under_way(cursor: Cursor) -> Sequence[tuple[int, str]]:
    """The threads that are executing something, and those of replication, each with its user."""
    _demand_full_list(cursor)
    cursor.execute(_UNDER_WAY)
    return [(int(thread), str(user)) for thread, user in cursor.fetchall()]


def _read(cursor: Cursor, text: str) -> Sequence[Any]:
    cursor.execute(text)
    rows: Sequence[Any] = cursor.fetchall()
    return rows


def _moment(value: datetime | str) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)
