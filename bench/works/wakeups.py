"""What a wake-up costs those who commit, and the item that waits for it."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.synchronize import Barrier
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from bench.report import Line, at_least
from bench.rounds import alternate, compare, percentile, spread_of
from bench.servers import OUTBOX, Stand
from bench.works.latency import PUNCH, RATE, run_round
from boxengine.app.boxes import Boxes, load
from boxengine.app.servers.database import connect_store

WAYS = ("none", "notify", "redis")
WRITERS = (1, 16, 64, 200)
PROCESSES = WRITERS[1:]
WARM_UP = 30
"""Commits of a process before the round, so that it has all its connections: processes of a web server live for hours."""
FORK = multiprocessing.get_context("fork")
"""Two hundred interpreters that share what they have imported fit into the machine's memory."""
BAR = at_least(0.95)
PATIENCE = 600.0
"""Seconds after which a round in which a process died ends with an error."""


def taxes(stand: Stand) -> list[Line]:
    """Commits per second of writers in one process, each item in a transaction of its own, by ``wakeup``."""
    return _taxes(stand, "writers", WRITERS, _rate, WAYS)


def taxes_in_processes(stand: Stand) -> list[Line]:
    """The same for writers that are processes, as those of a web server are."""
    return _taxes(stand, "processes", PROCESSES, _rate_in_processes, WAYS)


def taxes_on_a_loop(stand: Stand) -> list[Line]:
    """The same for coroutines on one event loop, with asyncpg."""
    return _taxes(stand, "coroutines", WRITERS, _rate_on_a_loop, WAYS[:2])


def _taxes(
    stand: Stand,
    writing: str,
    numbers: tuple[int, ...],
    rate: Callable[[Stand, str, int, int], float],
    ways: tuple[str, ...],
) -> list[Line]:
    lines = []
    for writers in numbers:
        # Enough for each writer that the start, the end and one slow flush of the disk do not decide: of 4,000 commits,
        # 64 writers made 62 each, and rounds of one second scattered from 0.6 to 1.1.
        count = stand.scale.pick(max(4_000, 200 * writers), 1_000) if writers > 1 else stand.scale.pick(1_000, 300)
        rates = alternate(
            {way: lambda way=way, writers=writers, count=count: rate(stand, way, writers, count) for way in ways},  # type: ignore[misc]
            rounds=stand.scale.rounds,
        )
        for way in ways[1:]:
            found = compare({"none": rates["none"], way: rates[way]}, ours=way)
            lines.append(
                Line(
                    work=f"commits/s of {writers} {writing}, wakeup: {way}",
                    figure=found.ratio,
                    bar=BAR if way == "notify" else None,
                    spread=found.spread,
                    details={"none": found.floor, way: found.ours},
                    note="of those without a wake-up",
                )
            )
    return lines


def latencies(stand: Stand) -> list[Line]:
    """The time from commit to transport at a low rate, by ``wakeup``."""
    count = stand.scale.pick(200, 100)
    measured: Mapping[str, list[list[float]]] = {way: [] for way in WAYS[1:]}
    for _ in range(stand.scale.rounds):
        for way, rounds in measured.items():
            with stand.site(buckets=256, transport=PUNCH, wakeup=way) as site:
                rounds.append(run_round(site, count))
    return [
        Line(
            work=f"commit to transport at {RATE} items/s, wakeup: {way}, {name}",
            figure=percentile([value for each in rounds for value in each], share),
            unit=" ms",
            spread=spread_of([percentile(each, share) for each in rounds]),
        )
        for way, rounds in measured.items()
        for name, share in (("p50", 0.5), ("p90", 0.9))
    ]


def _rate(stand: Stand, way: str, writers: int, count: int) -> float:
    with stand.site(buckets=256, transport=PUNCH, wakeup=way, processor={"threads_count": writers}) as site:
        store = connect_store(site.boxes.resolved.settings)
        started = threading.Barrier(writers + 1)

        def write(boxes: Boxes, share: int) -> None:
            with store.engine.connect() as connection:
                boxes.create_outbox_item(connection, OUTBOX, event_key=0, payload=b"x" * 500)
                connection.commit()
                started.wait()
                for number in range(share):
                    boxes.create_outbox_item(connection, OUTBOX, event_key=number, payload=b"x" * 500)
                    connection.commit()

        threads = [threading.Thread(target=write, args=(site.boxes, count // writers)) for _ in range(writers)]
        for thread in threads:
            thread.start()
        started.wait()
        began = time.perf_counter()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - began
        store.close()
        return count / seconds


def _rate_in_processes(stand: Stand, way: str, writers: int, count: int) -> float:
    with stand.site(buckets=256, transport=PUNCH, wakeup=way) as site:
        steps = FORK.Barrier(writers + 1)
        arguments = (site.config, count // writers, steps)
        processes = [FORK.Process(target=_write_in_process, args=arguments, daemon=True) for _ in range(writers)]
        for process in processes:
            process.start()
        steps.wait(PATIENCE)
        began = time.perf_counter()
        steps.wait(PATIENCE)
        seconds = time.perf_counter() - began
        for process in processes:
            process.join()
        return count // writers * writers / seconds


def _write_in_process(config: Path, share: int, steps: Barrier) -> None:
    boxes = load(config)
    store = connect_store(boxes.resolved.settings)

    def write(number: int) -> None:
        # From the pool and back, as a request does it.
        with store.engine.begin() as connection:
            boxes.create_outbox_item(connection, OUTBOX, event_key=number, payload=b"x" * 500)

    for number in range(WARM_UP):
        write(number)
    steps.wait(PATIENCE)
    for number in range(share):
        write(number)
    steps.wait(PATIENCE)
    store.close()


def _rate_on_a_loop(stand: Stand, way: str, writers: int, count: int) -> float:
    with stand.site(buckets=256, transport=PUNCH, wakeup=way) as site:
        url = make_url(site.boxes.resolved.settings.database.url or "").set(drivername="postgresql+asyncpg")

        async def write(boxes: Boxes) -> float:
            engine = create_async_engine(url, pool_size=writers, max_overflow=1)

            async def some(share: int) -> None:
                async with engine.connect() as connection:
                    for number in range(share):
                        await boxes.acreate_outbox_item(connection, OUTBOX, event_key=number, payload=b"x" * 500)
                        await connection.commit()

            await asyncio.gather(*(some(1) for _ in range(writers)))
            began = time.perf_counter()
            await asyncio.gather(*(some(count // writers) for _ in range(writers)))
            seconds = time.perf_counter() - began
            await engine.dispose()
            return count / seconds

        return asyncio.run(write(site.boxes))
