"""Which rows of a log may not have been delivered, where its positions are in the numbers of another server's transactions.

``foreign`` moves these rows to the side table. Until then, people see how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence

from boxengine.adapters.sql.log.tables import BUCKET
from boxengine.ports import Count, Precision


def has_foreign_positions(positions: str) -> str:
    """A condition in SQL."""
    return (
        f"EXISTS (SELECT FROM {positions} WHERE server <> (SELECT system_identifier FROM pg_control_system()) "
        "OR pg_snapshot_xmax(coalesce(batch, passed)) > pg_snapshot_xmax(pg_current_snapshot()))"
    )


def has_rows_ahead(log: str, positions: str) -> str:
    """A condition in SQL: the log shows rows of transactions that this server has not begun yet. It looks once into an index for
    each bucket."""
    return (
        f"EXISTS (SELECT FROM {positions} AS p CROSS JOIN LATERAL (SELECT FROM {log} AS t "
        "WHERE t.bucket = p.bucket AND t.xact >= pg_snapshot_xmax(pg_current_snapshot()) LIMIT 1) AS ahead)"
    )


def last_passed(log: str, positions: str) -> str:
    """The positions, as a query, each with the time at which the highest item that was passed was created (``until``)."""
    # Where retention has deleted that item, nothing tells that a row is older.
    return (
        f"SELECT p.*, (SELECT min(h.created_at) FROM {log} AS h WHERE (h.bucket + 0) = p.bucket AND h.id = p.high) AS until "
        f"FROM {positions} AS p"
    )


def is_in_doubt(side: str) -> str:
    """A condition in SQL, of a row ``t`` of the log and the position ``p`` of its bucket, which is one of ``last_passed``."""
    is_later = "(t.created_at <= p.until) IS NOT TRUE"
    return (
        f"(t.id > p.high OR {is_later} OR (NOT pg_visible_in_snapshot(t.xact, p.passed) "
        "AND NOT (p.batch IS NOT NULL AND t.id <= p.place AND pg_visible_in_snapshot(t.xact, p.batch)))) "
        f"AND NOT EXISTS (SELECT FROM {side} AS s WHERE s.id = t.id AND s.uuid = t.uuid)"
    )


def youngest_in_doubt(side: str, log: str, positions: str) -> str:
    """Of each bucket, how many of its youngest rows were looked at, and how many of these are in doubt. Its value is how many to
    look at."""
    # Data restored beside the positions of db create gives a bucket two; the one that has moved most often stays.
    return (
        f"SELECT count(*), count(*) FILTER (WHERE {is_in_doubt(side)}) "
        f"FROM (SELECT DISTINCT ON (last.bucket) last.* FROM ({last_passed(log, positions)}) AS last "
        f"ORDER BY last.bucket, last.turn DESC) AS p CROSS JOIN LATERAL (SELECT t.* FROM {log} AS t "
        f"WHERE ({BUCKET}, t.id) > (p.bucket, 0) AND {BUCKET} <= p.bucket ORDER BY {BUCKET} DESC, t.id DESC LIMIT %s) AS t "
        "GROUP BY p.bucket"
    )


def counted(found: Sequence[tuple[int, int]], share: int) -> Count:
    """The sum of what ``youngest_in_doubt`` has found.

    Args:
        share: how many rows were looked at in a bucket at most.
    """
    number = sum(in_doubt for _, in_doubt in found)
    cut = [in_doubt for looked_at, in_doubt in found if looked_at == share]
    if not cut:
        return Count(number)
    # What waits is at the end of a log: before a row that was passed there is little, before one in doubt there may be much.
    return Count(number, Precision.AT_LEAST if share in cut else Precision.ABOUT)
