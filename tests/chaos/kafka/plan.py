"""How much a run does, and how its rows wait."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.kafka.site import Process
from tests.eventually import eventually

DRAIN_PATIENCE = 600.0
"""Seconds for the last item once nothing stands in the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Full size unless told otherwise."""

    items: int = 100_000
    seed: int = 0
    broker_kills: int = 3
    kills: int = 10
    """Of a worker, of a consumer."""
    away_at_start: float = 20.0
    """Seconds for which the broker is out of reach when the worker starts."""
    away: float = 60.0
    """Seconds for which it is in mid-run."""
    delivery_timeout: float = 20.0
    """Seconds, in the row where the broker is out of reach: less than it is, so that batches are given up."""

    def randomness(self, row: str) -> random.Random:
        return random.Random(f"{self.seed} {row}")


def wait(seconds: float) -> None:
    """Lets time pass: the faults' own, never one that something is hoped to happen in."""
    threading.Event().wait(seconds)


def drained(pending: Callable[[], int]) -> None:
    """Returns when nothing is pending any more."""
    eventually(lambda: pending() == 0, patience=DRAIN_PATIENCE, what="nothing pending any more")


def progressed(pending: Callable[[], int]) -> float:
    """Seconds until fewer are pending than now, or nothing is."""
    began, before = time.monotonic(), pending()
    eventually(lambda: pending() < max(1, before), patience=DRAIN_PATIENCE, what="progress")
    return time.monotonic() - began


def killed_at_random(
    start: Callable[[], Process], left: Callable[[], int], *, total: int, times: int, randomness: random.Random
) -> Process:
    """Starts a process and kills it in mid-work, again and again; returns the one that is left to finish.

    Raises:
        AssertionError: the work was done before the last kill.
    """
    for _ in range(times):
        process = start()
        enough = left() - randomness.randrange(1, max(2, total // (times + 2)))
        eventually(lambda enough=enough: left() <= enough, patience=DRAIN_PATIENCE, what="progress before the kill")  # type: ignore[misc]
        wait(randomness.uniform(0.0, 0.1))
        process.kill()
    if left() == 0:
        raise AssertionError("the work was done before the last kill")
    return start()
