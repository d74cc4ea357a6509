"""What the keys of job boxes must be to one another, and to those of other boxes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from boxengine.domain.jobs import Executor
from boxengine.domain.names import BOX_NAME
from boxengine.engine.jobs.timing import SHORTEST_LEASE
from boxengine.errors import InvalidItem
from boxengine.settings.diagnosis import Finding
from boxengine.settings.jobs import JobBoxSettings
from boxengine.settings.origin import Path, dotted
from boxengine.settings.schema import Settings

SCHEDULE_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


def check(settings: Settings) -> Iterator[Finding]:
    """Contradictions of job boxes."""
    tables = {settings.spelled_out(box.table_for(name)): name for name, box in settings.boxes.items()}
    seen: dict[str, str] = {}
    for name, box in settings.job_items.items():
        path = ("job_items", name)
        if not BOX_NAME.fullmatch(name):
            yield Finding(path, "not a box name; expected lower case with underscores, with / for a namespace")
        if name in settings.boxes:
            yield Finding(path, "the name is used by another box too; expected one box of each name")
        yield from _lease(path, box)
        if box.executor is Executor.PROCESS and os.name != "posix":
            yield Finding((*path, "executor"), "process works on Linux and macOS; expected thread")
        yield from _cron(path, name, box)
        if box.model is None or box.table is not None:
            table = settings.spelled_out(box.table_for(name))
            other = tables.get(table) or seen.get(table)
            seen.setdefault(table, name)
            if other is not None:
                where = dotted(("job_items" if other in settings.job_items else "outbox_items or inbox_items", other))
                yield Finding(
                    (*path, "table"), f"works on table {table!r}, as does {where}; expected a table for each box"
                )


def _cron(path: Path, name: str, box: JobBoxSettings) -> Iterator[Finding]:
    if not box.cron:
        return
    from boxengine.engine.jobs.create import JobChecks  # noqa: PLC0415 - most configurations have no schedule

    checks = JobChecks(box.box(name, table=box.table_for(name), owner=None), tasks=box.tasks)
    for schedule, settings in box.cron.items():
        here = (*path, "cron", schedule)
        if not SCHEDULE_NAME.fullmatch(schedule):
            yield Finding(here, "not a schedule's name; expected letters, digits, dashes and underscores, 100 at most")
        if settings.task not in box.tasks:
            known = ", ".join(sorted(box.tasks)) or "none is configured"
            yield Finding((*here, "task"), f"no task {settings.task!r}; known: {known}")
            continue
        try:
            checks.checked({**settings.plan(schedule).attributes, "task": settings.task})
        except InvalidItem as error:
            yield Finding(here, str(error))


def _lease(path: Path, box: JobBoxSettings) -> Iterator[Finding]:
    seconds = box.lease_ttl.total_seconds()
    if seconds < SHORTEST_LEASE or not seconds.is_integer():
        yield Finding((*path, "lease_ttl"), f"expected whole seconds from {SHORTEST_LEASE:g} up, got {seconds:g}")
