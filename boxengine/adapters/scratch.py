"""A table on disk that is gone when it is closed: SQLite, whose sorter is an external merge sort, so memory stays flat."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from boxengine.errors import BoxError

CACHE_KIB = 32_768
"""For pages, and as much again for sorting, before anything goes to disk."""


class Scratch:
    """One temporary database. Used by one thread.

    Every method raises ``BoxError`` where its files cannot be written.
    """

    def __init__(self, table: str, folder: Path | None = None) -> None:
        """Args:
        table: the statement that makes its table.
        folder: where its temporary folder is made; None: where the system has them (``TMPDIR``).
        """
        try:
            self._folder = TemporaryDirectory(prefix="boxengine-audit-", dir=folder)
            self._connection = sqlite3.connect(Path(self._folder.name) / "scratch.db", isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise BoxError(f"no temporary files can be written (TMPDIR): {error}") from error
        # Nobody will read it again, so nothing needs to survive a crash.
        for setting in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{CACHE_KIB}", "temp_store = FILE"):
            self._connection.execute(f"PRAGMA {setting}")
        self._connection.execute(table)

    def insert(self, statement: str, values: Iterable[tuple[Any, ...]]) -> None:
        """Many rows in one transaction."""
        try:
            self._connection.execute("BEGIN")
            self._connection.executemany(statement, values)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._unwritable(error) from error

    def select(self, query: str) -> Generator[Any, None, None]:
        """The rows, one by one. A caller that does not read to the end closes the iterator."""
        try:
            yield from self._connection.execute(query)
        except sqlite3.Error as error:
            raise self._unwritable(error) from error

    def close(self) -> None:
        """Frees the disk."""
        self._connection.close()
        self._folder.cleanup()

    def _unwritable(self, error: sqlite3.Error) -> BoxError:
        return BoxError(f"temporary files in {self._folder.name} (TMPDIR): {error}")
