"""``boxengine db``: tables and indexes of all boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from boxengine.cli.arguments import AsJson, BoxName, OneBox
from boxengine.cli.context import chosen, globals_of, job_boxes, models, output, print_json, say
from boxengine.cli.db_convert import convert
from boxengine.cli.db_making import create, upgrade
from boxengine.domain.box import Storage
from boxengine.domain.words import plural
from boxengine.errors import BadUsage

if TYPE_CHECKING:
    from boxengine.adapters.sql.delivering.store import SqlStore
    from boxengine.adapters.sql.making.checks import Finding
    from boxengine.domain.box import Box

cli = typer.Typer(help="Create, check, upgrade or print the tables of all boxes.", no_args_is_help=True)
cli.command("create")(create)
cli.command("upgrade")(upgrade)
cli.command("convert")(convert)


@cli.command("check")
def check(
    context: typer.Context,
    box: OneBox = None,
    as_json: AsJson = False,  # noqa: FBT002 - typer's way
) -> None:
    """Compare the database with what the boxes need, and warn of what slows deliveries down; exit 1 if a box cannot run."""
    from boxengine.adapters.sql.checking.checkup import SqlCheckup  # noqa: PLC0415
    from boxengine.adapters.sql.jobs import schema as job_schema  # noqa: PLC0415
    from boxengine.adapters.sql.making import checks  # noqa: PLC0415 - see Globals.boxes
    from boxengine.adapters.system import SystemClock  # noqa: PLC0415
    from boxengine.app.servers.database import connect_store  # noqa: PLC0415

    boxes = globals_of(context).boxes()
    wanted = chosen(boxes, box)
    store = connect_store(boxes.resolved.settings)
    try:
        findings = checks.check(store.engine, wanted, models(boxes, wanted))
        findings += job_schema.check(store.engine, *job_boxes(boxes, box))
        broken = {finding.box for finding in findings if finding.severity == "error"}
        for each in wanted:
            if each.name not in broken:
                findings += checks.unless_refused(each, lambda each=each: _stranded(store, each))  # type: ignore[misc] # bound now
        slowing = SqlCheckup(store, now=SystemClock().now).decay(wanted)
    finally:
        store.close()
    told: list[tuple[str | None, str, str]] = [(each.box, each.severity, each.told) for each in findings]
    told += [(remark.box, "warning", f"{remark.text} {remark.advice}") for remark in slowing]
    if as_json:
        print_json([{"box": name, "severity": severity, "message": message} for name, severity, message in told])
    else:
        for name, severity, message in told:
            output().print(f"{severity}: {name or 'database'}: {message}", markup=False)
        if not told:
            output().print(f"{plural(len(wanted) + len(job_boxes(boxes, box)[0]), 'box')}, all in order")
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(1)


def _stranded(store: SqlStore, box: Box) -> list[Finding]:
    from boxengine.adapters.sql.making import checks  # noqa: PLC0415 - see Globals.boxes

    told = store.stranded(box)
    return [] if told is None else [checks.Finding(box.name, "error", told)]


@cli.command("ddl")
def ddl(
    context: typer.Context,
    box: OneBox = None,
    dialect: Annotated[
        str | None, typer.Option("--dialect", help="postgresql or mysql; that of database.url if left out.")
    ] = None,
) -> None:
    """Print tables and indexes as SQL, for a migration of your own."""
    from sqlalchemy import make_url  # noqa: PLC0415 - see Globals.boxes

    from boxengine.adapters.sql.jobs import schema as job_schema  # noqa: PLC0415
    from boxengine.adapters.sql.making import schema  # noqa: PLC0415

    boxes = globals_of(context).boxes()
    wanted = chosen(boxes, box)
    url = boxes.resolved.settings.database.url
    name = dialect or (make_url(url).get_backend_name() if url else "postgresql")
    for statement in schema.ddl(name, wanted, models(boxes, wanted)) + job_schema.ddl(name, *job_boxes(boxes, box)):
        output().print(f"{statement};", markup=False)


@cli.command("rebucket")
def rebucket(
    context: typer.Context,
    box: BoxName,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check whether it can be done, and change nothing.")
    ] = False,
) -> None:
    """Apply the bucket_size of the configuration to a box without pending items.

    Workers refuse a bucket_size that differs from the one that their table was filled with. Exits with 1 while the box has
    pending items, or failed items in buckets that would no longer exist; under strict_order: key, any failed items.
    """
    from boxengine.adapters.sql.making import sizes  # noqa: PLC0415 - see Globals.boxes
    from boxengine.app.servers.database import connect_store  # noqa: PLC0415

    boxes = globals_of(context).boxes()
    store = connect_store(boxes.resolved.settings, patient=True)
    try:
        old, new = sizes.change(store.engine, boxes.whole(box), dry=dry_run)
    finally:
        store.close()
    if old == new:
        say(f"{box}: bucket_size is {new} already")
        return
    before = "it had none recorded" if old is None else f"it was {old}"
    say(f"{box}: bucket_size {'can become' if dry_run else 'is now'} {new}; {before}")


@cli.command("reposition")
def reposition(
    context: typer.Context,
    box: Annotated[str, typer.Argument(metavar="BOX", help="Name of a box with storage: log.")],
    *,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Run even if nothing shows that the server has changed.")
    ] = False,
) -> None:
    """Repair the positions of a log that was restored or copied to another server, if its workers may not do so.

    Another server has other transaction numbers, so positions there do not show what was delivered. Items that may not have
    been delivered move into the box's table and go out by id. If the numbers belong to this server, nothing changes without
    --anyway.
    """
    from boxengine.adapters.sql.log.foreign import reposition as put_right  # noqa: PLC0415 - see Globals.boxes
    from boxengine.app.servers.database import connect_store  # noqa: PLC0415

    boxes = globals_of(context).boxes()
    resolved = boxes.resolved
    # The readers of a log are brought over together, whichever is named.
    found = boxes.box(resolved.readers(box)[0] if box in resolved.logs else box)
    if found.storage is not Storage.LOG:
        raise BadUsage(f"box {box} has storage: table, so there are no positions")
    store = connect_store(resolved.settings, patient=True)
    try:
        aside = put_right(store.engine, found, anyway=anyway)
    finally:
        store.close()
    say(
        f"{box}: the positions are this server's already"
        if aside is None
        else f"{box}: going out by id: {plural(aside, 'item')}"
    )
