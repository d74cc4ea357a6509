"""``boxengine config``: what is configured."""

from __future__ import annotations

from typing import Annotated

import typer

from boxengine.cli.context import globals_of, output, print_json

cli = typer.Typer(help="Validate and show the configuration.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


@cli.command("check")
def check(context: typer.Context) -> None:
    """Validate the configuration and everything it names; exit 2 with every problem found."""
    from boxengine.settings import notices  # noqa: PLC0415 - see Globals.boxes

    boxes = globals_of(context).boxes()
    for problem in notices(boxes.resolved.settings):
        output().print(f"note: {problem}", markup=False)
    output().print(f"{len(boxes.resolved.pipelines)} boxes, all in order")


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
