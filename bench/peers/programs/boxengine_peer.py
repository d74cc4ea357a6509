"""boxengine with its defaults: a batch transport, four threads, ``strict_order`` by key."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from contest import BATCH, POSTGRES, REDIS, Arrivals, Program, message, ready, run
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

import boxengine
from boxengine.adapters.sql.making import schema
from boxengine.app.servers.database import connect_store

BOX = "order_outbox_item"
KEYS = 1000
"""The number of different event keys."""
finished = threading.Event()
lock = threading.Lock()
arrivals = Arrivals()


class Handle:
    """The transport."""

    def call_batch(self, items: Sequence[Any]) -> list[None]:
        with lock:
            for item in items:
                if arrivals.note(item.payload.decode()):
                    finished.set()
        return [None] * len(items)


@contextmanager
def configured() -> Iterator[boxengine.Boxes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outbox.yml"
        box = {
            "storage": os.environ.get("BOX_STORAGE", "table"),
            "strict_order": "key",
            "transports": {"__main__.Handle": {}},
        }
        content = {"database": {"url": POSTGRES}, "redis": {"url": REDIS}, "outbox_items": {BOX: box}}
        path.write_text(yaml.safe_dump(content))
        yield boxengine.load(path)


class Writer:
    def __init__(self, boxes: boxengine.Boxes, connection: AsyncConnection) -> None:
        self._boxes = boxes
        self._connection = connection
        self._number = 0

    async def write(self, text: str) -> None:
        self._number += 1
        await self._boxes.acreate_outbox_item(
            self._connection, BOX, event_key=self._number % KEYS, payload=text.encode()
        )
        await self._connection.commit()

    async def close(self) -> None:
        await self._connection.close()


class Boxengine(Program):
    def __init__(self) -> None:
        self._opened = configured()
        self._boxes = self._opened.__enter__()
        self._engine = create_async_engine(
            POSTGRES.replace("postgresql://", "postgresql+psycopg://"), pool_size=20, max_overflow=0
        )

    async def setup(self) -> None:
        settings = self._boxes.resolved.settings
        schema.create(connect_store(settings).engine, [self._boxes.resolved.pipelines[BOX].box])

    async def fill(self, count: int) -> None:
        async with self._engine.connect() as connection:
            for start in range(0, count, BATCH):
                numbers = range(start, min(start + BATCH, count))
                items = [{"event_key": number % KEYS, "payload": message().encode()} for number in numbers]
                await self._boxes.acreate_outbox_batch(connection, BOX, items)
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
    run(Boxengine())
