"""The questions to a log: what lies between the position of a bucket and a later snapshot.

Conditions are comparisons of rows, and ``ORDER BY`` names whole indexes. The bucket of the index by id is an expression, so
that neither index can serve what is meant for the other: no staleness of statistics leads the planner to a walk over what was
delivered.
"""

from __future__ import annotations

from collections.abc import Sequence

from boxengine.adapters.sql.dialects.postgresql_texts import HELD, SHARE, WITHOUT_ZONE
from boxengine.adapters.sql.log.tables import BUCKET, XACT, LogTable
from boxengine.adapters.sql.shape.tables import for_driver
from boxengine.domain.log_progress import PARTS

LAST = 2**63 - 1
"""Beyond every id."""
NOW = "current_setting('boxengine.snapshot')::pg_snapshot"
"""The snapshot in which the claim's transaction has read its positions."""
BEHIND = "t.id <= held.place AND held.batch IS NOT NULL AND pg_visible_in_snapshot(t.xact, held.batch)"
"""The part of the current batch that has been passed."""
SERVER = (
    "coalesce(nullif(current_setting('boxengine.server', true), '')::bigint, "
    "(SELECT set_config('boxengine.server', system_identifier::text, false)::bigint FROM pg_control_system()))"
)
"""The identifier of the server. It is asked for once in a session, because the server reads it from a file."""
_CLAIMED = (">= current_setting('boxengine.lowest')::xid8", f"< pg_snapshot_xmax({NOW})")
"""Of the transactions whose rows a claim reads."""


def newest(positions: str, buckets: str) -> str:
    """The positions of these buckets, as a relation in SQL.

    A move leaves a dead version behind, and while a transaction stays open elsewhere no vacuum may remove it. The index by turn
    leads to the one that lives; by bucket alone each look would walk over all that died since that transaction began. For claims:
    their transaction is planned by index, whatever the size of the table was then.

    Args:
        buckets: an array in SQL.
    """
    return (
        f"(SELECT last.* FROM unnest({buckets}) AS asked(bucket) CROSS JOIN LATERAL ("
        f"SELECT p.* FROM {positions} AS p WHERE p.bucket = asked.bucket ORDER BY p.turn DESC LIMIT 1) AS last)"
    )


def _may(privilege: str, table: str) -> str:
    """Whether the account has the privilege on the table, or on some of its columns."""
    name = table.replace("'", "''")
    return f"has_any_column_privilege('{name}', '{privilege}')"


class ReadingTexts:
    """The texts for one log. ``held`` stands for the buckets that are asked about, each with its position and ``upto``."""

    def __init__(self, found: LogTable, columns: str) -> None:
        """Args:
        columns: of an item, and what else is to be known of the row ``t``.
        """
        self._log = for_driver(found.log)
        self._positions = for_driver(found.positions)
        self._columns = columns
        self._partitioned = found.partitioned

    def positions(self, *, side: str, blocked: str) -> str:
        """Positions of the held buckets, and the snapshot of this very statement, kept for those after it.

        It takes no lock on rows, so the privileges that the outcomes will need are asked for: what they refuse has been sent, and
        would be sent again by each claim.

        Args:
            side: the side table.
            blocked: a condition in SQL: the bucket ``held`` must wait.
        """
        return (
            "SELECT now.snapshot, now.denied, held.bucket, held.passed::text, held.batch::text, held.place, held.floor, "
            f"held.ceiling, held.high, held.turn, held.server = {SERVER}, {blocked} "
            "FROM (SELECT set_config('boxengine.snapshot', pg_current_snapshot()::text, true) AS snapshot, "
            f"CASE WHEN NOT {_may('UPDATE', self._positions)} THEN 'UPDATE' WHEN NOT {_may('INSERT', side)} THEN 'INSERT' END "
            f"AS denied{self._lowest()}) AS now "
            f"LEFT JOIN {newest(self._positions, HELD)} AS held ON true"
        )

    def next_rows(self, *, fills: bool) -> str:
        """The first rows of each held bucket, as ``Portions`` says: per bucket in no order, and perhaps some behind them.

        Every value is the limit of the claim.

        Args:
            fills: the portions are ``filling``, not ``even``.
        """
        most, room = f"{SHARE} + 1", ""
        if fills:
            most = f"greatest({SHARE}, %s / {PARTS}) + 1"
            under_way = "(SELECT count(*) FROM held WHERE held.floor IS NOT NULL)"
            room = f" LIMIT greatest(1, %s - {SHARE} * {under_way}) + {PARTS} + 1"
        beginning = self._between(self._columns, limit=most, within=_CLAIMED)
        return (
            f"{_held('p.floor, p.ceiling', newest(self._positions, HELD) + ' AS p')} "
            # Its limit keeps the rows of a bucket together.
            f"(SELECT i.* FROM held CROSS JOIN LATERAL ({beginning} LIMIT {most}) AS i WHERE held.floor IS NULL{room}) UNION ALL "
            f"SELECT i.* FROM held CROSS JOIN LATERAL ({self._by_id(SHARE)}) AS i WHERE held.floor IS NOT NULL"
        )

    def measure(self) -> str:
        """Of held buckets, each with an id: the first id that transactions wrote which began after ``passed``, the highest of
        all, and how many do not exceed the given one."""
        between = self._between("t.id, span.late", within=_CLAIMED)
        return (
            "SELECT held.bucket, (min(i.id) FILTER (WHERE NOT i.late)), max(i.id), count(*) FILTER (WHERE i.id <= held.last) "
            f"FROM (SELECT p.bucket, p.passed, coalesce(p.batch, {NOW}) AS upto, p.place, asked.last "
            "FROM unnest(%s::int[], %s::bigint[]) AS asked(bucket, last) "
            f"CROSS JOIN LATERAL {newest(self._positions, 'ARRAY[asked.bucket]')} AS p) AS held "
            f"CROSS JOIN LATERAL ({between}) AS i GROUP BY held.bucket"
        )

    def measured_rows(self, share: str) -> str:
        """The same of buckets whose floors and ceilings are given."""
        given = "unnest(%s::int[], %s::bigint[], %s::bigint[]) AS m(bucket, floor, ceiling)"
        positions = f"{given} CROSS JOIN LATERAL {newest(self._positions, 'ARRAY[m.bucket]')} AS p"
        return (
            f"{_held('m.floor, m.ceiling', positions)} "
            f"SELECT i.* FROM held CROSS JOIN LATERAL ({self._by_id(share)}) AS i"
        )

    def followed(self) -> str:
        """Of held buckets in the middle of a batch, those with rows behind that batch."""
        return (
            f"SELECT held.bucket FROM (SELECT p.bucket, p.batch AS passed, {NOW} AS upto, 0 AS place "
            f"FROM {newest(self._positions, '%s::int[]')} AS p) AS held "
            f"WHERE EXISTS ({self._between('1', limit='1', within=_CLAIMED)})"
        )

    def beyond(self, columns: str, *, limit: str) -> str:
        """Rows of any buckets behind their positions, at most so many of each, as of this statement; not under locks."""
        return (
            f"SELECT i.* FROM (SELECT p.bucket, p.passed, now.snapshot AS upto, p.place, p.batch "
            f"FROM {self._positions} AS p, (SELECT pg_current_snapshot() AS snapshot) AS now "
            f"WHERE p.bucket = ANY(%s::int[])) AS held CROSS JOIN LATERAL ("
            f"{self._between(columns, limit=limit, unless=BEHIND)} LIMIT {limit}) AS i"
        )

    def is_pending(self) -> str:
        """A condition in SQL: the log has rows behind the position ``held``, or its numbers are no longer to be trusted."""
        between = self._between("1", limit="1", upto="now.snapshot")
        return (
            f"held.batch IS NOT NULL OR held.server <> {SERVER} "
            "OR pg_snapshot_xmax(now.snapshot) < pg_snapshot_xmax(held.passed) "
            f"OR EXISTS ({between})"
        )

    # ── the parts ────────────────────────────────────────────────────────────────────────────────────

    def _lowest(self) -> str:
        if not self._partitioned:
            return ""
        return (
            ", set_config('boxengine.lowest', coalesce((SELECT pg_snapshot_xmin(p.passed) "
            f"FROM {newest(self._positions, HELD)} AS p ORDER BY 1 LIMIT 1), '0')::text, true)"
        )

    def _only(self, *bounds: str) -> str:
        """Conditions that follow from those beside them, and tell which partitions need not be looked at."""
        return "".join(f" AND {XACT} {bound}" for bound in bounds) if self._partitioned else ""

    def _between(
        self,
        columns: str,
        *,
        limit: str = "",
        upto: str = "held.upto",
        unless: str = "t.id <= held.place",
        within: Sequence[str] = (),
    ) -> str:
        """Rows of ``held`` that are visible in ``upto`` and not in ``passed``, in no order; ``late`` tells of which part they
        are.

        Args:
            within: bounds of ``xact`` that are known before the first row is read, so that other partitions are not even opened.
                In a claim only: bounds on both sides make the rows seem so few that elsewhere a table without statistics is
                read as a whole.
        """
        bound = f"LIMIT {limit}" if limit else ""
        return (
            f"SELECT i.* FROM ({self._ranges(upto)}) AS span(low, after, high, before, late) CROSS JOIN LATERAL ("
            f"SELECT {columns} FROM {self._log} AS t "
            "WHERE (t.bucket, t.xact, t.id) > (held.bucket, span.low, span.after) "
            "AND (t.bucket, t.xact, t.id) < (held.bucket, span.high, span.before) "
            f"AND NOT ({unless}){self._only(*within, '>= span.low')} ORDER BY t.bucket, t.xact, t.id {bound}) AS i"
        )

    def _ranges(self, upto: str) -> str:
        """What to look through in the index: transactions that began after ``passed``, without those that ran at ``upto``; and
        one by one those that ran at ``passed`` and had ended by ``upto``."""
        first, end = "pg_snapshot_xmax(held.passed)", f"pg_snapshot_xmax({upto})"
        late = "edge.number > 1 + cardinality(seen.running)"
        return (
            f"SELECT edge.low, CASE WHEN {late} OR (edge.number = 1 AND pg_visible_in_snapshot({first}, {upto})) THEN 0 "
            f"ELSE {LAST} END, edge.high, CASE WHEN {late} THEN {LAST} ELSE 0 END, {late} FROM ("
            f"SELECT ARRAY(SELECT running FROM pg_snapshot_xip({upto}) AS running WHERE running > {first}) AS running, "
            "ARRAY(SELECT ended FROM pg_snapshot_xip(held.passed) AS ended "
            f"WHERE pg_visible_in_snapshot(ended, {upto})) AS ended "
            # Each array is made once.
            "OFFSET 0) AS seen CROSS JOIN LATERAL "
            f"unnest({first} || seen.running || seen.ended, seen.running || {end} || seen.ended) "
            f"WITH ORDINALITY AS edge(low, high, number) WHERE edge.low < edge.high OR {late}"
        )

    def _by_id(self, share: str) -> str:
        """The next rows of a measured batch, in no order: those by id, and as many of transactions that ended late, which alone
        have rows below the floor."""
        return (
            f"(SELECT late.* FROM pg_snapshot_xip(held.passed) AS ended CROSS JOIN LATERAL ("
            f"SELECT {self._columns} FROM {self._log} AS t "
            "WHERE (t.bucket, t.xact, t.id) > (held.bucket, ended, held.place) "
            f"AND (t.bucket, t.xact, t.id) <= (held.bucket, ended, held.floor){self._only(*_CLAIMED, '= ended')} "
            f"ORDER BY t.bucket, t.xact, t.id LIMIT {share}) AS late "
            "WHERE held.place < held.floor AND pg_visible_in_snapshot(ended, held.upto)) UNION ALL "
            f"(SELECT {self._columns} FROM {self._log} AS t "
            f"WHERE ({BUCKET}, t.id) > (held.bucket, greatest(held.place, held.floor)) "
            f"AND ({BUCKET}, t.id) <= (held.bucket, held.ceiling) "
            # Nearly always two numbers tell; a snapshot is unpacked anew for each row.
            "AND (t.xact < held.ended OR pg_visible_in_snapshot(t.xact, held.upto)) "
            "AND (t.xact >= held.began OR NOT pg_visible_in_snapshot(t.xact, held.passed))"
            f"{self._only(*_CLAIMED, '>= pg_snapshot_xmin(held.passed)')} "
            f"ORDER BY {BUCKET}, t.id LIMIT {share})"
        )


def _held(bounds: str, positions: str) -> str:
    """``held`` for questions by id: worked out once for each bucket, and not for each row."""
    return (
        f"WITH held AS MATERIALIZED (SELECT p.bucket, p.passed, coalesce(p.batch, {NOW}) AS upto, p.place, {bounds}, "
        f"pg_snapshot_xmax(p.passed) AS began, pg_snapshot_xmin(coalesce(p.batch, {NOW})) AS ended FROM {positions})"
    )


def item_columns(found: LogTable, *, light: int) -> str:
    """What an item consists of, in its order, out of the log's row ``t``; it has not been tried."""
    return ", ".join(
        (
            "t.id",
            "t.uuid::text",
            "t.event_name" if found.has_event_name else "NULL::text AS event_name",
            "t.event_key::text",
            "t.bucket",
            "0::smallint AS status",
            "t.options::text AS options" if found.has_options else "NULL::text AS options",
            f"CASE WHEN octet_length(t.payload) <= {light} THEN t.payload END",
            "0 AS errors_count",
            f"t.created_at {WITHOUT_ZONE}",
            "NULL::timestamptz AS processed_at",
        )
    )


def array(values: Sequence[object]) -> str:
    """An array as PostgreSQL writes it, of numbers or snapshots."""
    return "{" + ",".join("NULL" if each is None else f'"{each}"' for each in values) + "}"
