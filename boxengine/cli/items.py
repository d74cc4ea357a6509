"""``boxengine items``: look at single items, retry, discard or delete them, and deliver them once more."""

from __future__ import annotations

import typer

from boxengine.cli.on_demand import group_of

COMMANDS = {
    "list": "boxengine.cli.items_looking:list_",
    "show": "boxengine.cli.items_looking:show",
    "retry": "boxengine.cli.items_acting:retry",
    "discard": "boxengine.cli.items_acting:discard",
    "delete": "boxengine.cli.items_acting:delete",
    "replay": "boxengine.cli.items_replaying:replay",
}

cli = typer.Typer(
    cls=group_of(COMMANDS), help="Look at items, and retry, discard or delete them.", no_args_is_help=True
)
