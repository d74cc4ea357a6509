"""``boxengine create``: inserts items, one from options or many from JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from boxengine.cli.arguments import BoxName
from boxengine.cli.context import connect_to_jobs, globals_of, notes, output
from boxengine.cli.ids import ids_in
from boxengine.cli.jobs import create_job, job_attributes
from boxengine.cli.lines import LONGEST_LINE, item_of, job_of
from boxengine.domain.box import BoxType
from boxengine.domain.jobs import AfterFailure
from boxengine.domain.words import plural
from boxengine.errors import BadUsage, BoxError, InvalidItem, Unavailable

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from boxengine.app.boxes import Boxes

BATCH = 1000
"""Items per statement and transaction."""
BATCH_BYTES = 16 << 20
"""Bytes after which a batch is written even if it has fewer items."""
_OF_ITEMS = ("event_key", "payload", "payload_file", "event_name")
_OF_JOBS = ("args", "lock_key", "idempotency_key", "priority", "delay", "after", "after_failure")
"""Options of a single job; ``--task`` applies to lines, too."""
Item = Any
"""A dict of attributes, read from a line; errors in it may be found only when it is written."""


class BadLine(BoxError):
    """A line of the input is not a valid item. Nothing of its batch has been written."""


def create(
    context: typer.Context,
    box: BoxName,
    event_key: Annotated[str | None, typer.Option("--event-key", help="What the item is about; its order key.")] = None,
    payload: Annotated[str | None, typer.Option("--payload", help="The payload as text.")] = None,
    payload_file: Annotated[Path | None, typer.Option("--payload-file", help="Or a file that holds it.")] = None,
    event_name: Annotated[str | None, typer.Option("--event-name", help="What happened.")] = None,
    *,
    jsonl: Annotated[
        str | None, typer.Option("--jsonl", help="A file of JSON lines, one item or job each, or - for standard input.")
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="Of a job: which handler runs it.")] = None,
    args: Annotated[str | None, typer.Option("--args", help="Of a job: JSON.")] = None,
    lock_key: Annotated[
        str | None, typer.Option("--lock-key", help="Of a job: one runs at a time for each such key.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", help="Of a job: the same key is the same job.")
    ] = None,
    priority: Annotated[int, typer.Option("--priority", help="Of a job: lower goes first.")] = 100,
    delay: Annotated[float | None, typer.Option("--delay", min=0, help="Of a job: seconds before it may run.")] = None,
    after: Annotated[
        str | None,
        typer.Option("--after", help="Of a job: ids of jobs that must have succeeded before it starts: 1,2,3."),
    ] = None,
    after_failure: Annotated[
        AfterFailure,
        typer.Option("--after-failure", help="Of a job: what happens to it when one of those does not succeed."),
    ] = AfterFailure.CANCEL,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Report bad lines and go on.")] = False,
) -> None:
    """Put items into an outbox or an inbox, or a job into a box of long jobs.

    A JSON line is an object with event_key and payload (text, or any JSON value, which is stored as JSON; or
    payload_base64), and, if wanted, event_name, options, uuid, dedup_key and available_at. Lines are written 1,000
    to a transaction. A bad line ends the command before its batch is written; earlier batches are written. A line
    for a box of long jobs has task (or --task gives it) and what else create_job takes.

    Examples: boxengine create order_outbox_item --event-key 42 --payload '{"id": 42}';
    boxengine create order_outbox_item --jsonl items.jsonl; boxengine create report_job --task export --args '{"day": 1}';
    boxengine create report_job --jsonl jobs.jsonl; boxengine create report_job --task send --after 1,2
    """
    from boxengine.app.servers.database import connect_store  # noqa: PLC0415 - see Globals.boxes

    boxes = globals_of(context).boxes()
    if jsonl is not None:
        _refuse(context, (*_OF_ITEMS, *_OF_JOBS), "cannot be combined with --jsonl, whose lines have their own values")
    if box in boxes.resolved.jobs:
        _refuse(context, _OF_ITEMS, f"is for items, and {box} has long jobs: see --task and --args")
        if jsonl is not None:
            create_jobs(boxes, box, jsonl, task=task, skip_bad=skip_bad)
            return
        if task is None:
            raise BadUsage("--task is needed for a job")
        attributes = job_attributes(args, lock_key, idempotency_key, priority, delay)
        attributes |= {"after": None if after is None else ids_in([after], "--after"), "after_failure": after_failure}
        output().print(f"job {create_job(boxes, box, task, attributes)} written to {box}")
        return
    _refuse(context, ("task", *_OF_JOBS), f"is for long jobs, and {box} has items")
    outbox = boxes.written(box).type is BoxType.OUTBOX
    create_one = boxes.create_outbox_item if outbox else boxes.create_inbox_item
    create_batch = boxes.create_outbox_batch if outbox else boxes.create_inbox_batch
    store = connect_store(boxes.resolved.settings)
    try:
        if jsonl is not None:
            writer = _Writer(store.engine, lambda connection, items: create_batch(connection, box, items))
            _stream(_Stream(writer, skip_bad=skip_bad), jsonl, box)
            return
        item = _item(event_key, payload, payload_file, event_name)
        # As one item, so that the middlewares of create_item see it.
        writer = _Writer(store.engine, lambda connection, items: [create_one(connection, box, **items[0])])
        ids = writer.write([item])
        output().print(f"item {ids[0]} written to {box}")
        if not item["payload"]:
            notes().print("its payload is empty; --payload or --payload-file gives one")
    except OSError as error:
        raise BoxError(f"{error.filename or jsonl or payload_file}: {error.strerror}") from error
    finally:
        store.close()


def _item(event_key: str | None, payload: str | None, payload_file: Path | None, event_name: str | None) -> Item:
    """The attributes of one item, from the command's options."""
    if event_key is None:
        raise BadUsage("--event-key is needed, or --jsonl")
    if payload is not None and payload_file is not None:
        raise BadUsage("--payload-file cannot be combined with --payload")
    data = payload_file.read_bytes() if payload_file else (payload or "").encode(errors="surrogateescape")
    return {"event_key": event_key, "payload": data} | ({} if event_name is None else {"event_name": event_name})


def _refuse(context: typer.Context, options: Iterable[str], reason: str) -> None:
    """Refuses options that would be ignored."""
    for name in options:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise BadUsage(f"--{name.replace('_', '-')} {reason}")


def create_jobs(boxes: Boxes, box: str, jsonl: str, *, task: str | None, skip_bad: bool) -> None:
    """Creates long jobs from lines; ``task`` applies to lines that name none."""
    store = connect_to_jobs(boxes)
    writer = _Writer(store.engine, boxes.job_creator(box).create)
    try:
        _stream(_Stream(writer, skip_bad=skip_bad, parsed=partial(job_of, task=task), noun="job"), jsonl, box)
    except OSError as error:
        raise BoxError(f"{error.filename or jsonl}: {error.strerror}") from error
    finally:
        store.close()


def _stream(stream: _Stream, jsonl: str, box: str) -> None:
    from boxengine.cli.signals import stoppable  # noqa: PLC0415 - see Globals.boxes

    with stoppable(on_stop=stream.stop), _opened(jsonl) as (lines, size):
        stream.run(lines, size)
    left_out = f", {plural(stream.bad, 'bad line')} left out" if stream.bad else ""
    output().print(f"{plural(stream.written, stream.noun)} written to {box}{left_out}")


class _Writer:
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
class _Stream:
    """Reads lines, and writes them batch by batch."""

    writer: _Writer
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
def _opened(name: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """The lines, and their size in bytes if it is known."""
    if name == "-":
        yield sys.stdin.buffer, None
        return
    with Path(name).open("rb") as file:
        yield file, Path(name).stat().st_size
