"""Long jobs: throughput and latency of empty ones, the cost of heartbeats, and what delayed jobs cost the others."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from sqlalchemy import Engine

import boxengine
from bench.counting import StatementLog
from bench.report import Line, at_most
from bench.rounds import percentile, spread_of
from bench.servers import Site, Stand
from boxengine import Job
from boxengine.adapters.sql.jobs import schema
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.app.boxes import load_for_worker
from boxengine.app.jobs.connecting import connect_jobs

BOX = "bench_job"
RATE = 20
"""Jobs per second when the latency of single jobs is measured."""
WARM_UP = 10
HELD = 500
"""Jobs that run at once."""
CLAIMS = 200
PATIENCE = 600.0
TASKS = {name: f"bench.works.jobs.{name}" for name in ("empty", "punch", "hold")}


class Tally:
    """Collects reports from handlers, which the worker finds by their names."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._lock = threading.Lock()
        self._all = threading.Event()
        self.began = self.ended = 0.0
        self.arrived: dict[int, float] = {}
        self.release = threading.Event()

    def note(self, job_id: int) -> None:
        now = time.perf_counter()
        with self._lock:
            self.arrived[job_id] = now
            self.began, self.ended = self.began or now, now
            self._left -= 1
            if self._left == 0:
                self._all.set()

    def wait(self) -> None:
        """Waits until all reports have come.

        Raises:
            TimeoutError: some did not come in time.
        """
        if not self._all.wait(PATIENCE):
            raise TimeoutError(f"{self._left} jobs never began")


_TALLIES: dict[int, Tally] = {}
"""The running tally, where handlers find it."""
_numbers = itertools.count()


def empty(job: Job[Any]) -> None:
    """Does nothing."""
    _TALLIES[0].note(job.id)


punch = empty


def hold(job: Job[Any]) -> None:
    """Runs until it is released. Handlers are released one after the other, because each end takes a connection."""
    tally = _TALLIES[0]
    tally.note(job.id)
    tally.release.wait()
    threading.Event().wait(next(_numbers) % HELD / 100)


def throughput(stand: Stand) -> list[Line]:
    """Empty jobs per second, with 16 threads of one process."""
    count = stand.scale.pick(10_000, 2_000)
    rates, statements = [], []
    with _site(stand, concurrency=16) as (site, engine):
        log = StatementLog(site)
        for _ in range(stand.scale.rounds):
            tally = _TALLIES[0] = Tally(count)
            _fill(site, count)
            log.restart()
            with boxengine.running(load_for_worker(site.config)):
                tally.wait()
            statements.append(len(log.statements()) / count)
            rates.append(count / _seconds_to_the_last_end(engine, count))
            _empty(engine)
    return [
        Line(
            work=f"long jobs: {count:,} empty ones, 16 threads",
            figure=statistics.median(rates),
            unit="/s",
            spread=spread_of(rates),
            note="first claim to last recorded end; lease, fence and journal for each; every statement is logged",
        ),
        Line(
            work="long jobs: SQL statements per empty job",
            figure=statistics.median(statements),
            spread=spread_of(statements),
            note="BEGIN and COMMIT included",
        ),
    ]


def latency(stand: Stand) -> list[Line]:
    """The time from commit to handler for single jobs, at a low rate."""
    count = stand.scale.pick(200, 60) + WARM_UP
    medians, every = [], []
    with _site(stand, concurrency=4) as (site, engine):
        for _ in range(stand.scale.rounds):
            tally = _TALLIES[0] = Tally(count)
            worker = load_for_worker(site.config)
            with boxengine.running(worker):
                committed = _create(worker, engine, count)
                tally.wait()
            waits = [1000 * (tally.arrived[job] - at) for job, at in list(committed.items())[WARM_UP:]]
            every += waits
            medians.append(percentile(waits, 0.5))
            _empty(engine)
    work = f"long jobs: commit to handler at {RATE}/s, in the worker's process"
    return [
        Line(
            work=f"{work}, p50",
            figure=percentile(every, 0.5),
            unit=" ms",
            bar=at_most(10.0),
            spread=spread_of(medians),
            note="from the commit's beginning",
        ),
        Line(work=f"{work}, p99", figure=percentile(every, 0.99), unit=" ms"),
    ]


def heartbeats(stand: Stand) -> list[Line]:
    """The statements of a process that runs 500 jobs."""
    seconds = float(stand.scale.pick(60, 20))
    with _site(stand, concurrency=HELD) as (site, _):
        tally = _TALLIES[0] = Tally(HELD)
        log = StatementLog(site)
        _fill(site, HELD, task="hold")
        with boxengine.running(load_for_worker(site.config)):
            tally.wait()
            log.restart()
            began = time.monotonic()
            threading.Event().wait(seconds)
            asked, lasted = len(log.statements()), time.monotonic() - began
            tally.release.set()
    return [
        Line(
            work=f"long jobs: SQL statements while {HELD} run",
            figure=asked / lasted,
            unit="/s",
            bar=at_most(5.0),
            note=f"over {lasted:.0f} s, BEGIN and COMMIT included",
        )
    ]


def delayed(stand: Stand) -> list[Line]:
    """A claim in a table with a million delayed jobs."""
    count = stand.scale.pick(1_000_000, 100_000)
    with _site(stand, concurrency=2) as (site, engine), closing(SqlJobs(engine)) as store:
        alone = _claims(site, store)
        _fill(site, count, delay="1 hour")
        beside = _claims(site, store)
    return [
        Line(
            work=f"long jobs: claim of one beside {count:,} delayed",
            figure=statistics.median(beside),
            unit=" ms",
            bar=at_most(2.0),
            details={"without them ms": statistics.median(alone)},
        )
    ]


def mixed(stand: Stand) -> list[Line]:
    """A claim among a million queued jobs of a thousand priorities, most of which have waited for longer than the aging."""
    count = stand.scale.pick(1_000_000, 50_000)
    with _site(stand, concurrency=1) as (site, engine), closing(SqlJobs(engine)) as store:
        alone = _claims(site, store)
        _fill(site, count, priority="n % 1000", age="n % 86400 * interval '1 second'")
        # In turns, so that a busy machine affects both alike.
        taken = [(_claim(site, store), _claim(site, store, oldest=1)) for _ in range(CLAIMS)]
    by_priority, by_age = (statistics.median(each) for each in zip(*taken, strict=True))
    return [
        Line(
            work=f"long jobs: claim of one among {count:,} queued",
            figure=by_priority,
            unit=" ms",
            bar=at_most(2.0),
            details={"without them ms": statistics.median(alone), "of the oldest ms": by_age},
        )
    ]


def _claims(site: Site, store: SqlJobs) -> list[float]:
    """The duration of each claim in milliseconds."""
    _fill(site, CLAIMS)
    return [_claim(site, store) for _ in range(CLAIMS)]


def _claim(site: Site, store: SqlJobs, *, oldest: int = 0) -> float:
    """The duration of one claim in milliseconds."""
    box = site.boxes.resolved.jobs[BOX].box
    began = time.perf_counter()
    claimed = store.claim(box, 1, worker="bench", oldest=oldest)
    lasted = 1000 * (time.perf_counter() - began)
    if len(claimed) != 1:
        raise RuntimeError("there was no job to claim")
    return lasted


@contextmanager
def _site(stand: Stand, *, concurrency: int) -> Iterator[tuple[Site, Engine]]:
    jobs: Mapping[str, Any] = {BOX: {"tasks": TASKS, "concurrency": concurrency}}
    with stand.site(buckets=1, transport={"log": {}}, outboxes=(), job_items=jobs) as site:
        resolved = site.boxes.resolved
        store = connect_jobs(resolved.settings, resolved.jobs, threads=False)
        try:
            schema.create(store.engine, [resolved.jobs[BOX].box], {})
            yield site, store.engine
        finally:
            store.close()


def _fill(
    site: Site,
    count: int,
    *,
    task: str = "empty",
    delay: str | None = None,
    priority: str = "100",
    age: str = "interval '0'",
) -> None:
    """Inserts jobs without the engine, and updates the statistics.

    Args:
        priority: an SQL expression over ``n``, the job's number; ``age`` likewise.
    """
    when = f"1, now() + interval '{delay}'" if delay else f"0, now() - {age}"
    site.execute(
        f"INSERT INTO {BOX}s (task, args, priority, waits, available_at) "
        f"SELECT '{task}', '{{}}', {priority}, {when} FROM generate_series(1, {count}) AS n"
    )
    site.execute(f"VACUUM ANALYZE {BOX}s")


def _seconds_to_the_last_end(engine: Engine, count: int) -> float:
    """The time from the first claim to the last end, by the database's clock."""
    with engine.begin() as connection:
        seconds, ended = connection.exec_driver_sql(
            f"SELECT extract(epoch FROM max(finished_at) - min(started_at)), count(finished_at) FROM {BOX}s"
        ).one()
    if ended != count:
        raise RuntimeError(f"{ended} of {count} jobs have ended")
    return float(seconds)


def _create(boxes: boxengine.Boxes, engine: Engine, count: int) -> dict[int, float]:
    """Creates jobs; returns when the commit of each began."""
    committed = {}
    pace, start = threading.Event(), time.perf_counter()
    with engine.connect() as connection:
        for number in range(count):
            pace.wait(max(0.0, start + number / RATE - time.perf_counter()))
            job = boxes.create_job(connection, BOX, task="punch", args=None)
            committed[job] = time.perf_counter()
            connection.commit()
    return committed


def _empty(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(f"TRUNCATE {BOX}s, {BOX}s_events")
