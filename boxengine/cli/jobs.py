"""``boxengine jobs``: look at long jobs, cancel them, run them again."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxengine.adapters.contracts import readable
from boxengine.cli.arguments import AsJson, BoxName, Ids, Numbers, OneBox
from boxengine.cli.context import connect_to_jobs, globals_of, jobs_chosen, print_json, say
from boxengine.cli.ids import LARGEST, ids_in
from boxengine.cli.job_schedules import schedule_rows, schedule_table
from boxengine.cli.job_status import JobLook, job_table
from boxengine.cli.left_alone import explain
from boxengine.cli.text import aligned, printable
from boxengine.domain.item import rfc3339
from boxengine.domain.jobs import FINAL, JobBox, JobState, Waits
from boxengine.domain.masking import masked_text
from boxengine.domain.words import plural
from boxengine.errors import BadUsage, BoxError, UnknownBox
from boxengine.ports.jobs import LATEST_EVENTS, JobDesk, JobFilter

if TYPE_CHECKING:
    from boxengine.app.boxes import Boxes

cli = typer.Typer(help="Look at long jobs, cancel them, run them again.", no_args_is_help=True)
States = Annotated[list[JobState] | None, typer.Option("--status", "-s", help="Of this status; repeatable.")]
Task = Annotated[str | None, typer.Option("--task", help="Of this task.")]
LockKey = Annotated[str | None, typer.Option("--lock-key", help="Of this lock key.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_WAITS = {
    Waits.NOTHING: None,
    Waits.TIME: "until available_at",
    Waits.LOCK: "for another job with its lock_key",
    Waits.JOBS: "for other jobs",
}
"""What ``jobs show`` prints for the number in the column."""
_SHOWN = ("id", "task", "status", "attempt", "priority", "lock_key", "created_at", "progress")


@cli.command("list")
def list_(
    context: typer.Context,
    box: BoxName,
    *,
    status: States = None,
    task: Task = None,
    lock_key: LockKey = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=LARGEST, help="At most this many.")] = 50,
    as_json: AsJson = False,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="As JSON, one job per line.")] = False,
) -> None:
    """List jobs, the newest first.

    Examples: boxengine jobs list report_job --status failed; boxengine jobs list report_job --jsonl --limit 100000
    """
    with _desk(globals_of(context).boxes(), box) as (desk, found):
        rows = desk.list(found, JobFilter(states=status, task=task, lock_key=lock_key), limit=limit)
    if jsonl:
        for row in rows:
            print_json(_plain(row))
    elif as_json:
        print_json([_plain(row) for row in rows])
    elif rows:
        head = [name.removesuffix("_at") for name in _SHOWN]
        cells = [[printable(_text(row[name])) for name in _SHOWN] for row in rows]
        say("\n".join(aligned([head, *cells], right=[name in ("id", "attempt", "priority") for name in _SHOWN])))
    else:
        say("no such jobs")


@cli.command("show")
def show(
    context: typer.Context,
    box: BoxName,
    job_id: Annotated[int, typer.Argument(metavar="ID", max=LARGEST, help="The job's id.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show one job with its progress, the latest 1,000 entries of its journal, and the jobs that it waits for."""
    with _desk(globals_of(context).boxes(), box) as (desk, found):
        row = desk.show(found, job_id)
    if row is None:
        raise BoxError(f"box {box} has no job {job_id}")
    row = {**row, "args": readable(row["args"])}
    if as_json:
        print_json(_plain(row))
        return
    shown = {**row, "waits": _WAITS.get(row["waits"], row["waits"])}
    fields = [
        (name, value) for name, value in shown.items() if name not in ("events", "after") and value not in (None, "")
    ]
    fields += [("waits for" if each["waits"] else "waited for", _awaited(each)) for each in row["after"]]
    say("\n".join(f"{name:18}{printable(_text(value), lines=True)}" for name, value in fields))
    say("")
    if len(row["events"]) == LATEST_EVENTS:
        say(f"the latest {LATEST_EVENTS:,} entries of its journal:")
    for event in row["events"]:
        say(f"{_text(event['ts'])}  {event['kind']:10}{printable(_text(event['payload']))}".rstrip())


@cli.command("cancel")
def cancel(
    context: typer.Context,
    box: BoxName,
    numbers: Numbers = None,
    *,
    ids: Ids = None,
    status: States = None,
    task: Task = None,
    lock_key: LockKey = None,
    yes: Yes = False,
) -> None:
    """Cancel queued jobs, and ask the handlers of running ones to stop.

    A handler learns of the cancel within half a second, or with its next heartbeat if its worker gets no wake-ups, and stops
    when it reads job.cancelled. A handler that never reads it runs to its end.

    Examples: boxengine jobs cancel report_job 42; boxengine jobs cancel report_job --task export --yes
    """
    unfinished = [state for state in JobState if state not in FINAL]
    _refuse_unsuitable(status, takes=unfinished, what="cancel")
    which = JobFilter(ids=_chosen(numbers, ids), states=status, task=task, lock_key=lock_key)
    with _desk(globals_of(context).boxes(), box) as (desk, found):
        _agreed(which, yes=yes, what="cancel")
        _explain(desk, found, which, takes=unfinished)
        say(f"{plural(desk.cancel(found, which), 'job')} canceled or asked to stop")


@cli.command("retry")
def retry(
    context: typer.Context,
    box: BoxName,
    numbers: Numbers = None,
    *,
    ids: Ids = None,
    status: States = None,
    task: Task = None,
    lock_key: LockKey = None,
    yes: Yes = False,
) -> None:
    """Queue finished jobs again, with all their attempts and their last checkpoint.

    Takes failed and lost jobs; with ids or --status also others that are finished.

    Example: boxengine jobs retry report_job 42
    """
    _refuse_unsuitable(status, takes=FINAL, what="retry")
    states = status if status or numbers or ids else [JobState.FAILED, JobState.LOST]
    which = JobFilter(ids=_chosen(numbers, ids), states=states, task=task, lock_key=lock_key)
    with _desk(globals_of(context).boxes(), box) as (desk, found):
        _agreed(which, yes=yes, what="retry")
        _explain(desk, found, which, takes=FINAL if states is None else states)
        say(f"{plural(desk.retry(found, which), 'job')} queued again")


@cli.command("stat")
def stat(
    context: typer.Context,
    box: OneBox = None,
    *,
    exact: Annotated[bool, typer.Option("--exact", help="Count every job, however long it takes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Count jobs: ready, taken, delayed, blocked behind another job, and finished ones by their end.

    Answers in a moment however large the tables are: each kind is counted up to 100,000 (> 100,000). If there are more than
    200,000 jobs, succeeded jobs are estimated (~). The lag is how long the oldest of the jobs that come next has been
    ready.
    """
    boxes = globals_of(context).boxes()
    if box is not None:
        _box(boxes, box)
    store, problems = connect_to_jobs(boxes), list[str]()
    auto_disabled = boxes.resolved.settings.polling_auto_disabled
    try:
        rows = JobLook(
            store, [each.box for each in jobs_chosen(boxes, box).values()], auto_disabled=auto_disabled, exact=exact
        ).rows(problems)
    finally:
        store.close()
    if as_json:
        print_json(rows)
    else:
        say(job_table(rows))
    for problem in problems:
        sys.stderr.write(f"boxengine: {masked_text(problem)}\n")
    raise typer.Exit(1 if problems else 0)


@cli.command("schedules")
def schedules(
    context: typer.Context,
    box: OneBox = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List the schedules of boxes with their next runs, by the database's clock.

    handled_until is empty while no worker has seen a schedule. The schedule's runs count from the moment at which a worker
    first sees it.

    Example: boxengine jobs schedules report_job
    """
    boxes = globals_of(context).boxes()
    if box is not None:
        _box(boxes, box)
    store = connect_to_jobs(boxes)
    try:
        rows = schedule_rows(store, jobs_chosen(boxes, box).values())
    finally:
        store.close()
    if as_json:
        print_json(rows)
    else:
        say(schedule_table(rows))


# ── parts ────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _desk(boxes: Boxes, name: str) -> Iterator[tuple[JobDesk, JobBox]]:
    from boxengine.adapters.sql.jobs.desk import SqlJobDesk  # noqa: PLC0415 - see Globals.boxes

    box, store = _box(boxes, name), connect_to_jobs(boxes)
    try:
        yield SqlJobDesk(store, wakeup=boxes.job_wakeup), box
    finally:
        store.close()


def _box(boxes: Boxes, name: str) -> JobBox:
    pipeline = boxes.resolved.jobs.get(name)
    if pipeline is None:
        holds_items = name in boxes.resolved.written or name in boxes.resolved.pipelines
        instead = "holds items, not long jobs: use boxengine items" if holds_items else None
        raise UnknownBox(name, boxes.resolved.jobs, instead=instead)
    return pipeline.box


def _chosen(numbers: list[str] | None, ids: list[str] | None) -> list[int] | None:
    """Those of the argument and those of the option; None: neither was given."""
    return [*ids_in(numbers or (), "ID"), *ids_in(ids or ())] if numbers or ids else None


def _agreed(which: JobFilter, *, yes: bool, what: str) -> None:
    """Requires ``--yes`` for jobs that are not named by id."""
    if which.ids is None and not yes:
        raise BadUsage(f"--yes is needed to {what} jobs that are not named by id")


def _refuse_unsuitable(status: list[JobState] | None, *, takes: Collection[JobState], what: str) -> None:
    """Refuses states that the action is not for: without them it might find nothing to do, and tell nobody why."""
    if not set(status or ()).issubset(takes):
        raise typer.BadParameter(f"{what} takes {', '.join(sorted(takes))} jobs", param_hint="--status")


def _explain(desk: JobDesk, box: JobBox, which: JobFilter, *, takes: Collection[JobState]) -> None:
    """Says which of the ids that were named are left alone."""
    if which.ids is None:
        return
    states = {row["id"]: row["status"] for row in desk.list(box, JobFilter(ids=which.ids), limit=len(which.ids))}
    left = [each for each in which.ids if states.get(each) not in takes]
    explain("job", {each: states.get(each) for each in left})


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: rfc3339(value) if isinstance(value, datetime) else _inner(value) for name, value in row.items()}


def _inner(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) if isinstance(each, Mapping) and "ts" in each else each for each in value]
    return value


def _awaited(job: Mapping[str, Any]) -> str:
    return f"job {job['id']} ({job['status'] or 'deleted'})"


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return rfc3339(value)
        case str():
            return value
        case _:
            return json.dumps(value, default=str, ensure_ascii=False)
