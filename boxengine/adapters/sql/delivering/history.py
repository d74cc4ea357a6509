"""What has become of a box's items: counts, ages, and the deletion of what is finished."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from boxengine.adapters.sql.connecting import clock
from boxengine.adapters.sql.delivering.asking import Asking
from boxengine.adapters.sql.delivering.stranded import stranded, told
from boxengine.adapters.sql.log.turnover import place_of, turn_over
from boxengine.domain.box import Box, Storage
from boxengine.domain.item import Status
from boxengine.ports import Count, Swept, Turnover


class SqlHistory(Asking):
    """``HistoryStore``."""

    def pending_in_log(self, box: Box, *, most: int) -> Count:
        """How many of its items no delivery has passed yet, of those in its log; 0 where it has none.

        Where its positions are in another server's numbers, those that may not have been delivered: what a worker will send.

        Args:
            most: beyond which it counts no further.
        """
        if box.storage is Storage.TABLE:
            return Count(0)
        with self._cursor(self._looks) as cursor:
            return self._known.statements(box).pending_in_log(cursor, most)

    def counts(self, box: Box) -> Mapping[int, int]:
        with self._cursor(self._looks) as cursor:
            # Tables made elsewhere may have rows without a status.
            cursor.execute(
                f"SELECT status, count(*) FROM {self.table(box).name} WHERE status IS NOT NULL GROUP BY status"
            )
            counts = {int(status): int(count) for status, count in cursor.fetchall()}
        if waiting := self.pending_in_log(box, most=2**62).number:
            counts[Status.PENDING] = counts.get(Status.PENDING, 0) + waiting
        return counts

    def oldest_pending(self, box: Box) -> datetime | None:
        begin = self._begin(box, dict.fromkeys(box.buckets, 0)) if self._fronts is None else self.fronts(box)
        return self._ask(
            box,
            lambda cursor, statements: statements.oldest_pending(cursor, begin),
        )

    def unread_since(self, box: Box) -> datetime | None:
        if box.storage is Storage.TABLE:
            return None
        return self._ask(box, lambda cursor, statements: statements.unread_since(cursor))

    def stranded_items(self, box: Box) -> int:
        table = self.table(box)
        with self._cursor(self._looks) as cursor:
            return stranded(cursor, table).rows

    def now(self) -> datetime:
        with self._cursor(self.engine) as cursor:
            cursor.execute(clock.question(self.engine.dialect.name))
            ((told,),) = cursor.fetchall()
        return clock.in_utc(told)

    def oldest_finished(self, box: Box, statuses: Sequence[int]) -> datetime | None:
        return self._ask(box, lambda cursor, statements: statements.oldest(cursor, statuses))

    def delete_finished(
        self, box: Box, statuses: Sequence[int], *, created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        finished = [status for status in statuses if status != Status.PENDING]
        # Of a log in one transaction: the lock that lets no subscription be sent back must outlast the removal.
        with self._cursor(self.engine, in_one=box.storage is Storage.LOG) as cursor:
            deleted = self._known.statements(box).delete(cursor, finished, created_from, created_before, limit)
            cursor.connection.commit()
            return deleted

    def sweep_finished(self, box: Box, before: Mapping[int, datetime], *, after: int | None, limit: int) -> Swept:
        finished = {status: moment for status, moment in before.items() if status != Status.PENDING}
        with self._cursor(self.engine) as cursor:
            swept = Swept(*self._known.statements(box).sweep(cursor, finished, after or 0, limit))
            cursor.connection.commit()
            return swept

    def turn_over(
        self, box: Box, *, created_before: datetime, go_on: Callable[[], bool] = lambda: True
    ) -> Turnover | None:
        """See ``Partitions.turn_over``."""
        if box.storage is Storage.TABLE:
            return None
        return turn_over(self.engine, box, place_of(self.table(box)), created_before=created_before, go_on=go_on)

    def stranded(self, box: Box) -> str | None:
        """A message about pending rows in buckets that the box does not have. None: there are no such rows."""
        table = self.table(box)
        with self._cursor(self._replica) as cursor:
            found = stranded(cursor, table)
        return told(table, found) if found.rows else None
