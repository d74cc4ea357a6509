"""One half of the proof: writers and workers that are killed at random, until enough was received and nothing is left."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import create_engine

from boxengine.adapters.sql.making import schema
from boxengine.app.boxes import load
from boxengine.domain.box import Storage
from tests.chaos.crew import Crew
from tests.chaos.play import tracebacks
from tests.eventually import eventually
from tests.proofs.growing import Growing
from tests.proofs.order.application import BOX, Ledger, make_tables
from tests.proofs.order.crew import Writers
from tests.proofs.order.judge import ByCounter, BySnapshot, Judge, Order
from tests.proofs.order.on_call import OnCall
from tests.proofs.order.receiver import received

ORDERS: Mapping[str, Callable[[], Order]] = {"counter": ByCounter, "snapshot": BySnapshot}
STALLED = 60.0
"""Seconds without anything received after which the rest is given up; a killed worker's buckets go on within 5 s."""
QUIET = 10.0
"""Seconds without anything received after which somebody looks for failed items."""
TELL_EVERY = 5.0
"""Seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is played, and how roughly."""

    items: int
    """Committed at least."""
    writers: int = 64
    writer_processes: int = 4
    workers: int = 3
    kill_every: float = 5.0
    """Seconds between two kills, on average."""
    refused: float = 0.001
    """Share of the items that the receiver refuses once."""
    seconds: float = 1800.0
    """After which it is ended, however far it is."""
    seed: int = 1
    storage: Storage = Storage.LOG


@dataclass(slots=True, kw_only=True)
class Result:
    """What came of it."""

    order: str
    storage: str
    items: int = 0
    """Committed."""
    lost: int = 0
    inversions: int = 0
    unknown: int = 0
    """Received, and never committed."""
    repeated: int = 0
    accused: int = 0
    """Items that were taken for deadly, because workers were killed with them alone in hand; somebody sent them again."""
    workers_killed: int = 0
    writers_killed: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def broken(self) -> bool:
        return bool(self.lost or self.inversions or self.unknown or self.problems)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "broken": self.broken}


class _Run:
    """The state between the first item and the verdict."""

    def __init__(
        self,
        plan: Plan,
        crew: Crew,
        writers: Writers,
        on_call: OnCall,
        ledger: Ledger,
        judge: Judge,
        record: Growing,
        tell: Callable[[str], None],
    ) -> None:
        self.plan, self.crew, self.writers, self.on_call, self.ledger = plan, crew, writers, on_call, ledger
        self.judge, self._record, self.tell = judge, record, tell
        self._random = random.Random(plan.seed)
        self._never = threading.Event()
        self._began = self.progress_at = self._told_at = self._looked_at = time.monotonic()
        self._next_kill = self._began + plan.kill_every
        self.workers_killed = self.writers_killed = self.accused = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def is_over(self) -> bool:
        """Whether it is not worth waiting any longer."""
        return self.seconds > self.plan.seconds or time.monotonic() - self.progress_at > STALLED

    def go_on(self) -> None:
        """Judges what was received, and perhaps kills somebody."""
        before = self.judge.items
        while lines := self._record.lines():
            items = received(lines)
            parts = self.ledger.parts(number for number, _ in items)
            for number, place in items:
                self.judge.receive(number, place, parts.get(number))
        now = time.monotonic()
        if self.judge.items > before:
            self.progress_at = now
            if now >= self._next_kill and self._kill():
                self._next_kill = now + self.plan.kill_every * self._random.uniform(0.2, 1.8)
        if now - self._told_at >= TELL_EVERY:
            self._told_at = now
            self.tell(
                f"{self.seconds:5.0f} s: {self.ledger.begun():,} parts begun, {self.judge.items:,} items received; "
                f"{self.workers_killed} workers and {self.writers_killed} processes of writers killed; "
                f"{self.judge.inversions} inversions"
            )
        self.crew.look_after()
        self._never.wait(0.1)

    def send_again(self) -> None:
        """If nothing arrives any more, what still waits may wait for an item that was taken for deadly."""
        now = time.monotonic()
        if now - max(self.progress_at, self._looked_at) > QUIET:
            self._looked_at = now
            self.accused += self.on_call.send_again()

    def _kill(self) -> bool:
        """Mostly a worker; now and then all of them, or a process of writers. Each is replaced at once.

        Returns:
            Whether somebody was killed. No worker is before all have started, or nobody might ever get to work on a slow machine.
        """
        luck = self._random.random()
        if luck < 0.3 and self.writers.running:
            self.writers.kill(self._random.choice(self.writers.running))
            self.writers.hire()
            self.writers_killed += 1
            return True
        if not all(each.has_started() for each in self.crew.running):
            return False
        for worker in list(self.crew.running) if luck > 0.9 else [self._random.choice(self.crew.running)]:
            self.crew.kill(worker)
            self.crew.hire()
            self.workers_killed += 1
        return True


def play(
    order: str, url: str, redis_url: str, folder: Path, code: Path, plan: Plan, tell: Callable[[str], None]
) -> Result:
    """Fills and empties a box until enough was received, and judges.

    Args:
        order: a key of ``ORDERS``.
        url: of an empty database.
        folder: new; configuration, logs and record stay there.
        code: where the processes find boxengine and the tests.
        tell: called with a line every few seconds.
    """
    folder.mkdir(parents=True)
    config, record_path = folder / "outbox.yml", folder / "record"
    config.write_text(configuration(url, redis_url, record_path, plan.storage))
    engine = create_engine(url)
    schema.create(engine, [pipeline.box for pipeline in load(config).resolved.pipelines.values()])
    engine.dispose()
    result = Result(order=order, storage=plan.storage.value)
    crew = Crew(folder, code)
    writers = Writers(
        folder,
        code,
        [str(config), url, f"--order={order}", f"--refused={plan.refused}"],
        threads=plan.writers // plan.writer_processes,
        seed=plan.seed,
    )
    with (
        psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection,
        closing(Growing(record_path)) as record,
        closing(crew),
        closing(writers),
    ):
        make_tables(connection)
        for _ in range(plan.workers):
            crew.hire()
        crew.wait_until_started()
        for _ in range(plan.writer_processes):
            writers.hire()
        on_call = OnCall(folder, code)
        run = _Run(plan, crew, writers, on_call, Ledger(connection), Judge(ORDERS[order]()), record, tell)
        _perform(run, result)
        result.problems += [*crew.problems, *writers.problems, *on_call.problems, *tracebacks(folder)]
    return result


def _perform(run: _Run, result: Result) -> None:
    while not run.ledger.has(run.plan.items) and not run.is_over:
        run.go_on()
    if run.is_over:
        result.problems.append(f"it was ended after {run.seconds:.0f} s with {run.judge.items:,} items received")
    run.writers.close()
    # The server may still be at the last commit of a writer that is dead.
    eventually(lambda: run.ledger.writers() == 0, what="all writers' connections gone")
    committed = list(run.ledger.all())
    result.items = sum(items for _, items in committed)
    run.tell(f"{run.seconds:5.0f} s: the writers are gone; {result.items:,} items were committed")
    run.progress_at = time.monotonic()
    while run.judge.items < result.items and time.monotonic() - run.progress_at <= STALLED:
        run.go_on()
        run.send_again()
    run.crew.wait_until_started()
    run.crew.dismiss(*run.crew.running)
    run.go_on()
    judge = run.judge
    result.lost = judge.lost(committed)
    result.inversions, result.unknown, result.repeated = judge.inversions, judge.unknown, judge.repeated
    result.workers_killed, result.writers_killed = run.workers_killed, run.writers_killed
    result.accused = run.accused
    result.seconds = round(run.seconds, 1)
    result.problems += judge.sentences


def configuration(url: str, redis_url: str, record: Path, storage: Storage) -> str:
    """``outbox.yml`` of the proof; JSON is YAML."""
    box = {
        "storage": storage.value,
        "strict_order": "key",
        "minimal_retry_interval": 0.1,
        "maximal_retry_interval": 0.2,
        "transports": {"tests.proofs.order.receiver.Receiver": {"path": str(record)}},
    }
    return json.dumps(
        {
            "database": {"url": url},
            "redis": {"url": redis_url},
            "probes": {"enabled": False},
            "outbox_items": {BOX: box},
        }
    )
