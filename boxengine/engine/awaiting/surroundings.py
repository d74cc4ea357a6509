"""What the asynchronous transports of one box have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from boxengine.engine.awaiting.event_loop import EventLoop
from boxengine.engine.awaiting.visit import Visit
from boxengine.ports import Clock

Lend = Callable[[Any, Visit], AbstractContextManager[Any]]
"""Turns a claim's session into the one that coroutines use, for one visit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all asynchronous transports of a box share. Made once for each box."""

    loop: EventLoop
    gate: asyncio.Semaphore
    """Lets through as many calls at once as the box allows."""
    lend: Lend
    paused: Callable[[], bool]
    """Whether the box may no longer hand out items. Called in the waiting thread, never on the loop."""
    clock: Clock
    flush_after: float
    """Seconds after which a batch begins no more calls, so that the sent items are recorded and a crash repeats little."""
