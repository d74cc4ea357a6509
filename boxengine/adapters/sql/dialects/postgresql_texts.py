"""The texts of PostgreSQL's statements over one box's table, made once for each box.

Every query for pending rows goes bucket by bucket (``LATERAL``) and asks for the order of the index on pending rows: see
``postgresql``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import assert_never

from boxengine.adapters.sql.dialects.unreadable import is_within_reach
from boxengine.adapters.sql.shape.replayed import is_copy
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.box import JITTER_STRIDE, StrictOrder
from boxengine.domain.item import Status

WITHOUT_ZONE = "AT TIME ZONE INTERVAL '0'"
"""Makes a moment with a zone one in UTC without it, which the driver decodes in a tenth of the time. The zone is given as an
offset, because the server looks a name up in its list of zones for each row."""
_IN_UTC = " AT TIME ZONE 'UTC'"
_MAX_EXPONENT = 64
"""With this exponent every pause has long reached its maximum, and the power still fits a float."""
_NO_ID = 2**63 - 1
"""Greater than every id."""
HELD = "current_setting('boxengine.held')::int[]"
"""The buckets that a claim has got. Its statements travel together, so the first hands them to the others inside the server."""
SHARE = f"greatest(1, %s / greatest(1, cardinality({HELD})))"
"""How many of a claim's rows each of these buckets gets."""
_LONG = 10**9
"""Seconds; a cap for the time until a delayed row is due, which may be infinite."""


class PostgresTexts:
    """The texts of one box's statements. A ``%s`` in them is a value, in the order in which the statement has them."""

    def __init__(self, table: BoxTable, *, light: int) -> None:
        """Args:
        table: with each ``%`` of its name doubled, because the driver looks for placeholders.
        light: bytes up to which a payload is read with its row; a heavier one is returned as NULL.
        """
        self.name = table.name
        self.strict_order = table.box.strict_order
        self._table = table
        self._light = light

    def take_locks(self, settings: Mapping[str, str]) -> str:
        """Takes a claim's locks; sets its limits, and these settings, for the transaction only."""
        others = "".join(f"set_config('{name}', '{value}', true), " for name, value in settings.items())
        return (
            "SELECT coalesce(array_agg(wanted.bucket), '{}') AS granted, now(), "
            "set_config('boxengine.held', coalesce(array_agg(wanted.bucket), '{}')::text, true), "
            f"{others}set_config('idle_in_transaction_session_timeout', %s, true) "
            "FROM unnest(%s::int[]) AS wanted(bucket) WHERE pg_try_advisory_xact_lock(%s, wanted.bucket)"
        )

    def pending(self, columns: str, *, extra: str = "", share: str = "%s", suffix: str = "", of: str = "") -> str:
        condition, head = f"AND {self.is_due('t')}", ""
        match self._table.box.strict_order:
            case StrictOrder.NONE:
                pass
            case StrictOrder.KEY:
                condition += f" AND NOT EXISTS ({self._holding_back_key()})"
            case StrictOrder.BUCKET:
                condition += " AND t.id < head.id"
                head = f"CROSS JOIN LATERAL ({self._holding_back_bucket()}) AS head"
            case never:
                assert_never(never)
        return (
            f"SELECT i.* FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after) {head} CROSS JOIN LATERAL ("
            f"SELECT {columns} FROM {self._table.name} AS t WHERE t.status = 0 "
            f"AND (t.bucket, t.id) > (held.bucket, held.after) AND t.bucket <= held.bucket {condition} {extra} "
            f"ORDER BY t.bucket, t.id LIMIT {share} {suffix}) AS i {of}"
        )

    def due_among_passed(self, columns: str, *, extra: str = "", suffix: str = "") -> str:
        """Due rows that bounds may have passed, because they have an ``available_at``; those that are due for longest come first.

        Its values: by bucket the ids up to which to look, the buckets, and the most rows.
        """
        return (
            f"SELECT passed.* FROM (SELECT {columns} FROM {self._table.name} AS t WHERE t.status = 0 "
            f"AND t.available_at <= {self._now('available_at')} AND {self.is_due('t')} {extra} "
            "AND t.id <= (%s::bigint[])[array_position(%s::int[], t.bucket::int)] "
            f"ORDER BY t.available_at LIMIT %s {suffix}) AS passed"
        )

    def longest_waiting(self, *, passed: bool) -> str:
        """Args:
        passed: whether to look among rows that bounds have passed, too.
        """
        since, condition = "t.created_at", ""
        if self._table.has("available_at"):
            since = self._created_or_later("t.", "available_at")
            condition = f"AND (t.available_at IS NULL OR t.available_at <= {self._now('available_at')})"
        first = (
            f"SELECT i.since FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after) CROSS JOIN LATERAL ("
            f"SELECT {since} AS since FROM {self._table.name} AS t WHERE t.status = 0 "
            f"AND (t.bucket, t.id) > (held.bucket, held.after) AND t.bucket <= held.bucket {condition} "
            f"ORDER BY t.bucket, t.id LIMIT %s) AS i"
        )
        if passed:
            first += f" UNION ALL {self.due_among_passed(f'{since} AS since')}"
        # If the condition were inside the limit, the planner would expect few rows to meet it and read the whole table.
        return f"SELECT min(i.since) FILTER (WHERE {is_within_reach('i.since')}) FROM ({first}) AS i"

    def outlook(self, due: str) -> str:
        """Adds the time until the first delayed row is due.

        Args:
            due: a query for buckets that have due rows, each with 0.
        """
        if self._table.delayed_index is None:
            return due
        now = self._now("available_at")
        return (
            # The difference itself may be infinite, or beyond what Python holds.
            f"{due} UNION ALL (SELECT NULL, "
            f"least(extract(epoch FROM t.available_at) - extract(epoch FROM {now}), {_LONG})::float8 "
            f"FROM {self._table.name} AS t WHERE t.status = 0 AND t.available_at > {now} "
            "ORDER BY t.available_at LIMIT 1)"
        )

    def item_columns(self) -> str:
        table = self._table
        return ", ".join(
            (
                "t.id",
                "t.uuid::text",
                "t.event_name" if table.has("event_name") else "NULL::text AS event_name",
                "t.event_key::text",
                "t.bucket",
                "t.status",
                "t.options::text AS options" if table.has("options") else "NULL::text AS options",
                f"CASE WHEN octet_length(t.{table.payload}) <= {self._light} THEN t.{table.payload} END",
                self.errors("t"),
                f"t.created_at {WITHOUT_ZONE}" if "created_at" in table.zoned else "t.created_at",
                self._zoned("processed_at"),
                *(["t.seq"] if table.numbered else []),
            )
        )

    def is_due(self, row: str) -> str:
        backoff = self._table.box.backoff
        parts = []
        if backoff is not None:
            seconds = (
                f"least({backoff.maximal.total_seconds()}, {backoff.minimal.total_seconds()} * "
                f"power({backoff.multiplier}::float8, least({self.errors(row)} - 1, {_MAX_EXPONENT})))"
            )
            if backoff.jitter:
                seconds += f" * (1 - {backoff.jitter} * ({row}.id %% 1000 * {JITTER_STRIDE} %% 1000) / 1000.0)"
            parts.append(
                f"({self.errors(row)} = 0 OR {row}.processed_at IS NULL OR "
                f"{row}.processed_at <= {self._now('processed_at')} - make_interval(secs => {seconds}))"
            )
        if self._table.has("available_at"):
            parts.append(f"({row}.available_at IS NULL OR {row}.available_at <= {self._now('available_at')})")
        return "(" + " AND ".join(parts or ["true"]) + ")"

    def kept_since(self, statuses: Collection[int]) -> str:
        """From when on rows of these statuses count as kept; see ``HistoryStore.oldest_finished``."""
        since = self._created_or_later("", "processed_at")
        if Status.DELIVERED not in statuses:
            return since
        alone = set(statuses) == {Status.DELIVERED}
        return "created_at" if alone else f"CASE status WHEN {Status.DELIVERED:d} THEN created_at ELSE {since} END"

    def _created_or_later(self, row: str, column: str) -> str:
        """When a row was created, or the other moment if that is later; it may be NULL."""
        alike = (column in self._table.zoned) == ("created_at" in self._table.zoned)
        # It takes a zone off, and gives one.
        return f"greatest({row}created_at, {row}{column}{'' if alike else _IN_UTC})"

    def errors(self, row: str) -> str:
        column = f"{row}.errors_count"
        return f"coalesce({column}, 0)" if "errors_count" in self._table.nullable else column

    def _holding_back_key(self) -> str:
        """Earlier rows of the same key that are failed, or pending and not due: they park the key."""
        return (
            f"SELECT 1 FROM {self._table.name} AS e WHERE e.bucket = t.bucket AND e.event_key = t.event_key AND e.id < t.id "
            f"AND (e.status = 1 OR (e.status = 0 AND ({self.troubled}))) AND (e.status = 1 OR NOT {self.is_due('e')})"
        )

    def _holding_back_bucket(self) -> str:
        """The id of the bucket's first pending row that is not due. OFFSET 0 makes PostgreSQL look it up once per bucket."""
        first = (
            f"SELECT e.id FROM {self._table.name} AS e WHERE e.status = 0 AND ({self.troubled}) "
            f"AND (e.bucket, e.id) > (held.bucket, 0) AND e.bucket <= held.bucket AND NOT {self.is_due('e')} "
            "ORDER BY e.bucket, e.id LIMIT 1"
        )
        return f"SELECT coalesce(({first}), {_NO_ID}) AS id OFFSET 0"

    @property
    def troubled(self) -> str:
        """The condition that every waiting row meets; also the predicate of the index that serves strict order."""
        delayed = " OR e.available_at IS NOT NULL" if self._table.has("available_at") else ""
        return f"e.errors_count > 0{delayed}"

    def waiting_keys(self) -> str:
        due = f"AND {self.is_due('t')}" if self._table.box.strict_order is StrictOrder.NONE else ""
        return (
            f"SELECT DISTINCT t.event_key::text FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, upto) "
            f"JOIN {self._table.name} AS t ON t.status = {Status.PENDING:d} AND t.bucket = held.bucket AND t.id <= held.upto "
            f"WHERE t.event_key::text = ANY(%s::text[]) {due}"
        )

    def later_delivered(self) -> str:
        # The stored keys are compared with each other: in old tables they are numbers.
        name = self._table.name
        same_event = "AND t.event_name IS NOT DISTINCT FROM i.event_name" if self._table.has("event_name") else ""
        # A copy that a replay has made stands behind newer items and holds an older state.
        original = f"AND NOT {is_copy(postgresql=True)}" if self._table.has("options") else ""
        return (
            f"SELECT i.id, later.id FROM {name} AS i CROSS JOIN LATERAL ("
            f"SELECT t.id FROM {name} AS t WHERE t.event_key = i.event_key AND t.id > i.id "
            f"AND t.status = {Status.DELIVERED:d} {same_event} {original} LIMIT 1) AS later WHERE i.id = ANY(%s::bigint[])"
        )

    def outcomes(self) -> tuple[str, str]:
        # One moment for all rows of a statement tells an audit that none of them overtook another. An undelivered row
        # must still be pending: rows whose deletion was undone are not locked, and an operator may have discarded one.
        name = self._table.name
        touched = ", ".join(
            f"{column} = {self.moment('statement_timestamp()', column)}" for column in ("processed_at", "updated_at")
        )
        deliver = (
            f"DELETE FROM {name} WHERE id = ANY(%s::bigint[])"
            if self._table.box.retention.deletes_on_delivery
            else f"UPDATE {name} SET status = {Status.DELIVERED:d}, {touched} WHERE id = ANY(%s::bigint[])"
        )
        log = ""
        if self._table.has("error_log"):
            discarded = "concat_ws(E'\\n', f.error_log, t.error_log)"
            if (limit := self._table.log.always_fit) is not None:
                discarded = f"left({discarded}, {limit})"
            log = f", error_log = CASE f.status WHEN {Status.DISCARDED:d} THEN {discarded} ELSE f.error_log END"
        fail = (
            f"UPDATE {name} AS t SET status = f.status, errors_count = f.errors_count{log}, {touched} "
            "FROM unnest(%s::bigint[], %s::int[], %s::int[], %s::text[]) AS f(id, status, errors_count, error_log) "
            f"WHERE t.id = f.id AND {still_pending('t.')}"
        )
        return deliver, fail

    def _now(self, column: str) -> str:
        return self.moment("now()", column)

    def moment(self, expression: str, column: str) -> str:
        """A zoned moment in the form of this column."""
        if expression == "%s":
            expression = "%s::timestamptz"
        return expression if column in self._table.zoned else f"({expression}{_IN_UTC})"

    def _zoned(self, column: str) -> str:
        return f"t.{column}" if column in self._table.zoned else f"t.{column}{_IN_UTC} AS {column}"


def numbers(of: Iterable[int]) -> str:
    """An array in PostgreSQL's text form: the driver's own dumper takes ten times as long for a list."""
    return "{" + ",".join(map(str, of)) + "}"


def still_pending(row: str = "") -> str:
    """Tests that a row found by its id is pending, in a form that keeps the planner from using the index on pending rows: it
    would walk all of it for a few ids."""
    return f"{row}status + 0 = {Status.PENDING:d}"
