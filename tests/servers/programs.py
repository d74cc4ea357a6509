"""Programs installed on the system, which a test starts for itself."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from tests.servers.offer import How, Offer

_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # not on an ordinary user's PATH


def find_program(name: str) -> str | None:
    """Where the program is installed."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *_SBIN)))


class SystemProgram:
    """Tells whether tests can start servers of this kind for themselves; there is no shared one for the session."""

    def __init__(self, name: str, *, package: str) -> None:
        self._name = name
        self._package = package

    def offer(self) -> Offer:
        """To be started, if the program is installed; its address is the program."""
        program = find_program(self._name)
        if program is None:
            return Offer(self._name, How.ABSENT, f"no {self._name} on PATH; Debian: {self._package}")
        return Offer(self._name, How.STARTED, program, program)

    def start(self, folder: Path, stack: ExitStack) -> Offer:
        """Does nothing: tests start the program."""
        return self.offer()


class PythonPackage:
    """A tool from a wheel, which a test runs as a program; its address is this interpreter."""

    def __init__(self, name: str, *, module: str) -> None:
        self._name = name
        self._module = module

    def offer(self) -> Offer:
        """To be run, if the package is installed."""
        if find_spec(self._module) is None:
            return Offer(self._name, How.ABSENT, f"no {self._module} installed; make kit-tools")
        return Offer(self._name, How.STARTED, self._module, sys.executable)

    def start(self, folder: Path, stack: ExitStack) -> Offer:
        """Does nothing: tests run the tool."""
        return self.offer()
