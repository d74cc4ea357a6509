"""Wake-ups: hints in order of arrival, to whoever waits; closing ends the wait."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from boxengine.ports import Signal
from tests.conformance import coordination
from tests.conformance.coordination import NO_WAIT, WAIT, Rig

ATTEMPTS = 500


@pytest.fixture(params=coordination.NAMES)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with coordination.open_rig(request.param, request) as opened:
        listen(opened)
        yield opened


def listen(rig: Rig) -> None:
    """Waits until hints come."""
    for _ in range(ATTEMPTS):
        if rig.wakeups.reliable:
            return
        rig.wakeups.wait(timedelta(milliseconds=10))
    pytest.fail("no listener was connected")


def gather(rig: Rig, count: int) -> list[Signal]:
    """So many signals, in as many waits as it takes."""
    signals: list[Signal] = []
    for _ in range(ATTEMPTS):
        if len(signals) >= count:
            break
        signals += rig.wakeups.wait(timedelta(milliseconds=10))
    return signals


@pytest.mark.parametrize(
    "signal",
    [
        *(Signal("order_outbox_item", None), Signal("order_outbox_item", 0), Signal("order_outbox_item", 255)),
        *(Signal("combined/outbox_item", 3), Signal("заказ_item", 1), Signal("заказ_item", None)),
        *(Signal("a", 7, due=False), Signal("a:b", 0, due=False)),
    ],
)
def test_a_signal_arrives_as_it_was_sent(rig: Rig, signal: Signal) -> None:
    rig.notify([signal])
    assert rig.wakeups.wait(WAIT) == [signal]


def test_it_has_begun_to_listen_once(rig: Rig) -> None:
    rig.notify([Signal("a", 1)])
    assert rig.wakeups.wait(WAIT)
    assert rig.wakeups.beginnings == 1


@pytest.mark.parametrize("name", coordination.NAMES)
def test_what_is_sent_after_a_first_wait_of_no_time_is_heard(name: str, request: pytest.FixtureRequest) -> None:
    with coordination.open_rig(name, request) as rig:
        assert rig.wakeups.wait(timedelta(0)) == []
        assert (rig.wakeups.reliable, rig.wakeups.beginnings) == (True, 1)
        rig.notify([Signal("a", 1)])
        assert rig.wakeups.wait(WAIT) == [Signal("a", 1)]


def test_signals_arrive_in_order_and_equal_ones_once(rig: Rig) -> None:
    rig.notify([Signal("b", 1), Signal("a", None), Signal("b", 1), Signal("a", 2)])
    assert gather(rig, 3) == [Signal("b", 1), Signal("a", None), Signal("a", 2)]


def test_without_a_signal_the_wait_ends_with_its_time(rig: Rig) -> None:
    assert rig.wakeups.wait(NO_WAIT) == []
    assert rig.wakeups.wait(timedelta(milliseconds=20)) == []


def test_a_signal_ends_a_wait_that_is_under_way(rig: Rig) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(rig.wakeups.wait, WAIT)
        rig.notify([Signal("a", 1)])
        assert waiting.result(timeout=30) == [Signal("a", 1)]


def test_notifying_nothing_is_harmless(rig: Rig) -> None:
    rig.notify([])
    assert rig.wakeups.wait(NO_WAIT) == []


def test_close_ends_a_wait_that_is_under_way(rig: Rig) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(rig.wakeups.wait, WAIT)
        rig.wakeups.close()
        assert waiting.result(timeout=30) == []


def test_an_interruption_ends_a_wait_that_is_under_way_and_every_later_one(rig: Rig) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(rig.wakeups.wait, WAIT)
        rig.wakeups.interrupt()
        assert waiting.result(timeout=30) == []
    assert rig.wakeups.wait(WAIT) == []


def test_after_close_no_hints_come_and_nothing_waits(rig: Rig) -> None:
    rig.wakeups.close()
    rig.wakeups.close()
    assert rig.wakeups.wait(WAIT) == []
    assert not rig.wakeups.reliable


def test_flushall_loses_no_listener(rig: Rig) -> None:
    rig.flush_all()
    rig.notify([Signal("a", 1)])
    assert rig.wakeups.wait(WAIT) == [Signal("a", 1)]
