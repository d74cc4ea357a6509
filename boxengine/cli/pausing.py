"""``boxengine pause`` and ``boxengine resume``."""

from __future__ import annotations

from typing import Annotated

import typer

from boxengine.cli.context import connect, globals_of, output

BoxName = Annotated[str, typer.Argument(help="Name of the box.")]


def pause(context: typer.Context, box: BoxName) -> None:
    """Stop polling of a box, in every worker, within 10 seconds. What is queued already is still delivered."""
    _set(context, box, enabled=False)


def resume(context: typer.Context, box: BoxName) -> None:
    """Let a paused box be polled again."""
    _set(context, box, enabled=True)


def _set(context: typer.Context, name: str, *, enabled: bool) -> None:
    boxes = globals_of(context).boxes()
    box = boxes.box(name)
    servers = connect(boxes)
    try:
        servers.pauses.set(box, polling_enabled=enabled)
    finally:
        servers.close()
    output().print(f"{name}: polling {'resumed' if enabled else 'paused'}")
