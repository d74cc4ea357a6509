"""``boxengine status``: how the boxes are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from boxengine.cli.context import chosen, connect, globals_of, output, print_json
from boxengine.domain.item import Status

if TYPE_CHECKING:
    from boxengine.app.servers import Servers
    from boxengine.domain.box import Box


def status(
    context: typer.Context,
    box: Annotated[str | None, typer.Argument(help="One box; all if left out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,  # noqa: FBT002 - typer's way
) -> None:
    """Show counts by status, the oldest pending item's age, the queue and whether polling is paused.

    Counts every row of the tables: on a large table that takes a moment.
    """
    boxes = globals_of(context).boxes()
    servers = connect(boxes)
    auto_disabled = boxes.resolved.settings.polling_auto_disabled
    try:
        rows = [_row(servers, each, auto_disabled=auto_disabled) for each in chosen(boxes, box)]
    finally:
        servers.close()
    if as_json:
        print_json(rows)
        return
    table = Table(*(column.replace("_", " ") for column in rows[0]) if rows else ())
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    output().print(table)


def _row(servers: Servers, box: Box, *, auto_disabled: bool) -> dict[str, Any]:
    counts = servers.store.counts(box)
    oldest = servers.store.oldest_pending(box)
    queue = servers.queue.state(box)
    enabled = servers.pauses.polling_enabled([box]).get(box.name, not auto_disabled)
    now = datetime.now(UTC)
    lag = None if queue.oldest_pushed_at is None else max(0.0, now.timestamp() - queue.oldest_pushed_at)
    return {
        "box": box.name,
        "type": str(box.type),
        **{each.name.lower(): counts.get(each, 0) for each in Status},
        "oldest_pending_seconds": None if oldest is None else round((now - oldest).total_seconds(), 1),
        "queue": queue.length,
        "queue_lag_seconds": lag,
        "paused": not enabled,
    }


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case _:
            return str(value)
