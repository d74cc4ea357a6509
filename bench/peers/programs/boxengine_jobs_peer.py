"""boxengine's long jobs: one job for each message, handled by threads, with lease, fence and journal."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from contest import BATCH, POSTGRES, Arrivals, Program, message, ready, run
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

import boxengine
from boxengine.adapters.sql.jobs import schema
from boxengine.app.jobs.connecting import connect_jobs

BOX = "bench_job"
THREADS = 16
finished = threading.Event()
lock = threading.Lock()
arrivals = Arrivals()


def handle(job: boxengine.Job[str]) -> None:
    with lock:
        if arrivals.note(job.args):
            finished.set()


@contextmanager
def configured() -> Iterator[boxengine.Boxes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outbox.yml"
        box = {"tasks": {"handle": "__main__.handle"}, "concurrency": THREADS}
        path.write_text(yaml.safe_dump({"database": {"url": POSTGRES}, "job_items": {BOX: box}}))
        yield boxengine.load(path)


class Writer:
    def __init__(self, boxes: boxengine.Boxes, connection: AsyncConnection) -> None:
        self._boxes = boxes
        self._connection = connection

    async def write(self, text: str) -> None:
        await self._boxes.acreate_job(self._connection, BOX, task="handle", args=text)
        await self._connection.commit()

    async def close(self) -> None:
        await self._connection.close()


class Jobs(Program):
    def __init__(self) -> None:
        self._opened = configured()
        self._boxes = self._opened.__enter__()
        self._engine = create_async_engine(
            POSTGRES.replace("postgresql://", "postgresql+psycopg://"), pool_size=20, max_overflow=0
        )

    async def setup(self) -> None:
        resolved = self._boxes.resolved
        store = connect_jobs(resolved.settings, resolved.jobs, threads=False)
        schema.create(store.engine, [resolved.jobs[BOX].box], {})
        store.close()

    async def fill(self, count: int) -> None:
        async with self._engine.connect() as connection:
            for start in range(0, count, BATCH):
                jobs: list[Any] = [
                    {"task": "handle", "args": message()} for _ in range(start, min(start + BATCH, count))
                ]
                await self._boxes.acreate_jobs(connection, BOX, jobs)
                await connection.commit()

    async def work(self, count: int) -> None:
        arrivals.expect(count)
        async with boxengine.running(self._boxes):
            ready()
            await asyncio.to_thread(finished.wait)
        arrivals.tell()

    async def writer(self) -> Writer:
        return Writer(self._boxes, await self._engine.connect())


if __name__ == "__main__":
    run(Jobs())
