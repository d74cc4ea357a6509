"""One round of one system: fresh tables, then each measurement."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, LiteralString

import psycopg
import redis
from psycopg.sql import SQL, Identifier

from bench.peers.systems import PROGRAMS, System

LIMIT = 600
"""Seconds that one program may take."""
SETTLED = 2.0
"""Seconds that a worker gets to become idle after it has reported that it is ready."""
RATE = 20
"""Messages per second when the wait of single messages is measured."""
WARM_UP = 10
WRITERS = 16
PASSES = 5
"""How many passes run behind an open transaction."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one round, in messages."""

    drain: int
    slow_drain: int
    """For systems that are slow."""
    waits: int
    commits: int


@dataclass(frozen=True, slots=True)
class Round:
    """The results of one round of one system."""

    drained: float
    """Messages per second."""
    p50: float
    """Milliseconds from the moment before the transaction to the handler."""
    p99: float
    commits: float
    """Commits per second."""
    behind: float | None
    """The rate of the last pass behind an open transaction, as a share of the first; None: messages are not in the database."""


class Stand:
    """The servers on which the systems run, one after the other."""

    def __init__(self, postgres: str, redis_url: str, sizes: Sizes) -> None:
        """Args:
        postgres: ``postgresql://...``, with an account that may create databases.
        """
        self._postgres = postgres
        self._redis = redis_url
        self._sizes = sizes

    def round(self, system: System) -> Round:
        """Makes all measurements once, each on its own database."""
        count = self._sizes.slow_drain if system.slow else self._sizes.drain
        with self._contestant(system) as contestant:
            contestant.do("fill", count)
            drained = contestant.worked(count)
        with self._contestant(system) as contestant:
            waits = sorted(contestant.waits(self._sizes.waits + WARM_UP)[WARM_UP:])
        with self._contestant(system) as contestant:
            commits = float(json.loads(contestant.do("commits", WRITERS, self._sizes.commits))["rate"])
        behind = self._behind_a_transaction(system, count) if system.in_database else None
        return Round(drained, statistics.median(waits), waits[int(0.99 * len(waits))], commits, behind)

    def _behind_a_transaction(self, system: System, count: int) -> float:
        with self._contestant(system) as contestant, psycopg.connect(contestant.database) as old:
            old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            old.execute("SELECT 1")
            rates = []
            for _ in range(PASSES):
                contestant.do("fill", count)
                rates.append(contestant.worked(count))
        return rates[-1] / rates[0]

    @contextmanager
    def _contestant(self, system: System) -> Iterator[Contestant]:
        name = f"peer_{uuid.uuid4().hex[:12]}"
        self._execute("CREATE DATABASE {}", name)
        with redis.Redis.from_url(self._redis) as client:
            client.flushall()
        try:
            contestant = Contestant(system, f"{self._postgres.rpartition('/')[0]}/{name}", self._redis)
            contestant.do("setup")
            self._execute("CHECKPOINT", None)
            yield contestant
        finally:
            self._execute("DROP DATABASE {} WITH (FORCE)", name)

    def _execute(self, statement: LiteralString, database: str | None) -> None:
        query = SQL(statement) if database is None else SQL(statement).format(Identifier(database))
        with psycopg.connect(self._postgres, autocommit=True) as connection:
            connection.execute(query)


class Contestant:
    """One system, with its tables created."""

    def __init__(self, system: System, database: str, redis_url: str) -> None:
        self.database = database
        self._command = [system.python(), str(PROGRAMS / system.program)]
        self._environment = {**os.environ, **system.settings, "POSTGRES_URL": database, "REDIS_URL": redis_url}

    def do(self, verb: str, *numbers: int) -> str:
        """Runs the program; returns its standard output.

        Raises:
            RuntimeError: it failed; the message includes its output.
        """
        process = self._start(verb, *numbers)
        return self._end_of(process)

    def worked(self, count: int) -> float:
        """Messages per second of a worker that handles the existing messages."""
        answer = self.do("work", count).splitlines()[-1]
        return float(json.loads(answer)["rate"])

    def waits(self, count: int) -> list[float]:
        """The waits, in milliseconds, of messages that are written one by one while a worker is idle."""
        worker = self._start("work", count)
        assert worker.stdout is not None
        try:
            _read_ready(worker.stdout)
            time.sleep(SETTLED)
            self.do("write", count, RATE)
        except BaseException:
            _end(worker)
            raise
        waits: list[float] = json.loads(self._end_of(worker).splitlines()[-1])["waits"]
        return waits

    def _start(self, verb: str, *numbers: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._command, verb, *map(str, numbers)],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _end_of(self, process: subprocess.Popen[str]) -> str:
        try:
            output, complaints = process.communicate(timeout=LIMIT)
        except BaseException:
            _end(process)
            raise
        if process.returncode:
            raise RuntimeError(f"{self._command}: exit code {process.returncode}\n{complaints}")
        return output


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def _read_ready(output: IO[str]) -> None:
    """Reads until the worker reports that it is ready. Some systems log to the same stream before."""
    read: list[str] = []
    for line in output:
        if line == "ready\n":
            return
        read.append(line)
    raise RuntimeError(f"the worker ended before it was ready: {''.join(read)}")
