"""The owner of the servers that all tests of a session share."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from boxengine.errors import BoxError
from tests.servers.memory import parent_of_data
from tests.servers.offer import How, Offer


class Source(Protocol):
    """One way to get one server."""

    def offer(self) -> Offer:
        """What will be available, found out without starting anything."""

    def start(self, folder: Path, stack: ExitStack) -> Offer:
        """Start it, register its stop on ``stack``, and return where it answers.

        :raises BoxError: it did not start.
        """


class ServerSession:
    """Starts each server at its first use and stops them all at the end.

    It lives in xdist's controller, so that a server outlives the worker that asked for it first.
    """

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = dict(sources)
        self._locks = {name: threading.Lock() for name in sources}
        self._started: dict[str, Offer] = {}
        self._stack = ExitStack()
        self._folder: Path | None = None
        self._folder_lock = threading.Lock()

    def offers(self) -> dict[str, Offer]:
        """What is or will be available, by name; starts nothing."""
        return {name: self._started.get(name) or source.offer() for name, source in self._sources.items()}

    def obtain(self, name: str) -> Offer:
        """The server with its address; the first caller starts it, others wait for that."""
        with self._locks[name]:
            if name not in self._started:
                self._started[name] = self._start(name)
            return self._started[name]

    def close(self) -> None:
        """Stop all started servers and delete their files. A second call is harmless."""
        self._stack.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, name: str) -> Offer:
        source = self._sources[name]
        offer = source.offer()
        if offer.how is How.ABSENT:
            return offer
        try:
            return source.start(self._shared_folder(), self._stack)
        except BoxError as error:
            return replace(offer, how=How.BROKEN, detail=str(error))

    def _shared_folder(self) -> Path:
        with self._folder_lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="boxengine-tests-", dir=parent_of_data()))
                self._folder.chmod(0o711)  # servers that refuse to run as root use another account
            return self._folder


class Given:
    """A server whose address is in the environment."""

    def __init__(self, server: str, *, variable: str, address: str) -> None:
        self._offer = Offer(server, How.GIVEN, variable, address)

    def offer(self) -> Offer:
        """The address is known from the start."""
        return self._offer

    def start(self, folder: Path, stack: ExitStack) -> Offer:
        """Does nothing: somebody else has started it."""
        return self._offer


class FirstOf:
    """The first source that is not absent; if all are absent, the reasons of all."""

    def __init__(self, server: str, sources: Sequence[Source]) -> None:
        self._server = server
        self._sources = sources

    def offer(self) -> Offer:
        """The first available offer."""
        offers = [source.offer() for source in self._sources]
        present = [offer for offer in offers if offer.how is not How.ABSENT]
        return present[0] if present else Offer(self._server, How.ABSENT, "; ".join(o.detail for o in offers))

    def start(self, folder: Path, stack: ExitStack) -> Offer:
        """Start the first available source; if it turns out to be absent after all, the next one."""
        offer = self.offer()
        for source in self._sources:
            if source.offer().how is How.ABSENT:
                continue
            offer = source.start(folder, stack)
            if offer.how is not How.ABSENT:
                return offer
        return offer
