"""What ``boxengine status`` and ``boxengine jobs stat`` say of boxes of long jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from boxengine.cli.text import aligned
from boxengine.errors import BoxError

if TYPE_CHECKING:
    from boxengine.adapters.sql.jobs.store import SqlJobs
    from boxengine.domain.jobs import JobBox

JOB = "job"
WAITING = ("ready", "taken", "delayed", "blocked")
ENDED = ("succeeded", "failed", "canceled", "lost")
_HEAD = ("jobs", *WAITING, *ENDED)


class JobLook:
    """Counts the jobs of some boxes."""

    def __init__(self, store: SqlJobs, boxes: Sequence[JobBox]) -> None:
        self._store = store
        self._boxes = boxes

    def rows(self, problems: list[str]) -> list[dict[str, Any]]:
        """One per box; adds to ``problems`` what could not be had."""
        from boxengine.adapters.sql.jobs.desk import SqlJobDesk  # noqa: PLC0415 - see Globals.boxes

        desk, rows = SqlJobDesk(self._store), []
        for box in self._boxes:
            row: dict[str, Any] = {"box": box.name, "type": JOB, **dict.fromkeys(("total", *WAITING, *ENDED))}
            try:
                stat = desk.stat(box)
            except BoxError as error:
                problems.append(f"{box.name}: {error}")
            else:
                row |= {name: getattr(stat, name) for name in ("total", *WAITING)}
                row |= dict.fromkeys(ENDED, 0) | {str(state): count for state, count in stat.finished.items()}
            rows.append(row)
        return rows


def job_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each box."""
    cells = [[row["box"], *(_number(row[name]) for name in (*WAITING, *ENDED))] for row in rows]
    return "\n".join(aligned([_HEAD, *cells], right=[False, *(True for _ in _HEAD[1:])]))


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
