"""A box over memory whose transports may be coroutines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from boxengine.domain.box import Box
from boxengine.engine.awaiting.event_loop import EventLoop
from boxengine.engine.awaiting.wrapping import Awaiting
from boxengine.engine.delivering.calls.pipeline import Middlewares, Pipeline, TransportSpec
from boxengine.engine.delivering.work import Report
from tests.unit.engine.bench import NONE, Bench


class AsyncBench(Bench):
    """A bench with an event loop."""

    def __init__(self, loop: EventLoop, *, concurrency: int = 100, **policy: Any) -> None:
        super().__init__(**policy)
        self.loop = loop
        self.paused = False
        self.concurrency = concurrency
        self.cutoff = timedelta(seconds=90)

    def deliver(self, *specs: TransportSpec, middlewares: Middlewares = NONE, **options: Any) -> Report:
        """Delivers one batch from all buckets."""
        awaiting = self.awaiting()
        wrapped = awaiting.pipeline(Pipeline(box=self.box, transports=specs, retry_strategies=()))
        return super().deliver(*wrapped.transports, middlewares=awaiting.middlewares(middlewares), **options)

    def awaiting(self) -> Awaiting:
        return Awaiting(
            self.loop,
            lend=_lend,
            clock=self.clock,
            cutoff=self.cutoff,
            paused=self._is_paused,
            concurrency={self.box.name: self.concurrency},
        )

    def _is_paused(self, _box: Box) -> bool:
        return self.paused


@contextmanager
def _lend(session: Any, _visit: Any) -> Iterator[Any]:
    yield session


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    loop = EventLoop()
    yield loop
    loop.close()


@pytest.fixture
def bench(loop: EventLoop) -> AsyncBench:
    return AsyncBench(loop)
