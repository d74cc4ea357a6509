"""Faults that strike at calls of ports, and the ports through which they strike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from boxengine.adapters.memory.claims import MemoryClaim
from boxengine.adapters.memory.database import Step
from boxengine.adapters.memory.in_hand import MemoryInHand
from boxengine.adapters.memory.log.store import MemoryLogStore
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.adapters.memory.store import MemoryStore
from boxengine.domain.box import Box
from boxengine.domain.item_id import ItemId
from boxengine.domain.job import Job
from boxengine.errors import QueueUnavailable, StoreUnavailable
from boxengine.ports import Hold, WhenLong
from tests.simulation.event_loop import VISITOR
from tests.simulation.record import Alone, ClaimRecord, Record
from tests.simulation.scenario import AWAY
from tests.simulation.scheduler import Crash, Scheduler

OVER = float("-inf")
REFUSALS = frozenset({"item refused", "batch raises"})
PAUSES = (0.1, 0.6, 1.5, 5.0, 12.0)
"""Seconds: from a hiccup to longer than any lease and any idle session."""


class Faults:
    """Which fault strikes now."""

    def __init__(self, scheduler: Scheduler, record: Record, chances: Mapping[str, float]) -> None:
        self.chances = chances
        self.active = True
        self.redis_up = True
        self.away: dict[str, float] = {}
        """Until when receivers cannot be reached."""
        self.failing: set[str] = set()
        """Boxes whose receivers refuse everything."""
        self._scheduler = scheduler
        self._record = record

    def strikes(self, kind: str, detail: str = "") -> bool:
        """Whether this fault happens now; it is then counted."""
        chance = self.chances.get(kind)
        if kind in REFUSALS and self.active and self._is_failing():
            chance = 1.0
        if chance is None or not self.active or self._scheduler.random.random() >= chance:
            return False
        strand = self._scheduler.current
        self._record.fault(kind, strand.name if strand else "", detail)
        return True

    def is_away(self, receiver: str) -> bool:
        """Whether the receiver cannot be reached now, for any worker."""
        now = self._scheduler.now
        if self.active and now >= self.away.get(receiver, now) and self.strikes(AWAY, receiver):
            self.away[receiver] = now + self._scheduler.random.choice(PAUSES)
        return self.active and now < self.away.get(receiver, now)

    def _is_failing(self) -> bool:
        claim = self.claim() if self.failing else None
        return claim is not None and claim.box in self.failing

    def step(self, where: str) -> None:
        """A switch point of a worker: others go on, the worker may die or be stopped here."""
        strand = self._scheduler.current
        if strand is None:
            return
        if not strand.process.alive:
            raise Crash
        if self.strikes("crash", f"at {where}"):
            self._scheduler.kill(strand.process)
            raise Crash
        if self.strikes("pause", f"at {where}"):
            strand.process.paused_until = self._scheduler.now + self._scheduler.random.choice(PAUSES)
        self._scheduler.switch()

    async def step_of_coroutine(self, where: str) -> None:
        """The same on the event loop: other coroutines go on."""
        strand = self._scheduler.current
        if strand is not None and self.strikes("crash", f"at {where}"):
            self._scheduler.kill(strand.process)
            raise Crash
        if strand is not None and self.strikes("pause", f"at {where}"):
            strand.process.paused_until = self._scheduler.now + self._scheduler.random.choice(PAUSES)
        await asyncio.sleep(0)

    def claim(self) -> ClaimRecord | None:
        """The claim on which the current strand is at work, or the one that waits for this coroutine."""
        strand = VISITOR.get(self._scheduler.current)
        return strand.context.get("claim") if strand else None

    def blame(self, fault: str) -> None:
        """The current claim will not be recorded, or its worker will not know."""
        claim = self.claim()
        if claim is not None and not claim.fault:
            claim.fault = fault


class RedisSide:
    """Any port that lives in Redis, over its twin in memory: each call is a switch point and may fail."""

    def __init__(self, inner: Any, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def __getattr__(self, name: str) -> Callable[..., Any]:
        inner, faults = getattr(self._inner, name), self._faults
        where = f"{type(self._inner).__name__}.{name}"

        def call(*arguments: Any, **options: Any) -> Any:
            faults.step(where)
            if not faults.redis_up or faults.strikes("redis unavailable", where):
                raise QueueUnavailable(f"no answer to {name}")
            answer = inner(*arguments, **options)
            faults.step(where)
            if faults.strikes("redis answer lost", where):
                raise QueueUnavailable(f"the answer to {name} was lost")
            return answer

        # Looked up once per port: what is found in the instance is not asked for again.
        self.__dict__[name] = call
        return call


@dataclass(slots=True)
class Tenure:
    """How long a hold lasts, as its worker has been told."""

    token: str
    until: float
    let_go: set[int] = field(default_factory=set)
    """Buckets that its worker has begun to let go of."""
    refused: set[int] = field(default_factory=set)
    """Buckets that the database has refused it."""


class QueueSide(RedisSide):
    """The job queue; notes what is taken, and what its holders are told of it."""

    def __init__(self, inner: MemoryJobQueue, faults: Faults, scheduler: Scheduler, record: Record) -> None:
        super().__init__(inner, faults)
        self._real = RedisSide(inner, faults)
        self._tenures: dict[str, Tenure] = {}
        self._without_leases: list[tuple[Hold, Tenure]] = []
        """Holds that began without leases, and how long they last."""
        self._scheduler = scheduler
        self._record = record

    def interrupt(self) -> None:
        """Nobody waits at this queue: a take of the simulation asks for no time."""

    def take(self, *arguments: Any, **options: Any) -> Hold | None:
        return self._noted("takes", self._real.take(*arguments, **options))

    def seize(self, box: Box, jobs: Sequence[Job], *, ttl: timedelta, left: bool = False) -> Hold | None:
        hold = self._noted("seizes", self._real.seize(box, jobs, ttl=ttl, left=left))
        self._leased_later(jobs, hold)
        return hold

    def extend(self, hold: Hold, *, ttl: timedelta) -> frozenset[int]:
        tenure, asked_at = self._tenures[hold.token], self._scheduler.now
        lost: frozenset[int] = self._real.extend(hold, ttl=ttl)
        if lost - tenure.let_go:
            tenure.until = OVER
        elif tenure.until != OVER:
            tenure.until = asked_at + ttl.total_seconds()
        return lost

    def release(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        tenure = self._tenures[hold.token]
        tenure.let_go.update(buckets)
        wanted: frozenset[int] = self._real.release(hold, buckets)
        tenure.let_go -= wanted
        return wanted

    def give_way(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        kept: frozenset[int] = self._real.give_way(hold, buckets)
        self._tenures[hold.token].refused -= kept
        self._record.ways["free again"] += len(kept)
        return kept

    def hand_back(self, hold: Hold, jobs: Sequence[Job], *, when_long: WhenLong = WhenLong.QUEUE) -> bool:
        if hold.leased:
            self._tenures[hold.token].let_go |= hold.buckets
        queued: bool = self._real.hand_back(hold, jobs, when_long=when_long)
        if hold.leased and not queued and when_long is WhenLong.KEEP:
            self._tenures[hold.token].let_go -= hold.buckets
        return queued

    def _noted(self, way: str, hold: Hold | None) -> Hold | None:
        if hold is not None and self._scheduler.current is not None:
            self._tenures[hold.token] = Tenure(hold.token, hold.valid_until)
            self._note(way, hold)
        return hold

    def _note(self, way: str, hold: Hold) -> None:
        strand = self._scheduler.current
        for bucket in hold.buckets:
            self._record.holders[hold.box.name, bucket] = (hold.token, self._scheduler.now)
        self._record.ways[way] += 1
        self._record.note(strand.name if strand else "", f"{way} {hold.box.name} buckets {sorted(hold.buckets)}")

    def begin(self, hold: Hold) -> None:
        """The current strand works on what it took, or was handed."""
        strand = self._scheduler.current
        if strand is None:
            return
        if hold.leased:
            tenure = self._tenures[hold.token]
        else:
            tenure = Tenure(f"{strand.name} at {self._record.step}", hold.valid_until)
            self._without_leases.append((hold, tenure))
            self._note("begins without leases", replace(hold, token=tenure.token))
        strand.context.update(tenure=tenure)

    def _leased_later(self, jobs: Sequence[Job], had: Hold | None) -> None:
        """A hold that began without leases has asked for them: its own jobs were named."""
        for hold, tenure in self._without_leases:
            if not any(job is own for job in jobs for own in hold.jobs):
                continue
            self._record.ways["asks for leases later"] += 1
            if had is not None:
                whole = not had.orphaned and had.buckets == {job.bucket for job in jobs}
                strand = self._scheduler.current
                # The lease keeper keeps all or nothing; the drain goes on with what it gets.
                if whole or (strand is not None and not strand.name.endswith("keeper")):
                    tenure.token, tenure.until = had.token, had.valid_until
                    tenure.refused -= had.buckets
                    self._tenures[had.token] = tenure
                    self._without_leases.remove((hold, tenure))
            return


class InHandSide(RedisSide):
    """What workers note of items that they send alone."""

    def __init__(self, inner: MemoryInHand, faults: Faults, record: Record, *, worker: str) -> None:
        super().__init__(inner, faults)
        put, take_out = RedisSide.__getattr__(self, "put"), RedisSide.__getattr__(self, "take_out")

        def noted(box: Box, name: str) -> int:
            item = name.partition(":")[0]
            if item != "bucket":
                record.alone.append(Alone(worker, box.name, item, record.step))
                record.note(worker, f"notes item {item} as the only one in hand")
            return int(put(box, name))

        def taken_out(box: Box, name: str) -> None:
            faults.step("before a note is taken back")
            for each in record.alone:
                if each.worker == worker and (each.box, each.item) == (box.name, name.partition(":")[0]):
                    each.over = each.over or record.step
            take_out(box, name)

        self.__dict__ |= {"put": noted, "take_out": taken_out}


class ClaimsSide:
    """The claims of one box."""

    def __init__(self, store: MemoryStore, box: Box, scheduler: Scheduler, record: Record) -> None:
        self._store = store
        self._box = box
        self._scheduler = scheduler
        self._record = record

    @contextmanager
    def open(self, buckets: Mapping[int, ItemId | None], limit: int) -> Iterator[MemoryClaim]:
        box = self._box
        strand = self._scheduler.current
        if strand is None:
            raise RuntimeError("only strands claim")
        with self._store.claims(box).open(buckets, limit) as claim:
            known = ClaimRecord(
                worker=strand.name,
                box=box.name,
                opened=self._record.step,
                now=claim.now,
                items=[item.id for item in claim.items],
            )
            self._record.claims.append(known)
            refused = strand.context["tenure"].refused
            known.asked_again = not refused.isdisjoint(buckets)
            refused |= claim.refused
            self._record.note(
                strand.name,
                f"claims {dict(buckets)}: items {known.items}, refused {sorted(claim.refused)}, "
                f"exhausted {sorted(claim.exhausted)}",
            )
            strand.context["claim"] = known
            strand.context["open"] = claim
            try:
                yield claim
            except Crash:
                known.fault = known.fault or "crash"
                raise
            finally:
                strand.context.pop("claim", None)
                strand.context.pop("open", None)
            if not known.committed and not known.items:
                return
            if not known.committed:
                self._record.note(strand.name, "the claim ends without a commit")


class StoreSide:
    """One worker's view of the store: every step is a switch point and may fail; claims are noted."""

    def __init__(self, shared: MemoryLogStore, faults: Faults, scheduler: Scheduler, record: Record) -> None:
        self._store = shared.twin(fault=self._at)
        self._faults = faults
        self._scheduler = scheduler
        self._record = record
        self.poll = self._store.poll
        self.poll_regular = self._store.poll_regular
        self.outlook = self._store.outlook
        self.pending = self._store.pending
        self.ping = self._store.ping
        self.counts = self._store.counts
        self.oldest_pending = self._store.oldest_pending
        self.stranded_items = self._store.stranded_items
        self.oldest_finished = self._store.oldest_finished
        self.delete_finished = self._store.delete_finished
        self.sweep_finished = self._store.sweep_finished
        self.now = self._store.now
        self.unread_since = self._store.unread_since
        self.turn_over = self._store.turn_over
        self.advance = self._store.advance
        self.bounded = self._store.bounded
        self.read_from_start = self._store.read_from_start

    def claims(self, box: Box) -> ClaimsSide:
        """The store's claims, with what becomes of each on record."""
        return ClaimsSide(self._store, box, self._scheduler, self._record)

    plain_claims = claims

    def _at(self, step: Step) -> None:
        if step == "committed":
            self._written()
        self._faults.step(f"store.{step}")
        match step:
            case "commit":
                if self._faults.strikes("commit fails"):
                    self._faults.blame("commit fails")
                    raise StoreUnavailable("the commit failed")
            case "committed":
                if self._faults.strikes("commit acknowledged late"):
                    self._faults.blame("commit acknowledged late")
                    raise StoreUnavailable("the acknowledgement of the commit was lost")
            case _:
                if self._faults.strikes("store unavailable", f"at {step}"):
                    self._faults.blame("store unavailable")
                    raise StoreUnavailable(f"no answer to {step}")

    def _written(self) -> None:
        claim, strand = self._faults.claim(), self._scheduler.current
        if claim is not None and strand is not None:
            claim.committed = True
            self._record.note(strand.name, "commits")
