"""``boxengine items``: look at single items, retry, discard or delete them, and deliver them once more."""

from __future__ import annotations

import typer

from boxengine.cli.on_demand import Home, group_of

COMMANDS = {
    "list": Home("boxengine.cli.items_looking:list_", "List items by id, without their payloads."),
    "show": Home(
        "boxengine.cli.items_looking:show",
        "Show one item with its payload (as text, or its first bytes in hex) and the log of its last failure.",
    ),
    "retry": Home(
        "boxengine.cli.items_acting:retry", "Make items due at once: errors_count 0, remembered failures forgotten."
    ),
    "discard": Home(
        "boxengine.cli.items_acting:discard",
        "Discard items: they are not delivered, and are deleted after their retention.",
    ),
    "delete": Home("boxengine.cli.items_acting:delete", "Delete items for good."),
    "replay": Home(
        "boxengine.cli.items_replaying:replay",
        "Deliver delivered items again, chosen by id, key or time: as copies that go out after all items of their keys.",
    ),
}

cli = typer.Typer(
    cls=group_of(COMMANDS), help="Look at items, and retry, discard or delete them.", no_args_is_help=True
)
