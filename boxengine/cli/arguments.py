"""Arguments that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

BoxName = Annotated[str, typer.Argument(metavar="BOX", help="Name of the box.")]
OneBox = Annotated[str | None, typer.Argument(metavar="BOX", help="One box; all if left out.")]
Numbers = Annotated[list[str] | None, typer.Argument(metavar="ID", help="These ids, as with --ids; repeatable.")]
Ids = Annotated[list[str] | None, typer.Option("--ids", help="These ids: 1,2,3; repeatable.")]
