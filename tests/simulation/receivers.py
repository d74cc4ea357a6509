"""Transports that record what reaches their receivers, and fail when a fault strikes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.engine.awaiting.transports import LOOK
from boxengine.engine.timing import TIMING
from boxengine.errors import Unavailable
from boxengine.ports import Result
from tests.simulation.event_loop import VISITOR
from tests.simulation.faults import Faults, Tenure
from tests.simulation.record import ClaimRecord, Record, Send
from tests.simulation.scenario import CANCELLED, Scenario
from tests.simulation.scheduler import Crash, Scheduler, Strand

PAUSE_HEARD = TIMING.pause_heard + 0.1 + LOOK
"""Virtual seconds after which every worker that reaches Redis knows of a pause, and acts on it."""
POISON = b"poison"
"""The payload of an item that no transport ever takes."""
DEADLY = b"killing"
"""The payload of an item that ends the process that sends it."""


class Refused(Exception):
    """What a transport raises in the simulation."""


class Receiver:
    """The far end of one transport of one box, as one worker sees it."""

    def __init__(self, name: str, faults: Faults, scheduler: Scheduler, record: Record, *, longest: float) -> None:
        """Args:
        longest: seconds that a call takes at most where nothing is wrong.
        """
        self.name = name
        self._longest = longest
        self._faults = faults
        self._scheduler = scheduler
        self._record = record

    def one(self, item: Item, session: Any = None) -> Result:
        """Takes one item, or fails before or after it has."""
        claim = self._begin([item])
        self._reach(claim)
        strikes = self._faults.strikes
        if item.payload == DEADLY:
            self._end_process(item)
        if item.payload == POISON or strikes("item refused", f"item {item.id}"):
            fails_alone(claim, item)
            return self._scheduler.random.choice([False, Failure("refused")])
        if strikes("item raises", f"item {item.id}"):
            fails_alone(claim, item)
            raise Refused(f"item {item.id} was not sent")
        send = self._receive(claim, item, session)
        if strikes("item sent, then raises", f"item {item.id}"):
            fails_alone(claim, item)
            raise Refused(f"item {item.id} may have been sent")
        self._faults.step(f"the answer of {self.name}")
        send.acknowledged = True
        return None

    async def later(self, item: Item, session: Any = None) -> Result:
        """Takes one item as a coroutine, beside others; a cancelled call has failed."""
        claim = self._noted([item], VISITOR.get())
        try:
            return await self._taken(claim, item, session)
        except asyncio.CancelledError:
            self._record.fault(CANCELLED, self.name, f"item {item.id}")
            claim.cut = True
            fails_alone(claim, item)
            raise

    async def _taken(self, claim: ClaimRecord, item: Item, session: Any) -> Result:
        strikes, random = self._faults.strikes, self._scheduler.random
        await self._faults.step_of_coroutine(f"{self.name} is called")
        await asyncio.sleep(self._seconds())
        self._reach(claim)
        if item.payload == DEADLY:
            self._end_process(item)
        if item.payload == POISON or strikes("item refused", f"item {item.id}"):
            fails_alone(claim, item)
            return random.choice([False, Failure("refused")])
        if strikes("item raises", f"item {item.id}"):
            fails_alone(claim, item)
            raise Refused(f"item {item.id} was not sent")
        send = self._receive(claim, item, session)
        if strikes("item sent, then raises", f"item {item.id}"):
            fails_alone(claim, item)
            raise Refused(f"item {item.id} may have been sent")
        await self._faults.step_of_coroutine(f"the answer of {self.name}")
        send.acknowledged = True
        return None

    def batch(self, items: Sequence[Item], session: Any = None) -> Sequence[Result]:
        """Takes many items; fails for some, or as a whole, before or after some of them were taken."""
        claim = self._begin(items)
        self._reach(claim)
        ids = [item.id for item in items]
        if session is not None and claim.refused:
            claim.batch_raised = True  # it was undone because of a refused item, and is sent again without that one
        strikes, random = self._faults.strikes, self._scheduler.random
        if strikes("batch raises", f"items {ids}"):
            _fail_together(claim, ids)
            raise Refused(f"items {ids} were not sent")
        breaks_at = random.randint(1, len(items)) if strikes("batch sent, then raises", f"items {ids}") else 0
        raises_at_poison = random.random() < 0.5
        results: list[Result] = []
        sends: list[Send] = []
        for item in items:
            if item.payload == DEADLY:
                self._end_process(item)
            if item.payload == POISON and raises_at_poison:
                _fail_together(claim, ids)
                raise Refused(f"poison among items {ids}")
            if item.payload == POISON or strikes("item refused", f"item {item.id}"):
                claim.failures.add(item.id)
                results.append(Failure("refused"))
            else:
                sends.append(self._receive(claim, item, session))
                results.append(True)
            if len(results) == breaks_at:
                _fail_together(claim, ids)
                raise Refused(f"items {ids} may have been sent")
            if random.random() < 0.05:
                self._faults.step(f"{self.name} in the middle of a batch")
        self._faults.step(f"the answer of {self.name}")
        claim.refused.update(item.id for item, result in zip(items, results, strict=True) if result is not True)
        for send in sends:
            send.acknowledged = True
        return results

    def _begin(self, items: Sequence[Item]) -> ClaimRecord:
        claim = self._noted(items, self._scheduler.current)
        self._faults.step(f"{self.name} is called")
        seconds = self._seconds()
        if seconds:
            self._scheduler.sleep(seconds)
        return claim

    def _reach(self, claim: ClaimRecord) -> None:
        if self._faults.is_away(f"{self.name} of {claim.box}"):
            claim.cut = True
            raise Unavailable(f"{self.name} is away")

    def _noted(self, items: Sequence[Item], strand: Strand | None) -> ClaimRecord:
        """The claim of the strand that calls, or waits for the coroutine that does. Coroutines of one visit count as one call."""
        claim = self._faults.claim()
        if strand is None or claim is None:
            raise RuntimeError("a transport was called outside a claim")
        tenure: Tenure = strand.context["tenure"]
        one_of_many = strand is not self._scheduler.current and not strand.context.pop("fresh visit", False)
        if not one_of_many and (tenure.until <= self._scheduler.now or self._belongs_to_another(tenure.token, items)):
            claim.late_calls += 1
        if self._scheduler.now - self._record.paused_since.get(claim.box, self._scheduler.now) > PAUSE_HEARD:
            claim.calls_of_a_paused_box += 1
        return claim

    def _seconds(self) -> float:
        """How long this call takes."""
        if self._faults.strikes("transport slow"):
            return self._scheduler.random.choice([0.05, 0.5, 3.0, 12.0])
        return self._scheduler.random.uniform(0.0, self._longest) if self._longest else 0.0

    def _end_process(self, item: Item) -> NoReturn:
        """As a segmentation fault does."""
        strand = self._scheduler.current
        if strand is None:
            raise RuntimeError("a transport was called by nobody")
        self._record.killed_by.append((item.box_name, item.id))
        self._record.note(strand.name, f"dies of item {item.id}")
        self._scheduler.kill(strand.process)
        raise Crash

    def _belongs_to_another(self, own: str, items: Sequence[Item]) -> bool:
        """Whether another hold has had one of the buckets for longer than a lease lasts: the engine must know by now."""
        for item in items:
            token, since = self._record.holders[item.box_name, item.bucket]
            if token != own and self._scheduler.now - since > self._record.lease_ttl:
                return True
        return False

    def _receive(self, claim: ClaimRecord, item: Item, session: Any) -> Send:
        record, strand = self._record, VISITOR.get(self._scheduler.current)
        send = Send(
            step=record.step,
            place=len(record.sends),
            claim=claim,
            transport=self.name,
            item=item.id,
            transactional=session is not None,
        )
        record.sends.append(send)
        record.note(strand.name if strand else "", f"--> {self.name} gets item {item.id} of key {item.event_key}")
        if session is not None:
            session.add((item.box_name, self.name, item.id))
        return send


def with_payload_builders(scenario: Scenario, faults: Faults) -> Scenario:
    """The scenario with payload builders, which are part of a box and fail when a fault strikes."""

    def build(item: Item) -> object:
        claim = faults.claim()
        if claim is not None and faults.strikes("payload builder raises", f"item {item.id}"):
            fails_alone(claim, item)
            raise Refused("no payload")
        return item.payload

    plans = tuple(
        replace(plan, box=replace(plan.box, payload_builder=build)) if plan.payload_builder else plan
        for plan in scenario.boxes
    )
    return replace(scenario, boxes=plans)


def fails_alone(claim: ClaimRecord, item: Item) -> None:
    """Puts a failed attempt on record."""
    claim.failures.add(item.id)
    claim.refused.add(item.id)


def _fail_together(claim: ClaimRecord, ids: Sequence[int]) -> None:
    claim.failures.update(ids)
    claim.batch_raised = True


def transport(shape: str, receiver: Receiver) -> Any:
    """A transport of this shape: single, batch, both, session, session batch; async, async session."""
    return _SHAPES[shape](receiver)


class _Single:
    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def __call__(self, item: Item, payload: Any) -> Result:
        return self.receiver.one(item)


class _Session:
    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def __call__(self, item: Item, payload: Any, *, session: Any) -> Result:
        return self.receiver.one(item, session)


class _Batch:
    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def call_batch(self, items: Sequence[Item]) -> Sequence[Result]:
        return self.receiver.batch(items)


class _SessionBatch:
    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def call_batch(self, items: Sequence[Item], *, session: Any) -> Sequence[Result]:
        return self.receiver.batch(items, session)


class _Both(_Single):
    def call_batch(self, items: Sequence[Item]) -> Sequence[Result]:
        return self.receiver.batch(items)


class _Async:
    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver

    async def __call__(self, item: Item, payload: Any) -> Result:
        return await self.receiver.later(item)


class _AsyncSession:
    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver

    async def __call__(self, item: Item, payload: Any, *, session: Any) -> Result:
        return await self.receiver.later(item, session)


_SHAPES: dict[str, Callable[[Receiver], Any]] = {
    "single": _Single,
    "session": _Session,
    "batch": _Batch,
    "session batch": _SessionBatch,
    "both": _Both,
    "async": _Async,
    "async session": _AsyncSession,
}
