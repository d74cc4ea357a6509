"""faststream-outbox: several workers, batches fetched and deleted together."""

from __future__ import annotations

import asyncio

from contest import BATCH, POSTGRES, Arrivals, Program, message, ready, run
from faststream_outbox import OutboxBroker, make_outbox_table
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

URL = POSTGRES.replace("postgresql://", "postgresql+asyncpg://")
metadata = MetaData()
table = make_outbox_table(metadata, table_name="outbox")


def made() -> tuple[AsyncEngine, OutboxBroker]:
    engine = create_async_engine(URL, pool_size=20)
    return engine, OutboxBroker(engine, outbox_table=table)


class Writer:
    def __init__(self, broker: OutboxBroker, connection: AsyncConnection) -> None:
        self._broker = broker
        self._connection = connection

    async def write(self, text: str) -> None:
        await self._broker.publish(text, queue="bench", session=self._connection)
        await self._connection.commit()

    async def close(self) -> None:
        await self._connection.close()


class FaststreamOutbox(Program):
    def __init__(self) -> None:
        self._made: tuple[AsyncEngine, OutboxBroker] | None = None

    async def setup(self) -> None:
        engine, _broker = made()
        async with engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
        await engine.dispose()

    async def fill(self, count: int) -> None:
        engine, broker = made()
        for start in range(0, count, BATCH):
            async with engine.begin() as connection:
                messages = [message() for _ in range(min(BATCH, count - start))]
                await broker.publish_batch(*messages, queue="bench", session=connection)
        await engine.dispose()

    async def work(self, count: int) -> None:
        engine, broker = made()
        arrivals, finished = Arrivals(), asyncio.Event()
        arrivals.expect(count)

        @broker.subscriber("bench", max_workers=8, fetch_batch_size=500, terminal_flush_batch_size=100)
        async def handle(text: str) -> None:
            if arrivals.note(text):
                finished.set()

        await broker.start()
        ready()
        await finished.wait()
        await broker.stop()
        await engine.dispose()
        arrivals.tell()

    async def writer(self) -> Writer:
        if self._made is None:
            self._made = made()
        engine, broker = self._made
        return Writer(broker, await engine.connect())


if __name__ == "__main__":
    run(FaststreamOutbox())
