"""procrastinate: asynchronous tasks, notifications on, finished jobs deleted."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psycopg
from contest import BATCH, POSTGRES, Arrivals, Program, message, ready, run
from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=POSTGRES, min_size=4, max_size=20))
finished = asyncio.Event()
arrivals = Arrivals()


@app.task(name="handle", queue="bench")
async def handle(text: str) -> None:
    if arrivals.note(text):
        finished.set()


class Writer:
    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection

    async def write(self, text: str) -> None:
        async with self._connection.transaction():
            await handle.configure(connection=self._connection).defer_async(text=text)

    async def close(self) -> None:
        await self._connection.close()


class Procrastinate(Program):
    async def setup(self) -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def fill(self, count: int) -> None:
        async with app.open_async():
            for start in range(0, count, BATCH):
                await handle.batch_defer_async(*({"text": message()} for _ in range(min(BATCH, count - start))))

    async def work(self, count: int) -> None:
        arrivals.expect(count)
        async with app.open_async():
            worker = asyncio.create_task(
                app.run_worker_async(
                    queues=["bench"], concurrency=10, delete_jobs="successful", install_signal_handlers=False
                )
            )
            ready()
            await finished.wait()
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker
        arrivals.tell()

    async def writer(self) -> Writer:
        return Writer(await psycopg.AsyncConnection.connect(POSTGRES, autocommit=True))


if __name__ == "__main__":
    run(Procrastinate())
