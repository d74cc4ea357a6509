"""The partitions of a log: ranges of transactions, and a default one for the rows of all others.

By transaction, as everything that a claim reads is a range of them: only the partitions of that range are opened. It also
tells when a partition is closed for good: once all transactions of its range have ended, no row can be added to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from boxengine.adapters.sql.shape.index_names import LONGEST_IDENTIFIER
from boxengine.domain.box import Box
from boxengine.errors import SchemaMismatch

FIRST_STEP = 4_000_000
"""Transactions for which a partition is made as long as nobody knows how many the server has in an hour."""
LEAST_STEP, MOST_STEP = 100_000, 2**32
AHEAD = 2
"""So many partitions' worth of transactions is covered beyond the present."""
MARGIN = 100
"""Where nothing covers the present, the next partition begins after this part of its width: a hundredth."""
KNOWN_AFTER = timedelta(minutes=5)
"""A rate of transactions is believed once it was measured for so long."""
USUAL_SPAN = timedelta(days=1)
"""The time that a partition is meant for, where the configuration no longer says."""
_DEFAULT = "_default"
_LONGEST_ENDING = len("_p") + 16
_NUMBERED = re.compile(r"_p[0-9a-f]{1,16}")
_RANGE = re.compile(r"FOR VALUES FROM \('(\d+)'\) TO \('(\d+)'\)")
_NOTE = re.compile(r"boxengine: made (\S+) at transaction (\d+)")
_STATE = text(
    "SELECT c.relkind = 'p', pg_get_userbyid(c.relowner), c.relowner = current_user::regrole, "
    "pg_has_role(c.relowner, 'USAGE') AND has_schema_privilege(pg_get_userbyid(c.relowner), c.relnamespace, 'CREATE'), "
    "pg_snapshot_xmax(pg_current_snapshot())::text, pg_snapshot_xmin(pg_current_snapshot())::text, now(), c.relreplident = 'f' "
    "FROM pg_catalog.pg_class AS c WHERE c.oid = to_regclass(:log)"
)
_PARTITIONS = text(
    "SELECT i.inhrelid::regclass::text, pg_get_expr(c.relpartbound, c.oid), obj_description(c.oid, 'pg_class') "
    "FROM pg_catalog.pg_inherits AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid "
    "WHERE i.inhparent = to_regclass(:log)"
)


@dataclass(frozen=True, slots=True)
class Range:
    """One partition: the rows of transactions from ``low`` to below ``high``."""

    low: int
    high: int
    name: str = ""
    """Quoted, and with its schema where the search path does not lead to it."""
    made_at: datetime | None = None
    made_by: int = 0
    """How many transactions the server had had at that moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """The partitions of one log, as they are now."""

    ranges: Sequence[Range]
    """By ``low``."""
    default: str | None
    """The quoted name of the default partition."""
    owner: str
    is_owner: bool
    """Whether this connection's account is the owner itself."""
    may_alter: bool
    """Whether this connection's account may act as the owner, and the owner may make tables there."""
    current: int
    """The number that the next transaction gets."""
    ended: int
    """All transactions with lower numbers have ended."""
    now: datetime
    identified: bool = False
    """Whether the log has the replica identity ``FULL``, which its partitions do not inherit."""

    @property
    def closed(self) -> Sequence[Range]:
        """Those to which no row can be added any more."""
        return [each for each in self.ranges if each.high <= self.ended]

    @property
    def reach(self) -> int:
        """The first transaction from now on that no range covers."""
        end = self.current
        for each in self.ranges:
            if each.low <= end < each.high:
                end = each.high
        return end

    def step(self, span: timedelta) -> int:
        """For how many transactions the next partition is made, which is meant for so much time."""
        known = [
            (self.current - each.made_by, self.now - each.made_at)
            for each in self.ranges
            if each.made_at is not None and each.made_by <= self.current and self.now - each.made_at >= KNOWN_AFTER
        ]
        if not known:
            return FIRST_STEP
        transactions, meanwhile = min(known)
        return min(MOST_STEP, max(LEAST_STEP, round(transactions * (span / meanwhile))))

    def missing(self, step: int) -> list[tuple[int, int]]:
        """The ranges to be made so that so many transactions are covered ``AHEAD`` times; they overlap with none."""
        found: list[tuple[int, int]] = []
        planned = self
        wanted = self.current + AHEAD * step
        low = self.reach
        if low == self.current:
            # Transactions under way may still put rows of the next numbers into the default partition.
            low += step // MARGIN
        while low < wanted:
            taken = next((each for each in planned.ranges if each.low <= low < each.high), None)
            if taken is not None:
                low = taken.high
                continue
            high = min([low + step, *(each.low for each in planned.ranges if each.low > low)])
            found.append((low, high))
            planned = replace(planned, ranges=sorted([*planned.ranges, Range(low, high)], key=lambda each: each.low))
        return found


def span_of(box: Box) -> timedelta:
    """The time that a partition of the box's log is meant for."""
    return box.source.log_partitions or USUAL_SPAN


def partitions_of(connection: Connection, log: str) -> Partitions | None:
    """The partitions of a log; None: it has none.

    Args:
        log: its quoted name.
    """
    state = connection.execute(_STATE, {"log": log}).one_or_none()
    if state is None or not state[0]:
        return None
    ranges, default = [], None
    for name, bound, note in connection.execute(_PARTITIONS, {"log": log}):
        if found := _RANGE.fullmatch(bound or ""):
            made = _NOTE.fullmatch(note or "")
            since, by = (datetime.fromisoformat(made[1]), int(made[2])) if made else (None, 0)
            ranges.append(Range(int(found[1]), int(found[2]), name, since, by))
        elif bound == "DEFAULT":
            default = name
    _, owner, is_owner, may_alter, current, ended, now, identified = state
    return Partitions(
        ranges=sorted(ranges, key=lambda each: each.low),
        default=default,
        owner=owner,
        is_owner=is_owner,
        may_alter=may_alter,
        current=int(current),
        ended=int(ended),
        now=now,
        identified=identified,
    )


# ── their names ──────────────────────────────────────────────────────────────────────────────────────


def first_of(log: str) -> tuple[str, str]:
    """Name and bounds of the partition that a new log begins with.

    Raises:
        SchemaMismatch: the log's name leaves no room for those of partitions.
    """
    if len(log.encode()) + _LONGEST_ENDING > LONGEST_IDENTIFIER:
        most = LONGEST_IDENTIFIER - _LONGEST_ENDING
        raise SchemaMismatch(f"table {log!r}: with log_partitions its name may have {most} bytes at most")
    present = "pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    return name_of(log, 0), f"FOR VALUES FROM ('0') TO (({present} + {FIRST_STEP})::text::xid8)"


def default_of(log: str) -> tuple[str, str]:
    """The same of the partition for all rows that no other takes."""
    return log + _DEFAULT, "DEFAULT"


def name_of(log: str, low: int) -> str:
    """The name of a log's partition that begins with this transaction."""
    return f"{log}_p{low:x}"


def is_partition_of(log: str, name: str) -> bool:
    """Whether a table's name is that of a partition of the log."""
    ending = name.removeprefix(log)
    return ending != name and (ending == _DEFAULT or _NUMBERED.fullmatch(ending) is not None)


def note(partitions: Partitions) -> str:
    """The comment on a partition made now: from it follows how many transactions the server has in an hour."""
    return f"boxengine: made {partitions.now.isoformat()} at transaction {partitions.current}"
