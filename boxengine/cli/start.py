"""``boxengine start``: runs the poller, the processor and the loops of long jobs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxengine.app.running import garbage
from boxengine.cli.child import Child
from boxengine.cli.context import connect, globals_of, names_in
from boxengine.cli.lifecycle import Plan, Process, Work

if TYPE_CHECKING:
    from boxengine.app.assembly import Choices
    from boxengine.app.boxes import Boxes
    from boxengine.app.servers.connected import Servers
    from boxengine.domain.box import Box
    from boxengine.domain.jobs import JobBox
    from boxengine.engine.running.health import Health
    from boxengine.engine.running.worker import Worker
    from boxengine.ports import Observer, Service, Tracer

logger = logging.getLogger("boxengine.start")
GRACE = timedelta(seconds=1)
"""Time beyond the general timeout, for the steps after the last batch."""


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
    """Deliver items and run long jobs, until SIGTERM, SIGINT, SIGQUIT or SIGHUP.

    The first signal lets the batches under way finish and exits with 0; a second one, other than SIGHUP, exits at once.

    Examples: boxengine start; boxengine start -b order_outbox_item -c 8; boxengine start --processes 4
    """
    process = Process(child)
    options, names = globals_of(context), names_in(boxes)
    with garbage.put_off():
        from boxengine.app.assembly import Choices, choose, refuse_no_boxes  # noqa: PLC0415 - see Globals.boxes
        from boxengine.app.checking.bucket_sizes import refuse_other_sizes  # noqa: PLC0415
        from boxengine.app.checking.shared_tables import refuse_shared_tables  # noqa: PLC0415
        from boxengine.engine.polling.tactics import TACTICS  # noqa: PLC0415

        options.configure_logs()
        if poll_tactic is not None and poll_tactic not in TACTICS:
            raise typer.BadParameter(f"expected one of {', '.join(TACTICS)}", param_hint="--poll-tactic")
        loaded = options.boxes()
    refuse_no_boxes(loaded.resolved)
    options.configure_logs(loaded)
    choices = Choices(
        boxes=names,
        processor_threads=concurrency,
        partitions=poll_concurrency,
        poller_threads=poll_threads,
        tactic=poll_tactic,
    )
    choose(loaded.resolved, names)
    servers = connect(loaded, writes=True, choices=choices)
    if process.child is None:
        try:
            refuse_shared_tables(loaded.resolved, servers.store)
            refuse_other_sizes(loaded.resolved, names, servers.store)
        except BaseException:
            servers.close()
            raise
    settings = loaded.resolved.settings
    plan = Plan(
        work=partial(Delivering, loaded, servers, choices),
        command=["start", *child_choices(choices)],
        partitions=poll_concurrency or settings.poller.concurrency,
        within=settings.processor.general_timeout + GRACE,
        children_within=settings.processor.general_timeout + 20 * GRACE,
        logger=logger,
        started="started:",
        stopping="stopping: the batches under way are finished first",
        once_started=partial(_log_notices, loaded, servers, process.child),
    )
    raise typer.Exit(process.run(plan, loaded, options, processes=processes))


class Delivering:
    """``Work`` of ``boxengine start``."""

    def __init__(
        self, boxes: Boxes, servers: Servers, choices: Choices, *, observer: Observer, tracer: Tracer, place: str
    ) -> None:
        self._boxes = boxes
        self._servers = servers
        self._choices = choices
        self._observer = observer
        self._tracer = tracer
        self._place = place

    @property
    def boxes(self) -> list[Box | JobBox]:
        """The boxes that this worker works on."""
        from boxengine.app.assembly import choose  # noqa: PLC0415 - see Globals.boxes
        from boxengine.app.assembly.choosing import chosen_jobs  # noqa: PLC0415

        resolved, names = self._boxes.resolved, self._choices.boxes
        jobs = [pipeline.box for pipeline in chosen_jobs(resolved, names).values()]
        return [*(pipeline.box for pipeline in choose(resolved, names).values()), *jobs]

    def health(self, **options: Any) -> Health:
        """The basis of the probes' answers: the servers, the transports and the loops' progress."""
        from boxengine.app import assembly  # noqa: PLC0415 - see Globals.boxes

        coordinated = assembly.is_coordinated(self._boxes.resolved, self._choices.boxes)
        return assembly.health(self._servers, coordinated=coordinated, **options)

    def worker(self, *, health: Health, services: Sequence[Service]) -> Worker:
        """The worker: poller, processor and the loops of long jobs."""
        from boxengine.app import assembly  # noqa: PLC0415 - see Globals.boxes
        from boxengine.app.boxes import Boxes, default  # noqa: PLC0415

        bells = self._boxes.bells
        default.offer(Boxes(self._boxes.resolved, observer=self._observer, tracer=self._tracer, bells=bells))
        return assembly.assemble(
            self._boxes.resolved,
            self._servers,
            choices=self._choices,
            observer=self._observer,
            tracer=self._tracer,
            health=health,
            services=services,
            name=self._place,
            bells=bells,
        )

    def close(self) -> None:
        """Closes the connections to the servers."""
        self._servers.close()


def _log_notices(loaded: Boxes, servers: Servers, child: Child | None, _work: Work) -> None:
    """Logs settings that work but are probably unintended, and what the tables lack."""
    from boxengine.errors import BoxError, SchemaMismatch  # noqa: PLC0415
    from boxengine.settings import notices  # noqa: PLC0415

    if child is not None and not child.speaks_for_all:
        return
    for problem in notices(loaded.resolved.settings):
        logger.warning("%s", problem)

    def look() -> None:
        for pipeline in loaded.resolved.pipelines.values():
            try:
                lacking = servers.store.table(pipeline.box).lacking
                stranded = servers.store.stranded(pipeline.box)
            except SchemaMismatch:
                continue  # the loops report it, and try again
            except BoxError:
                return  # the same; the server would not answer for another box either
            if stranded is not None:
                logger.error("box %s: %s", pipeline.box.name, stranded)
            for what, loss in lacking.items():
                logger.info("table %s has no %s: %s", pipeline.box.table, what, loss)

    # In a thread: the database may be down, and the worker must start nevertheless.
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
