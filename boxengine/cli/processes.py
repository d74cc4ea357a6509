"""``--processes N``: a parent that keeps N workers running, and answers probes and metrics for all."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from boxengine.adapters.system import SystemClock
from boxengine.adapters.telemetry.ledger import ProcessLedgers
from boxengine.adapters.telemetry.progress import ChildProcesses
from boxengine.adapters.telemetry.prometheus import NumbersCollector
from boxengine.cli.context import Globals
from boxengine.cli.start import endpoints, stop_event
from boxengine.engine.health import Health

if TYPE_CHECKING:
    from boxengine.app.boxes import Boxes

logger = logging.getLogger("boxengine.processes")
LOOK_EVERY = 0.5
LONGEST_PAUSE = 30.0
STEADY = 60.0
"""Seconds; a child that ran for so long has started well, and its next death is not counted with the last."""


@dataclass(slots=True)
class _Child:
    """One place among the workers, and who fills it now."""

    slot: int
    process: subprocess.Popen[bytes] | None = None
    name: str = ""
    started_at: float = 0.0
    starts: int = 0
    deaths: int = 0
    start_at: float = 0.0


class Supervisor:
    """Starts the children, restarts those that die, with growing pauses, and stops them together."""

    def __init__(
        self,
        boxes: Boxes,
        options: Globals,
        command: Sequence[str],
        *,
        count: int,
        health: Callable[..., Health],
        grace: timedelta,
    ) -> None:
        """Args:
        command: what each child runs, without the global options; it gets ``--child`` besides.
        health: makes what the probes answer from; called with ``others``.
        grace: how long the children may take to stop.
        """
        self._boxes = boxes
        self._options = options
        self._command = command
        self._health = health
        self._grace = grace
        self._children = [_Child(slot) for slot in range(1, count + 1)]

    def run(self) -> int:
        """Until a signal; returns the exit code."""
        with tempfile.TemporaryDirectory(prefix="boxengine-") as folder:
            ledgers = ProcessLedgers(Path(folder))
            health = self._health(others=ChildProcesses(ledgers))
            loop = health.loop("supervisor", limit=timedelta(seconds=10))
            registry = CollectorRegistry()
            registry.register(NumbersCollector(ledgers, clock=SystemClock()))
            services = endpoints(self._boxes, health, registry)
            stopping = stop_event()
            for service in services:
                service.start()
            while not stopping.is_set():
                self._tend(ledgers)
                loop.tick(pause=timedelta(seconds=LOOK_EVERY))
                stopping.wait(LOOK_EVERY)
            health.stopping()
            code = self._stop()
            for service in services:
                service.stop()
            return code

    def _tend(self, ledgers: ProcessLedgers) -> None:
        for child in self._children:
            if child.process is not None and child.process.poll() is not None:
                self._bury(child, ledgers)
            if child.process is None and time.monotonic() >= child.start_at:
                self._start(child, ledgers)

    def _start(self, child: _Child, ledgers: ProcessLedgers) -> None:
        child.starts += 1
        child.name = f"{child.slot}" if child.starts == 1 else f"{child.slot}.{child.starts}"
        child.started_at = time.monotonic()
        command = [sys.executable, "-m", "boxengine", *self._options.arguments(), *self._command]
        command += ["--child", str(ledgers.path(child.name))]
        # The pipe's other end closes when this process ends, however it ends: that stops the child.
        child.process = subprocess.Popen(command, stdin=subprocess.PIPE)
        logger.info("process %s started", child.slot, extra={"pid": child.process.pid})

    def _bury(self, child: _Child, ledgers: ProcessLedgers) -> None:
        process = child.process
        if process is None:
            return
        now = time.monotonic()
        child.deaths = 1 if now - child.started_at > STEADY else child.deaths + 1
        pause = min(LONGEST_PAUSE, 0.5 * 2 ** (child.deaths - 1))
        logger.error("process %s ended with %s; another is started in %.1f s", child.slot, process.returncode, pause)
        if process.stdin is not None:
            process.stdin.close()
        ledgers.retire(child.name)
        child.process, child.start_at = None, now + pause

    def _stop(self) -> int:
        running = [child.process for child in self._children if child.process is not None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        limit = time.monotonic() + self._grace.total_seconds()
        code = 0
        for process in running:
            try:
                ended_with = process.wait(max(0.1, limit - time.monotonic()))
                # One that was still starting had no handler for the signal yet, and no work either.
                code = code if ended_with in (0, -signal.SIGTERM) else 1
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                code = 1
        return code
