"""dramatiq over Redis: without a transaction, so a message can be lost, or sent although the caller rolled back."""

from __future__ import annotations

import asyncio
import threading

import dramatiq
from contest import REDIS, Arrivals, Program, message, ready, run
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=REDIS)
dramatiq.set_broker(broker)
finished = threading.Event()
lock = threading.Lock()
arrivals = Arrivals()


@dramatiq.actor(queue_name="bench")
def handle(text: str) -> None:
    with lock:
        if arrivals.note(text):
            finished.set()


class Writer:
    async def write(self, text: str) -> None:
        await asyncio.to_thread(handle.send, text)

    async def close(self) -> None:
        pass


class Dramatiq(Program):
    async def setup(self) -> None:
        broker.flush_all()

    async def fill(self, count: int) -> None:
        for _ in range(count):
            handle.send(message())

    async def work(self, count: int) -> None:
        arrivals.expect(count)
        worker = dramatiq.Worker(broker, worker_threads=8)
        worker.start()
        ready()
        await asyncio.to_thread(finished.wait)
        worker.stop()
        arrivals.tell()

    async def writer(self) -> Writer:
        return Writer()


if __name__ == "__main__":
    run(Dramatiq())
