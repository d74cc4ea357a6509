"""Fills a partitioned log at a steady rate: first alone, then beside transactions that stay open, some of which always are."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg

from tests.chaos.crew import STOP_PATIENCE, Crew, Kind
from tests.chaos.play import tracebacks
from tests.proofs.growing import Growing
from tests.proofs.steady.feed import BOX
from tests.proofs.steady.judge import Phase, Sample, Verdict, Waits, judge

PARTITION = 1
"""Hours."""
RETENTION = 4
"""Hours."""
OVERLAPPING = 3
"""Transactions that are open at a time."""
KEPT_OPEN: dict[str, LiteralString] = {"reads": "SELECT 1", "writes": "INSERT INTO elsewhere VALUES (1)"}
LOOK_EVERY = 0.5
"""Seconds."""
TELL_EVERY = 5.0
DRAIN_PATIENCE = 60.0
_SIZES = f"SELECT pg_database_size(current_database()), pg_total_relation_size('{BOX}s_positions')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is played, and how fast."""

    seconds: float
    """With transactions open."""
    open_for: float
    """Seconds that each of them stays open."""
    hour: float
    """Seconds that an hour of the retention has."""
    rate: float = 5000.0
    """Items per second."""
    batch: int = 25
    """Items of a transaction."""
    kept_open: str = "reads"
    """What those transactions have done, a key of ``KEPT_OPEN``."""

    @property
    def filling(self) -> float:
        """Seconds until retention removes as much as is written: the oldest partition, and a look or two."""
        return (RETENTION + 2 * PARTITION + 0.5) * self.hour

    @property
    def steady(self) -> float:
        """Seconds for which the steady state is watched: three partitions come and go."""
        return 3 * PARTITION * self.hour


class Ended(Exception):
    """There is nothing to be judged: what is asked for did not go on."""


def play(url: str, redis_url: str, folder: Path, code: Path, plan: Plan, tell: Callable[[str], None]) -> Verdict:
    """Plays it in an empty database, and judges.

    Args:
        url: of the database.
        folder: new; configuration and logs stay there.
        code: where the processes find boxengine and the tests.
        tell: called with a line every few seconds.

    Raises:
        Ended: nobody writes any more.
        ValueError: nothing was received.
    """
    folder.mkdir(parents=True)
    (folder / "outbox.yml").write_text(_configuration(url, redis_url, folder / "arrivals", plan))
    # As many transactions as the writers have in the time of a partition, and half as many again for the worker.
    transactions = round(1.5 * PARTITION * plan.hour * plan.rate / plan.batch)
    hurried = ("-m", "tests.proofs.steady.hurried", str(plan.hour), str(transactions))
    subprocess.run([sys.executable, *hurried, "db", "create"], cwd=folder, env=_environment(code), check=True)
    crew = Crew(folder, code)
    run = _Run(url, folder, plan, crew, tell)
    with closing(crew), closing(run):
        crew.hire(Kind(program=hurried))
        crew.wait_until_started()
        with run.writing(code):
            run.pass_time("no transaction is open; retention is to come", plan.filling)
            steady = run.pass_time("no transaction is open", plan.steady)
            with run.transactions_kept_open():
                kept_open = run.pass_time(f"{OVERLAPPING} transactions are open", plan.seconds)
        run.drain()
        crew.dismiss(*crew.running)
        problems = [*run.problems, *crew.problems, *tracebacks(folder)]
        return judge(run.samples, run.waits, steady=steady, kept_open=kept_open, rate=plan.rate, problems=problems)


class _Run:
    """What is going on, and what was seen of it."""

    def __init__(self, url: str, folder: Path, plan: Plan, crew: Crew, tell: Callable[[str], None]) -> None:
        self._url, self._folder, self._plan, self._crew, self._tell = url, folder, plan, crew, tell
        self._dsn = url.replace("+psycopg", "")
        self._watching = psycopg.connect(self._dsn, autocommit=True)
        self._commits, self._arrivals = Growing(folder / "commits"), Growing(folder / "arrivals")
        self._began = self._told_at = time.monotonic()
        self._never = threading.Event()
        self._feed: subprocess.Popen[bytes] | None = None
        self.waits = Waits()
        self.samples: list[Sample] = []
        self.problems: list[str] = []

    @contextmanager
    def writing(self, code: Path) -> Iterator[None]:
        """The feed writes as long as the block runs."""
        plan, log = self._plan, self._folder / "feed.log"
        command = ["-m", "tests.proofs.steady.feed", "outbox.yml", self._url, "commits"]
        with log.open("wb") as file:
            feed = subprocess.Popen(
                [sys.executable, *command, f"--hour={plan.hour}", f"--rate={plan.rate}", f"--batch={plan.batch}"],
                cwd=self._folder,
                env=_environment(code),
                stdin=subprocess.PIPE,  # which ends with this process, however that ends
                stdout=file,
                stderr=file,
            )
        self._feed = feed
        try:
            yield
        finally:
            self._feed = None
            try:
                feed.communicate(timeout=STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                feed.kill()
                feed.communicate()
            if feed.returncode:
                self.problems.append(f"the feed ended with exit code {feed.returncode}; see {log}")

    @contextmanager
    def transactions_kept_open(self) -> Iterator[None]:
        """Some at a time, one after the other: when one ends, the next begins."""
        stop = threading.Event()
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS elsewhere (id int)")
        threads = [
            threading.Thread(target=self._keep_open, args=(number / OVERLAPPING, stop)) for number in range(OVERLAPPING)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _keep_open(self, shorter: float, stop: threading.Event) -> None:
        """Transactions until the end, the first of them shorter by this share."""
        try:
            with psycopg.connect(self._dsn) as connection:
                length = self._plan.open_for * (1 - shorter)
                while not stop.is_set():
                    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    connection.execute(KEPT_OPEN[self._plan.kept_open])
                    stop.wait(length)
                    connection.commit()
                    length = self._plan.open_for
        except psycopg.Error as error:
            self.problems.append(f"a transaction did not stay open: {error}")

    def pass_time(self, what: str, seconds: float) -> Phase:
        """Watches for so long."""
        self._tell(f"{what}, {seconds:,.0f} s:")
        since = time.monotonic()
        while (now := time.monotonic()) < since + seconds:
            self._look()
            if now - self._told_at >= TELL_EVERY:
                self._told_at = now
                self._tell_how_it_is(since)
            self._never.wait(LOOK_EVERY)
        return Phase(since, now)

    def drain(self) -> None:
        """Until everything has arrived, or nothing does any more."""
        until = time.monotonic() + DRAIN_PATIENCE
        self._look()
        while self.waits.received < self.waits.written and time.monotonic() < until:
            self._never.wait(LOOK_EVERY)
            self._look()

    def close(self) -> None:
        for each in (self._watching, self._commits, self._arrivals):
            each.close()

    def _look(self) -> None:
        if self._feed is not None and self._feed.poll() is not None:
            raise Ended(f"the feed ended by itself; see {self._folder / 'feed.log'}")
        self._crew.look_after()
        if not self._crew.running:
            raise Ended(*self._crew.problems)
        for number, began, items in self._commits.lines():
            self.waits.committed(int(number), float(began), int(items))
        for at, items, *numbers in self._arrivals.lines():
            self.waits.arrived(float(at), int(items), [int(each) for each in numbers])
        total, positions = self._watching.execute(_SIZES).fetchall()[0]
        self.samples.append(Sample(time.monotonic(), total, positions))

    def _tell_how_it_is(self, since: float) -> None:
        last, recent = self.samples[-1], self.waits.between(max(since, self._told_at - 2 * TELL_EVERY), self._told_at)
        p99 = (
            f"p99 lately {statistics.quantiles(recent, n=100)[98]:.1f} ms"
            if len(recent) > 1
            else "nothing received yet"
        )
        self._tell(
            f"{self._told_at - self._began:5.0f} s: {self.waits.received:,} of {self.waits.written:,} items received; "
            f"{last.total / 1e6:,.1f} MB on disk, of which positions {last.positions / 1e6:,.1f}; {p99}"
        )


def _environment(code: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(code)}


def _configuration(url: str, redis_url: str, arrivals: Path, plan: Plan) -> str:
    """JSON is YAML."""
    box = {
        "storage": "log",
        "log_partitions": f"PT{plan.hour * PARTITION:g}S",
        "retention": f"PT{plan.hour * RETENTION:g}S",
        "min_retention_period": "PT0S",
        "delivered_min_retention_period": "PT0S",
        "transports": {"tests.proofs.steady.receiver.Receiver": {"path": str(arrivals)}},
    }
    return json.dumps(
        {
            "database": {"url": url},
            "redis": {"url": redis_url},
            "probes": {"enabled": False},
            "outbox_items": {BOX: box},
        }
    )
