"""Where one fault is played: a database, a box of jobs, the feed that fills it and the workers that run the jobs."""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, text

from boxengine.adapters.sql.jobs import schema
from boxengine.app.boxes import load
from tests.chaos.crew import Crew
from tests.chaos.jobs.checker import Chunk, JobRow
from tests.chaos.jobs.feed import JobFeed
from tests.chaos.jobs.handlers import NO_KEY
from tests.chaos.jobs.record import Effect, read
from tests.chaos.scene import Ground, Scene
from tests.eventually import eventually

BOX = "load_job"
LEASE = 3
"""Seconds: the shortest there is, so that faults outlast it."""
CONCURRENCY = 30
"""Threads of a worker."""
MAX_ATTEMPTS = 100
"""No fault may use them up: a job of this run is never lost or failed."""
_SOME = 3
"""Jobs that a worker runs when a fault comes."""
_IN_WORK_SOON = 20.0
"""Seconds to wait for that."""
_CHUNKS = """
CREATE TABLE chunks (
  {id}, job bigint NOT NULL, token bigint NOT NULL, number integer NOT NULL, lock_key varchar(255) NOT NULL
)
"""
_IDS = {
    "postgresql": "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "mysql": "id bigint AUTO_INCREMENT PRIMARY KEY",
}


@dataclass(slots=True, kw_only=True)
class JobStage(Scene):
    """A scene with one box of jobs, and a table that their handlers write to."""

    feed: JobFeed

    def wait_for_work(self) -> None:
        """Returns at a random moment at which each worker runs jobs, so that the fault strikes some, whoever is the victim."""
        with suppress(AssertionError):  # it comes anyway
            eventually(self._all_work, patience=_IN_WORK_SOON)
        self.pause(0.0, 0.3)

    def _all_work(self) -> bool:
        with self.session() as connection:
            found = connection.exec_driver_sql(
                f"SELECT worker, count(*) FROM {BOX}s WHERE status = 'running' GROUP BY worker"
            )
            running = {int(worker.rpartition(":")[2]): count for worker, count in found}
        return all(running.get(each.pid, 0) >= _SOME for each in self.crew.running)

    def rows(self) -> list[JobRow]:
        """All jobs."""
        with self.session() as connection:
            found = connection.exec_driver_sql(f"SELECT id, status, token, args FROM {BOX}s ORDER BY id")
            return [JobRow(id_, status, token, _plain(args)["chunks"]) for id_, status, token, args in found]

    def chunks(self) -> list[Chunk]:
        """What handlers wrote, in order."""
        with self.session() as connection:
            found = connection.exec_driver_sql("SELECT job, token, number, lock_key FROM chunks ORDER BY id")
            return [Chunk(job, token, number, None if key == NO_KEY else key) for job, token, number, key in found]

    def unfinished(self) -> int:
        """Jobs that wait or run."""
        with self.session() as connection:
            return connection.scalar(text(f"SELECT count(*) FROM {BOX}s WHERE status IN ('queued', 'running')")) or 0

    def effects(self) -> list[Effect]:
        return read(self.record)


@contextmanager
def staged(
    folder: Path, servers: Ground, *, jobs: int, rate: float, longest: float, randomness: random.Random
) -> Iterator[JobStage]:
    """A stage with an empty box, dropped afterwards; the folder stays. The feed is not started yet.

    Args:
        jobs: committed at least.
        rate: jobs per second, on average.
        longest: seconds that a job takes at most.
    """
    folder.mkdir(parents=True)
    name = f"chaos_{secrets.token_hex(4)}"
    servers.database.create(name)
    with ExitStack() as stack:
        stack.callback(servers.database.drop, name)
        config = folder / "outbox.yml"
        config.write_text(_configuration(servers.database.url(name)))
        boxes = load(config)
        own_url = servers.database.own_url(name)
        engine = create_engine(own_url)
        schema.create(engine, [pipeline.box for pipeline in boxes.resolved.jobs.values()], {})
        with engine.begin() as connection:
            connection.exec_driver_sql(_CHUNKS.format(id=_IDS[engine.dialect.name]))
        engine.dispose()
        crew = Crew(folder, servers.code)
        stack.callback(crew.close)
        feed = JobFeed(
            boxes,
            own_url,
            connect_args=servers.database.feed_arguments,
            shares={BOX: 1.0},
            items=jobs,
            rate=rate,
            randomness=random.Random(randomness.random()),
        )
        feed.longest = longest
        yield JobStage(folder=folder, servers=servers, database=name, crew=crew, randomness=randomness, feed=feed)


def _configuration(database: str) -> str:
    """JSON is YAML."""
    box = {
        "tasks": {"work": "tests.chaos.jobs.handlers.work"},
        "concurrency": CONCURRENCY,
        "lease_ttl": LEASE,
        "max_attempts": MAX_ATTEMPTS,
        "retry_interval": 0.1,
    }
    return json.dumps(
        {
            "database": {"url": database},
            "probes": {"enabled": False},
            "processor": {"general_timeout": 10, "cutoff_timeout": 5},
            "job_items": {BOX: box},
        }
    )


def _plain(value: object) -> dict[str, int]:
    """JSON, which MariaDB's driver gives out as text."""
    return json.loads(value) if isinstance(value, str) else value  # type: ignore[return-value] # an object of ours
