"""The items of one batch on the event loop: those of one key one after the other, the keys side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.engine.answers import WITHHELD, Raised
from boxengine.engine.attempt import ends_the_worker
from boxengine.errors import NoAnswerInTime, Unavailable
from boxengine.ports import Result

LAST_MOMENT = 1.0
"""Seconds that a cancelled call has to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """How long one call may take."""

    timeout: timedelta | None
    """As the transport's line has it; None: there is no such limit."""
    cutoff: timedelta
    """``processor.cutoff_timeout``."""

    def one_call(self) -> asyncio.Timeout:
        """Cancels what runs in it once it has taken as long as ``timeout`` allows."""
        return asyncio.timeout(None if self.timeout is None else self.timeout.total_seconds())

    def lapsed(self) -> str:
        """What is said of a call that was cancelled for its ``timeout``."""
        limit = self.cutoff if self.timeout is None else self.timeout
        return f"no answer within {limit.total_seconds():g} s (timeout); the call was cancelled"

    def cut_off(self) -> str:
        """The same for one that was still under way at the cutoff."""
        return f"no answer within {self.cutoff.total_seconds():g} s (processor.cutoff_timeout); the call was cancelled"


class Lanes:
    """Sends the items of one batch through an asynchronous transport, each by itself."""

    def __init__(
        self,
        call: Callable[[Item], Awaitable[Result]],
        items: Sequence[Item],
        *,
        gate: asyncio.Semaphore,
        limits: CallLimits,
        name: str,
    ) -> None:
        """Args:
        call: hands one item over.
        gate: lets so many calls through at once as the box allows, this batch's and others'.
        name: of the tasks.
        """
        self._call = call
        self._items = items
        self._gate = gate
        self._limits = limits
        self._name = name
        self._under_way: dict[int, Item] = {}
        """By place."""
        self._cut = False
        self._ends: BaseException | None = None
        self.stopped = False
        """Set from any thread: no call is begun any more."""
        self.begun = False
        """Whether any call has been."""
        self.results: list[Result] = [WITHHELD] * len(items)

    async def run(self) -> Sequence[Result]:
        """A result for each item, in order; ``WITHHELD`` for those that were not handed over.

        Calls that are under way at the cutoff are cancelled, and have failed.
        """
        lanes: dict[str, list[int]] = {}
        for place, item in enumerate(self._items):
            lanes.setdefault(item.event_key, []).append(place)
        tasks = {asyncio.create_task(self._lane(places), name=self._name) for places in lanes.values()}
        try:
            _, late = await asyncio.wait(tasks, timeout=self._limits.cutoff.total_seconds())
        except BaseException:
            for task in tasks:
                task.cancel()
            raise
        if late:
            await self._cut_off(late)
        if self._ends is not None:
            raise self._ends
        return list(self.results)

    async def _cut_off(self, late: set[asyncio.Task[None]]) -> None:
        self._cut = self.stopped = True
        for task in late:
            task.cancel()
        await asyncio.wait(late, timeout=LAST_MOMENT)
        for place in self._under_way:
            # Left to itself: what it may still do is nobody's any more.
            self.results[place] = Raised(NoAnswerInTime(f"{self._limits.cut_off()}, and goes on"))

    async def _lane(self, places: Sequence[int]) -> None:
        for place in places:
            try:
                await self._gate.acquire()
            except asyncio.CancelledError:
                return
            try:
                if self.stopped:
                    return
                self.begun = True
                self._under_way[place] = self._items[place]
                result = self.results[place] = await self._one(self._items[place])
                del self._under_way[place]
            finally:
                self._gate.release()
            if isinstance(result, Unavailable):
                self.stopped = True  # the others would go the same way
            if self.stopped:
                return

    async def _one(self, item: Item) -> Result:
        limit = self._limits.one_call()
        try:
            async with limit:
                return await self._call(item)
        except BaseException as error:
            if ends_the_worker(error):
                self._ends, self.stopped = error, True
                return WITHHELD
            if isinstance(error, Unavailable):
                return error
            if isinstance(error, TimeoutError) and limit.expired():
                return Failure(self._limits.lapsed())
            if isinstance(error, asyncio.CancelledError) and self._cut:
                return Failure(self._limits.cut_off())
            return Raised(error)
