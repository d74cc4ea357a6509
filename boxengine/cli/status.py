"""``boxengine status``: how the boxes are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from boxengine.cli.context import chosen, connect, globals_of, output, print_json
from boxengine.domain.item import rfc3339
from boxengine.errors import Unavailable
from boxengine.ports import Count, Precision, WorkerInfo

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from boxengine.app.servers import Servers
    from boxengine.domain.box import Box

T = TypeVar("T")
COUNTED = ("pending", "retrying", "failed", "delivered", "discarded")
SIGNS = {Precision.EXACT: "", Precision.AT_LEAST: "> ", Precision.ABOUT: "~ "}


def status(
    context: typer.Context,
    box: Annotated[str | None, typer.Argument(help="One box; all if left out.")] = None,
    *,
    exact: Annotated[bool, typer.Option("--exact", help="Count every row, however long it takes.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it anew until interrupted.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON; with --watch one line for each look.")] = False,
) -> None:
    """Show counts by status, the age of the oldest pending item, the queue, pauses, workers and open circuits.

    Answers in a moment however large the tables are: where there are more than 200,000 rows, pending, failed and discarded
    ones are counted up to 100,000 (> 100,000) and the delivered ones estimated (~). Retrying ones are pending and have
    failed before. A worker that was killed shows for half a minute. What cannot be had shows as - and the exit code is 1.

    Examples: boxengine status; boxengine status order_outbox_item --watch; boxengine status --json
    """
    from boxengine.cli.start import stop_event  # noqa: PLC0415 - see Globals.boxes

    boxes = globals_of(context).boxes()
    wanted = chosen(boxes, box)
    servers = connect(boxes)
    look = _Look(servers, wanted, exact=exact, auto_disabled=boxes.resolved.settings.polling_auto_disabled)
    try:
        if not watch:
            code = _once(look, as_json=as_json)
        else:
            code = 0
            _watch(look, stop_event().wait, interval, as_json=as_json)
    finally:
        servers.close()
    raise typer.Exit(code)


def _once(look: _Look, *, as_json: bool) -> int:
    rows = look.rows()
    if as_json:
        print_json(rows)
    else:
        output().print(_tables(rows))
    for problem in [*look.problems, *look.hints]:
        sys.stderr.write(f"boxengine: {problem}\n")
    return 1 if look.problems else 0


def _watch(look: _Look, wait: Callable[[float], bool], interval: float, *, as_json: bool) -> None:
    if as_json:
        while True:
            print_json(look.rows())
            sys.stdout.flush()
            if wait(interval):
                return
    from rich.console import Group  # noqa: PLC0415 - see context.output
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    with Live(console=output(), auto_refresh=False) as live:
        while True:
            rows = look.rows()
            live.update(Group(_tables(rows), *(Text(problem, "red") for problem in look.problems)), refresh=True)
            if wait(interval):
                return


class _Look:
    """Looks at boxes, each part by itself: an outage of one server must not hide what the other knows."""

    def __init__(self, servers: Servers, boxes: Sequence[Box], *, exact: bool, auto_disabled: bool) -> None:
        self._servers = servers
        self._boxes = boxes
        self._exact = exact
        self._auto_disabled = auto_disabled
        self.problems: list[str] = []
        """Of the last look; so the hints."""
        self.hints: list[str] = []

    def rows(self) -> list[dict[str, Any]]:
        """One per box."""
        self.problems, self.hints = [], []
        workers = self._part(self._servers.workers.living)
        return [self._row(box, workers) for box in self._boxes]

    def _row(self, box: Box, workers: list[WorkerInfo] | None) -> dict[str, Any]:
        servers = self._servers
        counts = self._part(lambda: servers.census.take(box, exact=self._exact))
        oldest = self._part(lambda: servers.store.oldest_pending(box))
        queue = self._part(lambda: servers.queue.state(box))
        pauses = self._part(lambda: servers.pauses.polling_enabled([box]))
        found: dict[str, Count | None] = {name: getattr(counts, name, None) for name in COUNTED}
        if counts is not None and None in found.values():
            self.hints.append(f"{box.name}: no index to count by; boxengine db create makes it, --exact does without")
        pushed_at = None if queue is None or queue.oldest_pushed_at is None else _since_epoch(queue.oldest_pushed_at)
        now = servers.clock.now()
        return {
            "box": box.name,
            "type": str(box.type),
            **{name: None if count is None else count.number for name, count in found.items()},
            "precision": {name: str(count.precision) for name, count in found.items() if count is not None},
            "oldest_pending_seconds": _seconds(now, oldest),
            "queue": None if queue is None else queue.length,
            "queue_lag_seconds": _seconds(now, pushed_at),
            "paused": None if pauses is None else not pauses.get(box.name, not self._auto_disabled),
            "circuits": None if workers is None else _circuits(box, workers),
            "workers": None if workers is None else [_worker(each) for each in workers if box.name in each.boxes],
        }

    def _part(self, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except Unavailable as error:
            if str(error) not in self.problems:
                self.problems.append(str(error))
            return None


def _worker(worker: WorkerInfo) -> dict[str, Any]:
    return {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "threads": worker.threads,
        "started_at": rfc3339(worker.started_at),
    }


def _circuits(box: Box, workers: Sequence[WorkerInfo]) -> list[dict[str, Any]]:
    return [
        {
            "transport": circuit.transport,
            "worker": worker.id,
            "since": rfc3339(circuit.since),
            "next_try": None if circuit.next_try is None else rfc3339(circuit.next_try),
            "reason": circuit.reason,
        }
        for worker in workers
        for circuit in worker.circuits
        if circuit.box == box.name
    ]


def _since_epoch(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _seconds(now: datetime, since: datetime | None) -> float | None:
    return None if since is None else max(0.0, round((now - since).total_seconds(), 1))


# ── on a terminal ────────────────────────────────────────────────────────────────────────────────────


def _tables(rows: Sequence[Mapping[str, Any]]) -> Group:
    from rich.console import Group  # noqa: PLC0415 - see context.output
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    boxes = Table("box", *COUNTED, "oldest pending", "queue", "lag", "polling", "workers")
    workers = Table("worker", "host", "pid", "threads", "since", "boxes", title="workers", title_justify="left")
    seen: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
    for row in rows:
        polling = {None: "-", True: "paused", False: "on"}[row["paused"]]
        count = None if row["workers"] is None else len(row["workers"])
        lengths = (_length(row["oldest_pending_seconds"]), _number(row["queue"]), _length(row["queue_lag_seconds"]))
        boxes.add_row(row["box"], *(_counted(row, name) for name in COUNTED), *lengths, polling, _number(count))
        for worker in row["workers"] or ():
            seen.setdefault(worker["id"], (worker, []))[1].append(row["box"])
    for worker, names in seen.values():
        cells = (worker["id"], worker["host"], str(worker["pid"]), str(worker["threads"]), worker["started_at"][:19])
        workers.add_row(*(Text(cell) for cell in cells), ", ".join(names))
    return Group(boxes, *([workers] if seen else []), *_circuit_lines(rows))


def _circuit_lines(rows: Sequence[Mapping[str, Any]]) -> list[Text]:
    from rich.text import Text  # noqa: PLC0415 - see context.output

    lines = []
    for row in rows:
        for circuit in row["circuits"] or ():
            when = circuit["next_try"]
            next_try = "when the call that hangs comes back" if when is None else when[:19]
            lines.append(
                Text(
                    f"circuit: {circuit['transport']} of {row['box']} open since {circuit['since'][:19]}, "
                    f"next try {next_try} (worker {circuit['worker']}): {circuit['reason']}",
                    "yellow",
                )
            )
    return lines


def _counted(row: Mapping[str, Any], name: str) -> str:
    number = row[name]
    return "-" if number is None else SIGNS[Precision(row["precision"][name])] + f"{number:,}"


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _length(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))  # noqa: PLR2004 - a minute
