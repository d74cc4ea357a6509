"""What the commands of ``boxengine items`` share: the options that choose items, and the connection to their box."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from boxengine.cli.context import connect, globals_of
from boxengine.cli.ids import ids_in
from boxengine.cli.moments import moment
from boxengine.domain.item import Status
from boxengine.ports import ItemFilter

if TYPE_CHECKING:
    from boxengine.app.boxes import Boxes
    from boxengine.app.servers.connected import Servers
    from boxengine.domain.box import Box


class StatusName(StrEnum):
    """A status as people type it."""

    PENDING = "pending"
    FAILED = "failed"
    DELIVERED = "delivered"
    DISCARDED = "discarded"


Statuses = Annotated[list[StatusName] | None, typer.Option("--status", "-s", help="Of this status; repeatable.")]
EventKey = Annotated[str | None, typer.Option("--event-key", help="Of this event key.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from", help="Created at this time or later: ISO 8601 (UTC if no zone), or a duration before now (PT1H)."
    ),
]
To = Annotated[str | None, typer.Option("--to", help="Created before this time.")]


@contextmanager
def connected(context: typer.Context, name: str, loaded: Boxes | None = None) -> Iterator[tuple[Servers, Box]]:
    boxes = loaded or globals_of(context).boxes()
    box = boxes.box(name)
    servers = connect(boxes)
    try:
        yield servers, box
    finally:
        servers.close()


def item_filter(
    statuses: list[StatusName] | None,
    numbers: list[str] | None,
    ids: list[str] | None,
    event_key: str | None,
    since: str | None,
    until: str | None,
) -> ItemFilter:
    return ItemFilter(
        statuses=frozenset(Status[name.name] for name in statuses or ()),
        ids=(*ids_in(numbers or (), "ID"), *ids_in(ids or ())),
        event_key=event_key,
        created_from=moment(since, option="--from"),
        created_before=moment(until, option="--to"),
    )
