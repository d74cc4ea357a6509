"""Workers whose clocks disagree, and jump."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.chaos.crew import Kind
from tests.chaos.fault import Fault
from tests.chaos.stage import Stage

_FARTHEST = 600
"""Seconds that a clock may be off, in either direction."""
_CACHED = 1.0
"""Seconds after which libfaketime reads its file again."""


def _kind(clock: Path) -> Kind:
    """A worker whose wall clock is off by the seconds in the file."""
    library = _libfaketime()
    if library is None:
        return Kind(program=("-m", "tests.chaos.skewed", str(clock)))
    return Kind(
        environment={
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_CACHE_DURATION": f"{_CACHED:.0f}",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
    )


def _libfaketime() -> Path | None:
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)


def _clocks(stage: Stage) -> list[Path]:
    return [stage.folder / "clock-fast", stage.folder / "clock-slow"]


def _hire(stage: Stage) -> None:
    """One with the right time, one far ahead, one far behind."""
    stage.crew.hire()
    for clock, seconds in zip(_clocks(stage), (_FARTHEST, -_FARTHEST), strict=True):
        clock.write_text(f"{seconds:+d}")
        stage.crew.hire(_kind(clock))
    if _libfaketime() is not None:
        stage.crew.wait_until_started()
        for worker in stage.crew.running[1:]:
            off = abs(worker.told_at() - datetime.now(UTC))
            assert off > timedelta(seconds=_FARTHEST / 2), f"{worker.log.stem} has the right time"


def _jump(stage: Stage) -> None:
    stage.wait_for_work()
    with stage.injecting():
        for clock in _clocks(stage):
            clock.write_text(f"{stage.randomness.randint(-_FARTHEST, _FARTHEST):+d}")
    stage.pause(_CACHED + 1.0, _CACHED + 4.0)


FAULTS = {
    "clock-skew": Fault(
        inject=_jump,
        times=8,
        hire=_hire,
        note="three workers, off by up to ten minutes; "
        + ("libfaketime" if _libfaketime() else "boxengine's own clock only, for want of libfaketime"),
    )
}
