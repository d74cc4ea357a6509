"""Walks through a page as its reader would: writes its files, types its commands, and waits for what it says they print.

| block | what is done |
|---|---|
| ```` ```python title="shop.py" ```` | the file is written, in the folder where the page began |
| ```` ```console ```` | the commands after `$` run one after the other; the lines below must be in what they print |
| ```` ```console title="terminal 1: NAME" ```` | the command goes on; one of the same name is stopped before |
| ```` ```text title="the NAME says" ```` | the lines are waited for in what NAME prints |

`...` in a line stands for anything. Commands that prepare the reader's machine (`pip`, `mkdir`) are left out.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.eventually import eventually

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
OWN_MACHINE = ("pip ", "mkdir ", "python -m venv")
PATIENCE = 60.0


@dataclass(slots=True)
class Background:
    """A command that goes on."""

    process: subprocess.Popen[bytes]
    said: Path

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=PATIENCE) == 0, self.said.read_text()


class Walk:
    """One reader in one folder."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *, without: frozenset[str]) -> None:
        self._start = self._here = folder
        self._environment = os.environ | environment | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self._without = without
        self._background: dict[str, Background] = {}
        self.commands: list[str] = []
        """All that ran."""

    def through(self, page: str) -> None:
        for language, title, text in BLOCK.findall(page):
            if terminal := re.fullmatch(r"terminal \d+: (\w+)", title):
                if terminal[1] not in self._without:
                    self._go_on(terminal[1], text)
            elif told := re.fullmatch(r"the (\w+) says", title):
                self._wait_for(told[1], text.splitlines())
            elif title:
                path = self._start / title
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            elif language == "console":
                self._type(text)

    def end(self) -> None:
        for each in self._background.values():
            each.process.kill()
            each.process.wait()

    def _type(self, text: str) -> None:
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, *wanted = part.splitlines()
            if command.startswith(OWN_MACHINE):
                continue
            self.commands.append(command)
            if command.startswith("cd "):
                self._here /= command.removeprefix("cd ")
                continue
            done = subprocess.run(
                command,
                shell=True,
                cwd=self._here,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            for line in wanted:
                assert like(line).search(done.stdout + done.stderr), (
                    f"{command} should say: {line}\n{done.stdout}{done.stderr}"
                )

    def _go_on(self, name: str, text: str) -> None:
        if name in self._background:
            self._background.pop(name).end()
        command, *wanted = text.removeprefix("$ ").splitlines()
        said = self._start / f"{name}.{len(self.commands)}.said"
        self.commands.append(command)
        with said.open("wb") as output:
            process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                cwd=self._here,
                env=self._environment,
                stdout=output,
                stderr=output,
            )
        self._background[name] = Background(process, said)
        self._wait_for(name, wanted)

    def _wait_for(self, name: str, lines: list[str]) -> None:
        told = self._background[name]
        for line in lines:
            try:
                eventually(lambda line=line: like(line).search(told.said.read_text()))  # type: ignore[misc]
            except AssertionError as error:
                raise AssertionError(f"{name} should say: {line}\n{told.said.read_text()}") from error


def like(line: str) -> re.Pattern[str]:
    """Matches a line in which ``...`` stands for anything."""
    return re.compile(".*".join(re.escape(part) for part in line.strip().split("...")))


@contextmanager
def walk(folder: Path, environment: Mapping[str, str], *, without: frozenset[str] = frozenset()) -> Iterator[Walk]:
    """A reader in this folder; what goes on in the background ends with the block.

    Args:
        folder: where the page begins.
        environment: over the process's own.
        without: names of background commands that are left out, because the test brings what they start.
    """
    reader = Walk(folder, environment, without=without)
    try:
        yield reader
    finally:
        reader.end()
