"""``boxengine consume``: Kafka's messages become rows of the inbox boxes."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from boxengine.app import garbage
from boxengine.cli.context import Globals, globals_of
from boxengine.cli.lifecycle import Child, endpoints, live, names_in
from boxengine.cli.stacks import Stacks

if TYPE_CHECKING:
    from boxengine.app.boxes import Boxes

logger = logging.getLogger("boxengine.consume")
GRACE = timedelta(seconds=60)
"""For the batch under way, its commit, and leaving the group."""


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

    The boxes' items are processed by `boxengine start`, a process of its own. Each process has as many consumers per box
    as its `source.kafka.concurrency`; more than the topics have partitions lie idle.

    The first signal lets the batches under way finish, commits, and exits with 0; a second one, other than SIGHUP, exits at once.

    Examples: boxengine consume; boxengine consume -b order_inbox_item --processes 2
    """
    stacks, this_child = Stacks(), Child.at(child)
    options, names = globals_of(context), names_in(boxes)
    with garbage.put_off():
        options.configure_logs()
        loaded = options.boxes()
    options.configure_logs(loaded)
    if processes > 1 and this_child is None:
        raise typer.Exit(_supervise(loaded, options, names, count=processes, stacks=stacks))
    raise typer.Exit(_consume(loaded, names, child=this_child, stacks=stacks))


def _consume(loaded: Boxes, names: list[str], *, child: Child | None, stacks: Stacks) -> int:
    from boxengine.adapters.system import SystemClock  # noqa: PLC0415 - see Globals.boxes
    from boxengine.adapters.telemetry.ledger import Ledger  # noqa: PLC0415
    from boxengine.app.consuming import Consuming  # noqa: PLC0415
    from boxengine.app.watchers import watchers  # noqa: PLC0415

    settings = loaded.resolved.settings
    ledger = Ledger(child.ledger) if child else None
    watching = watchers(settings, clock=SystemClock(), partitions=settings.poller.concurrency, ledger=ledger)
    stacks.in_hand = watching.in_hand
    consuming = Consuming(
        loaded.resolved,
        boxes=names,
        process=int(child.place) if child else 0,
        observer=watching.observer,
        tracer=watching.tracer,
    )
    health = consuming.health(**watching.health)
    worker = consuming.worker(health=health, services=[] if child else endpoints(loaded, health, watching.registry))
    return live(
        worker,
        child=child,
        within=GRACE,
        logger=logger,
        started=f"consuming for {', '.join(box.name for box in consuming.boxes)}",
        stopping="stopping: the batches under way are stored and committed first",
    )


def _supervise(loaded: Boxes, options: Globals, names: list[str], *, count: int, stacks: Stacks) -> int:
    from boxengine.app.consuming import Consuming  # noqa: PLC0415 - see Globals.boxes
    from boxengine.cli.processes import Supervisor  # noqa: PLC0415
    from boxengine.engine.observation import NullObserver, NullTracer  # noqa: PLC0415

    # Checks what the children will be given, and the database for the probes; it consumes nothing itself.
    consuming = Consuming(loaded.resolved, boxes=names, observer=NullObserver(), tracer=NullTracer())
    command = ["consume", *(part for name in names for part in ("--boxes", name))]
    code = Supervisor(
        loaded, options, command, count=count, health=consuming.health, grace=2 * GRACE, stacks=stacks
    ).run()
    consuming.close()
    return code
