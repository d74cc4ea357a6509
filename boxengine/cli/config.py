"""``boxengine config``: what is configured."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from boxengine.cli.context import globals_of, output, print_json
from boxengine.cli.text import counted

if TYPE_CHECKING:
    from boxengine.app.boxes import Boxes

cli = typer.Typer(help="Validate and show the configuration.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


@cli.command("check")
def check(
    context: typer.Context,
    *,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also try database, tables, Redis, Kafka and each transport's constructor.")
    ] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for each attempt of --deep.")] = 5.0,
) -> None:
    """Validate the configuration and everything it names; exit 2 with every problem found.

    With --deep it says of each thing what was tried, and exits with 1 if one does not work. Nothing is sent or written.
    """
    from boxengine.settings import notices  # noqa: PLC0415 - see Globals.boxes

    boxes = globals_of(context).boxes()
    for problem in notices(boxes.resolved.settings):
        output().print(f"note: {problem}", markup=False)
    output().print(f"{counted(len(boxes.resolved.pipelines), 'box')}, all in order")
    if deep and not _works(boxes, timedelta(seconds=timeout)):
        raise typer.Exit(1)


def _works(boxes: Boxes, within: timedelta) -> bool:
    from boxengine.app.trying import try_out  # noqa: PLC0415 - see Globals.boxes

    works = True
    for tried in try_out(boxes.resolved, within=within):
        works = works and tried.problem is None
        outcome = "works" if tried.problem is None else f"does not work: {tried.problem}"
        output().print(f"{tried.what}: {outcome} ({tried.seconds:.2f} s)", markup=False)
    return works


@cli.command("show")
def show(context: typer.Context, as_json: AsJson = False) -> None:  # noqa: FBT002 - typer's way
    """Print every value in force and where it came from; secrets are masked."""
    from rich.table import Table  # noqa: PLC0415 - see context.output

    from boxengine.settings import explain  # noqa: PLC0415 - see Globals.boxes

    rows = explain(globals_of(context).boxes().resolved.settings)
    if as_json:
        print_json([{"key": row.path, "value": row.value, "source": row.source} for row in rows])
        return
    table = Table("key", "value", "source")
    for row in rows:
        table.add_row(row.path, str(row.value), row.source)
    output().print(table)


@cli.command("schema")
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors."""
    from boxengine.settings import json_schema  # noqa: PLC0415 - see Globals.boxes

    print_json(json_schema())
