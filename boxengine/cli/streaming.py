"""Writes lines batch by batch, for ``boxengine create --jsonl``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from boxengine.cli.context import notes
from boxengine.cli.lines import LONGEST_LINE, item_of
from boxengine.domain.words import plural
from boxengine.errors import BoxError, InvalidItem, Unavailable

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

BATCH = 1000
"""Items per statement and transaction."""
BATCH_BYTES = 16 << 20
"""Bytes after which a batch is written even if it has fewer items."""
Item = Any
"""A dict of attributes, read from a line; errors in it may be found only when it is written."""


class BadLine(BoxError):
    """A line of the input is not a valid item. Nothing of its batch has been written."""


class Writer:
    def __init__(self, engine: Engine, create: Callable[[Connection, list[Item]], list[int]]) -> None:
        self._engine = engine
        self._create = create

    def write(self, items: list[Item]) -> list[int]:
        """Writes the items in one transaction.

        Raises:
            InvalidItem: one of the items cannot be written, and so none is.
            StoreUnavailable: the database refused, or does not answer. Nothing is written then either.
        """
        from boxengine.adapters.sql.connecting.errors import blaming_the_row, translated  # noqa: PLC0415 - see Globals.boxes

        with translated(self._engine), blaming_the_row(), self._engine.begin() as connection:
            return self._create(connection, items)

    def refused(self, items: list[Item]) -> dict[int, InvalidItem]:
        """The items that cannot be written, by position, with the reasons. Tries all one by one, and rolls them back."""
        from boxengine.adapters.sql.connecting.errors import blaming_the_row, translated  # noqa: PLC0415 - see Globals.boxes

        refused = {}
        with translated(self._engine), self._engine.connect() as connection:
            for position, item in enumerate(items):
                try:
                    with blaming_the_row(), connection.begin_nested():
                        self._create(connection, [item])
                except InvalidItem as error:
                    refused[position] = error
        return refused


@dataclass(slots=True)
class Stream:
    """Reads lines, and writes them batch by batch."""

    writer: Writer
    skip_bad: bool = field(kw_only=True)
    parsed: Callable[[bytes], Item] = field(default=item_of, kw_only=True)
    noun: str = field(default="item", kw_only=True)
    written: int = 0
    bad: int = 0
    _items: list[Item] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)
    """The line number of each item."""
    _bytes: int = 0
    _next: int = 1
    """The first line that is not written yet."""
    _reading: bool = False
    _stopping: bool = False

    def stop(self) -> None:
        """Called in a signal's handler. A batch that is being written is finished first, so that it is known what is written.

        Raises:
            BoxError: nothing is being written.
        """
        self._stopping = True
        if self._reading:
            raise self._stopped()

    def run(self, lines: IO[bytes], size: int | None) -> None:
        from rich.progress import (  # noqa: PLC0415 - see context.output
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=notes(), disable=not sys.stderr.isatty()) as progress:
            task = progress.add_task("bytes", total=size)
            for number, line in enumerate(self._read(lines), start=1):
                progress.advance(task, len(line))
                if line.strip():
                    self._take(number, line)
                if len(self._items) == BATCH or self._bytes >= BATCH_BYTES:
                    self._write(following=number + 1)
            if self._items:
                self._write(following=0)

    def _read(self, lines: IO[bytes]) -> Iterator[bytes]:
        bounded = _bounded(lines)
        while True:
            self._reading = True
            if self._stopping:
                raise self._stopped()
            line = next(bounded, None)
            self._reading = False
            if line is None:
                return
            yield line

    def _take(self, number: int, line: bytes) -> None:
        try:
            self._items.append(self.parsed(line))
        except InvalidItem as error:
            self._complain(number, error)
        else:
            self._numbers.append(number)
            self._bytes += len(line)

    def _write(self, *, following: int) -> None:
        while self._items and not self._wrote():
            pass
        self._items, self._numbers, self._bytes, self._next = [], [], 0, following

    def _wrote(self) -> bool:
        """Tries to write the batch; if that fails, removes the lines that prevented it and returns False."""
        try:
            self.written += len(self.writer.write(self._items))
        except (InvalidItem, Unavailable) as error:
            guilty = self._guilty(error)
            for position, reason in guilty.items():
                self._complain(self._numbers[position], reason)
            kept = [position for position in range(len(self._items)) if position not in guilty]
            self._items, self._numbers = [self._items[at] for at in kept], [self._numbers[at] for at in kept]
            return False
        return True

    def _guilty(self, error: InvalidItem | Unavailable) -> dict[int, InvalidItem]:
        try:
            found = self.writer.refused(self._items)
        except Unavailable as unavailable:
            raise type(unavailable)(f"{unavailable}; {self._progress()}") from error
        if found:
            return found
        first, last = self._numbers[0], self._numbers[-1]
        raise type(error)(f"lines {first} to {last}: {error}; {self._progress()}") from error

    def _complain(self, number: int, error: InvalidItem) -> None:
        if not self.skip_bad:
            raise BadLine(f"line {number}: {error}; {self._progress()}") from error
        self.bad += 1
        notes().print(f"line {number}: {error}", markup=False)

    def _stopped(self) -> BoxError:
        return BoxError(f"stopped; {self._progress()}")

    def _progress(self) -> str:
        return f"{plural(self.written, self.noun)} written, go on from line {self._next}"


def _bounded(lines: IO[bytes]) -> Iterator[bytes]:
    """The lines; of a line that is too long to be an item, only the beginning."""
    while line := lines.readline(LONGEST_LINE + 2):
        rest = line
        while not rest.endswith(b"\n") and len(rest) == LONGEST_LINE + 2:
            rest = lines.readline(LONGEST_LINE + 2)
        yield line


@contextmanager
def opened(name: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """The lines, and their size in bytes if it is known."""
    if name == "-":
        yield sys.stdin.buffer, None
        return
    with Path(name).open("rb") as file:
        yield file, Path(name).stat().st_size
