"""Questions about boxes: each is a statement of its own, on the database where it may be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from typing import TypeVar

from sqlalchemy import Engine, event

from boxengine.adapters.sql.connecting.cursors import Cursor, cursor_of
from boxengine.adapters.sql.connecting.errors import connection_lost, translated
from boxengine.adapters.sql.connecting.identity import identity, server
from boxengine.adapters.sql.delivering.bounding import SqlBounds
from boxengine.adapters.sql.delivering.fronts import Fronts
from boxengine.adapters.sql.delivering.known import KnownTables
from boxengine.adapters.sql.dialects.base import Behind, BoxStatements
from boxengine.adapters.sql.shape.changes import tells_of_a_change
from boxengine.adapters.sql.shape.tables import BoxTable
from boxengine.domain.bounds import Pace
from boxengine.domain.box import Box, Storage
from boxengine.errors import StoreConflict, StoreTooSlow, StoreUnavailable

T = TypeVar("T")


class Asking:
    """The engines of one database, what is known of its tables, and how it is asked."""

    def __init__(
        self,
        engine: Engine,
        *,
        looks: Engine,
        replica: Engine,
        idle_timeout: timedelta,
        max_batch_bytes: int,
        pace: Pace,
        only_looks: bool,
    ) -> None:
        """Args:
        engine: the database that holds the boxes' tables.
        looks: the same database for what only reads.
        replica: where polls read.
        pace: how often the bounds of the boxes move.
        only_looks: whether nothing is delivered here; then questions may begin at the first pending rows of the last look.
        """
        self.engine = engine
        self._looks = looks
        self._replica = replica
        self._bounds = SqlBounds(partial(self._cursor, looks), dialect=engine.dialect.name, pace=pace)
        self._fronts = Fronts(partial(self._cursor, looks)) if only_looks else None
        self._known = KnownTables(
            looks, idle_timeout=idle_timeout, max_batch_bytes=max_batch_bytes, forgotten=self._forget_bounds
        )
        self._losses = 0
        for each in {engine, looks}:
            event.listen(each, "engine_disposed", self._other_may_answer)

    @property
    def losses(self) -> int:
        """Grows when connections were lost. Another server may answer since, and give ids that are known here to other items."""
        return self._losses

    def table(self, box: Box) -> BoxTable:
        """What the box's table looks like; looked up once.

        Raises:
            SchemaMismatch: the table is missing or cannot serve as a box.
        """
        return self._known.of(box)

    def look_up(self, boxes: Sequence[Box]) -> None:
        """Looks many tables up at once, so that ``table`` need not ask for each. It does so for those that cannot serve."""
        self._known.learn(boxes)

    def look_again(self) -> list[str]:
        return self._known.look_again()

    def identity(self) -> str | None:
        """What tells this database from others, whatever its address; None: nothing does, as with MySQL."""
        if self.engine.dialect.name != "postgresql":
            return None
        with self._cursor(self._looks) as cursor:
            return identity(cursor)

    def server(self) -> str:
        """What tells the server that answers from another one, to which a pooler may lead from now on."""
        with self._cursor(self._looks) as cursor:
            return server(cursor, self.engine.dialect.name)

    def read_from_start(self, box_name: str) -> None:
        self._bounds.forget(box_name)
        if self._fronts is not None:
            self._fronts.forget(box_name)

    def fronts(self, box: Box) -> Mapping[int, int]:
        """By bucket, the id after which questions about the oldest pending rows may begin."""
        if self._fronts is None or self.engine.dialect.name != "postgresql":
            return dict.fromkeys(box.buckets, 0)
        return self._fronts.of(self.table(box))

    def close(self) -> None:
        """Closes all connections."""
        for engine in (self.engine, self._looks, self._replica):
            engine.dispose()

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, box: Box, question: Callable[[Cursor, BoxStatements], T]) -> T:
        """Runs it on the replica."""

        def ask() -> T:
            with self._cursor(self._reading(box)) as cursor:
                return question(cursor, self._known.statements(box))

        try:
            return self._twice(ask, box)
        except StoreUnavailable as error:
            if self._reading(box) is self._looks and not isinstance(error, StoreConflict | StoreTooSlow):
                self._bounds.forget(box.name)  # another server may answer next, which knows less
            raise

    def _twice(self, ask: Callable[[], T], *boxes: Box) -> T:
        """Asks, and once more if a table has changed, or the connection was lost: it may have been the connection alone."""
        losses = self._losses
        try:
            return ask()
        except StoreUnavailable as error:
            if tells_of_a_change(error.__cause__):
                self._forget(*boxes)
            elif losses == self._losses:
                raise
        return ask()

    def _begin(self, box: Box, positions: Mapping[int, int]) -> dict[int, int]:
        """The buckets, each with the id after which to read: its position, or the bound if that is higher."""
        bounds = self._bounds.of(box)
        begin = {bucket: bounds.after(bucket, position) for bucket, position in positions.items()}
        if not bounds.used:
            return begin
        return Behind(begin, from_start=[bucket for bucket, position in positions.items() if not position])

    def _forget(self, *boxes: Box) -> None:
        """Makes the next statement inspect the table again, and closes the connections with statements prepared for it."""
        self._known.forget(*boxes)
        self.close()

    def _other_may_answer(self, engine: Engine) -> None:
        """The connections were closed. Whoever used one is told by an error, and others get new ones without a word."""
        self._losses += 1
        self._bounds.forget_all()
        if engine is not self._looks:
            self._looks.dispose()  # they only read: a server that has become read-only gives them no error

    def _forget_bounds(self, names: Sequence[str]) -> None:
        for name in names:
            self._bounds.forget(name)

    def _reading(self, box: Box) -> Engine:
        """Where a box is looked at: a replica's snapshots do not say which transactions still run."""
        return self._looks if box.storage is Storage.LOG else self._replica

    @contextmanager
    def _cursor(self, engine: Engine, *, in_one: bool = False) -> Iterator[Cursor]:
        """A connection on which each statement is a transaction of its own; ``in_one``: all are one, which the caller commits."""
        with translated(engine), engine.connect() as connection:
            if engine.dialect.name == "postgresql" and not in_one:
                # Spares BEGIN and ROLLBACK; MySQL's driver would spend as much on the setting itself.
                connection.execution_options(isolation_level="AUTOCOMMIT")
            try:
                with closing(cursor_of(connection)) as cursor:
                    yield cursor
            except engine.dialect.loaded_dbapi.Error as error:
                if connection_lost(engine, error):
                    connection.invalidate()  # the pool would reset it, which fails with a traceback in the log
                raise
