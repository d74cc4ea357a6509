"""Where a fault is played, whatever is at work there: a server, worker processes, and when faults were injected."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from sqlalchemy import Connection

from boxengine.embedded import EmbeddedPostgres
from tests.chaos.checker import Injection
from tests.chaos.crew import Crew
from tests.chaos.database import Database, MariaDB, PostgreSQL
from tests.eventually import eventually
from tests.servers.mariadb import MariaDBServer

_IN_WORK_SOON = 20.0
"""Seconds to wait for a moment at which something is in work; after that the fault comes anyway."""


@dataclass(frozen=True, slots=True)
class Ground:
    """One database server and one copy of the code, for all faults of a run."""

    database: Database
    code: Path
    """Where the workers find boxengine and what they call."""

    @property
    def postgres(self) -> EmbeddedPostgres:
        """For the faults that PostgreSQL alone has."""
        assert isinstance(self.database, PostgreSQL)
        return self.database.server

    @property
    def mariadb(self) -> MariaDBServer:
        """For the faults that MariaDB alone has."""
        assert isinstance(self.database, MariaDB)
        return self.database.server


@dataclass(slots=True, kw_only=True)
class Scene:
    """What faults of workers and servers act on."""

    folder: Path
    servers: Ground
    database: str
    """Its name."""
    crew: Crew
    randomness: random.Random
    injections: list[Injection] = field(default_factory=list)
    _never: threading.Event = field(default_factory=threading.Event)

    @property
    def record(self) -> Path:
        return self.folder / "record"

    @contextmanager
    def injecting(self, *victims: int) -> Iterator[None]:
        """Notes that the fault is there as long as the block runs.

        Args:
            victims: processes that it strikes; all if none is named.
        """
        begin = time.monotonic()
        try:
            yield
        finally:
            self.injections.append(Injection(begin, time.monotonic(), frozenset(victims) or None))

    def pause(self, least: float, most: float) -> None:
        """Lets a random time pass, in seconds."""
        self._never.wait(self.randomness.uniform(least, most))

    def wait_for_work(self) -> None:
        """Returns at a random moment while items are being received."""
        until = time.monotonic() + _IN_WORK_SOON
        while time.monotonic() < until:
            before = self._received()
            self._never.wait(0.01)
            if self._received() > before:
                self.pause(0.0, 0.1)
                return

    def wait_for_recovery(self) -> None:
        """Returns a moment after something was received again."""
        before = self._received()
        eventually(lambda: self._received() > before, what="a delivery after the fault")
        self.pause(0.5, 5.0)

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """A connection past the proxy, in autocommit, for what every database understands."""
        with self.servers.database.session(self.database) as connection:
            yield connection

    @contextmanager
    def sql(self, database: str | None = None) -> Iterator[psycopg.Connection]:
        """The same for PostgreSQL, as its driver's connection."""
        dsn = self.servers.postgres.url(database or self.database).replace("+psycopg", "")
        options = "-c statement_timeout=0 -c default_transaction_read_only=off"
        with psycopg.connect(dsn, autocommit=True, options=options, application_name="chaos") as connection:
            yield connection

    def _received(self) -> int:
        return self.record.stat().st_size if self.record.exists() else 0
