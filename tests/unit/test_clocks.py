"""The clocks: the system's, and the one that tests move by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.system import SystemClock


def test_the_system_clock_is_in_utc_and_never_goes_back() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)


def test_a_manual_clock_moves_only_when_told_to() -> None:
    clock = ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    assert (clock.now(), clock.monotonic()) == (clock.now(), clock.monotonic())
    clock.advance(timedelta(seconds=1.5))
    assert clock.now() == datetime(2026, 5, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert clock.monotonic() == 1.5


def test_a_jump_of_the_wall_clock_leaves_the_monotonic_one_alone() -> None:
    clock = ManualClock()
    start = clock.now()
    clock.jump(timedelta(hours=-1))
    assert clock.now() == start - timedelta(hours=1)
    assert clock.monotonic() == 0.0
