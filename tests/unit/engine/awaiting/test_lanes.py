"""The lanes of one batch: their places at the box's gate, and what they know of each other."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from boxengine.domain.item import Item
from boxengine.engine.answers import WITHHELD
from boxengine.engine.awaiting.lanes import Lanes
from boxengine.errors import Abandoned, Unavailable
from boxengine.testing import make_item

PLACES = 2

Call = Callable[[Item], Awaitable[Any]]


def lanes(
    call: Call,
    gate: asyncio.Semaphore,
    *,
    keys: Sequence[object] = range(5),
    cutoff: timedelta = timedelta(seconds=90),
) -> Lanes:
    items = [make_item(event_key=str(key)) for key in keys]
    return Lanes(call, items, gate=gate, cutoff=cutoff, name="lane")


async def well(_item: Item) -> None:
    await asyncio.sleep(0)


async def out_of_reach(_item: Item) -> None:
    raise Unavailable("nobody there")


async def crashes(_item: Item) -> None:
    raise Abandoned


async def hangs(_item: Item) -> None:
    await asyncio.Event().wait()


async def gives_itself_up(_item: Item) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def test_a_call_that_cancels_its_own_task_does_not_cancel_the_next_one_of_its_key() -> None:
    sent = 0

    async def call(item: Item) -> None:
        nonlocal sent
        sent += 1
        await (gives_itself_up(item) if sent == 1 else asyncio.sleep(0))

    async def main() -> Sequence[Any]:
        return await lanes(call, asyncio.Semaphore(PLACES), keys=[1, 1, 1]).run()

    assert asyncio.run(main()) == [None] * 3


@pytest.mark.parametrize("call", [well, out_of_reach, crashes, hangs, gives_itself_up])
def test_every_place_at_the_gate_comes_back(call: Call) -> None:
    async def main() -> None:
        gate = asyncio.Semaphore(PLACES)
        batch = lanes(call, gate, cutoff=timedelta(milliseconds=20) if call is hangs else timedelta(seconds=90))
        await asyncio.gather(batch.run(), return_exceptions=True)
        async with asyncio.timeout(20):
            for _ in range(PLACES):
                await gate.acquire()

    asyncio.run(main())


def test_a_batch_is_over_with_its_last_call_though_others_have_the_other_places() -> None:
    async def main() -> Sequence[Any]:
        gate = asyncio.Semaphore(PLACES)
        await gate.acquire()  # another batch, which keeps its place
        async with asyncio.timeout(20):
            return await lanes(well, gate).run()

    assert asyncio.run(main()) == [None] * 5


def test_a_batch_that_is_stopped_before_it_has_a_place_sends_nothing_and_takes_none() -> None:
    async def main() -> Sequence[Any]:
        gate = asyncio.Semaphore(PLACES)
        batch = lanes(hangs, gate)
        batch.stopped = True
        async with asyncio.timeout(20):
            results = await batch.run()
            for _ in range(PLACES):
                await gate.acquire()
            return results

    assert asyncio.run(main()) == [WITHHELD] * 5


def test_what_a_call_puts_into_the_context_is_not_seen_by_those_of_other_keys() -> None:
    tenant: contextvars.ContextVar[str | None] = contextvars.ContextVar("tenant", default=None)
    seen = []

    async def call(item: Item) -> None:
        seen.append(tenant.get())
        tenant.set(item.event_key)
        await asyncio.sleep(0)

    async def main() -> None:
        await lanes(call, asyncio.Semaphore(1)).run()

    asyncio.run(main())
    assert seen == [None] * 5
