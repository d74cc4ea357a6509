"""``JobStore`` over PostgreSQL and MariaDB."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from boxengine.adapters.sql.connecting.errors import blaming_the_row
from boxengine.adapters.sql.jobs import claims, followers, reaping, writes
from boxengine.adapters.sql.jobs.backlog import backlog
from boxengine.adapters.sql.jobs.claim_together import TogetherClaim
from boxengine.adapters.sql.jobs.claims import in_order
from boxengine.adapters.sql.jobs.ends import Ends, ends_of
from boxengine.adapters.sql.jobs.looks import Looks
from boxengine.adapters.sql.jobs.rows import JobRows, short, single
from boxengine.adapters.sql.jobs.unit import SqlUnit
from boxengine.domain.jobs import Beat, ClaimedJob, Due, Held, JobBacklog, JobBox, JobOutcome, Reaped
from boxengine.errors import StoreUnavailable

COLLISIONS = 3
"""How often in a row a claim may meet another that is not committed, before it leaves the rest for the next turn."""

GENERATIONS = 10
"""The most followers that one look lets go; the next look goes on."""

NOW = timedelta(0)


class _Collision(Exception):
    """Two claims took the same ``lock_key`` at the same moment."""


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables of one box, and the statements made for them."""

    rows: JobRows
    ends: Ends
    together: TogetherClaim | None
    """None: a claim takes several statements."""
    looks: Looks


class SqlJobs:
    """Shared by all threads of a process."""

    def __init__(
        self, engine: Engine, models: Mapping[str, type] | None = None, *, sessions: Engine | None = None
    ) -> None:
        """Args:
        models: the users' classes by box; tables of other boxes are as the mixin makes them.
        sessions: the same database for handlers, who may wait for locks as long as they like; ``engine`` if none.
        """
        self.engine = engine
        self._sessions = sessions or engine
        self._models = models or {}
        self._tables: dict[str, _Tables] = {}
        self._seen_to: dict[str, int] = {}
        """The last follower that was looked at, by box."""
        self._key_seen: dict[str, str] = {}
        """The last lock key that was looked at, by box."""

    def claim(self, box: JobBox, count: int, *, worker: str, oldest: int = 0) -> Sequence[ClaimedJob]:
        tables = self._tables_of(box)
        if tables.together is None:
            return self._in_steps(box, count, worker, oldest)
        with single(self.engine) as connection:
            claimed, keyed = tables.together.take(connection, count, worker, oldest)
        if not keyed:
            return claimed
        oldest -= sum(job.for_age for job in claimed)
        try:
            more = self._in_steps(box, count - len(claimed), worker, oldest)
        except StoreUnavailable:
            if not claimed:
                raise
            # They are committed: forgotten, they would stand still until their leases end, and lose an attempt.
            return claimed
        return in_order([*claimed, *more])

    def _in_steps(self, box: JobBox, count: int, worker: str, oldest: int) -> Sequence[ClaimedJob]:
        for _ in range(COLLISIONS):
            try:
                with short(self.engine) as connection:
                    return self._claim(connection, box, count, worker, oldest)
            except _Collision:
                # The other claim is committed by now: the next look sees who holds the key.
                continue
        return []

    def record(self, box: JobBox, outcomes: Sequence[JobOutcome]) -> Collection[int]:
        alone = any(each.job.lock_key is not None for each in outcomes)
        with (short if alone else single)(self.engine) as connection, blaming_the_row():
            return self._tables_of(box).ends.write(connection, outcomes)

    def still_held(self, box: JobBox, held: Sequence[Held]) -> Collection[int]:
        with single(self.engine) as connection:
            return writes.still_held(connection, self.rows(box), held)

    def unit(self, box: JobBox, job: ClaimedJob) -> SqlUnit:
        tables = self._tables_of(box)
        return SqlUnit(self._sessions, tables.rows, job, tables.ends)

    def beat(self, box: JobBox, beats: Sequence[Beat]) -> Mapping[int, bool | None]:
        with single(self.engine) as connection, blaming_the_row():
            return writes.beat(connection, self.rows(box), beats)

    def give_back(self, box: JobBox, held: Sequence[Held]) -> None:
        with short(self.engine) as connection:
            writes.give_back(connection, self.rows(box), held)

    def lag(self, box: JobBox) -> timedelta | None:
        with single(self.engine) as connection:
            return claims.lag(connection, self.rows(box))

    def backlog(self, box: JobBox, *, limit: int) -> JobBacklog:
        with single(self.engine) as connection:
            return backlog(connection, self.rows(box), limit)

    def promote(self, box: JobBox) -> Due:
        with single(self.engine) as connection:
            due = self._tables_of(box).looks.claimable(connection)
        if due.next_due is not None and due.next_due <= NOW:
            with short(self.engine) as connection:
                due = replace(due, promoted=reaping.promote(connection, self.rows(box)))
        return replace(due, promoted=due.promoted + self._release(box)) if due.followers else due

    def reap(self, box: JobBox) -> Reaped:
        with single(self.engine) as connection:
            next_expiry, locks = self._tables_of(box).looks.reapable(connection)
        reaped = Reaped(next_expiry=next_expiry)
        if next_expiry is not None and next_expiry <= NOW:
            with short(self.engine) as connection:
                reaped = reaping.reap(connection, self.rows(box))
        key = self._key_seen.pop(box.name, "")
        if locks:
            with short(self.engine) as connection:
                self._key_seen[box.name] = reaping.free_stranded(connection, self.rows(box), key)
        return reaped

    def delete_finished(self, box: JobBox) -> int:
        with single(self.engine) as connection:
            if not self._tables_of(box).looks.deletable(connection):
                return 0
        with short(self.engine) as connection:
            return reaping.delete_finished(connection, self.rows(box))

    def _release(self, box: JobBox) -> int:
        """Lets followers go; again while that ends something, for jobs that are canceled here may have followers of their own."""
        total = 0
        for _ in range(GENERATIONS):
            with short(self.engine) as connection:
                seen_to = self._seen_to.get(box.name, 0)
                number, self._seen_to[box.name] = followers.release(connection, self.rows(box), seen_to)
            total += number
            if not number:
                break
        return total

    def _claim(self, connection: Connection, box: JobBox, count: int, worker: str, oldest: int) -> list[ClaimedJob]:
        try:
            return claims.claim(connection, self.rows(box), count, worker, oldest)
        except IntegrityError as error:
            raise _Collision from error

    def rows(self, box: JobBox) -> JobRows:
        """The tables of a box."""
        return self._tables_of(box).rows

    def _tables_of(self, box: JobBox) -> _Tables:
        found = self._tables.get(box.name)
        if found is None:
            rows, dialect = JobRows(box, self._models.get(box.name)), self.engine.dialect.name
            together = TogetherClaim(rows) if dialect == "postgresql" else None
            found = self._tables[box.name] = _Tables(rows, ends_of(dialect, rows), together, Looks(rows))
        return found

    def model(self, box: JobBox) -> type | None:
        """The user's class of a box."""
        return self._models.get(box.name)

    def close(self) -> None:
        """Closes the connections."""
        for engine in (self.engine, self._sessions):
            engine.dispose()
