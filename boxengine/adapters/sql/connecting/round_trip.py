"""Sends the first statements of a transaction to PostgreSQL together, and waits once.

psycopg's cursors look for placeholders, choose an adapter for each value, keep books on prepared statements and wait inside
generators. For a lone item, after a pause, that takes longer than the server's own work. So where statements may be prepared they
go to libpq directly; what they return is decoded by psycopg, as always.
"""

from __future__ import annotations

import itertools
import re
import select
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import abc, pq
from psycopg.adapt import Transformer
from psycopg.errors import InvalidSqlStatementName, error_from_result

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.connecting.pooler import is_pooled

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
"""A claim reads its rows under a newer snapshot than its locks."""
_MOST = 50
"""Steps that one connection keeps prepared."""
_NUMBERS = itertools.count()
"""For names that are not used twice: one may be taken although its transaction has failed."""
_FAILURES = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.PIPELINE_ABORTED)
Names = Sequence[bytes]
"""Of prepared statements."""


class Answer:
    """What one statement has returned; behaves as a cursor that has been executed."""

    def __init__(self, result: pq.abc.PGresult, decoder: abc.Transformer) -> None:
        self.pgresult = result
        self.rowcount = result.ntuples
        self._decoder = decoder
        self._place = 0

    def fetchone(self) -> Any:
        """The row at the current place; None behind the last."""
        if self._place >= self.rowcount:
            return None
        self._decoder.set_pgresult(self.pgresult)
        row = self._decoder.load_row(self._place, tuple)
        self._place += 1
        return row

    def fetchall(self) -> list[Any]:
        """All rows."""
        self._decoder.set_pgresult(self.pgresult)
        return self._decoder.load_rows(0, self.rowcount, tuple)

    def scroll(self, place: int, mode: str) -> None:  # noqa: ARG002 - it is the cursor's
        """Goes to a row. Mode: always ``absolute``."""
        self._place = place


class Step:
    """The first statements of a transaction, made once and run often. Shared by threads."""

    def __init__(self, *texts: str) -> None:
        """Args:
        texts: with a ``%s`` for each value; ``%%`` stands for a percent sign.
        """
        self._texts = texts
        self.numbered = [_numbered(text) for text in (_BEGIN, *texts)]
        """The same and what begins the transaction, as the server reads them."""

    def run(self, cursor: Cursor, *values: Sequence[str | int]) -> Sequence[Answer | Cursor]:
        """Begins a transaction on the cursor's connection with these statements; returns what each of them has found.

        Args:
            values: of each statement.

        Raises:
            psycopg.Error: one has failed; those behind it were not run.
        """
        connection = cursor.connection
        prepared = _PREPARED.get(connection) or _prepared_on(connection)
        if not prepared.allowed:
            return self._run_by_cursors(connection, values)
        try:
            return self._run(connection, prepared, values)
        except InvalidSqlStatementName:
            # psycopg has dropped all prepared statements, as it does after a rollback, or a handler has.
            connection.rollback()
            prepared.forget()
            return self._run(connection, prepared, values)

    def _run(
        self, connection: psycopg.Connection[Any], prepared: _Prepared, values: Sequence[Sequence[str | int]]
    ) -> Sequence[Answer]:
        server, names = connection.pgconn, prepared.names.get(self)
        old: Names = ()
        new: Names = ()
        results: list[pq.abc.PGresult] = []
        if names is None:
            names = new = [b"boxengine_%d" % next(_NUMBERS) for _ in self.numbered]
            old = prepared.make_room()
        server.enter_pipeline_mode()
        try:
            if new:
                server.send_prepare(new[0], self.numbered[0])
            server.send_query_prepared(names[0], None)
            # Each of these takes a snapshot. Before BEGIN, that would bind the transaction to the database's default isolation.
            for name in old:
                server.send_query_params(b"DEALLOCATE %b" % name, None)
            for name, text, own in zip(names[1:], self.numbered[1:], values, strict=True):
                if new:
                    # Not sooner: it waits for locked tables, for which a statement before it may have set a limit.
                    server.send_prepare(name, text)
                encoded = [str(value).encode() for value in own]
                server.send_query_prepared(name, encoded, result_format=pq.Format.BINARY)
            server.pipeline_sync()
            _read(server, len(old) + len(new) + len(names), into=results)
        except psycopg.Error:
            # They may be plans for a table that is another by now. Those behind the one that failed were not made.
            prepared.drop(self, new[: 1 + (max(0, len(results) - 2 - len(old)) + 1) // 2])
            raise
        finally:
            # It fails if answers are missing: another error tells why, and the connection is of no use any more.
            with suppress(psycopg.OperationalError):
                server.exit_pipeline_mode()
        prepared.names[self] = names
        decoder = prepared.decoder or Transformer(connection)
        answers = results[1 - 2 * len(values) :: 2] if new else results[-len(values) :]
        return [Answer(result, decoder) for result in answers]

    def _run_by_cursors(self, connection: Any, values: Sequence[Sequence[str | int]]) -> Sequence[Cursor]:
        """Where a pooler stands before the server, or each statement has a comment of its own."""
        cursors = [connection.cursor(binary=True) for _ in values]
        # A fetch inside a pipeline costs a round trip of its own, before the one that ends the pipeline.
        with connection.pipeline():
            for cursor, text, own in zip(cursors, self._texts, values, strict=True):
                cursor.execute(text, own, prepare=True)
        return cursors


class _Prepared:
    """The steps that are prepared on one connection."""

    def __init__(self, *, allowed: bool, decoder: abc.Transformer | None = None) -> None:
        self.allowed = allowed
        """Whether any may be."""
        self.decoder = decoder
        """What decodes their answers, with what it has found out about their types; None: it is made anew for each."""
        self.names: dict[Step, Names] = {}
        self._old: list[bytes] = []
        """Statements that nobody uses any more."""

    def make_room(self) -> Names:
        """Statements that are to be freed, because there would be too many."""
        while len(self.names) >= _MOST:
            self.drop(next(iter(self.names)))
        old, self._old = self._old, []
        return old

    def drop(self, step: Step, names: Names = ()) -> None:
        """The step is to be prepared anew; these may have been its names."""
        self._old += self.names.pop(step, names)

    def forget(self) -> None:
        """The server has freed all of them."""
        self.names.clear()
        self._old.clear()


_PREPARED: WeakKeyDictionary[psycopg.Connection[Any], _Prepared] = WeakKeyDictionary()


def _prepared_on(connection: Any) -> _Prepared:
    if not isinstance(connection, psycopg.Connection):
        return _Prepared(allowed=False)  # it adds comments
    allowed = connection.prepare_threshold is not None and not is_pooled(connection)
    # It must not know the connection, which would then live for as long as the books that are kept on it.
    decoder = Transformer(connection.adapters) if connection.info.encoding == "utf-8" else None
    return _PREPARED.setdefault(connection, _Prepared(allowed=allowed, decoder=decoder))


def _read(server: pq.abc.PGconn, count: int, *, into: list[pq.abc.PGresult]) -> None:
    """Waits for so many results and the end of the pipeline.

    Raises:
        psycopg.Error: the first that went wrong.
    """
    while server.flush():
        _wait(server, select.POLLIN | select.POLLOUT)
    # Each statement's results end with None, and the pipeline with a result of its own, which has none behind it.
    left = count
    while True:
        while server.is_busy():
            _wait(server, select.POLLIN)
        result = server.get_result()  # as in ``_next``, without a call for each of them
        if result is None:
            left -= 1
        elif not left:
            return
        elif result.status in _FAILURES:
            _skip(server)
            raise error_from_result(result)
        else:
            into.append(result)


def _next(server: pq.abc.PGconn) -> pq.abc.PGresult | None:
    # A call that waits by itself would keep Python's lock.
    while server.is_busy():
        _wait(server, select.POLLIN)
    return server.get_result()


def _wait(server: pq.abc.PGconn, events: int) -> None:
    poll = select.poll()
    poll.register(server.socket, events)
    poll.poll()
    server.consume_input()


def _skip(server: pq.abc.PGconn) -> None:
    """Reads the rest of a pipeline in which a statement has failed. If the connection is lost meanwhile, that error says why."""
    with suppress(psycopg.OperationalError):
        while server.status != pq.ConnStatus.BAD:
            result = _next(server)
            if result is not None and result.status == pq.ExecStatus.PIPELINE_SYNC:
                return


def _numbered(text: str) -> bytes:
    places = itertools.count(1)
    return re.sub("%[%s]", lambda found: "%" if found[0] == "%%" else f"${next(places)}", text).encode()
