"""The state of the boxes on a terminal: a table, or, if the terminal is too narrow, a few lines for each box.

The output is plain text, because importing a library for tables takes longer than the look itself. Nothing stored in Redis can
control the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from boxengine.cli.job_status import JOB, SIGNS, job_table
from boxengine.cli.text import aligned, printable, wrapped
from boxengine.domain.words import plural
from boxengine.ports import Precision

COUNTED = ("pending", "retrying", "failed", "delivered", "discarded")
_HEAD = ("box", "side", *COUNTED, "oldest pending", "queue", "lag", "polling", "workers")
_WORKERS = ("worker", "host", "pid", "threads", "since", "boxes")
_NUMBERS = frozenset({*COUNTED, "oldest pending", "queue", "lag", "workers", "pid", "threads"})


def view(rows: Sequence[Mapping[str, Any]], *, width: int) -> str:
    """The boxes, the workers and the open circuits, in lines of at most this width unless a word is longer."""
    jobs = [row for row in rows if row["type"] == JOB]
    rows = [row for row in rows if row["type"] != JOB]
    parts = [_fitting(_HEAD, [_cells(row) for row in rows], width) or _narrow(rows, width)] if rows or not jobs else []
    if jobs:
        parts.append(job_table(jobs))
    workers = list(_workers([*rows, *jobs]))
    if workers:
        parts.append(_fitting(_WORKERS, workers, width) or "\n".join(wrapped(_told(each), width) for each in workers))
    circuits = list(_circuits(rows))
    if circuits:
        parts.append("\n".join(circuits))
    return "\n\n".join(parts)


def _fitting(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str | None:
    table = aligned([head, *rows], right=[name in _NUMBERS for name in head])
    return "\n".join(table) if max(map(len, table)) <= width else None


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [
        row["box"],
        row["type"],
        *(_counted(row, name) for name in COUNTED),
        _length(row["oldest_pending_seconds"]),
        _number(row["queue"]),
        _length(row["queue_lag_seconds"]),
        _polling(row),
        _number(None if row["workers"] is None else len(row["workers"])),
    ]


def _narrow(rows: Sequence[Mapping[str, Any]], width: int) -> str:
    lines = []
    for row in rows:
        oldest = row["oldest_pending_seconds"]
        counts = [f"{_counted(row, name)} {name}" for name in COUNTED]
        if oldest is not None:
            counts[0] += f" (the oldest for {_length(oldest)})"
        workers = "-" if row["workers"] is None else len(row["workers"])
        lag = "" if row["queue_lag_seconds"] is None else f" (lag {_length(row['queue_lag_seconds'])})"
        lines.append(f"{row['type']} {row['box']}")
        lines.append(wrapped(f"  {', '.join(counts)}", width))
        lines.append(
            wrapped(f"  queue {_number(row['queue'])}{lag}, polling {_polling(row)}, workers {workers}", width)
        )
    return "\n".join(lines)


def _workers(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    seen: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
    for row in rows:
        for worker in row["workers"] or ():
            seen.setdefault(worker["id"], (worker, []))[1].append(row["box"])
    for worker, names in seen.values():
        cells = (worker["id"], worker["host"], worker["pid"], worker["threads"], _second(worker["started_at"]))
        yield [*(printable(str(cell)) for cell in cells), ", ".join(names)]


def _told(worker: Sequence[str]) -> str:
    name, host, pid, threads, since, boxes = worker
    return f"worker {name} on {host}, pid {pid}, {plural(int(threads), 'thread')}, since {since}: {boxes}"


def _circuits(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        for circuit in row["circuits"] or ():
            when = circuit["next_try"]
            next_try = "when the call that hangs comes back" if when is None else _second(when)
            yield printable(
                f"circuit: {circuit['transport']} of {row['box']} open since {_second(circuit['since'])}, "
                f"next try {next_try} (worker {circuit['worker']}): {circuit['reason']}"
            )


def _polling(row: Mapping[str, Any]) -> str:
    return {None: "-", True: "paused", False: "on"}[row["paused"]]


def _counted(row: Mapping[str, Any], name: str) -> str:
    number = row[name]
    return "-" if number is None else SIGNS[Precision(row["precision"][name])] + f"{number:,}"


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _length(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))  # noqa: PLR2004 - a minute


def _second(moment: str) -> str:
    """The moment without fractions of its second."""
    return f"{moment[:19]}Z"
