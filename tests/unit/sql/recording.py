"""A cursor that executes nothing: it keeps the texts, and answers what it is told to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Self

from psycopg import pq


class RecordingCursor:
    """Stands in for psycopg's and PyMySQL's cursors, psycopg's connection, and libpq's."""

    def __init__(self, *answers: Sequence[Any], sets: Sequence[list[Any]] = ()) -> None:
        """Args:
        answers: rows that ``fetchone`` returns, one after the other.
        sets: what ``fetchall`` returns, one after the other, and no rows after that.
        """
        self.texts: list[str] = []
        self.rowcount = 0
        self._answers = list(answers)
        self._sets = list(sets)
        self.connection: Any = self
        self.pgconn: Any = self

    def execute(self, text: str, _values: object = None, **_options: object) -> RecordingCursor:
        self.texts.append(text)
        return self

    def fetchone(self) -> Sequence[Any]:
        return self._answers.pop(0)

    def fetchall(self) -> list[Any]:
        return self._sets.pop(0) if self._sets else []

    @contextmanager
    def pipeline(self) -> Iterator[None]:
        yield

    def cursor(self, **_options: object) -> RecordingCursor:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def commit(self) -> None:
        self.texts.append("COMMIT")

    def rollback(self) -> None:
        self.texts.append("ROLLBACK")

    def exec_(self, text: bytes) -> Any:
        self.texts += text.decode().split("; ")
        return SimpleNamespace(status=pq.ExecStatus.TUPLES_OK)
