"""Boxes of long jobs, as ``boxengine status`` and ``boxengine jobs stat`` show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from boxengine.cli.text import aligned
from boxengine.errors import BoxError
from boxengine.ports import Precision

if TYPE_CHECKING:
    from boxengine.adapters.sql.jobs.store import SqlJobs
    from boxengine.domain.jobs import JobBox

JOB = "job"
_STATE = {None: "-", False: "on", True: "paused"}
SIGNS = {Precision.EXACT: "", Precision.AT_LEAST: "> ", Precision.ABOUT: "~ "}
WAITING = ("ready", "taken", "delayed", "blocked")
ENDED = ("succeeded", "failed", "canceled", "lost")
NUMBERS = ("total", *WAITING, *ENDED)
COUNTED_TO = 100_000
"""The limit for each kind of jobs."""
_HEAD = ("jobs", *WAITING, *ENDED, "lag", "state")


class JobLook:
    """Counts the jobs of some boxes."""

    def __init__(self, store: SqlJobs, boxes: Sequence[JobBox], *, auto_disabled: bool, exact: bool = False) -> None:
        self._store = store
        self._boxes = boxes
        self._auto_disabled = auto_disabled
        self._limit = None if exact else COUNTED_TO

    def rows(self, problems: list[str]) -> list[dict[str, Any]]:
        """One row per box; adds an entry to ``problems`` for each box that could not be counted."""
        from boxengine.adapters.sql.jobs.inspection import SqlJobInspector  # noqa: PLC0415 - see Globals.boxes
        from boxengine.adapters.sql.jobs.pauses import SqlJobPauses  # noqa: PLC0415
        from boxengine.adapters.system import SystemClock  # noqa: PLC0415
        from boxengine.app.overview.wait_once import WaitOnce  # noqa: PLC0415

        inspector, pauses, rows = SqlJobInspector(self._store), SqlJobPauses(self._store), []
        database = WaitOnce(SystemClock())
        for box in self._boxes:
            row: dict[str, Any] = {
                "box": box.name,
                "type": JOB,
                **dict.fromkeys((*NUMBERS, "precision", "lag_seconds", "paused", "error")),
            }
            try:
                found = database.ask(partial(inspector.counts, box, limit=self._limit))
                running = database.ask(partial(pauses.running, box))
            except BoxError as error:
                problems.append(f"{box.name}: {error}")
                row["error"] = str(error)
            else:
                counts = {name: getattr(found, name) for name in ("total", *WAITING)}
                counts |= {str(state): count for state, count in found.ended.items()}
                row |= {name: counts[name].number for name in NUMBERS}
                row["precision"] = {name: str(counts[name].precision) for name in NUMBERS}
                row["paused"] = self._auto_disabled if running is None else not running
                row["lag_seconds"] = None if found.waits is None else round(found.waits.total_seconds(), 1)
            rows.append(row)
        return rows


def job_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table with one line per box."""
    cells = [
        [row["box"], *(_number(row, name) for name in (*WAITING, *ENDED)), _lag(row), _STATE[row["paused"]]]
        for row in rows
    ]
    return "\n".join(aligned([_HEAD, *cells], right=[name not in ("jobs", "state") for name in _HEAD]))


def _number(row: Mapping[str, Any], name: str) -> str:
    return "-" if row[name] is None else f"{SIGNS[row['precision'][name]]}{row[name]:,}"


def _lag(row: Mapping[str, Any]) -> str:
    return "-" if row["lag_seconds"] is None else f"{row['lag_seconds']:,.0f} s"
