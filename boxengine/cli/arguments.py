"""Arguments and options that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

BoxName = Annotated[str, typer.Argument(metavar="BOX", help="Name of the box.")]
OneBox = Annotated[str | None, typer.Argument(metavar="BOX", help="One box; all if left out.")]
Numbers = Annotated[list[str] | None, typer.Argument(metavar="ID", help="These ids, as with --ids; repeatable.")]
Ids = Annotated[list[str] | None, typer.Option("--ids", help="These ids: 1,2,3; repeatable.")]
AtMost = Annotated[int | None, typer.Option("--limit", min=1, help="At most this many, the lowest ids first.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
