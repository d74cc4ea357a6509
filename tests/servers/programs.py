"""Programs that the system has installed, which a test starts for itself."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from tests.servers.offer import How, Offer

_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # not on the PATH of an ordinary user


def find_program(name: str) -> str | None:
    """Where it is installed."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *_SBIN)))


class SystemProgram:
    """Not one server for the session, but whether tests can have servers of their own of this kind."""

    def __init__(self, name: str, *, package: str) -> None:
        self._name = name
        self._package = package

    def offer(self) -> Offer:
        """To be started, if the program is there; its address is the program."""
        program = find_program(self._name)
        if program is None:
            return Offer(self._name, How.ABSENT, f"no {self._name} on PATH; Debian: {self._package}")
        return Offer(self._name, How.STARTED, program, program)

    def start(self, folder: Path, stack: ExitStack) -> Offer:
        """Nothing yet: tests start it."""
        return self.offer()


class PythonPackage:
    """A tool that a wheel brings, which a test runs as a program; its address is this interpreter."""

    def __init__(self, name: str, *, module: str) -> None:
        self._name = name
        self._module = module

    def offer(self) -> Offer:
        """To be run, if the package is installed."""
        if find_spec(self._module) is None:
            return Offer(self._name, How.ABSENT, f"no {self._module} installed; make kit-tools")
        return Offer(self._name, How.STARTED, self._module, sys.executable)

    def start(self, folder: Path, stack: ExitStack) -> Offer:
        """Nothing yet: tests run it."""
        return self.offer()
