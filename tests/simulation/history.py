"""One history: workers, writers, an operator and faults, from the first item to the last outcome."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from random import Random

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.database import OpenClaim
from boxengine.adapters.memory.rows import Row
from boxengine.domain.box import Box, Storage, StrictOrder
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from boxengine.engine.delivering.holds.sizing import times_large
from boxengine.errors import StoreUnavailable
from boxengine.ports import Signal
from tests.simulation import outside
from tests.simulation.faults import Faults
from tests.simulation.log_writer import LogWriter
from tests.simulation.receivers import DEADLY, POISON, with_payload_builders
from tests.simulation.record import Record
from tests.simulation.scenario import KILLING, LONG, BoxPlan, Scenario, draw
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.servers import SharedServers
from tests.simulation.workers import SimulatedWorker

STEPS = 60_000
"""More switches than any history needs."""
MOST_KILLING = 3
"""Items of a history: each costs four workers, and what comes after each takes a lease's time."""
TEXT, TEXT_EVERY = "row-{:09}", 4
"""So many histories from one whose ids are text: nothing in the engine may take them for numbers."""
CALM = 120.0
"""Virtual seconds after the last fault within which every item must have ended."""


class Stuck(AssertionError):
    """Items are pending, nothing is wrong any more, and nothing becomes of them."""


class History:
    """Builds a world from a seed and runs it to its end."""

    def __init__(self, seed: int, *, only: Collection[str] | None = None, tracing: bool = False) -> None:
        """Args:
        only: the faults of this history; None: drawn from the seed.
        """
        self.random = Random(seed)
        scenario = draw(self.random, only=only)
        self.record = Record(tracing=tracing)
        self.clock = ManualClock()
        self.scheduler = Scheduler(self.random, self.clock, self.record, steps=STEPS)
        self.faults = Faults(self.scheduler, self.record, scenario.faults)
        self.scenario: Scenario = with_payload_builders(scenario, self.faults)
        logged = any(plan.box.storage is Storage.LOG for plan in self.scenario.boxes)
        name: Callable[[int], ItemId] = TEXT.format if seed % TEXT_EVERY == 0 and not logged else int
        self.servers = SharedServers(
            self.clock,
            self.scheduler,
            self.record,
            name=name,
            pace=self.scenario.pace,
            longest_queue=self.scenario.longest_queue,
        )
        self.workers: list[SimulatedWorker] = []
        self._journals = {plan.box.name: self.servers.keep_journal(plan.box) for plan in self.scenario.boxes}
        self._writing = 0
        self._hired = 0
        self._outside = Process("outside")
        self.scheduler.on_advance = self._cut_idle_sessions
        self._describe()

    def run(self) -> Record:
        """Runs the history; what happened.

        Raises:
            AssertionError: it did not come to its end.
        """
        try:
            self._run()
        finally:
            self.scheduler.kill_all()
            self.record.effects = list(self.servers.store.effects)
        return self.record

    # ── phases ───────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        for _ in range(self.scenario.workers):
            self.hire()
        for source in dict.fromkeys(plan.box.source.name for plan in self.scenario.boxes):
            self._spawn_writers([plan for plan in self.scenario.boxes if plan.box.source.name == source])
        for name, body, role in outside.disturbances(self):
            self.spawn(name, body, role=role)
        self.scheduler.run(lambda: self.scheduler.now >= self.scenario.chaos and not self._writing)
        self._calm_down()
        self._settle()
        if self._redrive_parked():
            self._settle()

    def _calm_down(self) -> None:
        self.record.note("history", "no more faults from here on")
        self.faults.active = False
        self.faults.redis_up = True
        self.faults.failing.clear()
        for plan in self.scenario.boxes:
            self.pause(plan.box, paused=False)
        if not any(worker.working for worker in self.workers):
            self.hire()

    def _settle(self) -> None:
        until = self.scheduler.now + CALM
        self.scheduler.run(lambda: self._is_settled() or self.scheduler.now > until)
        if not self._is_settled():
            left = [f"{box.name}/{row.id}" for box in self.boxes for row in self._waiting(box)]
            raise Stuck(f"pending {CALM:.0f} virtual seconds after the last fault: {', '.join(left)}")

    def _is_settled(self) -> bool:
        if not any(journal.pending for journal in self._journals.values()):
            return True
        if self.record.step % 64:
            return False
        return not any(self._waiting(box) for box in self.boxes)

    def _waiting(self, box: Box) -> list[Row]:
        """Pending rows that no failed one of their key holds back."""
        rows = self.servers.store.rows(box)
        parked: set[str] = set()
        waiting = []
        for row in rows:
            if row.status == Status.FAILED and box.strict_order is StrictOrder.KEY:
                parked.add(row.event_key)
            elif row.status == Status.PENDING and row.event_key not in parked:
                waiting.append(row)
        return waiting

    def _redrive_parked(self) -> bool:
        """An operator lets parked keys go on: by another try, or past an item that will never go."""
        found = False
        for box in self.boxes:
            for row in self.servers.store.rows(box):
                if row.status == Status.FAILED and box.strict_order is StrictOrder.KEY:
                    found = True
                    self.act(box, row, discard=row.payload in (POISON, DEADLY))
        return found

    # ── who takes part ───────────────────────────────────────────────────────────────────────────────

    @property
    def boxes(self) -> list[Box]:
        return [plan.box for plan in self.scenario.boxes]

    def hire(self) -> None:
        """A new worker begins."""
        self._hired += 1
        worker = SimulatedWorker(
            f"w{self._hired}",
            self.scenario,
            self.servers,
            faults=self.faults,
            scheduler=self.scheduler,
            record=self.record,
        )
        self.workers.append(worker)
        worker.start()

    def spawn(self, name: str, body: Callable[[], object], *, role: str | None = None) -> None:
        """A strand of the outside world; what it changes is on record as its role's, which is its name unless told."""
        self.scheduler.spawn(name, self._outside, body).context["role"] = role or name

    def pause(self, box: Box, *, paused: bool) -> None:
        """An operator pauses a box, or resumes it."""
        self.servers.pauses.set(box, polling_enabled=not paused)
        if not paused:
            self.record.paused_since.pop(box.name, None)
        else:
            self.record.paused_since.setdefault(box.name, self.scheduler.now)

    def act(self, box: Box, row: Row, *, discard: bool) -> None:
        """An operator discards an item, or has a failed one tried again; not while a claim has locked it."""
        try:
            if discard:
                self.servers.store.update(box, row.id, status=Status.DISCARDED, processed_at=self.clock.now())
            else:
                self.servers.store.update(box, row.id, status=Status.PENDING, errors_count=0)
        except (StoreUnavailable, KeyError):
            return
        self.servers.memory.forget(box, [row.id])

    def _spawn_writers(self, readers: Sequence[BoxPlan]) -> None:
        """Two writers, each with keys of its own: writers of one key are serialised (SEMANTICS 7), but those of a log.

        Args:
            readers: the box itself, or the subscriptions of its log.
        """
        plan = readers[0]
        writers = min(2, plan.keys)
        for number in range(writers):
            self._writing += 1
            if plan.box.storage is Storage.LOG:
                writer = LogWriter(self, readers, keys=list(range(plan.keys)))
                self.spawn("writer", writer.run)
                continue
            keys = list(range(number, plan.keys, writers))
            self.spawn("writer", lambda plan=plan, keys=keys: self._write(plan, keys))  # type: ignore[misc]

    def _write(self, plan: BoxPlan, keys: list[int]) -> None:
        """Commits items one after the other; ids are given before, so they do not follow the order of commits."""
        random, store = self.random, self.servers.store
        for _ in range(max(1, plan.items // min(2, plan.keys))):
            burst = random.random() < 0.6
            self.scheduler.sleep(0.0 if burst else random.uniform(0.0, self.scenario.chaos / 4))
            row_id = store.reserve_id(plan.box)
            self.scheduler.sleep(random.choice([0.0, 0.0, 0.01, 0.05]))
            poison = plan.box.max_retries is not None and random.random() < 0.03
            if poison:
                self.record.poisoned.add((plan.box.name, row_id))
            payload = POISON if poison else b"payload"
            if not poison and self.may_kill(plan.box) and self.faults.strikes(KILLING, f"item {row_id}"):
                payload = DEADLY
                self.record.killing.add((plan.box.name, row_id))
            later = random.random() < 0.05
            store.insert(
                plan.box,
                id=row_id,
                event_key=random.choice(keys),
                event_name=random.choice("ab"),
                payload=payload,
                available_at=self.clock.now() + timedelta(seconds=random.uniform(0, 2)) if later else None,
            )
            self.tell(plan.box, row_id, due=not later)
        self.written_all()

    def tell(self, box: Box, row_id: int, *, due: bool = True) -> None:
        """A writer hints at an item that it has committed."""
        bucket = None if self.random.random() < 0.2 else self._bucket(box, row_id)
        self.wake(Signal(box.source.name, bucket, due=due))

    def written_all(self) -> None:
        """A writer has come to its end."""
        self._writing -= 1

    def may_kill(self, box: Box) -> bool:
        """Strict order by bucket knows no failed item: its bucket waits behind one that kills, for good."""
        return box.strict_order is not StrictOrder.BUCKET and len(self.record.killing) < MOST_KILLING

    def _bucket(self, box: Box, row_id: int) -> int | None:
        row = self._journals[box.name].get(row_id)
        return row.bucket if row else None

    def wake(self, signal: Signal) -> None:
        """A hint to every worker; it may get lost, come late, or twice."""
        for worker in self.workers:
            if self.faults.strikes("wake-up lost"):
                continue
            if self.faults.strikes("wake-up late"):
                self.spawn("hint", lambda worker=worker: self._wake_late(worker, signal))  # type: ignore[misc]
                continue
            worker.wakeups.notify([signal])
            if self.faults.strikes("wake-up twice"):
                self.spawn("hint", lambda worker=worker: self._wake_late(worker, signal))  # type: ignore[misc]

    def _wake_late(self, worker: SimulatedWorker, signal: Signal) -> None:
        self.scheduler.sleep(self.random.uniform(0.0, 3.0))
        worker.wakeups.notify([signal])

    # ── bookkeeping ──────────────────────────────────────────────────────────────────────────────────

    def _cut_idle_sessions(self) -> None:
        for cut in self.servers.store.cut_idle(self.scenario.session_idle):
            self.blame_cut(cut)

    def blame_cut(self, cut: OpenClaim) -> None:
        """The server has ended the session of a claim."""
        for strand in self.scheduler.strands:
            if strand.context.get("open") is cut:
                strand.context["claim"].fault = strand.context["claim"].fault or "session cut"
                self.record.fault("session cut", strand.name)

    def _describe(self) -> None:
        record = self.record
        record.transport_time = self.scenario.transport_time
        record.long_queues = self.scenario.longest_queue == LONG
        record.tactic = self.scenario.tactic
        record.lease_ttl = self.scenario.lease_ttl.total_seconds()
        for plan in self.scenario.boxes:
            record.boxes[plan.box.name] = plan.box
            record.rows_per_claim[plan.box.name] = times_large(plan.box) * self.scenario.rows
            record.routes[plan.box.name] = {
                event: tuple(name for name, route, _ in plan.routes if route is None or route == event)
                for event in ("a", "b")
            }
            if any(type(strategy).__name__ == "LatestAvailable" for strategy in plan.strategies):
                record.latest_available.add(plan.box.name)
