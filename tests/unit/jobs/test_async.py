"""Handlers that are ``async def``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from boxengine.domain.jobs import JobState
from boxengine.engine.jobs.async_handle import AsyncJob
from boxengine.engine.jobs.handle import Handler
from boxengine.ports.jobs import JobFilter
from tests.unit.jobs.crew import BOX, Crew


class Stage:
    """Crews whose event loops are closed at the end. Handlers reach the last one made."""

    def __init__(self) -> None:
        self.made: list[Crew] = []

    def crew(self, handler: Handler, *, timeout: timedelta | None = None) -> Crew:
        self.made.append(Crew(handler, timeout=timeout))
        return self.made[-1]

    def cancel(self) -> None:
        """Somebody cancels the job; the next heartbeat tells."""
        crew = self.made[-1]
        crew.jobs.cancel(BOX, JobFilter(ids=[1]))
        crew.pass_time(10)
        crew.keeper.turn()
        crew.watchdog.turn()

    def lose(self) -> None:
        """The lease runs out."""
        self.made[-1].pass_time(100)
        self.made[-1].watchdog.turn()


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    for crew in stage.made:
        crew.loop.close()


def test_a_coroutine_runs_on_the_event_loop_and_its_result_is_the_jobs(stage: Stage) -> None:
    async def handler(job: AsyncJob[Any]) -> Any:
        await asyncio.sleep(0)
        job.session.append("written")
        await job.checkpoint({"done": 1})
        return job.state

    crew = stage.crew(handler)
    crew.create()
    crew.work()
    assert (crew.row().status, crew.row().result, crew.row().checkpoint) == (JobState.SUCCEEDED, *[{"done": 1}] * 2)
    assert crew.jobs.effects == ["written"]


def test_a_coroutine_that_awaits_nothing_is_a_handler_too(stage: Stage) -> None:
    async def handler(job: AsyncJob[Any]) -> int:
        return job.attempt

    crew = stage.crew(handler)
    crew.create()
    crew.work()
    assert crew.row().result == 1


def test_a_checkpoint_that_nobody_awaits_fails_the_attempt(stage: Stage) -> None:
    async def handler(job: AsyncJob[Any]) -> None:
        job.checkpoint(1)  # type: ignore[unused-coroutine] # the mistake that is meant

    crew = stage.crew(handler)
    crew.create()
    crew.work()
    assert crew.row().status is JobState.QUEUED
    assert "was not awaited" in str(crew.row().error)


def test_a_retry_asked_for_in_a_task_group_is_one(stage: Stage) -> None:
    async def ask(job: AsyncJob[Any]) -> None:
        job.retry(in_=7)

    async def handler(job: AsyncJob[Any]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ask(job))

    crew = stage.crew(handler)
    crew.create(max_attempts=1)
    crew.work()
    assert (crew.row().status, crew.row().error) == (JobState.QUEUED, None)
    assert crew.row().available_at - crew.clock.now() == timedelta(seconds=7)


def test_a_cancel_ends_what_the_coroutine_waits_for(stage: Stage) -> None:
    async def handler(job: AsyncJob[Any]) -> None:
        job.session.append("undone")
        stage.cancel()
        await asyncio.Event().wait()

    crew = stage.crew(handler)
    crew.create()
    crew.work()
    assert (crew.row().status, crew.jobs.effects) == (JobState.CANCELED, [])


def test_a_coroutine_that_cleans_up_after_a_cancel_is_canceled_once(stage: Stage) -> None:
    async def handler(job: AsyncJob[Any]) -> str:
        stage.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        stage.made[-1].watchdog.turn()
        await asyncio.sleep(0)
        job.progress(cleaned=True)
        return "cleaned up"

    crew = stage.crew(handler)
    crew.create()
    crew.work()
    assert (crew.row().status, crew.row().progress) == (JobState.CANCELED, {"cleaned": True})


def test_a_coroutine_whose_lease_is_over_is_cancelled_until_it_ends(stage: Stage) -> None:
    async def handler(_job: AsyncJob[Any]) -> None:
        stage.lose()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        stage.lose()
        await asyncio.Event().wait()

    crew = stage.crew(handler)
    crew.create()
    crew.work()
    assert crew.ends() == ["lost"]


def test_a_coroutine_that_takes_too_long_is_cancelled_and_has_failed(stage: Stage) -> None:
    async def handler(_job: AsyncJob[Any]) -> None:
        crew.pass_time(20)
        crew.watchdog.turn()
        await asyncio.Event().wait()

    crew = stage.crew(handler, timeout=timedelta(seconds=20))
    crew.create()
    crew.work()
    assert crew.row().status is JobState.QUEUED
    assert "JobTimeout: no end within 20 s" in str(crew.row().error)


def test_a_task_that_outlives_its_handler_cannot_write(stage: Stage) -> None:
    left: list[asyncio.Task[None]] = []
    go = asyncio.Event()

    async def late(job: AsyncJob[Any]) -> None:
        await go.wait()
        await job.checkpoint("late")

    async def handler(job: AsyncJob[Any]) -> None:
        left.append(asyncio.create_task(late(job)))

    async def look() -> BaseException | None:
        go.set()
        await asyncio.wait(left)
        return left[0].exception()

    crew = stage.crew(handler)
    crew.create()
    crew.work()
    assert "a call that is over" in str(crew.loop.run(look, name="look"))
    assert crew.row().checkpoint is None


def test_a_plain_function_that_returns_a_coroutine_fails_its_attempt(stage: Stage) -> None:
    async def coroutine() -> None:
        """Never runs."""

    crew = stage.crew(lambda _job: coroutine())
    crew.create()
    crew.work()
    reason = (
        "the handler returned a coroutine that nobody waits for: make the handler itself, and its decorator's wrapper, "
    )
    assert f"{reason}async def, and await inside" in str(crew.row().error)


def test_a_coroutine_that_is_cancelled_before_its_first_step_has_ended(stage: Stage) -> None:
    visit = stage.crew(lambda _job: None).loop.visit()
    visit.cancel()
    visit.begin(asyncio.sleep, 3600, name="never")
    visit.wait()
    with pytest.raises(asyncio.CancelledError):
        visit.result()
