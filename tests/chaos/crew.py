"""The worker processes of one run: started, killed, frozen, and stopped in good order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tests.eventually import eventually

STOP_PATIENCE = 40.0
"""Seconds for a worker to end after SIGTERM; its own limit is the general timeout and a second."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a worker process is started: boxengine as it is now, unless told otherwise."""

    program: Sequence[str] = ("-m", "boxengine")
    before: Sequence[Path] = ()
    """Folders in which Python looks for modules first."""
    environment: Mapping[str, str] = field(default_factory=dict)


class WorkerProcess:
    """One ``boxengine start``."""

    def __init__(self, folder: Path, code: Path, number: int, kind: Kind) -> None:
        self.log = folder / f"worker-{number}.log"
        path = os.pathsep.join(map(str, [*kind.before, code]))
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *kind.program, "start"],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path, **kind.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def has_started(self) -> bool:
        return '"started: ' in self.log.read_text(errors="replace")

    def told_at(self) -> datetime:
        """When it logged its first line, by its own clock."""
        line = json.loads(self.log.read_text().splitlines()[0])
        return datetime.fromisoformat(line["time"])

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """As a crash would end it. Harmless when it has ended."""
        self._process.kill()
        self._process.wait()

    def ask_to_stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int | None:
        """Its exit code; None if it had to be killed."""
        try:
            return self._process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            return None


class Crew:
    """Those that run now. What goes wrong with one is a sentence in ``problems``."""

    def __init__(self, folder: Path, code: Path) -> None:
        """Args:
        folder: holds the configuration; logs go there.
        code: where Python finds boxengine and the transports.
        """
        self._folder = folder
        self._code = code
        self._hired = 0
        self.running: list[WorkerProcess] = []
        self.problems: list[str] = []

    def hire(self, kind: Kind = Kind()) -> WorkerProcess:
        """Starts one more and returns at once."""
        self._hired += 1
        worker = WorkerProcess(self._folder, self._code, self._hired, kind)
        self.running.append(worker)
        return worker

    def wait_until_started(self) -> None:
        """Returns when all that run have started their loops."""
        for worker in list(self.running):
            eventually(lambda worker=worker: worker.has_started() or worker.exit_code() is not None)  # type: ignore[misc]
        self.look_after()

    def kill(self, worker: WorkerProcess) -> None:
        self.running.remove(worker)
        worker.kill()

    def dismiss(self, *workers: WorkerProcess) -> None:
        """SIGTERM to these at once; each must end with exit code 0."""
        for worker in workers:
            self.running.remove(worker)
            worker.ask_to_stop()
        for worker in workers:
            code = worker.wait()
            if code != 0:
                how = "had to be killed" if code is None else f"ended with exit code {code}"
                self.problems.append(f"{worker.log.stem} {how} after SIGTERM")

    def look_after(self) -> None:
        """Takes note of workers that ended by themselves."""
        for worker in [each for each in self.running if each.exit_code() is not None]:
            self.running.remove(worker)
            self.problems.append(f"{worker.log.stem} ended by itself with exit code {worker.exit_code()}")

    def replace_those_that_ended_with(self, code: int) -> None:
        """They were meant to end so: for each another is hired."""
        for worker in [each for each in self.running if each.exit_code() == code]:
            self.running.remove(worker)
            self.hire()

    def close(self) -> None:
        """Ends whoever still runs, by force."""
        for worker in self.running:
            worker.kill()
        self.running.clear()
