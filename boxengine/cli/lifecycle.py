"""A worker process from its start to its exit code; `start` and `consume` share it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boxengine.app import garbage
from boxengine.cli.signals import StopRequest, let_through, stop_request, stop_with_parent

if TYPE_CHECKING:
    from boxengine.app.boxes import Boxes
    from boxengine.engine.running.worker import Worker

LAST_WAIT = timedelta(seconds=5)
"""For what the application does when the process ends."""


@dataclass(frozen=True, slots=True)
class Child:
    """One of the processes under a parent."""

    ledger: Path
    """Where it keeps its numbers for the parent."""
    request: StopRequest

    @classmethod
    def at(cls, ledger: str | None) -> Child | None:
        """This process as a child; None: it has no parent.

        Before anything else is done, for the parent holds signals back until the child can stop in good order.
        """
        if ledger is None:
            return None
        request = stop_request()
        stop_with_parent(request)
        let_through()
        return cls(Path(ledger), request)

    @property
    def place(self) -> str:
        """Which of several equal processes this is; its successor after a restart has the same place."""
        return self.ledger.stem.partition(".")[0]


def live(
    worker: Worker,
    *,
    child: Child | None,
    within: timedelta,
    logger: logging.Logger,
    started: str,
    stopping: str,
    once_started: Callable[[], None] = lambda: None,
) -> int:
    """Runs the worker until a signal; returns the exit code.

    Args:
        within: how long the worker may take to stop.
        started, stopping: log lines.
    """
    request = stop_request() if child is None else child.request
    garbage.set_up_for_batches()
    worker.start()
    logger.info("%s", started, extra={"pid": os.getpid()})
    once_started()
    request.wait()
    logger.info("%s", stopping)
    stuck = worker.stop(within=within)
    for name in stuck:
        logger.error("%s did not stop in time", name)
    logger.info("stopped")
    code = 1 if stuck else 0
    _end_within(LAST_WAIT, code, logger)
    return code


def _end_within(span: timedelta, code: int, logger: logging.Logger) -> None:
    """Python waits for threads of users' code that are no daemons, however long they take."""

    def end() -> None:
        time.sleep(span.total_seconds())
        waited_for = [each.name for each in threading.enumerate() if not each.daemon and each.name != "MainThread"]
        logger.error("ends now, without waiting for %s", ", ".join(waited_for) or "the rest")
        logging.shutdown()
        os._exit(code)

    threading.Thread(target=end, name="boxengine-end", daemon=True).start()


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


def names_in(options: Sequence[str] | None) -> list[str]:
    """The boxes of an option that may be repeated and may hold several names."""
    return [name.strip() for each in options or () for name in each.split(",") if name.strip()]
