"""The application's processes: started, and killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


class Writers:
    """Those that run now, each with some of the writers. What goes wrong with one is a sentence in ``problems``."""

    def __init__(self, folder: Path, code: Path, command: list[str], *, threads: int, seed: int) -> None:
        """Args:
        folder: logs go there.
        code: where Python finds boxengine and the tests.
        command: arguments of each process.
        threads: writers of each process.
        """
        self._folder, self._code = folder, code
        self._command = [*command, f"--threads={threads}"]
        self._seed = seed
        self._started = 0
        self.running: list[subprocess.Popen[bytes]] = []
        self.problems: list[str] = []

    def hire(self) -> None:
        """Starts one more and returns at once."""
        self._started += 1
        log = self._folder / f"writers-{self._started}.log"
        arguments = [*self._command, f"--seed={self._seed} {self._started}"]
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.proofs.order.application", *arguments],
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": str(self._code)},
                stdin=subprocess.PIPE,  # it ends with this process, however that ends
                stdout=file,
                stderr=file,
            )
        self.running.append(process)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """By SIGKILL, in the middle of its transactions."""
        if process.poll() is not None:
            self.problems.append(f"a process of writers ended by itself with exit code {process.returncode}")
        self.running.remove(process)
        process.kill()
        process.communicate()

    def close(self) -> None:
        """Kills all that run."""
        for process in list(self.running):
            self.kill(process)
