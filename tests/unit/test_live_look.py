"""The look that all pages and tabs share: nobody waits for a newer one, except where something has changed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from boxengine.web.console import live
from boxengine.web.console.live import Live

PATIENCE = 60.0


class Looks:
    """Numbers that rise; from the second on, each waits until it may go on."""

    def __init__(self) -> None:
        self.taken = 0
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        self.waits = False

    def __call__(self) -> int:
        self.begun.release()
        if self.waits:
            assert self.go_on.acquire(timeout=PATIENCE)
        self.taken += 1
        return self.taken


class Time:
    now = 1_000.0


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(live, "monotonic", lambda: time.now)
    return time


@pytest.fixture
def looks() -> Iterator[Looks]:
    looks = Looks()
    yield looks
    for _ in range(10):
        looks.go_on.release()  # no thread stays behind


def test_the_first_look_is_waited_for_and_then_shared(looks: Looks, time: Time) -> None:
    shared = Live(looks)
    assert [shared.latest(), shared.latest()] == [1, 1]
    time.now += live.EVERY
    assert shared.latest() == 1


def test_nobody_waits_for_a_newer_look_and_there_is_only_one(
    looks: Looks, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, patience, wait = Live(looks), list[float](), vars(live)["wait_for"]

    def wait_for(futures: Any, seconds: float) -> Any:
        patience.append(seconds)
        return wait(futures, seconds)

    monkeypatch.setattr(live, "wait_for", wait_for)
    shared.latest()
    looks.begun.acquire()
    looks.waits = True
    time.now += live.EVERY + 1
    assert [shared.latest() for _ in range(5)] == [1] * 5, "while the second is under way"
    assert patience == [0] * 5
    assert looks.begun.acquire(timeout=PATIENCE)
    assert not looks.begun.acquire(blocking=False)
    looks.go_on.release()
    shared.now()
    assert shared.latest() == 2


def test_after_a_change_no_page_shows_the_look_before_it(
    looks: Looks, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "AFTER_CHANGE", PATIENCE)
    shared = Live(looks)
    shared.latest()
    looks.waits = True
    time.now += live.EVERY + 1
    looks.begun.acquire()
    shared.latest()
    assert looks.begun.acquire(timeout=PATIENCE), "the second look began before the change"
    shared.forget()
    looks.go_on.release(2)
    assert shared.latest() == 3
    assert shared.latest() == 3


def test_after_a_change_a_page_waits_a_moment_and_no_longer_and_whoever_changed_it_until_it_shows(
    looks: Looks, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited, wait = list[float](), vars(live)["wait_for"]

    def wait_for(futures: Any, seconds: float) -> Any:
        waited.append(seconds)
        return wait(futures, 0.0)

    monkeypatch.setattr(live, "wait_for", wait_for)
    shared = Live(looks)
    shared.latest()
    looks.waits = True
    shared.forget()
    assert shared.latest() == 1
    assert waited == [pytest.approx(live.AFTER_CHANGE)]
    looks.go_on.release(2)
    assert shared.now() >= 2
    looks.waits = False
    assert shared.latest() >= 2


def test_where_nobody_has_watched_for_long_a_page_waits_a_moment_for_a_newer_look(
    looks: Looks, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Live(looks)
    shared.latest()
    time.now += live.STALE + 1
    monkeypatch.setattr(live, "PATIENCE", PATIENCE)
    assert shared.latest() == 2
    looks.waits = True
    time.now += live.STALE + 1
    monkeypatch.setattr(live, "PATIENCE", 0.0)
    assert shared.latest() == 2, "but no longer than that"


def test_while_a_look_hangs_tabs_come_and_go(looks: Looks) -> None:
    """On the event loop, which serves all other requests as well."""
    shared, left, looks.waits = Live(looks), threading.Event(), True

    async def tabs() -> None:
        async with shared.watching():
            assert looks.begun.acquire(timeout=PATIENCE)
            async with shared.watching():
                pass
        left.set()

    threading.Thread(target=lambda: asyncio.run(tabs()), daemon=True).start()
    assert left.wait(timeout=10.0)
    assert looks.taken == 0, "the first look is still under way"


def test_after_a_moment_without_threads_pages_and_tabs_are_shown_new_looks(
    looks: Looks, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def tab() -> int:
        async with shared.watching() as wait:
            return await asyncio.wait_for(wait(), timeout=10.0)

    shared = Live(looks)
    shared.latest()
    time.now += live.EVERY + 1
    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", refuse)
        for ask in (shared.latest, lambda: asyncio.run(tab())):
            with pytest.raises(RuntimeError, match="new thread"):
                ask()
    assert shared.recent(patience=10.0).look == 2
    assert asyncio.run(tab()) == 2
