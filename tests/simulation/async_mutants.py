"""Deliberate bugs around the event loop: in the order of lanes, and in cancelling."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from boxengine.domain.item import Item
from boxengine.engine.awaiting import lanes, transports
from boxengine.engine.awaiting.lanes import Lanes
from boxengine.engine.awaiting.transports import Asynchronous
from boxengine.engine.delivering.calls.transports import Carrier
from tests.simulation.mutation import Mutant, Surgery, breaks
from tests.simulation.promises import Promise


@breaks(Promise.ORDER, only=())
def a_lane_for_each_item(patch: Surgery) -> None:
    """Items of one key are under way at the same time, and the quicker call overtakes."""

    def apart(items: Sequence[Item]) -> Iterable[Sequence[int]]:
        return [[place] for place in range(len(items))]

    patch.setattr(lanes, "_by_key", apart)


@breaks(Promise.ACKNOWLEDGED, only=("transport slow",))
def a_cancelled_call_counts_as_delivered(patch: Surgery) -> None:
    """What was cancelled at the cutoff or after its timeout has no answer, and that is taken for success."""
    answer_for = Lanes._answer_for

    def lenient(self: Any, error: BaseException) -> Any:
        return None if isinstance(error, asyncio.CancelledError) else answer_for(self, error)

    patch.setattr(Lanes, "_answer_for", lenient)
    patch.setattr(transports, "Failure", lambda _reason: None)


@breaks(Promise.EFFECTS, only=("transport slow",))
def a_handler_is_left_alone_at_its_limit(patch: Surgery) -> None:
    """A handler with the claim's session is not cancelled: its item is settled while it still writes."""

    async def abandoned(self: Any, call: Callable[[], Awaitable[Any]]) -> Any:
        done, _ = await asyncio.wait([asyncio.ensure_future(call())], timeout=0.02)
        return done.pop().result() if done else None

    patch.setattr(Asynchronous, "_gated", abandoned)


@breaks(Promise.ONCE, only=(), first=1_900)
def left_out_behind_another_transport(patch: Surgery) -> None:
    """Found by the simulation: a second transport left items out when a batch took long, and the first got them again."""
    patch.setattr(Carrier, "following", lambda self: self)


ASYNC_MUTANTS: tuple[Mutant, ...] = (
    a_lane_for_each_item,
    a_cancelled_call_counts_as_delivered,
    a_handler_is_left_alone_at_its_limit,
    left_out_behind_another_transport,
)
