"""``boxengine cleanup``: one retention pass."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Self

import typer

from boxengine.cli.arguments import OneBox
from boxengine.cli.context import chosen, connect, globals_of, notes, output
from boxengine.domain.words import plural
from boxengine.errors import BoxError, SchemaMismatch, StoreUnavailable
from boxengine.ports.events import Deleted, Event, OutageBegan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boxengine.cli.signals import StopRequest
    from boxengine.domain.box import Box
    from boxengine.engine.retention import Retention
    from boxengine.ports import HistoryStore

LINE_EVERY = 10.0
"""Seconds between two progress lines, if there is no terminal for a progress bar."""


def cleanup(
    context: typer.Context,
    box: OneBox = None,
) -> None:
    """Delete finished items that are older than the box's retention. The worker does so every 10 minutes by itself.

    Deletes gently: deletion_batch_size rows per transaction, with deletion_sleep_time between two. Reports its progress
    from time to time. The first signal ends it after the current statement. If a worker is cleaning up a box, the command
    skips that box and exits with 1.

    Examples: boxengine cleanup; boxengine cleanup order_outbox_item
    """
    from boxengine.adapters.telemetry.logs import report  # noqa: PLC0415 - see Globals.boxes
    from boxengine.cli.signals import stop_request  # noqa: PLC0415
    from boxengine.engine.retention import Retention  # noqa: PLC0415
    from boxengine.engine.running.outages import Outages  # noqa: PLC0415

    boxes = globals_of(context).boxes()
    wanted = chosen(boxes, box)
    servers = connect(boxes)
    with _Telling() as telling:
        retention = Retention(
            wanted,
            store=servers.store,
            leases=servers.leases,
            outages=Outages(observer=telling, error_tracker=report, clock=servers.clock),
            observer=telling,
            clock=servers.clock,
            token=secrets.token_hex(8),
            looks=None,
            partitions=servers.store,
        )
        stopping = stop_request(on_stop=retention.stop)
        try:
            problems = _clean_up(retention, wanted, telling, stopping, database=servers.store)
        finally:
            servers.close()
    if problems:
        raise BoxError("; ".join(problems))


def _clean_up(
    retention: Retention, boxes: Sequence[Box], telling: _Telling, stopping: StopRequest, *, database: HistoryStore
) -> list[str]:
    """Returns what kept boxes from being cleaned up.

    Raises:
        Unavailable: a server does not answer.
    """
    busy, problems = [], list[str]()
    for box in boxes:
        telling.begin(box)
        try:
            deleted = retention.clean_up(box)
        except SchemaMismatch as error:
            # One box that cannot be used must not leave the others to grow.
            problems.append(str(error))
            continue
        except StoreUnavailable as error:
            # Nor must a locked table, or a row that another table refers to. This raises if the database is gone.
            database.now()
            problems.append(f"{box.name}: {error}")
            continue
        if deleted is None:
            busy.append(box.name)
        else:
            output().print(f"{box.name}: {plural(deleted, 'item')} deleted", markup=False)
        if stopping.is_set:
            raise BoxError("stopped before the end; run the same command again to finish")
    if busy:
        problems.append(f"a worker is cleaning up {', '.join(busy)} right now")
    return problems


class _Telling:
    """Shows the progress of a pass: continuously on a terminal, else with a line every ten seconds of work."""

    def __init__(self) -> None:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - see context.output

        columns = (SpinnerColumn(), TextColumn("{task.description}: {task.completed:,.0f} items deleted"))
        self._progress = Progress(*columns, TimeElapsedColumn(), console=notes(), disable=not sys.stderr.isatty())
        self._task = self._progress.add_task("")
        self._told_at = self._progress.get_time()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()

    def begin(self, box: Box) -> None:
        """Starts the progress of the next box."""
        self._progress.reset(self._task, description=box.name)

    def see(self, event: Event) -> None:
        """The observer's method: counts the rows that each transaction deleted, and says what else went wrong."""
        if isinstance(event, OutageBegan):
            notes().print(f"{event.what}: {event.reason}", markup=False)
        if not isinstance(event, Deleted):
            return
        self._progress.advance(self._task, event.rows)
        now = self._progress.get_time()
        if self._progress.disable and now - self._told_at > LINE_EVERY:
            self._told_at = now
            notes().print(
                f"{event.box.name}: {self._progress.tasks[0].completed:,.0f} items deleted so far", markup=False
            )
