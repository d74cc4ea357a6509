"""``boxengine audit``: checks from a box's table and its topic whether the box kept its promises."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxengine.cli.arguments import BoxName
from boxengine.cli.context import globals_of, notes, output, print_json
from boxengine.cli.lines import LONGEST_TIME
from boxengine.cli.moments import moment
from boxengine.cli.text import printable
from boxengine.domain.words import plural
from boxengine.errors import BadUsage

if TYPE_CHECKING:
    from boxengine.engine.audit.findings import Finding, Summary
    from boxengine.engine.audit.table import Progress as Told


def audit(
    context: typer.Context,
    box: BoxName,
    *,
    kafka: Annotated[bool, typer.Option("--kafka", help="Also compare with the topics that the box feeds.")] = False,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="With --kafka: these topics instead of the transport's; repeatable."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", help="Only items created since: ISO 8601 (UTC if no zone), or a duration before now (PT6H)."
        ),
    ] = None,
    stuck_after: Annotated[
        float,
        typer.Option(
            "--stuck-after", min=0, max=LONGEST_TIME, help="An item that has been due for this many seconds is stuck."
        ),
    ] = 600,
    own_buckets: Annotated[
        bool, typer.Option("--own-buckets", help="Do not compare buckets with keys (items made with partition_by).")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Stop after this many findings.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line; the last is the summary.")] = False,
) -> None:
    """Check a box's table for items that are out of order, missing, doubled or left behind; exit 1 if there are any.

    Reads the whole table (and with --kafka the whole topic) in small pages while the workers go on; memory stays flat.
    docs/audit.md says what each finding means.

    Examples: boxengine audit order_outbox_item --since P1D; boxengine audit order_outbox_item --kafka --json
    """
    from boxengine.app.checking.auditing import AuditChoices, auditing  # noqa: PLC0415 - see Globals.boxes

    if topic and not kafka:
        raise BadUsage("--topic is only used with --kafka")
    choices = AuditChoices(
        since=moment(since, option="--since"),
        stuck_after=timedelta(seconds=stuck_after),
        own_buckets=own_buckets,
        kafka=kafka,
        topics=topic or (),
        limit=limit,
    )
    boxes = globals_of(context).boxes()
    with _progress() as told, auditing(boxes, box, choices, progress=told) as running:
        for finding in islice(running.findings(), limit):
            _show(finding, as_json=as_json)
    found = sum(running.summary.findings.values())
    _conclude(box, running.summary, stopped=found >= limit, as_json=as_json)
    if found:
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Told]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - see context.output

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[done]}"), TimeElapsedColumn())
    options: dict[str, Any] = {
        "console": notes(),
        "disable": not sys.stderr.isatty(),
        "transient": True,
        # On a terminal, findings are printed above the bar; if standard output is redirected, they must still go there.
        "redirect_stdout": sys.stdout.isatty(),
    }
    with Progress(*columns, **options) as progress:
        task = progress.add_task("", total=None, done="")

        def told(step: str, done: int, total: int | None) -> None:
            of = "" if total is None else f" of {total:,}"
            progress.update(task, description=step, completed=done, total=total, done=f"{done:,}{of}" if done else "")

        yield told


def _show(finding: Finding, *, as_json: bool) -> None:
    if as_json:
        print_json({"kind": finding.kind, "item": finding.item, "key": finding.key, "detail": finding.detail})
        return
    item = "an item" if finding.item is None else f"item {finding.item}"
    key = "" if finding.key is None else f" (key {printable(finding.key)})"
    output().print(f"{finding.kind}: {item}{key} {printable(finding.detail)}", markup=False)


def _conclude(box: str, summary: Summary, *, stopped: bool, as_json: bool) -> None:
    found: dict[str, Any] = {str(kind): count for kind, count in sorted(summary.findings.items())}
    figures = {"rows": summary.rows, "messages": summary.messages, "foreign_messages": summary.foreign}
    if as_json:
        print_json(
            {"kind": "summary", "box": box, **figures, "found": found, "complete": not stopped, "notes": summary.notes}
        )
        return
    for note in summary.notes:
        output().print(f"note: {note}", markup=False)
    looked_at = plural(summary.rows, "row") + (f", {plural(summary.messages, 'message')}" if summary.messages else "")
    result = ", ".join(f"{count} {kind}" for kind, count in found.items()) or "all in order"
    end = "; stopped there (--limit)" if stopped else ""
    output().print(f"{box}: {looked_at}: {result}{end}", markup=False)
