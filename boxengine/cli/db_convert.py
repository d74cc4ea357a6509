"""``boxengine db convert``: a box goes from a table to a log, or back, while writers and workers run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from boxengine.cli.context import globals_of, models, notes, say
from boxengine.domain.box import Storage
from boxengine.errors import BadUsage

if TYPE_CHECKING:
    from boxengine.adapters.sql.converting.conversion import Conversion
    from boxengine.domain.box import Box


def convert(
    context: typer.Context,
    box: Annotated[str, typer.Argument(metavar="BOX", help="Name of an outbox box.")],
    *,
    to: Annotated[Storage, typer.Option("--to", help="The storage to convert to.")],
    finish: Annotated[
        bool,
        typer.Option("--finish", help="The last step, once the new storage is configured and deployed everywhere."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the SQL of the step, and change nothing.")] = False,
    lock_timeout: Annotated[
        float, typer.Option("--lock-timeout", min=0.01, help="Seconds for which one attempt may delay writers.")
    ] = 0.5,
    attempts: Annotated[
        int, typer.Option("--attempts", min=1, help="Attempts to get the tables' locks, with a second between two.")
    ] = 60,
) -> None:
    """Convert a box from storage: table to storage: log, or back, while applications write and workers deliver (PostgreSQL).

    Three steps: this command; then set the storage in the configuration and deploy it to all applications and workers, in any
    order; then this command with --finish. Nothing is lost, and the items of a key keep their order.

    You can repeat each step. If it was broken off, it goes on; if it is done, it changes nothing.
    """
    from boxengine.adapters.sql.converting.conversion import Conversion, refuse  # noqa: PLC0415
    from boxengine.adapters.sql.converting.patience import Patience  # noqa: PLC0415
    from boxengine.adapters.sql.making import schema  # noqa: PLC0415 - see Globals.boxes
    from boxengine.app.servers.database import connect_store  # noqa: PLC0415

    boxes = globals_of(context).boxes()
    found = boxes.whole(box)
    refuse(found)
    if finish and found.storage is not to:
        raise BadUsage(
            f"box {box} has storage: {found.storage.value} in the configuration: set storage: {to.value}, deploy it to all "
            "applications and workers, then finish"
        )
    store = connect_store(boxes.resolved.settings, patient=True)
    try:
        if store.engine.dialect.name != "postgresql":
            raise BadUsage(f"box {box} cannot be converted: storage: log needs PostgreSQL")
        patience = Patience(
            lock_timeout=lock_timeout,
            attempts=attempts,
            wait=time.sleep,
            tell=lambda line: notes().print(f"{box}: {line}", markup=False),
        )
        (table,) = schema.tables([found], models(boxes, [found]))
        conversion = Conversion(store.engine, found, table, patience, show=_show if dry_run else None)
        _take(conversion, to, finish=finish)
        if not dry_run:
            _tell(found, conversion, to)
    finally:
        store.close()


def _take(conversion: Conversion, to: Storage, *, finish: bool) -> None:
    if to is Storage.LOG:
        (conversion.finish_to_log if finish else conversion.prepare)()
    else:
        (conversion.finish_to_table if finish else conversion.back)()


def _show(sql: str) -> None:
    say(f"{sql};")


def _tell(box: Box, conversion: Conversion, to: Storage) -> None:
    """Says where the box is, and what comes next."""
    from boxengine.adapters.sql.log.stage import Stage  # noqa: PLC0415 - see Globals.boxes

    stage = conversion.stage()
    if stage is Stage.BOTH:
        say(
            f"{box.name}: applications and workers may now have either storage, and all items are written to the table\n"
            f"next: set storage: {to.value}, deploy it to all of them, in any order\n"
            f"then: boxengine db convert {box.name} --to {to.value} --finish"
        )
    elif stage is Stage.LOG:
        say(f"{box.name}: items are written to the log")
    else:
        say(f"{box.name}: items are written to the table, and there is no log")
