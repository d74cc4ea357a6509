"""A box's pipeline and its middlewares, with everything asynchronous in them made callable by threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from boxengine.domain.box import Box
from boxengine.engine.answers import asynchronous
from boxengine.engine.awaiting.event_loop import EventLoop
from boxengine.engine.awaiting.middlewares import awaited
from boxengine.engine.awaiting.surroundings import Lend, Surroundings
from boxengine.engine.awaiting.transports import Asynchronous, on_the_loop
from boxengine.engine.delivering.calls.pipeline import Middlewares, Pipeline, TransportSpec
from boxengine.engine.timing import TIMING
from boxengine.ports import Clock

CONCURRENCY = 200
"""How many calls of one box may be under way at once in one process.

httpx and aiohttp have 100 connections in their pools. But with 100, a receiver that takes 20 ms gets 20 times what four
threads send only on a machine with nothing else to do; with 200 it is twice that."""


class Awaiting:
    """Wraps everything that is ``async def``; everything else stays as it is, at no extra cost."""

    def __init__(
        self,
        loop: EventLoop,
        *,
        lend: Lend,
        clock: Clock,
        cutoff: timedelta = timedelta(seconds=90),
        paused: Callable[[Box], bool] = lambda _box: False,
        concurrency: Mapping[str, int] | None = None,
        flush_after: float = TIMING.flush,
    ) -> None:
        """Args:
        lend: turns a claim's session into the one that coroutines get.
        cutoff: the time after which calls under way are cancelled.
        paused: whether nothing of a box may be handed out.
        concurrency: by box name, how many calls may be under way at once; else ``CONCURRENCY``.
        flush_after: seconds after which a batch begins no more calls and records its results.
        """
        self._loop = loop
        self._lend = lend
        self._clock = clock
        self._cutoff = cutoff
        self._paused = paused
        self._concurrency = concurrency or {}
        self._flush_after = flush_after

    def pipeline(self, pipeline: Pipeline) -> Pipeline:
        """The same box, with transports that threads can call."""
        box = pipeline.box
        surroundings = Surroundings(
            loop=self._loop,
            gate=asyncio.Semaphore(self._concurrency.get(box.name, CONCURRENCY)),
            lend=self._lend,
            paused=partial(self._paused, box),
            clock=self._clock,
            flush_after=self._flush_after,
        )
        transports = tuple(self._transport(spec, box, surroundings) for spec in pipeline.transports)
        return replace(pipeline, transports=transports)

    def middlewares(self, middlewares: Middlewares) -> Middlewares:
        """The same, with those that are ``async def`` made callable by threads. Those around creating are never asynchronous."""
        return replace(
            middlewares,
            poll=awaited(middlewares.poll, self._loop),
            batch_process=awaited(middlewares.batch_process, self._loop),
            item_process=awaited(middlewares.item_process, self._loop),
            item_coroutines=middlewares.item_process if all(map(asynchronous, middlewares.item_process)) else (),
        )

    def _transport(self, spec: TransportSpec, box: Box, surroundings: Surroundings) -> TransportSpec:
        build, is_asynchronous = _look(spec.build, self._loop)
        if not is_asynchronous:
            return spec if build is spec.build else replace(spec, build=build)

        def make() -> Any:
            return Asynchronous(
                build,
                surroundings=surroundings,
                timeout=spec.timeout,
                cutoff=self._cutoff,
                disposable=spec.disposable,
                name=f"transport {spec.name} of box {box.name}",
            ).plain()

        return replace(spec, build=make, disposable=False, timeout=None)


def _look(build: Callable[[], Any], loop: EventLoop) -> tuple[Callable[[], Any], bool]:
    """How to make the transport, and whether any call of it is asynchronous."""
    made: Any = build
    while isinstance(made, partial):
        made = made.func
    if isinstance(made, type):
        return build, _is_asynchronous(made)
    # A factory: only the object that it makes shows this.
    first = _First(build, loop)
    return first, _is_asynchronous(first.instance)


def _is_asynchronous(transport: Any) -> bool:
    """Whether any call of a transport, or of a transport class, is asynchronous."""
    one = transport.__call__ if isinstance(transport, type) else transport
    return asynchronous(one) or asynchronous(getattr(transport, "call_batch", None))


def _built(build: Callable[[], Any], loop: EventLoop) -> Any:
    try:
        return build()
    except RuntimeError as error:
        # Some clients can only be made on a running event loop. Not all factories are called there: a plain one may start
        # a loop of its own.
        try:
            return loop.run(on_the_loop, build, name="a transport's factory")
        except Exception:
            raise error from None  # the one that tells


class _First:
    """Builds one instance for inspection, returns it to the first caller, and builds new ones after that."""

    def __init__(self, build: Callable[[], Any], loop: EventLoop) -> None:
        self._build = build
        self.instance: Any = None
        self._problem: BaseException | None = None
        try:
            self.instance = _built(build, loop)
        except (Exception, SystemExit) as error:  # raised when the transport is made
            self._problem = error
        self._given = False

    def __call__(self) -> Any:
        if self._given:
            return self._build()
        self._given = True
        instance, self.instance = self.instance, None
        if self._problem is not None:
            raise self._problem
        return instance
