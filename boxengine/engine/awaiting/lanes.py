"""Sends the items of one batch on the event loop: items of one key in sequence, different keys concurrently."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta

from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.engine.answers import KEPT_BACK, WITHHELD, Raised, ungrouped
from boxengine.engine.attempt import ends_the_worker
from boxengine.errors import NoAnswerInTime, Unavailable
from boxengine.ports import Result

CUTOFF = "processor.cutoff_timeout"
LAST_MOMENT = 1.0
"""Seconds that a cancelled call has to end."""


def no_answer(within: timedelta, setting: str) -> str:
    """The message for a call that was cancelled, with the setting that says after what time."""
    return f"no answer within {within.total_seconds():g} s ({setting}); the call was cancelled"


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
        cutoff: timedelta,
        name: str,
    ) -> None:
        """Args:
        call: hands one item over.
        gate: lets through as many calls at once as the box allows, this batch's and others'.
        cutoff: the time after which calls under way are cancelled.
        name: of the tasks.
        """
        self._call = call
        self._items = items
        self._gate = gate
        self._cutoff = cutoff
        self._name = name
        self._waiting = deque(_by_key(items))
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        """Set once no lane is running and none will start any more."""
        self._under_way: set[int] = set()
        """Places of the items whose call has begun and not ended."""
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
            async with asyncio.timeout(self._cutoff.total_seconds()):
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
            self.results[place] = Raised(NoAnswerInTime(f"{no_answer(self._cutoff, CUTOFF)}, and goes on"))

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
            self._under_way.add(place)
            try:
                result = await self._call(self._items[place])
            except BaseException as error:
                result = self._answer_for(error)
            self.results[place] = result
            self._under_way.remove(place)
            if isinstance(result, Unavailable):
                self.stopped = True  # the others would fail in the same way
            elif _stays_pending(result):
                return
            elif not self.stopped:
                await _end_own_cancellation()

    def _answer_for(self, error: BaseException) -> Result:
        if ends_the_worker(error):
            self._ends, self.stopped = error, True
            return WITHHELD
        problem = ungrouped(error)
        if isinstance(problem, Unavailable):
            return problem
        if isinstance(error, asyncio.CancelledError) and self._cut:
            return Failure(no_answer(self._cutoff, CUTOFF))
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
