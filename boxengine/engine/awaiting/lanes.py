"""Sends the items of one batch on the event loop: items of one key in sequence, different keys concurrently."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.engine.answers import KEPT_BACK, WITHHELD, Raised
from boxengine.engine.attempt import ends_the_worker
from boxengine.errors import NoAnswerInTime, Unavailable
from boxengine.ports import Result

LAST_MOMENT = 1.0
"""Seconds that a cancelled call has to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """How long one call may take."""

    timeout: timedelta | None
    """As configured for the transport; None: no such limit."""
    cutoff: timedelta
    """``processor.cutoff_timeout``."""

    def one_call(self) -> asyncio.Timeout | None:
        """Cancels its body when ``timeout`` has passed; None: there is no such limit."""
        return None if self.timeout is None else asyncio.timeout(self.timeout.total_seconds())

    def lapsed(self) -> str:
        """The message for a call that was cancelled after its ``timeout``."""
        limit = self.cutoff if self.timeout is None else self.timeout
        return f"no answer within {limit.total_seconds():g} s (timeout); the call was cancelled"

    def cut_off(self) -> str:
        """The message for a call that was cancelled at the cutoff."""
        return f"no answer within {self.cutoff.total_seconds():g} s (processor.cutoff_timeout); the call was cancelled"


class Lanes:
    """Sends the items of one batch through an asynchronous transport, each by itself.

    A lane is the items of one key, in a task of its own. When a lane ends, the next one takes its place, so the batch keeps
    its places at the gate until no lane is left.
    """

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
        gate: lets through as many calls at once as the box allows, this batch's and others'.
        name: of the tasks.
        """
        self._call = call
        self._items = items
        self._gate = gate
        self._limits = limits
        self._name = name
        self._waiting = deque(_by_key(items))
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        """Set once no lane is running and none will start any more."""
        self._under_way: dict[int, Item] = {}
        """By place."""
        self._cut = False
        self._ends: BaseException | None = None
        self.stopped = False
        """Set from any thread: no more calls are started."""
        self.begun = False
        """Whether any call has been started."""
        self.results: list[Result] = [WITHHELD] * len(items)

    async def run(self) -> Sequence[Result]:
        """A result for each item, in order; ``WITHHELD`` for those that were not handed over.

        Calls under way at the cutoff are cancelled and count as failed.
        """
        entering = asyncio.create_task(self._enter(), name=self._name)
        try:
            async with asyncio.timeout(self._limits.cutoff.total_seconds()):
                await self._over.wait()
        except TimeoutError:
            await self._cut_off()
        except BaseException:
            self.stopped = True
            for task in self._tasks:
                task.cancel()
            raise
        finally:
            entering.cancel()
        if self._ends is not None:
            raise self._ends
        return list(self.results)

    async def _cut_off(self) -> None:
        self._cut = self.stopped = True
        late = set(self._tasks)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=LAST_MOMENT)
        for place in self._under_way:
            # Abandoned: the call may go on, but its result is ignored.
            self.results[place] = Raised(NoAnswerInTime(f"{self._limits.cut_off()}, and goes on"))

    # ── lanes ────────────────────────────────────────────────────────────────────────────────────────

    async def _enter(self) -> None:
        """Starts a lane for each place that becomes free at the gate, while lanes are waiting."""
        while self._waiting and not self.stopped:
            await self._gate.acquire()
            self._begin()
        if not self._tasks:
            self._over.set()

    def _begin(self) -> None:
        """Starts the next lane in a place that the batch holds; if none is left, gives the place back."""
        if self._waiting and not self.stopped:
            task = asyncio.create_task(self._lane(self._waiting.popleft()), name=self._name)
            self._tasks.add(task)
            task.add_done_callback(self._ended)
            return
        self._gate.release()
        if not self._tasks:
            self._over.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._begin()

    async def _lane(self, places: Sequence[int]) -> None:
        for place in places:
            if self.stopped:
                return
            self.begun = True
            self._under_way[place] = self._items[place]
            result = self.results[place] = await self._one(self._items[place])
            del self._under_way[place]
            if isinstance(result, Unavailable):
                self.stopped = True  # the others would fail in the same way
            elif _stays_pending(result):
                return
            elif not self.stopped:
                await _end_own_cancellation()

    async def _one(self, item: Item) -> Result:
        limit = self._limits.one_call()
        try:
            if limit is None:
                return await self._call(item)
            async with limit:
                return await self._call(item)
        except BaseException as error:
            return self._answer_for(error, lapsed=limit is not None and limit.expired())

    def _answer_for(self, error: BaseException, *, lapsed: bool) -> Result:
        if ends_the_worker(error):
            self._ends, self.stopped = error, True
            return WITHHELD
        if isinstance(error, Unavailable):
            return error
        if isinstance(error, TimeoutError) and lapsed:
            return Failure(self._limits.lapsed())
        if isinstance(error, asyncio.CancelledError) and self._cut:
            return Failure(self._limits.cut_off())
        return Raised(error)


async def _end_own_cancellation() -> None:
    """Takes the cancellation that a call asked of its own task and left behind: it would strike the next call, an innocent one.

    Clients' time limits may do so that run out in the very moment in which the call ends.
    """
    task = asyncio.current_task()
    if task is None or not task.cancelling():
        return
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    while task.uncancel():
        pass


def _stays_pending(result: Result) -> bool:
    """Whether the item's followers must wait with it."""
    return result is KEPT_BACK or (isinstance(result, Raised) and isinstance(result.error, Unavailable))


def _by_key(items: Sequence[Item]) -> Iterable[Sequence[int]]:
    """The places of each key's items, in order."""
    lanes: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        lanes.setdefault(item.event_key, []).append(place)
    return lanes.values()
