"""A worker inside an application: it starts, runs and stops with the application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from boxengine.adapters.telemetry import logs
from boxengine.app import assembly
from boxengine.app.boxes import Boxes, default, load_for_worker
from boxengine.app.checking.shared_tables import refuse_shared_tables
from boxengine.app.running.watchers import watchers
from boxengine.app.servers.connected import Servers, connect
from boxengine.domain.names import box_name
from boxengine.engine.running.health import Health, HealthVerdict
from boxengine.engine.running.worker import Worker
from boxengine.errors import BoxError
from boxengine.settings import notices

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

logger = logging.getLogger("boxengine.start")
GRACE = timedelta(seconds=1)
"""Added to the general timeout, for the work after the last batch."""


class running:  # noqa: N801 - used as a statement: with boxengine.running(...)
    """Runs a worker in threads of this process while the block runs, with the guarantees of ``boxengine start``.

    Works with ``with`` and with ``async with``, which does not block the event loop. The end of the block waits for the batches
    in progress, for at most ``processor.general_timeout``. A killed process loses nothing: another worker takes over.
    Signals, logging and HTTP endpoints remain the application's: see ``ready`` and ``alive``.

    Args:
        config: a configuration file, several of them, or an already loaded ``Boxes``; None: found as usual.
        boxes: model classes or names of the boxes to work on, or a single one; empty: all.
        env: environment section of the file.
        threads: processor threads; None: as configured.

    Raises:
        ConfigurationError: lists every problem that was found, such as two boxes with one table.
        BoxError: a server's settings make no sense, a transport cannot be made, or ``threads`` is no number of threads.

    Example::

        @asynccontextmanager
        async def lifespan(app):
            async with boxengine.running("outbox.yml") as worker:
                app.state.worker = worker
                yield

        with boxengine.running(boxes=[OrderOutboxItem]):
            serve_forever()
    """

    def __init__(
        self,
        config: Boxes | str | Path | Sequence[str | Path] | None = None,
        *,
        boxes: Sequence[type | str] | type | str = (),
        env: str | None = None,
        threads: int | None = None,
    ) -> None:
        self.boxes = config if isinstance(config, Boxes) else load_for_worker(config, env)
        """The configuration, to create items with."""
        self._names = [box_name(each) for each in ([boxes] if isinstance(boxes, str | type) else boxes)]
        self._threads = _number_of_threads(threads)
        self.registry: CollectorRegistry | None = None
        """Metrics of the worker while it runs, for the application's own endpoint; None if ``metrics.enabled`` is false."""
        self._worker: Worker | None = None
        self._health: Health | None = None

    # ── what an application asks ─────────────────────────────────────────────────────────────────────

    def ready(self) -> HealthVerdict:
        """Whether the servers answer and the loops run; for the application's own readiness endpoint."""
        return self._started().ready()

    def alive(self) -> HealthVerdict:
        """Whether every loop makes progress; for the application's own liveness endpoint."""
        return self._started().alive()

    def start(self) -> None:
        """Starts the worker, as entering the block does."""
        if self._worker is not None:
            raise BoxError("this worker has already been started; each boxengine.running(...) runs once")
        settings = self.boxes.resolved.settings
        logs.enable()  # nothing else tells of items that fail
        assembly.refuse_no_boxes(self.boxes.resolved)
        choices = assembly.Choices(boxes=self._names, processor_threads=self._threads)
        servers = connect(choices.applied_to(settings), writes=True)
        try:
            self._worker = self._assembled(servers, choices)
        except BaseException:
            servers.close()
            raise
        try:
            self._worker.start()
        except BaseException:
            # Nobody leaves a block that was not entered.
            self.stop()
            raise
        for problem in notices(settings):
            logger.warning("%s", problem)
        logger.info(
            "started: %s", ", ".join(self._names or [*self.boxes.resolved.pipelines, *self.boxes.resolved.jobs])
        )

    def _assembled(self, servers: Servers, choices: assembly.Choices) -> Worker:
        resolved = self.boxes.resolved
        refuse_shared_tables(resolved, servers.store)
        settings = resolved.settings
        watching = watchers(settings, clock=servers.clock, partitions=settings.poller.concurrency, ledger=None)
        default.offer(Boxes(resolved, observer=watching.observer, tracer=watching.tracer, bells=self.boxes.bells))
        coordinated = assembly.is_coordinated(resolved, self._names)
        health = assembly.health(servers, coordinated=coordinated, **watching.health)
        worker = assembly.assemble(
            resolved,
            servers,
            choices=choices,
            observer=watching.observer,
            tracer=watching.tracer,
            health=health,
            bells=self.boxes.bells,
        )
        self.registry, self._health = watching.registry, health
        return worker

    def stop(self) -> None:
        """Stops the worker, as leaving the block does. A second call is harmless."""
        if self._worker is not None:
            stuck = self._worker.stop(within=self.boxes.resolved.settings.processor.general_timeout + GRACE)
            for name in stuck:
                logger.error("%s did not stop in time", name)
            logger.info("stopped")

    # ── with and async with ──────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The start goes on in its thread, and ``__aexit__`` will not be called.
            await asyncio.shield(self._stop_once_started(starting))
            raise
        return self

    async def _stop_once_started(self, starting: asyncio.Future[None]) -> None:
        await asyncio.wait([starting])
        await asyncio.to_thread(self.stop)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Shielded: an application that is cancelled must not leave its worker's threads behind.
        await asyncio.shield(asyncio.to_thread(self.stop))

    def _started(self) -> Health:
        if self._health is None:
            raise BoxError("this worker has not been started: use it with 'with' or 'async with'")
        return self._health


def _number_of_threads(given: object) -> int | None:
    if given is None or (isinstance(given, int) and given >= 1):
        return given
    raise BoxError(f"threads: expected a whole number from 1 up, got {given!r:.80}")
