"""``boxengine status``: the state of the boxes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from time import strftime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxengine.app.running.garbage import put_off
from boxengine.cli.arguments import OneBox
from boxengine.cli.context import (
    chosen,
    connect,
    connect_to_jobs,
    globals_of,
    jobs_chosen,
    output,
    print_json,
    say,
    width,
)
from boxengine.cli.job_status import JobLook
from boxengine.cli.status_view import COUNTED, view
from boxengine.domain.item import rfc3339
from boxengine.errors import StoreUnavailable
from boxengine.ports import Count, OpenCircuit, WorkerInfo, Workers

if TYPE_CHECKING:
    from boxengine.adapters.sql.jobs.store import SqlJobs
    from boxengine.app.boxes import Boxes
    from boxengine.app.overview import BoxView, Lookout


def status(
    context: typer.Context,
    box: OneBox = None,
    *,
    exact: Annotated[bool, typer.Option("--exact", help="Count every row, however long it takes.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until interrupted.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two refreshes.")] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON; with --watch one line per refresh.")] = False,
) -> None:
    """Show counts by status, the age of the oldest pending item, the queue, pauses, workers and open circuits.

    Answers in a moment however large the tables are. If a table has more than 200,000 rows, pending, failed and discarded
    items are counted up to 100,000 (> 100,000), and delivered items are estimated (~). Retrying items are pending and have
    failed before. A worker that was killed shows for half a minute. An unknown value shows as -, and the exit code is 1.
    Each kind of long jobs is counted up to 100,000, and succeeded jobs of a large table are estimated. The lag is how long
    the oldest of the jobs that come next has been ready.

    Examples: boxengine status; boxengine status order_outbox_item --watch; boxengine status --json
    """
    with put_off():
        from boxengine.app.overview import Lookout  # noqa: PLC0415 - see Globals.boxes
        from boxengine.cli.signals import stop_request  # noqa: PLC0415

    boxes = globals_of(context).boxes()
    wanted = chosen(boxes, box)
    servers = connect(boxes)
    auto_disabled = boxes.resolved.settings.polling_auto_disabled
    store = connect_to_jobs(boxes) if boxes.resolved.jobs else None
    of_jobs = [each.box for each in jobs_chosen(boxes, box).values()]
    look = _Look(
        Lookout(servers, wanted, auto_disabled=auto_disabled, exact=exact, tables=servers.store.look_again)
        if wanted
        else None,
        None if store is None else JobLook(store, of_jobs, auto_disabled=auto_disabled, exact=exact),
        None if store is None else _workers_of_jobs(boxes, store),
    )
    try:
        if not watch:
            code = _once(look, as_json=as_json)
        else:
            code = 0
            _watch(look, stop_request().wait, interval, as_json=as_json)
    finally:
        servers.close()
        if store is not None:
            store.close()
    raise typer.Exit(code)


def _once(look: _Look, *, as_json: bool) -> int:
    rows = look.rows()
    if as_json:
        print_json(rows)
    else:
        say(view(rows, width=width()))
    for problem in [*look.problems, *look.hints]:
        sys.stderr.write(f"boxengine: {problem}\n")
    return 1 if look.problems else 0


def _watch(look: _Look, wait: Callable[[float], bool], interval: float, *, as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        while True:
            rows = look.rows()
            if as_json:
                print_json(rows)
            else:
                say("\n".join([view(rows, width=width()), *look.problems, ""]))
            sys.stdout.flush()
            if wait(interval):
                return
    from rich.console import Group  # noqa: PLC0415 - see context.output
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    with Live(console=output(), auto_refresh=False) as live:
        while True:
            shown = Text(view(look.rows(), width=width()))
            # A silent server holds the next look up for half a minute: its time tells an old view from a new one.
            head = [Text(strftime("as of %H:%M:%S"), "dim"), *(Text(problem, "red") for problem in look.problems)]
            # On top, because a screen that is too low for all boxes shows only the beginning.
            live.update(Group(*head, shown), refresh=True)
            if wait(interval):
                return


class _Look:
    """Takes looks at the boxes; each gives one row per box."""

    def __init__(
        self,
        lookout: Lookout | None,
        jobs: JobLook | None,
        of_jobs: Workers | None,
    ) -> None:
        """Args:
        of_jobs: the workers that run long jobs; None: there are no such boxes.
        """
        self._lookout = lookout
        self._jobs = jobs
        self._of_jobs = of_jobs
        self.problems: list[str] = []
        """The problems of the last look; ``hints`` are of the last look, too."""
        self.hints: list[str] = []

    def rows(self) -> list[dict[str, Any]]:
        """Takes a look; returns one row per box."""
        rows: list[dict[str, Any]] = []
        self.problems, self.hints = [], []
        if self._lookout is not None:
            look = self._lookout.look()
            self.problems, self.hints = list(look.unanswered), list(look.hints)
            rows += [_row(each, look.taken_at) for each in look.boxes]
        if self._jobs is not None:
            of_jobs = self._jobs.rows(self.problems)
            workers = self._living() if of_jobs else []
            # Without its table, a box has no place where workers could have announced themselves.
            rows += [
                {**row, "workers": None if row["ready"] is None else _those_of(row["box"], workers)} for row in of_jobs
            ]
        return rows

    def _living(self) -> list[WorkerInfo] | None:
        """The known workers that run long jobs; None: the database does not answer."""
        try:
            return [] if self._of_jobs is None else self._of_jobs.living()
        except StoreUnavailable:
            return None  # told of with the counts


def _workers_of_jobs(boxes: Boxes, store: SqlJobs) -> Workers:
    from boxengine.adapters.sql.jobs.workers import SqlJobWorkers  # noqa: PLC0415 - see Globals.boxes

    return SqlJobWorkers(store, [pipeline.box for pipeline in boxes.resolved.jobs.values()])


def _those_of(job_box: str, workers: Sequence[WorkerInfo] | None) -> list[dict[str, Any]] | None:
    return None if workers is None else [_worker(each) for each in workers if job_box in each.job_boxes]


def _row(seen: BoxView, now: datetime) -> dict[str, Any]:
    found: dict[str, Count | None] = {name: getattr(seen.counts, name, None) for name in COUNTED}
    return {
        "box": seen.box.name,
        "type": str(seen.box.type),
        **{name: None if count is None else count.number for name, count in found.items()},
        "precision": {name: str(count.precision) for name, count in found.items() if count is not None},
        "oldest_pending_seconds": None if seen.waited is None else round(seen.waited.total_seconds(), 1),
        "queue": seen.queue_length,
        "queue_lag_seconds": _seconds(now, seen.queue_since),
        "paused": seen.paused,
        "circuits": None if seen.workers is None else [_circuit(worker, each) for worker, each in seen.circuits],
        "workers": None if seen.workers is None else [_worker(each) for each in seen.workers],
        "error": seen.broken,
    }


def _worker(worker: WorkerInfo) -> dict[str, Any]:
    return {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "threads": worker.threads,
        "started_at": rfc3339(worker.started_at),
    }


def _circuit(worker: WorkerInfo, circuit: OpenCircuit) -> dict[str, Any]:
    return {
        "transport": circuit.transport,
        "worker": worker.id,
        "since": rfc3339(circuit.since),
        "next_try": None if circuit.next_try is None else rfc3339(circuit.next_try),
        "reason": circuit.reason,
    }


def _seconds(now: datetime, since: datetime | None) -> float | None:
    return None if since is None else max(0.0, round((now - since).total_seconds(), 1))
