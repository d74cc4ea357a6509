"""``boxengine consume``: Kafka's messages become rows of the inbox boxes."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from boxengine.app import garbage
from boxengine.cli.context import Globals, globals_of
from boxengine.cli.start import endpoints, stop_event

if TYPE_CHECKING:
    from boxengine.app.boxes import Boxes

logger = logging.getLogger("boxengine.consume")
GRACE = timedelta(seconds=60)
"""For the batch under way, its commit, and leaving the group."""


def consume(
    context: typer.Context,
    boxes: Annotated[
        list[str] | None,
        typer.Option("--boxes", "-b", help="Inbox boxes to feed, a,b or repeated; all with a source if none named."),
    ] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, help="Consuming processes under one parent.")] = 1,
    child: Annotated[str | None, typer.Option("--child", hidden=True)] = None,
) -> None:
    """Store messages from Kafka in their inbox boxes, until SIGTERM, SIGINT or SIGQUIT.

    The boxes' items are processed by `boxengine start`, a process of its own. Each process has as many consumers per box
    as its `source.kafka.concurrency`; more than the topics have partitions lie idle.

    The first signal lets the batches under way finish, commits, and exits with 0; a second one exits at once.

    Examples: boxengine consume; boxengine consume -b order_inbox_item --processes 2
    """
    options = globals_of(context)
    names = [name.strip() for each in boxes or () for name in each.split(",") if name.strip()]
    with garbage.put_off():
        options.configure_logs()
        loaded = options.boxes()
    options.configure_logs(loaded)
    if processes > 1 and child is None:
        raise typer.Exit(_supervise(loaded, options, names, count=processes))
    raise typer.Exit(_consume(loaded, names, child=Path(child) if child else None))


def _consume(loaded: Boxes, names: list[str], *, child: Path | None) -> int:
    from boxengine.adapters.system import SystemClock  # noqa: PLC0415 - see Globals.boxes
    from boxengine.adapters.telemetry.ledger import Ledger  # noqa: PLC0415
    from boxengine.app.consuming import Consuming  # noqa: PLC0415
    from boxengine.cli.watchers import watchers  # noqa: PLC0415

    settings = loaded.resolved.settings
    ledger = Ledger(child) if child else None
    watching = watchers(settings, clock=SystemClock(), partitions=settings.poller.concurrency, ledger=ledger)
    consuming = Consuming(
        loaded.resolved,
        boxes=names,
        # The first number of a child's name is its place, which its successor takes over.
        process=int(child.stem.partition(".")[0]) if child else 0,
        observer=watching.observer,
        tracer=watching.tracer,
    )
    health = consuming.health(**watching.health)
    worker = consuming.worker(health=health, services=[] if child else endpoints(loaded, health, watching.registry))
    stopping = stop_event(die_with_parent=child is not None)
    garbage.set_up_for_batches()
    worker.start()
    logger.info("consuming for %s", ", ".join(box.name for box in consuming.boxes), extra={"pid": os.getpid()})
    stopping.wait()
    logger.info("stopping: the batches under way are stored and committed first")
    stuck = worker.stop(within=GRACE)
    for name in stuck:
        logger.error("%s did not stop in time", name)
    logger.info("stopped")
    return 1 if stuck else 0


def _supervise(loaded: Boxes, options: Globals, names: list[str], *, count: int) -> int:
    from boxengine.app.consuming import Consuming  # noqa: PLC0415 - see Globals.boxes
    from boxengine.cli.processes import Supervisor  # noqa: PLC0415
    from boxengine.engine.observation import NullObserver, NullTracer  # noqa: PLC0415

    # Checks what the children will be given, and the database for the probes; it consumes nothing itself.
    consuming = Consuming(loaded.resolved, boxes=names, observer=NullObserver(), tracer=NullTracer())
    command = ["consume", *(part for name in names for part in ("--boxes", name))]
    code = Supervisor(loaded, options, command, count=count, health=consuming.health, grace=GRACE).run()
    consuming.close()
    return code
