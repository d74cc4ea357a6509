"""A worker command from its start to its exit code. ``start`` and ``consume`` share it.

A command first makes its ``Process``, then loads the configuration and runs a ``Plan``. With ``--processes`` this process
becomes the parent of several that run the same plan; otherwise, or as one of those children, it does the work itself.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from boxengine.app.running import garbage
from boxengine.cli.child import Child
from boxengine.cli.signals import end_while_starting, stop_request
from boxengine.cli.stacks import Stacks
from boxengine.errors import BoxError

if TYPE_CHECKING:
    from boxengine.app.boxes import Boxes
    from boxengine.cli.context import Globals
    from boxengine.domain.box import Box
    from boxengine.domain.jobs import JobBox
    from boxengine.engine.running.health import Health
    from boxengine.engine.running.worker import Worker
    from boxengine.ports import Observer, Service, Tracer

LAST_WAIT = timedelta(seconds=5)
"""Time for what the application does when the process ends."""
STDERR = 2


class Work(Protocol):
    """Everything that a command runs, not started yet; its connections may be open already."""

    @property
    def boxes(self) -> Sequence[Box | JobBox]:
        """The boxes it works on."""

    def health(self, **options: Any) -> Health:
        """The basis of the probes' answers; ``options`` are those of ``Health``."""

    def worker(self, *, health: Health, services: Sequence[Service]) -> Worker:
        """The worker with its loops. Stopping it closes all connections."""

    def close(self) -> None:
        """Closes all connections, if no worker was made."""


class MakeWork(Protocol):
    """Assembles a command's work."""

    def __call__(self, *, observer: Observer, tracer: Tracer, place: str) -> Work:
        """``place`` tells which of several identical processes on this machine this is; it is the same after a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What distinguishes one command's processes from another's."""

    work: MakeWork
    command: Sequence[str]
    """What each child runs, without the global options; ``--child`` is added."""
    partitions: int
    """Partitions per box, for the metrics."""
    within: timedelta
    """How long a worker may take to stop."""
    children_within: timedelta
    """How long a parent waits for its children to stop."""
    logger: logging.Logger
    started: str
    """The log line at the start; the boxes' names follow."""
    stopping: str
    """The log line when a stop is requested."""
    once_started: Callable[[Work], None] = lambda _work: None


class Process:
    """This operating-system process, from its first signal handler to its exit code."""

    def __init__(self, child: str | None) -> None:
        """From now on SIGUSR1 logs the stacks, a child stops with its parent, and a container's first process heeds signals.

        Args:
            child: the value of ``--child``; None: this process has no parent.
        """
        end_while_starting()
        self._stacks = Stacks()
        self.child = Child.at(child)

    def run(self, plan: Plan, boxes: Boxes, options: Globals, *, processes: int) -> int:
        """Runs the plan until a signal; returns the exit code.

        Args:
            processes: how many processes a parent starts. A child always does the work itself.
        """
        if processes > 1 and self.child is None:
            return self._supervise(plan, boxes, options, count=processes)
        return self._work(plan, boxes)

    def _supervise(self, plan: Plan, boxes: Boxes, options: Globals, *, count: int) -> int:
        from boxengine.cli.processes import Supervisor  # noqa: PLC0415 - see Globals.boxes
        from boxengine.engine.observation import NullObserver, NullTracer  # noqa: PLC0415

        # Checks what the children will get, and the servers for the probes; this process does no work itself.
        work = plan.work(observer=NullObserver(), tracer=NullTracer(), place="0")
        try:
            supervisor = Supervisor(
                boxes,
                options,
                plan.command,
                count=count,
                health=work.health,
                grace=plan.children_within,
                stacks=self._stacks,
            )
            return supervisor.run()
        finally:
            work.close()

    def _work(self, plan: Plan, boxes: Boxes) -> int:
        from boxengine.adapters.system import SystemClock  # noqa: PLC0415 - see Globals.boxes
        from boxengine.adapters.telemetry.ledger import Ledger  # noqa: PLC0415
        from boxengine.app.running.watchers import watchers  # noqa: PLC0415
        from boxengine.cli.endpoints import endpoints  # noqa: PLC0415

        child = self.child
        try:
            ledger = Ledger(child.ledger) if child else None
        except OSError as error:
            raise BoxError(
                f"--processes needs a temporary folder with room, set TMPDIR to one: {error.strerror or error}"
            ) from error
        watching = watchers(boxes.resolved.settings, clock=SystemClock(), partitions=plan.partitions, ledger=ledger)
        self._stacks.in_hand = watching.in_hand
        work = plan.work(observer=watching.observer, tracer=watching.tracer, place=child.place if child else "0")
        health = work.health(**watching.health)
        # The parent answers probes and metrics for its children.
        services = [] if child else endpoints(boxes, health, watching.registry)
        return self._live(plan, work, work.worker(health=health, services=services))

    def _live(self, plan: Plan, work: Work, worker: Worker) -> int:
        request = stop_request() if self.child is None else self.child.request
        garbage.set_up_for_batches()
        worker.start()
        plan.logger.info("%s %s", plan.started, ", ".join(box.name for box in work.boxes), extra={"pid": os.getpid()})
        plan.once_started(work)
        request.wait()
        plan.logger.info("%s", plan.stopping)
        stuck = worker.stop(within=plan.within)
        for name in stuck:
            plan.logger.error("%s did not stop in time", name)
        plan.logger.info("stopped")
        code = 1 if stuck else 0
        _end_within(LAST_WAIT, code, plan.logger)
        return code


def _end_within(span: timedelta, code: int, logger: logging.Logger) -> None:
    """Ends the process after ``span``: Python would wait for users' non-daemon threads, however long they take.

    Once Python frees its modules, no thread of Python's runs any more. Something that hangs then, such as a client
    library that waits for its own threads, is ended by a thread of faulthandler's: after twice the span, with exit
    code 1, and with the stack on standard error.
    """

    def end() -> None:
        time.sleep(span.total_seconds())
        waited_for = [each.name for each in threading.enumerate() if not each.daemon and each.name != "MainThread"]
        logger.error("exiting now, without waiting for %s", ", ".join(waited_for) or "the rest")
        logging.shutdown()
        os._exit(code)

    threading.Thread(target=end, name="boxengine-end", daemon=True).start()
    faulthandler.dump_traceback_later(2 * span.total_seconds(), exit=True, file=STDERR)
