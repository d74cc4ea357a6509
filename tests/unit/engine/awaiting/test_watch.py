"""Code that blocks the event loop is named."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from boxengine.domain.item import Item
from boxengine.engine.awaiting import watch
from boxengine.engine.awaiting.event_loop import EventLoop
from boxengine.engine.awaiting.watch import LoopWatch
from tests.unit.engine.awaiting.conftest import AsyncBench
from tests.unit.engine.awaiting.test_transports import Async
from tests.unit.engine.bench import spec


def test_a_transport_that_blocks_the_loop_is_named_once(bench: AsyncBench) -> None:
    blocked, go_on = threading.Event(), threading.Event()

    async def blocks(_item: Item) -> Any:
        blocked.set()
        assert go_on.wait(timeout=30)

    told: list[str] = []
    watching = LoopWatch(bench.loop, tell=told.append, patience=0.02)
    bench.insert(1)
    delivering = threading.Thread(target=bench.deliver, args=[spec(Async(blocks), name="slow")])
    delivering.start()
    assert blocked.wait(timeout=30)
    watching.turn()
    watching.turn()
    go_on.set()
    delivering.join()
    (line,) = told
    assert line.startswith("transport slow of box order_outbox_item has blocked the event loop for 0.02 s in ")
    assert "asyncio.to_thread" in line


def test_tasks_with_ever_new_names_do_not_fill_the_memory(loop: EventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of jobs, which have their ids in them."""
    monkeypatch.setattr(watch, "REMEMBERED", 2)
    told: list[str] = []
    watching = LoopWatch(loop, tell=told.append, patience=0.02)
    for name in ("job 1", "job 2", "job 3", "job 3", "job 1"):
        blocked, go_on = threading.Event(), threading.Event()

        async def blocks(blocked: threading.Event = blocked, go_on: threading.Event = go_on) -> None:
            blocked.set()
            assert go_on.wait(timeout=30)

        visit = loop.visit()
        visit.begin(blocks, name=name)
        assert blocked.wait(timeout=30)
        watching.turn()
        go_on.set()
        visit.wait()
    assert [line.partition(" has")[0] for line in told] == ["job 1", "job 2", "job 3", "job 1"]


def test_a_loop_that_answers_and_one_that_nobody_needs_say_nothing(loop: EventLoop) -> None:
    told: list[str] = []
    watching = LoopWatch(loop, tell=told.append, patience=30)
    watching.turn()
    assert loop.begun is None
    loop.visit()
    watching.turn()
    assert told == []


def test_a_moment_without_threads_leaves_no_loop_that_nobody_runs(
    loop: EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def answer() -> int:
        return 42

    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            loop.run(answer, name="answer")
    assert loop.begun is None
    assert loop.run(answer, name="answer") == 42
