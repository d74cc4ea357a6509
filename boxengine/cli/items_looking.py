"""``boxengine items list`` and ``show``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from boxengine.app.running.garbage import put_off
from boxengine.cli.arguments import AsJson, BoxName, Ids, Numbers
from boxengine.cli.context import globals_of, notes, output, print_json, say
from boxengine.cli.ids import LARGEST
from boxengine.cli.item_options import EventKey, From, Statuses, To, item_filter
from boxengine.cli.item_view import as_json, details, listing
from boxengine.domain.item import Status
from boxengine.errors import BadUsage, BoxError
from boxengine.ports.people.items import PASSED

if TYPE_CHECKING:
    from boxengine.adapters.sql.looking.log_rows import LogRows
    from boxengine.domain.box import Box
    from boxengine.ports import ItemsStore

IN_LOG = {
    Status.PENDING: "this item waits in the log: no delivery has passed it yet",
    PASSED: "this item has been passed in the log: delivered, skipped, or deleted after it failed; a log keeps no outcome of "
    "single items",
}


class _Looked(NamedTuple):
    """Where items are looked for."""

    items: ItemsStore
    log: LogRows


def list_(
    context: typer.Context,
    box: BoxName,
    numbers: Numbers = None,
    *,
    status: Statuses = None,
    ids: Ids = None,
    event_key: EventKey = None,
    since: From = None,
    until: To = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most this many.")] = 50,
    after: Annotated[
        int, typer.Option("--after", min=0, max=LARGEST, help="Only ids above this one: the next page.")
    ] = 0,
    json: AsJson = False,
) -> None:
    """List items by id, without their payloads.

    Examples: boxengine items list order_outbox_item --status failed; boxengine items list order_outbox_item --from P1D --json
    """
    which = item_filter(status, numbers, ids, event_key, since, until)
    with _looked_at(context, box) as (looked, found):
        rows = looked.items.page(found, which, after=after, limit=limit)
    if json:
        print_json([as_json(row) for row in rows])
        return
    console = output()
    console.print(listing(rows, console) if rows else "no such items")
    if found.storage == "log" and not {int(each) for each in which.statuses} - {int(Status.PENDING)}:
        notes().print(
            f"items that wait in the log are not listed: boxengine status {box} counts them, items show shows one"
        )
    if len(rows) == limit:
        notes().print(f"there may be more: --after {rows[-1].id}")


def show(
    context: typer.Context,
    box: BoxName,
    item_id: Annotated[int | None, typer.Argument(help="Id of the item.", metavar="ID", max=LARGEST)] = None,
    *,
    ids: Annotated[int | None, typer.Option("--ids", max=LARGEST, help="The same, as an option.")] = None,
    json: AsJson = False,
) -> None:
    """Show one item with its payload (as text, or its first bytes in hex) and the log of its last failure.

    --json has the whole payload: as payload if it is text, else as payload_base64. Exits with 1 if there is no such item.

    Example: boxengine items show order_outbox_item 42
    """
    wanted = item_id if item_id is not None else ids
    if wanted is None:
        raise BadUsage("the item's ID is needed; boxengine items list shows them")
    with _looked_at(context, box) as (looked, found):
        row = looked.items.get(found, wanted)
        if row is None:
            row = looked.log.get(found, wanted)
            if row is not None:
                notes().print(IN_LOG[row.status])
    if row is None:
        raise BoxError(f"{box} has no item {wanted}")
    if json:
        print_json(as_json(row, whole=True))
    else:
        say(details(row))


@contextmanager
def _looked_at(context: typer.Context, name: str) -> Iterator[tuple[_Looked, Box]]:
    """The items of a box, for reading only: this wakes no worker and needs no Redis."""
    boxes = globals_of(context).boxes()
    box = boxes.box(name)
    with put_off():
        from boxengine.adapters.sql.looking.items import SqlItems  # noqa: PLC0415 - see Globals.boxes
        from boxengine.adapters.sql.looking.log_rows import LogRows  # noqa: PLC0415
        from boxengine.app.servers.database import connect_store  # noqa: PLC0415

        store = connect_store(boxes.resolved.settings)
    try:
        yield _Looked(SqlItems(store), LogRows(store)), box
    finally:
        store.close()
