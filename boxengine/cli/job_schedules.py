"""What ``boxengine jobs schedules`` shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from boxengine.cli.text import aligned
from boxengine.domain.item import rfc3339

if TYPE_CHECKING:
    from boxengine.adapters.sql.jobs.store import SqlJobs
    from boxengine.engine.jobs.pipeline import JobPipeline

_SHOWN = ("box", "schedule", "cron", "timezone", "task", "misfire", "next_run", "handled_until")


def schedule_rows(store: SqlJobs, pipelines: Iterable[JobPipeline]) -> list[dict[str, Any]]:
    """One for each schedule of these boxes; those without one are not asked for."""
    from boxengine.adapters.sql.jobs.schedules import SqlSchedules  # noqa: PLC0415 - see Globals.boxes

    rows = []
    for pipeline in pipelines:
        if not pipeline.schedules:
            continue
        known = SqlSchedules(store).known(pipeline.box)
        for each in pipeline.schedules:
            handled = known.handled_until.get(each.name)
            rows.append(
                {
                    "box": pipeline.box.name,
                    "schedule": each.name,
                    "cron": each.cron.text,
                    "timezone": each.zone_name,
                    "task": each.task,
                    "misfire": str(each.misfire),
                    "next_run": each.next_after(known.now).astimezone(each.zone).isoformat(),
                    "handled_until": None if handled is None else rfc3339(handled),
                }
            )
    return rows


def schedule_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each schedule."""
    if not rows:
        return "no schedules: see the key cron of job boxes"
    head = [name.replace("_", " ") for name in _SHOWN]
    return "\n".join(
        aligned([head, *([row[name] or "" for name in _SHOWN] for row in rows)], right=[False] * len(head))
    )
