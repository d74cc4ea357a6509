"""The statements of a log box: those of its side table, and around them the log."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from operator import itemgetter
from typing import Any, Self

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.connecting.pooler import committing
from boxengine.adapters.sql.connecting.round_trip import Step
from boxengine.adapters.sql.dialects.base import LOOKED_AT, LOOKED_THROUGH, Row, Taken
from boxengine.adapters.sql.dialects.payloads import MAX_BATCH_BYTES, light
from boxengine.adapters.sql.dialects.postgresql import PostgresStatements
from boxengine.adapters.sql.dialects.postgresql_reads import ONE_PLAN, PATIENCE
from boxengine.adapters.sql.dialects.postgresql_texts import numbers
from boxengine.adapters.sql.dialects.unreadable import is_within_reach
from boxengine.adapters.sql.log import in_doubt
from boxengine.adapters.sql.log.foreign import REASON, ForeignPositions
from boxengine.adapters.sql.log.look import Held, Look, Questions
from boxengine.adapters.sql.log.partitions import span_of
from boxengine.adapters.sql.log.reading import ReadingTexts, array, item_columns
from boxengine.adapters.sql.log.tables import BUCKET, LogTable, names_in
from boxengine.adapters.sql.log.texts import LogTexts
from boxengine.adapters.sql.shape.tables import BoxTable, for_driver
from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.job import ANY_ID
from boxengine.domain.log_progress import Move, Portions, Position, Reading, give, has_gone_back, move
from boxengine.domain.outcome import Settlement
from boxengine.domain.words import plural
from boxengine.errors import BoxError, StoreUnavailable
from boxengine.ports import Count, PendingRow, Precision

_OF_A_CLAIM = {**ONE_PLAN, "jit": "off"}
"""Settings of its transaction."""
_NUMBERS = ("place", "floor", "ceiling", "high", "turn")
"""Of a position, in the order of its columns."""
_ID, _BUCKET = 0, Item._fields.index("bucket")
_id_of, _bucket_of = itemgetter(_ID), itemgetter(_BUCKET)


@dataclass
class _Claimed:
    """What one claim knows of the log."""

    readings: dict[int, Reading] = field(default_factory=dict)
    """By bucket."""
    log_alone: bool = False
    """Whether all rows among those claimed are the log's."""
    settled: set[int] = field(default_factory=set)
    """The log's rows that have an outcome in the current transaction."""
    aside: Collection[int] = ()
    """Rows that are to step aside without an outcome."""
    all_settled: bool = False
    """Whether every row of the readings has one, as nearly always."""
    _read: Collection[Reading] = ()

    def give(self, readings: dict[int, Reading], *, log_alone: bool) -> None:
        """What the claim returns."""
        self.readings, self._read, self.log_alone = readings, tuple(readings.values()), log_alone

    def has_all(self, logged: Settlement) -> bool:
        """Whether these are the outcomes of all rows that were read of the log; remembers it."""
        self.all_settled = len(logged) == sum(len(reading.ids) for reading in self.readings.values())
        return self.all_settled

    @cached_property
    def bucket_of(self) -> Mapping[int, int]:
        """Of the log's rows among those claimed, by id. Seldom needed: most claims have no others, and all goes well."""
        return {each: reading.position.bucket for reading in self._read for each in reading.ids}


class LogStatements(PostgresStatements):
    """The statements of one log box. "Rows" means those of the side table, unless the log is named."""

    def __init__(
        self, table: BoxTable, found: LogTable, *, idle_timeout_ms: int, light: int = light(MAX_BATCH_BYTES)
    ) -> None:
        super().__init__(table, idle_timeout_ms=idle_timeout_ms, light=light)
        self._log = for_driver(found.log)
        self._positions = for_driver(found.positions)
        self._partitioned = found.partitioned
        self._readers = found.readers
        both = LogTexts(self._table, found, self._texts)
        columns = item_columns(found, light=light)
        self._parks = self.strict_order is StrictOrder.KEY
        questions = ReadingTexts(found, f"{columns}, {both.is_parked()}" if self._parks else columns)
        self._where = questions.positions(side=self._table.name, blocked=both.is_blocked())
        # A log that rests would take the room of others.
        self._fills = self.strict_order is not StrictOrder.BUCKET
        self._next = questions.next_rows(fills=self._fills)
        self._limits_of_next = self._next.count("%s")
        self._claiming_from_log = Step(
            self._texts.take_locks({**_OF_A_CLAIM, **PATIENCE}),
            # The snapshot comes before anything that gives this transaction a number of its own.
            self._where,
            # Before the side table: what parks a row must not have gone when the rows behind it are looked for.
            self._next,
            self._from_start.read,
        )
        self._questions = Questions(questions.measure(), questions.measured_rows("%s"), questions.followed())
        self._beyond = questions.beyond("t.created_at", limit="%s")
        foreign = (
            in_doubt.has_foreign_positions(self._positions),
            in_doubt.has_rows_ahead(self._log, self._positions),
        )
        self._is_foreign = " OR ".join(foreign)
        self._waiting_buckets = (
            f"SELECT held.bucket FROM {self._positions} AS held, (SELECT pg_current_snapshot() AS snapshot) AS now "
            f"WHERE held.bucket = ANY(%s::int[]) AND ({questions.is_pending()}) AND NOT ({both.is_blocked()})"
        )
        self._copy, self._move = both.copying(), both.moving()
        self._claimed: _Claimed | None = None

    def for_claim(self) -> Self:
        """A copy for one claim, because what the claim has read decides how far its settlement moves the positions."""
        own = object.__new__(type(self))  # what copy.copy does in the end
        own.__dict__.update(self.__dict__, _claimed=_Claimed())
        return own

    # ── what is there ────────────────────────────────────────────────────────────────────────────────

    def poll(self, cursor: Cursor, buckets: Mapping[int, int], share: int) -> list[PendingRow]:
        return super().poll(cursor, buckets, share) + self._unread(cursor, buckets)

    def poll_regular(self, cursor: Cursor, buckets: Mapping[int, int], share: int) -> list[PendingRow]:
        return super().poll_regular(cursor, buckets, share) + self._unread(cursor, buckets)

    def _unread(self, cursor: Cursor, buckets: Iterable[int]) -> list[PendingRow]:
        """One row for each bucket with rows waiting in the log. These are not read: a job for the bucket is all they need."""
        return [PendingRow(ANY_ID[0], bucket, 0) for bucket in self._waiting_in_log(cursor, buckets)]

    def outlook(self, cursor: Cursor, buckets: Mapping[int, int]) -> list[tuple[int | None, float]]:
        found = super().outlook(cursor, buckets)
        known = {bucket for bucket, _ in found}
        return found + [(bucket, 0.0) for bucket in self._waiting_in_log(cursor, buckets) if bucket not in known]

    def pending_in_log(self, cursor: Cursor, most: int) -> Count:
        values = (numbers(self._table.box.buckets), *[most + 1] * 3)
        cursor.execute(
            f"SELECT (SELECT count(*) FROM ({self._beyond} LIMIT %s) AS waiting), {self._is_foreign}", values
        )
        number, is_foreign = cursor.fetchone()
        if is_foreign:
            share = most // self._table.box.bucket_size + 1
            cursor.execute(in_doubt.youngest_in_doubt(self._table.name, self._log, self._positions), (share,))
            return in_doubt.counted(cursor.fetchall(), share)
        return Count(most, Precision.AT_LEAST) if number > most else Count(number)

    def oldest_pending(self, cursor: Cursor, buckets: Mapping[int, int]) -> datetime | None:
        both = (super().oldest_pending(cursor, buckets), self.unread_since(cursor))
        return min((moment for moment in both if moment is not None), default=None)

    def unread_since(self, cursor: Cursor) -> datetime | None:
        values = (numbers(self._table.box.buckets), LOOKED_AT, LOOKED_AT)
        reachable = is_within_reach("waiting.created_at")
        cursor.execute(
            f"SELECT min(waiting.created_at) FILTER (WHERE {reachable}) FROM ({self._beyond}) AS waiting", values
        )
        (first,) = cursor.fetchone()
        return None if first is None else first.astimezone(UTC)

    def _waiting_in_log(self, cursor: Cursor, buckets: Iterable[int]) -> list[int]:
        cursor.execute(self._waiting_buckets, (numbers(buckets),), prepare=True)
        return [bucket for (bucket,) in cursor.fetchall()]

    # ── a claim ──────────────────────────────────────────────────────────────────────────────────────

    def claim(self, cursor: Cursor, buckets: Mapping[int, int], limit: int) -> Taken:
        # Most claims lend their transaction to nobody, so its settings are undone where one does: see ``anchor``.
        return self.claim_plain(cursor, buckets, limit)

    def anchor(self, cursor: Cursor) -> None:
        """Handlers' statements are planned as on any connection."""
        super().anchor(cursor)
        with cursor.connection.pipeline():
            for name in _OF_A_CLAIM:
                cursor.connection.execute(f"RESET {name}", prepare=False)

    def claim_plain(self, cursor: Cursor, buckets: Mapping[int, int], limit: int) -> Taken:
        wanted = numbers(buckets)
        locks, places, log, beside = self._claiming_from_log.run(
            cursor,
            (self._idle_timeout, wanted, self._space),
            (),
            [limit] * self._limits_of_next,
            (wanted, numbers(buckets.values()), limit),
        )
        granted, moment, *_ = locks.fetchone()
        now = moment.astimezone(UTC)
        logged, unreadable = self._fetch(log, now)
        side, others = self._fetch(beside, now)
        look = Look(
            cursor=cursor,
            questions=self._questions,
            fetch=lambda answer: self._fetch(answer, now),
            portions=self._portions(limit, len(granted)),
            parks=self._parks,
        )
        seen = look.at(self._held(granted, places.fetchall()), logged)
        share = max(1, limit // max(1, len(granted)))
        given = give(
            side,
            seen.rows,
            seen.readings,
            unread=seen.unread,
            share=share,
            limit=limit,
            id_of=_id_of,
            bucket_of=_bucket_of,
        )
        self._here.give(given.readings, log_alone=not side)
        return Taken(
            granted,
            now,
            share,
            given.rows,
            unreadable=unreadable | others | seen.unreadable,
            exhausted=frozenset(granted) - given.waiting,
        )

    def _portions(self, limit: int, buckets: int) -> Portions:
        return (Portions.filling if self._fills else Portions.even)(limit, buckets=buckets)

    def _held(self, granted: Collection[int], rows: Sequence[Row]) -> Held:
        """The positions of the held buckets, without those whose log must wait.

        Raises:
            ForeignPositions: they mean nothing on this server.
            StoreUnavailable: they are missing, or this account may not record outcomes.
        """
        name, snapshot, under_way = self._table.box.name, str(rows[0][0]), 0
        if rows[0][1]:
            table = self._table.box.table if rows[0][1] == "INSERT" else names_in(self._table.box)[1]
            raise StoreUnavailable(
                f"box {name}: the worker's account may not {rows[0][1]} on {table}, so no delivery could be recorded, and "
                "nothing is sent; boxengine doctor shows the GRANT"
            )
        positions, there = [], set[int]()
        for _, _, bucket, passed, batch, *place, is_ours, blocked in rows:
            if bucket is None:
                continue
            there.add(bucket)
            if not is_ours or has_gone_back(batch or passed, snapshot):
                raise ForeignPositions(f"box {name}: {REASON}")
            own = Position(bucket=bucket, passed=passed, batch=batch, **dict(zip(_NUMBERS, place, strict=True)))
            under_way += own.floor is not None
            if not blocked:
                positions.append(own)
        absent = set(granted) - there
        if absent:
            raise StoreUnavailable(
                f"box {name}: no position for {plural(len(absent), 'bucket')}; make it with: boxengine db create"
            )
        return Held(snapshot, positions, under_way)

    @property
    def _here(self) -> _Claimed:
        if self._claimed is None:
            raise StoreUnavailable(f"the tables of box {self._table.box.name} were altered during a claim; tried again")
        return self._claimed

    def sizes(self, cursor: Cursor, ids: Sequence[int]) -> dict[int, int]:
        side, logged = self._apart(ids)
        found = super().sizes(cursor, side) if side else {}
        if logged:
            cursor.execute(*self._of_log("octet_length(t.payload)", logged))
            found |= dict(cursor.fetchall())
        return found

    def payloads(self, cursor: Cursor, ids: Sequence[int]) -> dict[int, bytes]:
        side, logged = self._apart(ids)
        found = super().payloads(cursor, side) if side else {}
        if logged:
            cursor.execute(*self._of_log("t.payload", logged))
            found |= dict(cursor.fetchall())
        return found

    def _apart(self, ids: Iterable[int]) -> tuple[list[int], list[int]]:
        """Splits ids into those of the side table and those of the log."""
        known = self._here.bucket_of
        side: list[int] = []
        logged: list[int] = []
        for each in ids:
            (logged if each in known else side).append(each)
        return side, logged

    def _of_log(self, what: str, ids: Sequence[int]) -> tuple[str, tuple[str, str]]:
        statement = (
            f"SELECT t.id, {what} FROM unnest(%s::int[], %s::bigint[]) AS w(bucket, id) "
            f"JOIN {self._log} AS t ON {BUCKET} = w.bucket AND t.id = w.id"
        )
        return statement, (numbers(self._here.bucket_of[each] for each in ids), numbers(ids))

    def later_delivered(self, cursor: Cursor, items: Sequence[Item]) -> dict[int, int]:  # noqa: ARG002 - it is the port's
        """Raises:
        BoxError: always; the log says of no single item whether it was delivered.
        """
        raise BoxError("storage: log does not record which later items of a key were delivered")

    # ── its settlement ───────────────────────────────────────────────────────────────────────────────

    def record(self, cursor: Cursor, settlement: Settlement) -> int:
        side, logged = self._parts(settlement)
        written = super().record(cursor, side) if side else 0
        written += sum(int(each.rowcount) for each in self._step_aside(cursor, logged)) + len(logged.delivered)
        if written == len(settlement):
            self._here.settled.update(logged.ids)
            self._here.aside = settlement.aside
        return written

    def finish(self, cursor: Cursor, settlement: Settlement) -> int:
        side, logged = self._parts(settlement)
        if not self._here.has_all(logged):
            self._here.settled.update(logged.ids)
            self._here.aside = settlement.aside
        with committing(cursor.connection):
            used = self._write(cursor.connection.cursor(), side)
            used += self._step_aside(cursor, logged)
            self._move_on(cursor, self._here.readings.values())
        self._here.readings.clear()
        return sum(int(each.rowcount) for each in used) + len(logged.delivered)

    def seal(self, cursor: Cursor, buckets: Collection[int] | None = None) -> None:
        readings = self._here.readings
        wanted = list(readings) if buckets is None else [each for each in buckets if each in readings]
        self._move_on(cursor, [readings[each] for each in wanted])
        for each in wanted:
            del readings[each]

    def _move_on(self, cursor: Cursor, readings: Collection[Reading]) -> None:
        settled, aside_ids = None if self._here.all_settled else self._here.settled, self._here.aside
        moves = [each for each in (move(reading, settled, aside_ids) for reading in readings) if each is not None]
        if not moves:
            return
        aside = [(each.position.bucket, item_id) for each in moves for item_id in each.aside]
        if aside:
            buckets, ids = zip(*aside, strict=True)
            nothing = [None] * len(aside)
            self._run(cursor, self._copy, [numbers(buckets), numbers(ids), nothing, nothing, nothing])
        self._run(cursor, self._move, [*_columns_of(moves), len(moves)], prepare=True)

    def hold_again(self, cursor: Cursor, buckets: Sequence[int]) -> list[int]:
        self.forget()
        granted = super().hold_again(cursor, buckets)
        # Without its lock, a bucket may be in another claim by now, which has read from the position as it stands.
        readings = self._here.readings
        self._here.readings = {bucket: readings[bucket] for bucket in granted if bucket in readings}
        return granted

    def forget(self) -> None:
        self._here.settled.clear()
        self._here.aside = ()
        self._here.all_settled = False

    def hold_pending(self, cursor: Cursor, ids: Sequence[int]) -> list[int]:
        side, logged = self._apart(ids)
        pending = super().hold_pending(cursor, side) if side else []
        positions = [reading.position for reading in self._here.readings.values()]
        cursor.execute(
            f"SELECT p.bucket FROM {self._positions} AS p JOIN unnest(%s::int[], %s::bigint[]) AS f(bucket, turn) "
            "ON f.bucket = p.bucket AND f.turn = p.turn",
            (numbers(each.bucket for each in positions), numbers(each.turn for each in positions)),
        )
        unmoved = {bucket for (bucket,) in cursor.fetchall()}
        self._here.readings = {bucket: self._here.readings[bucket] for bucket in unmoved}
        return pending + [each for each in logged if self._here.bucket_of[each] in unmoved]

    def errors_count(self, cursor: Cursor, item_id: int) -> int:
        return 0 if item_id in self._here.bucket_of else super().errors_count(cursor, item_id)

    def _parts(self, settlement: Settlement) -> tuple[Settlement, Settlement]:
        """Splits outcomes into those of side rows and those of the log's rows."""
        if self._here.log_alone:
            return Settlement(), settlement
        logged = self._here.bucket_of.keys()
        mine = settlement.only(logged)
        return settlement.only(frozenset(settlement.ids) - logged), mine

    def _step_aside(self, cursor: Cursor, logged: Settlement) -> list[Cursor]:
        """Copies what failed to the side table, with its outcome."""
        others = logged.not_delivered
        if not others:
            return []
        table, bucket_of = self._table, self._here.bucket_of
        values = [
            numbers(bucket_of[each.id] for each in others),
            numbers(each.id for each in others),
            [int(each.status) for each in others],
            [min(each.errors_count, table.most_errors) for each in others],
            [table.log.fit(each.error_log) for each in others],
        ]
        return [self._run(cursor, self._copy, values)]

    @staticmethod
    def _run(cursor: Cursor, statement: str, values: Sequence[Any], **options: Any) -> Cursor:
        # Each with a cursor of its own: within a pipeline it learns only at the end how many rows there were.
        return cursor.connection.cursor().execute(statement, values, **options)

    # ── retention ────────────────────────────────────────────────────────────────────────────────────

    def delete(
        self, cursor: Cursor, statuses: Sequence[int], created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        deleted = super().delete(cursor, statuses, created_from, created_before, limit)
        if Status.DELIVERED in statuses and deleted < limit and self._readers.may_remove(cursor):
            deleted += self._delete_passed(cursor, created_before, limit - deleted)
        return deleted

    def _delete_passed(self, cursor: Cursor, created_before: datetime, limit: int) -> int:
        """Old rows of the log that every reader has passed; of each bucket its first ones are looked at."""
        old = f"{self._passed(cursor)} AND i.created_at < %s LIMIT %s"
        created_before -= self._grace
        # In another partition another row has the same place. Somebody may have made some since the log was looked at.
        log = self._log if self._partitioned else f"ONLY {self._log}"
        if self._partitioned:
            which = (
                f"AS d USING (SELECT i.tableoid, i.ctid {old}) AS w WHERE d.tableoid = w.tableoid AND d.ctid = w.ctid"
            )
        else:
            which = f"WHERE ctid = ANY(ARRAY(SELECT i.ctid {old}))"
        cursor.execute(f"DELETE FROM {log} {which}", (LOOKED_THROUGH * limit, created_before, limit))
        return int(cursor.rowcount)

    def oldest(self, cursor: Cursor, statuses: Sequence[int]) -> datetime | None:
        oldest = super().oldest(cursor, statuses)
        if Status.DELIVERED not in statuses:
            return oldest
        passed = self._passed(cursor)
        # Not of each bucket's first row alone: of a writer whose clock was ahead, it would keep all behind it.
        cursor.execute(
            f"SELECT min(i.created_at) FILTER (WHERE {is_within_reach('i.created_at')}) {passed}", (LOOKED_AT,)
        )
        (first,) = cursor.fetchone()
        if first is not None:
            first += self._grace
        return min((moment for moment in (oldest, first) if moment is not None), default=None)

    @property
    def _grace(self) -> timedelta:
        """How much longer a row stays, so that it goes with its partition. A row whose partition takes too long is deleted by
        itself."""
        return 2 * span_of(self._table.box) if self._partitioned else timedelta(0)

    def _passed(self, cursor: Cursor) -> str:
        everyone = self._readers.passed_by_all(cursor)
        place = "t.tableoid, t.ctid" if self._partitioned else "t.ctid"
        return (
            f"FROM ({everyone.buckets}) AS held CROSS JOIN LATERAL (SELECT {place}, t.created_at, t.bucket, t.xact "
            f"FROM {self._log} AS t WHERE ({BUCKET}, t.id) > (held.bucket, 0) AND {BUCKET} <= held.bucket "
            f"ORDER BY {BUCKET}, t.id LIMIT %s) AS i WHERE ({everyone.has_passed('i')}{self._is_over_the_limit('i')})"
        )

    def _is_over_the_limit(self, row: str) -> str:
        at_most = self._table.box.retention.at_most
        if at_most is None or self._table.box.subscription is None:
            return ""
        return f" OR {row}.created_at < now() - interval '{at_most.total_seconds():f} seconds'"


def _columns_of(moves: Sequence[Move]) -> list[Any]:
    positions = [each.position for each in moves]
    columns = [[getattr(each, name) for each in positions] for name in ("bucket", "passed", "batch", *_NUMBERS)]
    return [array(column) for column in columns]
