"""``--processes N``: a parent that keeps N workers running, and answers probes and metrics for all."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from boxengine.adapters.system import SystemClock
from boxengine.adapters.telemetry import families
from boxengine.adapters.telemetry.ledger import ProcessLedgers
from boxengine.adapters.telemetry.progress import ChildProcesses
from boxengine.adapters.telemetry.prometheus import NumbersCollector
from boxengine.adapters.temporary import spared
from boxengine.cli.context import Globals
from boxengine.cli.endpoints import endpoints
from boxengine.cli.signals import TELLING, held_back_in_children, stop_request
from boxengine.cli.stacks import Stacks
from boxengine.engine.running.health import Health
from boxengine.errors import BoxError

if TYPE_CHECKING:
    from boxengine.app.boxes import Boxes

logger = logging.getLogger("boxengine.processes")
LOOK_EVERY = 0.5
LOOK_AT_STOP_EVERY = 0.1
SHORTEST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
STEADY = 60.0
"""Seconds; a child that ran this long had a good start, and the pause after its next death is the shortest again."""


@dataclass(slots=True)
class Place:
    """One place among the workers, and the process that fills it now."""

    slot: int
    process: subprocess.Popen[bytes] | None = None
    name: str = ""
    started_at: float = 0.0
    starts: int = 0
    pause: float = 0.0
    """Seconds between the last death in this place and the next start."""
    start_at: float = 0.0

    def next_pause(self) -> float:
        """Twice the last pause, so that a process that keeps dying leaves the machine to others."""
        self.pause = min(LONGEST_PAUSE, max(SHORTEST_PAUSE, 2 * self.pause))
        return self.pause


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
        stacks: Stacks,
    ) -> None:
        """Args:
        command: what each child runs, without the global options; ``--child`` is added.
        health: makes the basis of the probes' answers; called with ``others``.
        grace: how long the children may take to stop.
        stacks: logs this process's stacks; its signal is passed on to the children.
        """
        self._boxes = boxes
        self._options = options
        self._command = command
        self._health = health
        self._grace = grace
        self._children = [Place(slot) for slot in range(1, count + 1)]
        stacks.pass_on = partial(self._signal, TELLING)

    def run(self) -> int:
        """Runs until a signal; returns the exit code."""
        try:
            shared = tempfile.TemporaryDirectory(prefix="boxengine-", ignore_cleanup_errors=True)
        except OSError as error:
            raise BoxError(
                f"--processes needs a writable temporary folder, set TMPDIR to one: {error.strerror or error}"
            ) from error
        with shared as folder, spared(folder):
            ledgers = ProcessLedgers(Path(folder), added=families.ADDED, passing=families.PASSING)
            health = self._health(others=ChildProcesses(ledgers, expected=self._expected))
            loop = health.loop("supervisor", limit=timedelta(seconds=10))
            registry = CollectorRegistry()
            registry.register(NumbersCollector(ledgers, clock=SystemClock()))
            services = endpoints(self._boxes, health, registry)
            request = stop_request(before_end=partial(self._end_at_once, shared))
            for service in services:
                service.start()
            while not request.is_set:
                self._tend(ledgers)
                loop.tick(pause=timedelta(seconds=LOOK_EVERY))
                request.wait(LOOK_EVERY)
            health.stopping()
            # While it waits for the children to stop, it makes no other progress.
            health.forget(loop)
            code = self._stop(ledgers)
            for service in services:
                service.stop()
            return code

    def _expected(self) -> list[str]:
        return [child.name or f"{child.slot}" for child in self._children]

    def _tend(self, ledgers: ProcessLedgers) -> None:
        for child in self._children:
            if child.process is not None and child.process.poll() is not None:
                self._bury(child, ledgers)
            if child.process is None and time.monotonic() >= child.start_at:
                self._start(child, ledgers)

    def _start(self, child: Place, ledgers: ProcessLedgers) -> None:
        child.starts += 1
        child.name = f"{child.slot}" if child.starts == 1 else f"{child.slot}.{child.starts}"
        child.started_at = time.monotonic()
        command = [sys.executable, "-m", "boxengine", *self._options.arguments(), *self._command]
        command += ["--child", str(ledgers.path(child.name))]
        try:
            with held_back_in_children():
                # This end of the pipe closes when this process ends, however that happens, and that stops the child.
                child.process = subprocess.Popen(command, stdin=subprocess.PIPE)
        except OSError as error:
            # The system has too many processes or too little memory at the moment.
            logger.warning("process %s cannot be started: %s", child.slot, error)
            child.start_at = child.started_at + child.next_pause()
            return
        logger.info("process %s started", child.slot, extra={"pid": child.process.pid})

    def _bury(self, child: Place, ledgers: ProcessLedgers) -> None:
        process = child.process
        if process is None:
            return
        now = time.monotonic()
        if now - child.started_at > STEADY:
            child.pause = 0.0
        pause = child.next_pause()
        logger.error("process %s ended with %s; another is started in %.1f s", child.slot, process.returncode, pause)
        _let_go(process)
        ledgers.retire(child.name)
        child.process, child.start_at = None, now + pause

    def _stop(self, ledgers: ProcessLedgers) -> int:
        running = [(child.name, child.process) for child in self._children if child.process is not None]
        for _, process in running:
            # Not a signal: Ctrl-C and systemd signal the children too, and a second signal would cut off their batches.
            _let_go(process)
        limit = time.monotonic() + self._grace.total_seconds()
        code = 0
        while running:
            name, process = _first_to_end(running, until=limit)
            running.remove((name, process))
            # If it crashed, its loops would seem to hang, and the whole worker with them, while the others finish.
            ledgers.retire(name)
            code = 1 if process.returncode else code
        return code

    def _end_at_once(self, shared: tempfile.TemporaryDirectory[str]) -> None:
        self._signal(signal.SIGKILL)
        shared.cleanup()

    def _signal(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.process is not None:
                child.process.send_signal(number)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Closes the child's standard input, which asks it to stop."""
    if process.stdin is not None:
        process.stdin.close()


def _first_to_end(
    running: Sequence[tuple[str, subprocess.Popen[bytes]]], *, until: float
) -> tuple[str, subprocess.Popen[bytes]]:
    """Waits until one of the processes has ended; after ``until`` it kills the first."""
    while time.monotonic() < until:
        for name, process in running:
            if process.poll() is not None:
                return name, process
        with suppress(subprocess.TimeoutExpired):
            running[0][1].wait(LOOK_AT_STOP_EVERY)
    name, process = running[0]
    process.kill()
    process.wait()
    return name, process
