"""``boxengine start``: poller and processor."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from boxengine.app import garbage
from boxengine.cli.context import connect, globals_of
from boxengine.cli.lifecycle import Child, endpoints, live, names_in
from boxengine.cli.stacks import Stacks

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
        list[str] | None,
        typer.Option("--boxes", "--box", "-b", help="Boxes to work on, a,b or repeated; all if none named."),
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
    """Deliver items: poller and processor, until SIGTERM, SIGINT, SIGQUIT or SIGHUP.

    The first signal lets the batches under way finish and exits with 0; a second one, other than SIGHUP, exits at once.

    Examples: boxengine start; boxengine start -b order_outbox_item -c 8; boxengine start --processes 4
    """
    stacks, this_child = Stacks(), Child.at(child)
    options, names = globals_of(context), names_in(boxes)
    with garbage.put_off():
        from boxengine.app.assembly import Choices, choose  # noqa: PLC0415 - see Globals.boxes
        from boxengine.app.bucket_sizes import refuse_other_sizes  # noqa: PLC0415
        from boxengine.app.shared_tables import refuse_shared_tables  # noqa: PLC0415
        from boxengine.engine.polling.tactics import TACTICS  # noqa: PLC0415

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
    servers = connect(loaded, writes=True)
    if this_child is None:
        refuse_shared_tables(loaded.resolved, servers.store)
        refuse_other_sizes(loaded.resolved, names, servers.store)
    if processes > 1 and this_child is None:
        from boxengine.app import assembly  # noqa: PLC0415
        from boxengine.cli.processes import Supervisor  # noqa: PLC0415

        supervisor = Supervisor(
            loaded,
            options,
            ["start", *child_choices(choices)],
            count=processes,
            health=partial(assembly.health, servers),
            grace=loaded.resolved.settings.processor.general_timeout + 20 * GRACE,
            stacks=stacks,
        )
        code = supervisor.run()
        servers.close()
        raise typer.Exit(code)
    raise typer.Exit(_Process(loaded, servers, choices, child=this_child, stacks=stacks).run())


class _Process:
    """One worker process from its start to its exit code."""

    def __init__(
        self, boxes: Boxes, servers: Servers, choices: Choices, *, child: Child | None, stacks: Stacks
    ) -> None:
        self._boxes = boxes
        self._servers = servers
        self._choices = choices
        self._child = child
        self._stacks = stacks
        self._settings = boxes.resolved.settings

    def run(self) -> int:
        from boxengine.adapters.telemetry.ledger import Ledger  # noqa: PLC0415 - see Globals.boxes
        from boxengine.app import assembly, default  # noqa: PLC0415
        from boxengine.app.boxes import Boxes  # noqa: PLC0415
        from boxengine.app.watchers import watchers  # noqa: PLC0415

        partitions = self._choices.partitions or self._settings.poller.concurrency
        ledger = Ledger(self._child.ledger) if self._child else None
        watching = watchers(self._settings, clock=self._servers.clock, partitions=partitions, ledger=ledger)
        self._stacks.in_hand = watching.in_hand
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
            name=self._child.place if self._child else "0",
        )
        names = self._choices.boxes or self._boxes.resolved.pipelines
        return live(
            worker,
            child=self._child,
            within=self._settings.processor.general_timeout + GRACE,
            logger=logger,
            started=f"started: {', '.join(names)}",
            stopping="stopping: the batches under way are finished first",
            once_started=self._tell_notices,
        )

    def _tell_notices(self) -> None:
        """What works but is probably not meant, and what the tables lack; from a thread, for the database may be down."""
        from boxengine.errors import BoxError  # noqa: PLC0415
        from boxengine.settings import notices  # noqa: PLC0415

        if self._child is not None and self._child.ledger.stem != "1":
            return
        for problem in notices(self._settings):
            logger.warning("%s", problem)

        def look() -> None:
            for pipeline in self._boxes.resolved.pipelines.values():
                try:
                    lacking = self._servers.store.table(pipeline.box).lacking
                    stranded = self._servers.store.stranded(pipeline.box)
                except BoxError:
                    return  # the loops tell, and try again
                if stranded is not None:
                    logger.error("box %s: %s", pipeline.box.name, stranded)
                for what, loss in lacking.items():
                    logger.info("table %s has no %s: %s", pipeline.box.table, what, loss)

        threading.Thread(target=look, name="boxengine-tables", daemon=True).start()


def child_choices(choices: Choices) -> list[str]:
    """The options of ``start`` that give a child the same choices."""
    options = [part for name in choices.boxes for part in ("--boxes", name)]
    for option, value in (
        ("--concurrency", choices.processor_threads),
        ("--poll-concurrency", choices.partitions),
        ("--poll-threads", choices.poller_threads),
        ("--poll-tactic", choices.tactic),
    ):
        if value is not None:
            options += [option, str(value)]
    return options
