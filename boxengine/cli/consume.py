"""``boxengine consume``: Kafka's messages become rows of the inbox boxes."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import Annotated

import typer

from boxengine.app.running import garbage
from boxengine.cli.context import globals_of, names_in
from boxengine.cli.lifecycle import Plan, Process

logger = logging.getLogger("boxengine.consume")
GRACE = timedelta(seconds=60)
"""Time for the batch under way, its commit, and leaving the group."""


def consume(
    context: typer.Context,
    boxes: Annotated[
        list[str] | None,
        typer.Option(
            "--boxes", "--box", "-b", help="Inbox boxes to feed, a,b or repeated; all with a source if none named."
        ),
    ] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, help="Consuming processes under one parent.")] = 1,
    child: Annotated[str | None, typer.Option("--child", hidden=True)] = None,
) -> None:
    """Store messages from Kafka in their inbox boxes, until SIGTERM, SIGINT, SIGQUIT or SIGHUP.

    `boxengine start`, a separate process, handles the boxes' items. Each process has as many consumers per box as its
    `source.kafka.concurrency`. If there are more consumers than partitions, the rest are idle.

    The first signal lets the batches under way finish, commits, and exits with 0; a second one, other than SIGHUP, exits at once.

    Examples: boxengine consume; boxengine consume -b order_inbox_item --processes 2
    """
    process = Process(child)
    options, names = globals_of(context), names_in(boxes)
    with garbage.put_off():
        from boxengine.app.receiving.consuming import Consuming  # noqa: PLC0415 - see Globals.boxes

        options.configure_logs()
        loaded = options.boxes()
    options.configure_logs(loaded)
    plan = Plan(
        work=partial(Consuming, loaded.resolved, names),
        command=["consume", *(part for name in names for part in ("--boxes", name))],
        partitions=loaded.resolved.settings.poller.concurrency,
        within=GRACE,
        children_within=2 * GRACE,
        logger=logger,
        started="consuming for",
        stopping="stopping: the batches under way are stored and committed first",
    )
    raise typer.Exit(process.run(plan, loaded, options, processes=processes))
