"""``boxengine cleanup``: one retention pass."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from boxengine.cli.context import chosen, connect, globals_of, notes, output


def cleanup(
    context: typer.Context,
    box: Annotated[str | None, typer.Argument(help="One box; all if left out.")] = None,
) -> None:
    """Delete finished items that are older than the box's retention. The worker does so every 10 minutes by itself."""
    from boxengine.adapters.telemetry.logs import report  # noqa: PLC0415 - see Globals.boxes
    from boxengine.engine.observation import NullObserver  # noqa: PLC0415
    from boxengine.engine.outages import Outages  # noqa: PLC0415
    from boxengine.engine.retention import Retention  # noqa: PLC0415

    boxes = globals_of(context).boxes()
    servers = connect(boxes)
    wanted = chosen(boxes, box)
    observer = NullObserver()
    retention = Retention(
        wanted,
        store=servers.store,
        leases=servers.leases,
        outages=Outages(observer=observer, error_tracker=report, clock=servers.clock),
        observer=observer,
        clock=servers.clock,
        token=secrets.token_hex(8),
    )
    try:
        for each in wanted:
            with notes().status(f"cleaning up {each.name}"):
                deleted = retention.clean_up(each)
            output().print(f"{each.name}: {deleted} items deleted")
    finally:
        servers.close()
