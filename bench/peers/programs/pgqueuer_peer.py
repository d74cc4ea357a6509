"""pgqueuer: a pool of connections, and the largest batches in its documentation."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
from contest import BATCH, POSTGRES, Arrivals, Program, message, ready, run
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries


class Writer:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._queries = Queries(AsyncpgDriver(connection))

    async def write(self, text: str) -> None:
        async with self._connection.transaction():
            await self._queries.enqueue("handle", text.encode())

    async def close(self) -> None:
        await self._connection.close()


class Pgqueuer(Program):
    async def setup(self) -> None:
        connection = await asyncpg.connect(POSTGRES)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    async def fill(self, count: int) -> None:
        connection = await asyncpg.connect(POSTGRES)
        queries = Queries(AsyncpgDriver(connection))
        for start in range(0, count, BATCH):
            size = min(BATCH, count - start)
            await queries.enqueue(["handle"] * size, [message().encode() for _ in range(size)], [0] * size)
        await connection.close()

    async def work(self, count: int) -> None:
        arrivals = Arrivals()
        arrivals.expect(count)
        async with asyncpg.create_pool(POSTGRES, min_size=4, max_size=8) as pool:
            worker = PgQueuer(AsyncpgPoolDriver(pool))

            @worker.entrypoint("handle")
            async def handle(job: Job) -> None:
                if arrivals.note((job.payload or b"").decode()):
                    worker.shutdown.set()

            ready()
            await worker.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=1))
        arrivals.tell()

    async def writer(self) -> Writer:
        return Writer(await asyncpg.connect(POSTGRES))


if __name__ == "__main__":
    run(Pgqueuer())
