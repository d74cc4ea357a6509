"""``boxengine config``: checks and shows the configuration."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxengine.cli.arguments import AsJson
from boxengine.cli.context import globals_of, output, print_json, say
from boxengine.domain.words import plural
from boxengine.errors import BoxError

if TYPE_CHECKING:
    from boxengine.app.boxes import Boxes

cli = typer.Typer(help="Validate and show the configuration.", no_args_is_help=True)


@cli.command("check")
def check(
    context: typer.Context,
    *,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also try database, tables, Redis, Kafka and each transport's constructor.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0.1, help="Seconds for each attempt of --deep; Kafka gets up to five more."),
    ] = 5.0,
) -> None:
    """Validate the configuration and everything it names; exit 2 with every problem found.

    With --deep, the command prints a line for each server, table and transport that it tries, and exits with 1 if one does
    not work. It sends and writes nothing.
    """
    from boxengine.settings import notices  # noqa: PLC0415 - see Globals.boxes

    boxes = globals_of(context).boxes()
    settings = boxes.resolved.settings
    for problem in notices(settings):
        output().print(f"note: {problem}", markup=False)
    if settings.database.url is None:
        # No mistake of the file: it may be checked where the environment variable is not set.
        output().print(
            "note: database.url is missing, and DATABASE_URL is not set: a worker would not start", markup=False
        )
    number = plural(len(boxes.resolved.pipelines) + len(boxes.resolved.jobs), "box")
    output().print(f"{number}, the configuration is valid" if deep else f"{number}, all in order")
    if deep and not _works(boxes, timedelta(seconds=timeout)):
        raise typer.Exit(1)


def _works(boxes: Boxes, within: timedelta) -> bool:
    from boxengine.app.checking.trying import try_out  # noqa: PLC0415 - see Globals.boxes

    works = True
    for tried in try_out(boxes.resolved, within=within):
        works = works and tried.problem is None
        outcome = "works" if tried.problem is None else f"does not work: {tried.problem}"
        output().print(f"{tried.what}: {outcome} ({tried.seconds:.2f} s)", markup=False)
    return works


@cli.command("show")
def show(context: typer.Context, as_json: AsJson = False) -> None:  # noqa: FBT002 - typer's way
    """Print every value in force and where it came from; secrets are masked."""
    from rich.table import Column, Table  # noqa: PLC0415 - see context.output
    from rich.text import Text  # noqa: PLC0415

    from boxengine.settings import explain  # noqa: PLC0415 - see Globals.boxes

    rows = explain(globals_of(context).boxes().resolved.settings)
    if as_json:
        print_json([{"key": row.path, "value": row.value, "source": row.source} for row in rows])
        return
    table = Table(*(Column(name, overflow="fold") for name in ("key", "value", "source")))
    for row in rows:
        table.add_row(*map(Text, (row.path, str(row.value), row.source)))
    output().print(table)


@cli.command("schema")
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors."""
    from boxengine.settings import json_schema  # noqa: PLC0415 - see Globals.boxes

    print_json(json_schema())


@cli.command("asyncapi")
def asyncapi(
    context: typer.Context,
    *,
    title: Annotated[
        str | None, typer.Option("--title", help="Title of the service; the folder's name if left out.")
    ] = None,
    version: Annotated[str, typer.Option("--version", help="Version of the messages.")] = "1.0.0",
    compare: Annotated[
        Path | None, typer.Option("--compare", help="An earlier document: list the changes that break its consumers.")
    ] = None,
) -> None:
    """Print what the boxes send and receive, as an AsyncAPI 3 document in JSON.

    Channels are the topics, webhooks and streams of built-in transports, and the topics of sources. Schemas of payloads
    come from the models' codecs. With --compare it prints the breaking changes instead of the document, and exits with 1 if
    there are any.

    Examples: boxengine config asyncapi > asyncapi.json; boxengine config asyncapi --compare asyncapi.json
    """
    from boxengine.app.asyncapi import breaking_changes, document  # noqa: PLC0415 - see Globals.boxes

    resolved = globals_of(context).boxes().resolved
    made = document(resolved, title=title or Path.cwd().name, version=version)
    if compare is None:
        say(json.dumps(made, indent=2, ensure_ascii=False))
        return
    broken = breaking_changes(_earlier(compare), made)
    for change in broken:
        sys.stdout.write(f"{change}\n")
    if broken:
        raise typer.Exit(1)
    say("nothing breaks")


def _earlier(file: Path) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 - reads JSON too

    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise BoxError(f"--compare {file}: cannot be read: {reason}") from error
    if not isinstance(found, dict) or not str(found.get("asyncapi", "")).startswith("3."):
        raise BoxError(
            f"--compare {file}: not an AsyncAPI 3 document; make one with boxengine config asyncapi > {file}"
        )
    return found
