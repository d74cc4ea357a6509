"""``boxengine start``: poller and processor."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxengine.app import garbage
from boxengine.cli.context import Globals, connect, globals_of

if TYPE_CHECKING:
    from boxengine.app.assembly import Choices
    from boxengine.app.boxes import Boxes
    from boxengine.app.servers import Servers

logger = logging.getLogger("boxengine.start")
GRACE = timedelta(seconds=1)
"""Beyond the general timeout, for what follows the last batch."""


def start(
    context: typer.Context,
    boxes: Annotated[
        list[str] | None, typer.Option("--boxes", "-b", help="Boxes to work on, a,b or repeated; all if none named.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option("--concurrency", "-c", min=1, help="Processor threads.")] = None,
    poll_concurrency: Annotated[
        int | None, typer.Option("--poll-concurrency", "-p", min=1, help="Partitions per box.")
    ] = None,
    poll_threads: Annotated[int | None, typer.Option("--poll-threads", "-n", min=1, help="Poller threads.")] = None,
    poll_tactic: Annotated[
        str | None, typer.Option("--poll-tactic", "-t", help="default, low-priority, aggressive or noop.")
    ] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, help="Worker processes under one parent.")] = 1,
    child: Annotated[str | None, typer.Option("--child", hidden=True)] = None,
) -> None:
    """Deliver items: poller and processor, until SIGTERM, SIGINT or SIGQUIT.

    The first signal lets the batches under way finish and exits with 0; a second one exits at once.

    Examples: boxengine start; boxengine start -b order_outbox_item -c 8; boxengine start --processes 4
    """
    options = globals_of(context)
    names = [name.strip() for each in boxes or () for name in each.split(",") if name.strip()]
    with garbage.put_off():
        from boxengine.app.assembly import Choices, choose  # noqa: PLC0415 - see Globals.boxes
        from boxengine.engine.tactics import TACTICS  # noqa: PLC0415

        options.configure_logs()
        if poll_tactic is not None and poll_tactic not in TACTICS:
            raise typer.BadParameter(f"expected one of {', '.join(TACTICS)}", param_hint="--poll-tactic")
        loaded = options.boxes()
    options.configure_logs(loaded)
    choices = Choices(
        boxes=names,
        processor_threads=concurrency,
        partitions=poll_concurrency,
        poller_threads=poll_threads,
        tactic=poll_tactic,
    )
    choose(loaded.resolved, names)
    if processes > 1 and child is None:
        from boxengine.app import assembly  # noqa: PLC0415
        from boxengine.cli.processes import Supervisor  # noqa: PLC0415

        servers = connect(loaded)
        supervisor = Supervisor(
            loaded,
            options,
            ["start", *child_choices(choices)],
            count=processes,
            health=partial(assembly.health, servers),
            grace=loaded.resolved.settings.processor.general_timeout + 5 * GRACE,
        )
        code = supervisor.run()
        servers.close()
        raise typer.Exit(code)
    raise typer.Exit(_Process(loaded, connect(loaded), options, choices, child=child).run())


class _Process:
    """One worker process from its start to its exit code."""

    def __init__(
        self, boxes: Boxes, servers: Servers, options: Globals, choices: Choices, *, child: str | None
    ) -> None:
        self._boxes = boxes
        self._servers = servers
        self._options = options
        self._choices = choices
        self._child = Path(child) if child else None
        self._settings = boxes.resolved.settings

    def run(self) -> int:
        from boxengine.adapters.telemetry.ledger import Ledger  # noqa: PLC0415 - see Globals.boxes
        from boxengine.app import assembly, default  # noqa: PLC0415
        from boxengine.app.boxes import Boxes  # noqa: PLC0415
        from boxengine.cli.watchers import watchers  # noqa: PLC0415

        partitions = self._choices.partitions or self._settings.poller.concurrency
        ledger = Ledger(self._child) if self._child else None
        watching = watchers(self._settings, clock=self._servers.clock, partitions=partitions, ledger=ledger)
        default.offer(Boxes(self._boxes.resolved, observer=watching.observer, tracer=watching.tracer))
        health = assembly.health(self._servers, **watching.health)
        worker = assembly.assemble(
            self._boxes.resolved,
            self._servers,
            choices=self._choices,
            observer=watching.observer,
            tracer=watching.tracer,
            health=health,
            services=[] if self._child else endpoints(self._boxes, health, watching.registry),
            name=place(self._child),
        )
        stopping = stop_event(die_with_parent=self._child is not None)
        garbage.set_up_for_batches()
        worker.start()
        names = list(self._choices.boxes or self._boxes.resolved.pipelines)
        logger.info("started: %s", ", ".join(names), extra={"pid": os.getpid()})
        self._tell_notices()
        stopping.wait()
        logger.info("stopping: the batches under way are finished first")
        stuck = worker.stop(within=self._settings.processor.general_timeout + GRACE)
        for name in stuck:
            logger.error("%s did not stop in time", name)
        logger.info("stopped")
        return 1 if stuck else 0

    def _tell_notices(self) -> None:
        """What works but is probably not meant, and what the tables lack; from a thread, for the database may be down."""
        from boxengine.errors import BoxError  # noqa: PLC0415
        from boxengine.settings import notices  # noqa: PLC0415

        if self._child is not None and self._child.stem != "1":
            return
        for problem in notices(self._settings):
            logger.warning("%s", problem)

        def look() -> None:
            for pipeline in self._boxes.resolved.pipelines.values():
                try:
                    lacking = self._servers.store.table(pipeline.box).lacking
                except BoxError:
                    return  # the loops tell, and try again
                for what, loss in lacking.items():
                    logger.info("table %s has no %s: %s", pipeline.box.table, what, loss)

        threading.Thread(target=look, name="boxengine-tables", daemon=True).start()


def place(child: Path | None) -> str:
    """Which of several equal processes this is: what comes before the count of restarts in its ledger's name."""
    return "0" if child is None else child.stem.partition(".")[0]


def endpoints(boxes: Boxes, health: Any, registry: Any) -> list[Any]:
    """The HTTP servers for probes and metrics, as configured."""
    from boxengine.web import probes  # noqa: PLC0415 - see Globals.boxes
    from boxengine.web.server import services  # noqa: PLC0415

    settings = boxes.resolved.settings
    wanted = []
    if settings.probes.enabled:
        wanted.append(("probes.port", settings.probes.port, probes.routes(ready=health.ready, alive=health.alive)))
    if settings.metrics.enabled:
        from boxengine.web import metrics  # noqa: PLC0415 - see watchers

        wanted.append(("metrics.port", settings.metrics.port, metrics.routes(registry)))
    return list(services(wanted))


def stop_event(*, die_with_parent: bool = False, on_stop: Callable[[], None] = lambda: None) -> threading.Event:
    """Set by the first signal to stop; the second ends the process at once.

    Args:
        die_with_parent: also stop when standard input ends, as it does when the parent that holds its other end is gone.
    """
    stopping = threading.Event()

    def stop(number: int, _frame: object) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()
        on_stop()

    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(name, stop)
    if die_with_parent:

        def watch() -> None:
            os.read(sys.stdin.fileno(), 1)
            stopping.set()

        threading.Thread(target=watch, name="boxengine-parent", daemon=True).start()
    return stopping


def child_choices(choices: Choices) -> list[str]:
    """The options of ``start`` that give a child the same choices."""
    given = replace(choices)
    options = [part for name in given.boxes for part in ("--boxes", name)]
    for option, value in (
        ("--concurrency", given.processor_threads),
        ("--poll-concurrency", given.partitions),
        ("--poll-threads", given.poller_threads),
        ("--poll-tactic", given.tactic),
    ):
        if value is not None:
            options += [option, str(value)]
    return options
