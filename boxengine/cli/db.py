"""``boxengine db``: tables and indexes of all boxes."""

from __future__ import annotations

from typing import Annotated

import typer

from boxengine.cli.context import chosen, globals_of, models, output, print_json

cli = typer.Typer(help="Make, verify or print the tables of all boxes.", no_args_is_help=True)
BoxName = Annotated[str | None, typer.Argument(help="One box; all if left out.")]


@cli.command("create")
def create(context: typer.Context, box: BoxName = None) -> None:
    """Make what is missing of tables and indexes. Doing it twice changes nothing."""
    from boxengine.adapters.sql import schema  # noqa: PLC0415 - see Globals.boxes
    from boxengine.app.servers import connect_store  # noqa: PLC0415

    boxes = globals_of(context).boxes()
    wanted = chosen(boxes, box)
    store = connect_store(boxes.resolved.settings)
    try:
        made = schema.create(store.engine, wanted, models(boxes, wanted))
    finally:
        store.close()
    for each in wanted:
        output().print(f"{each.name}: table {each.table} {'made' if each.table in made else 'is there'}")


@cli.command("check")
def check(
    context: typer.Context,
    box: BoxName = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,  # noqa: FBT002 - typer's way
) -> None:
    """Compare the database with what the boxes need; exit 1 if a box cannot run."""
    from boxengine.adapters.sql import schema  # noqa: PLC0415 - see Globals.boxes
    from boxengine.app.servers import connect_store  # noqa: PLC0415

    boxes = globals_of(context).boxes()
    wanted = chosen(boxes, box)
    store = connect_store(boxes.resolved.settings)
    try:
        findings = schema.check(store.engine, wanted, models(boxes, wanted))
    finally:
        store.close()
    if as_json:
        print_json([{"box": f.box, "severity": f.severity, "message": f.message} for f in findings])
    else:
        for finding in findings:
            output().print(f"{finding.severity}: {finding.box}: {finding.message}", markup=False)
        if not findings:
            output().print(f"{len(wanted)} boxes, all in order")
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(1)


@cli.command("ddl")
def ddl(
    context: typer.Context,
    box: BoxName = None,
    dialect: Annotated[
        str | None, typer.Option("--dialect", help="postgresql or mysql; that of database.url if left out.")
    ] = None,
) -> None:
    """Print tables and indexes as SQL, for a migration of your own."""
    from sqlalchemy import make_url  # noqa: PLC0415 - see Globals.boxes

    from boxengine.adapters.sql import schema  # noqa: PLC0415

    boxes = globals_of(context).boxes()
    wanted = chosen(boxes, box)
    url = boxes.resolved.settings.database.url
    name = dialect or (make_url(url).get_backend_name() if url else "postgresql")
    for statement in schema.ddl(name, wanted, models(boxes, wanted)):
        output().print(f"{statement};", markup=False)
