"""One history: the real loops of several workers over a store in memory, interleaved by a seed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.jobs import MemoryJobs, Row
from boxengine.domain.jobs import (
    FINAL,
    AfterFailure,
    Canceled,
    Ending,
    Failed,
    Held,
    JobBox,
    JobOutcome,
    JobState,
    Requeued,
)
from boxengine.domain.outcome import Failure
from boxengine.engine.jobs.async_handle import AsyncJob
from boxengine.engine.jobs.batch_handle import BatchJob
from boxengine.engine.jobs.batch_handler import BatchHandler
from boxengine.engine.jobs.claimer import Claimer
from boxengine.engine.jobs.endings import Endings
from boxengine.engine.jobs.handle import Handler, HeldJob, Job
from boxengine.engine.jobs.handover import Handover
from boxengine.engine.jobs.interrupting import Interrupt
from boxengine.engine.jobs.keeper import Keeper
from boxengine.engine.jobs.reaper import Reaper
from boxengine.engine.jobs.recorder import Recorder
from boxengine.engine.jobs.run import Runs
from boxengine.engine.jobs.runner import Runner
from boxengine.engine.jobs.timing import JobTiming
from boxengine.engine.jobs.watchdog import Watchdog
from boxengine.errors import JobLost, StoreUnavailable
from boxengine.ports.jobs import JobEvent, JobFilter, NewJob
from tests.simulation.jobs.coroutines import Pause, SimulatedLoop
from tests.simulation.record import Record
from tests.simulation.scheduler import Process, Scheduler, SimulatedCondition

LEASE = 6.0
TIME_LIMIT = 4.0
LEEWAY = 1.5
"""Virtual seconds in which the watchdog stops a handler that takes too long."""
TIMING = JobTiming(heartbeat=2.0, reaper=3.0, poll=1.0, watch=0.5, ahead=3.0, unbegun=4.0)
BOX = JobBox(
    name="report_job",
    table="report_jobs",
    concurrency=2,
    max_attempts=50,
    lease_ttl=timedelta(seconds=LEASE),
    retry_interval=timedelta(seconds=0.5),
)
TROUBLE = 8.0
"""Virtual seconds in which faults happen. After them everything must come to its end."""
AT_LAST = 900.0
CROWD = 12
"""Short jobs, so that workers claim ahead."""
TASKS = ("plain", "fails", "asks", "light", "light", "awaited")
"""Those of single jobs; ``awaited`` is a coroutine's."""
TASKS_OF_MANY = ("many", "more")
"""In boxes of their own."""
BATCH = 4
SUCH_BOXES = 0.2
REAPED_WITHIN = TIMING.reaper + 1.0
"""Virtual seconds after the end of a dead worker's lease."""


@dataclass(slots=True)
class Attempt:
    """A handler at work, as the world outside sees it."""

    job: int
    key: str | None
    worker: Process
    began: float
    over: bool = False
    later: int = 0
    """Attempts at the job, or at its key, that have had an effect since."""


class World:
    """What is outside the engine, and what it sees: ``violations`` are sentences."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.scheduler = Scheduler(self.random, self.clock, Record(), steps=60_000)
        self.store = MemoryJobs(self.clock)
        self.violations: list[str] = []
        self.attempts: list[Attempt] = []
        self.jumped = False
        self.retried: set[int] = set()
        """Jobs that somebody has queued again."""
        self.quiet = False
        """Whether the time of faults is over."""
        self.cut: dict[str, float] = {}
        """Until when a worker does not reach the store."""
        self._workers: list[Process] = []
        self._number = 0
        # Not always: whoever is stopped early never comes to the end of its lease.
        self._box = replace(BOX, batch_size=BATCH, timeout=self.random.choice((None, timedelta(seconds=TIME_LIMIT))))
        self._tasks = TASKS_OF_MANY if self.random.random() < SUCH_BOXES else TASKS
        self.said: dict[Held, str] = {}
        """What handlers of many have answered for each of their jobs."""
        self._jobs = list[NewJob]()
        for _ in range(self.random.randint(3, 9)):
            self._jobs.append(self._new())
        if self.random.random() < 0.2:
            self._jobs += self._crowd()

    def run(self) -> list[str]:
        """Plays the history; returns what was broken."""
        for job in self._jobs:
            self.store.insert(BOX, [job])
        for _ in range(2):
            self._start_worker()
        self.scheduler.spawn("outside", Process("outside"), self._outside)
        try:
            self.scheduler.run(lambda: self.quiet and (self._all_final() or self.scheduler.now > AT_LAST))
        finally:
            self.scheduler.kill_all()
        self._check_the_end()
        return self.violations

    # ── jobs ─────────────────────────────────────────────────────────────────────────────────────────

    def _new(self) -> NewJob:
        random = self.random
        return NewJob(
            task=random.choice(self._tasks),
            args={"steps": random.randint(1, 4)},
            max_attempts=BOX.max_attempts,
            lease_ttl=BOX.lease_ttl,
            priority=random.choice((1, 100)),
            lock_key=random.choice((None, "a", "a", "b")),
            delay=timedelta(seconds=random.random() * 5) if random.random() < 0.2 else None,
            after=tuple(each for each in range(1, len(self._jobs) + 1) if random.random() < 0.15),
            after_failure=random.choice(tuple(AfterFailure)),
        )

    def _crowd(self) -> list[NewJob]:
        task = "light" if self._tasks is TASKS else "many"
        return [replace(self._new(), task=task, lock_key=None) for _ in range(CROWD)]

    def handle(self, job: Job[Any], process: Process) -> int:
        """One handler for all tasks. Each step has an effect outside and one in the store, and perhaps a checkpoint."""
        attempt = self._begun(job, process)
        try:
            if job.task == "light":
                return self._light(job, attempt)
            for step in range(job.state or 0, job.args["steps"]):
                self._step()
                self._check_time(attempt)
                if job.cancelled:
                    return step
                job.ensure_held()
                self._effect(attempt)
                job.session.append((job.id, step))
                self._step()
                job.progress(step=step)
                if self.random.random() < 0.6:
                    job.checkpoint(step + 1)
                elif job.task == "fails" and not self.quiet and self.random.random() < 0.3:
                    raise ValueError("no luck")
                elif job.task == "asks" and not self.quiet and self.random.random() < 0.2:
                    job.retry(in_=self.random.random())
            return int(job.args["steps"])
        finally:
            attempt.over = True

    async def _handle_awaited(self, process: Process, job: AsyncJob[Any]) -> int:
        """The same steps, in a coroutine, which a cancel and the watchdog reach where it waits."""
        attempt = self._begun(job, process)
        try:
            for step in range(job.state or 0, job.args["steps"]):
                await Pause(self._duration())
                self._check_time(attempt)
                job.ensure_held()
                self._effect(attempt)
                job.session.append((job.id, step))
                await Pause(self._duration())
                if self.random.random() < 0.6:
                    await job.checkpoint(step + 1)
            return int(job.args["steps"])
        finally:
            attempt.over = True

    def _handle_many(self, process: Process, jobs: Sequence[BatchJob[Any]]) -> list[object]:
        """Each job has its effect, and an answer of its own."""
        if len({job.task for job in jobs}) > 1 or len(jobs) > BATCH:
            self.violations.append(f"a call got {[(job.id, job.task) for job in jobs]}")
        attempts = [self._begun(job, process) for job in jobs]
        said: dict[Held, str] = {}
        answers: list[object] = []
        try:
            for job, attempt in zip(jobs, attempts, strict=True):
                self._step()
                self._check_time(attempt)
                job.ensure_held()
                self._effect(attempt)
                kind = "done" if self.quiet else self.random.choice(("done", "done", "retry", "failed"))
                said[Held(job.id, job.token)] = kind
                answers.append(self._answer(job, kind))
            self.said.update(said)
            return answers
        finally:
            for attempt in attempts:
                attempt.over = True

    def _answer(self, job: BatchJob[Any], kind: str) -> object:
        match kind:
            case "retry":
                return job.retry(in_=self.random.random())
            case "failed":
                return Failure("no luck")
        return job.id

    def check_outcome(self, outcome: JobOutcome) -> None:
        """An answer is that of its own job, also beside others."""
        said, ending = self.said.get(outcome.job.held), outcome.ending
        if said is not None and not isinstance(ending, Canceled) and said != _kind(ending):
            self.violations.append(f"job {outcome.job.id}: its handler said {said}, and its end is {ending}")

    def _begun(self, job: HeldJob[Any], process: Process) -> Attempt:
        attempt = Attempt(job.id, job.lock_key, process, self.scheduler.now)
        self.attempts.append(attempt)
        if self.store.holds(BOX, Held(job.id, job.token)) is None and not self.jumped:
            self.violations.append(f"job {job.id}: begun by {process.name}, which had lost it")
        self._check_predecessors(job.id)
        return attempt

    def _light(self, job: Job[Any], attempt: Attempt) -> int:
        """Short, and with nothing in the store but its end, which is recorded with those of others."""
        self.scheduler.sleep(self.random.random() * 0.8)
        job.ensure_held()
        self._effect(attempt)
        return int(job.args["steps"])

    def _step(self) -> None:
        """Some computation, in which the watchdog may hit."""
        self.scheduler.sleep(self._duration())
        strand = self.scheduler.current
        hit = None if strand is None else strand.context.pop("hit", None)
        if hit is not None:
            raise hit("hit")

    def _duration(self) -> float:
        return self.random.random() * (3.0 if self.random.random() < 0.2 else 0.3)

    def _check_time(self, attempt: Attempt) -> None:
        taken = self.scheduler.now - attempt.began
        late = self._box.timeout is not None and taken > TIME_LIMIT + LEEWAY
        if late and attempt.worker.paused_until < attempt.began:
            self.violations.append(f"job {attempt.job}: its handler went on beyond its time limit")

    def _check_predecessors(self, job_id: int) -> None:
        rows, job = self.store.tables[BOX.name], self._jobs[job_id - 1]
        # What somebody has queued again may have ended before, and does not wait for what was canceled then.
        for each in () if job_id in self.retried else set(job.after) - self.retried:
            if rows[each].finished_at is None:
                self.violations.append(f"job {job_id} began before job {each}, for which it waits, had ended")
            elif rows[each].status is not JobState.SUCCEEDED and job.after_failure is AfterFailure.CANCEL:
                self.violations.append(f"job {job_id} began though job {each}, for which it waited, did not succeed")

    def _effect(self, attempt: Attempt) -> None:
        """Outside it can be seen which attempts are at it: one that goes on when a later one has begun overlaps it."""
        if attempt.later and not self.jumped:
            self.violations.append(f"job {attempt.job}: two attempts at once, of it or of its key {attempt.key}")
        for other in self.attempts:
            same = other.job == attempt.job or (attempt.key is not None and other.key == attempt.key)
            if other is not attempt and not other.over and same:
                other.later += 1

    # ── workers ──────────────────────────────────────────────────────────────────────────────────────

    def _start_worker(self) -> None:
        self._number += 1
        process = Process(f"w{self._number}")
        self._workers.append(process)
        store = FlakyStore(self, process)
        condition: Any = partial(SimulatedCondition, self.scheduler)
        each = 1 if self._tasks is TASKS else BATCH
        runs, handover = Runs(), Handover(BOX.concurrency, each=each, timing=TIMING, condition=condition)
        common: dict[str, Any] = {"store": store, "runs": runs, "clock": self.clock}
        claimer = Claimer(self._box, **common, handover=handover, worker=process.name, timing=TIMING)
        endings = Endings(self._box, clock=self.clock, error_tracker=_track)
        outages: Any = SimpleNamespace(
            failed=lambda _what, _error: 0.2, worked=lambda _what: None, idle=lambda _what: None
        )
        recorder = Recorder(
            self._box,
            **common,
            handover=handover,
            observer=Nobody(),
            endings=endings,
            outages=outages,
        )
        runner = Runner(
            self._box,
            self._handlers(process),
            store=store,
            clock=self.clock,
            handover=handover,
            recorder=recorder,
            endings=endings,
            event_loop=SimulatedLoop(self.scheduler),  # type: ignore[arg-type] # has of it what runners need
            interruptible=self._interruptible,
        )
        keeper = Keeper(self._box, **common, handover=handover, outages=outages, timing=TIMING)
        reaper = Reaper(self._box, store=store, handover=handover, observer=Nobody(), timing=TIMING)
        watchdog = Watchdog(runs, timing=TIMING)
        self.scheduler.spawn("Runner.visit", process, partial(self._loop, partial(self._visit, runner)))
        turns = [claimer.turn, runner.turn, runner.turn, recorder.turn, keeper.turn, reaper.turn, watchdog.turn]
        for turn in turns:
            self.scheduler.spawn(turn.__qualname__, process, partial(self._loop, turn))

    def _visit(self, runner: Runner) -> timedelta:
        """A thread that belongs to no box comes now and then."""
        pause = runner.visit()
        return timedelta(seconds=3 * self.random.random()) if pause is None else pause

    def _handlers(self, process: Process) -> dict[str, Handler | BatchHandler]:
        handlers: dict[str, Handler | BatchHandler] = dict.fromkeys(TASKS, partial(self._handled, process))
        of_many = BatchHandler(partial(self._handle_many, process))
        return handlers | {"awaited": partial(self._handle_awaited, process)} | dict.fromkeys(TASKS_OF_MANY, of_many)

    def _handled(self, process: Process, job: Job[Any]) -> int:
        return self.handle(job, process)

    def _loop(self, turn: Callable[[], timedelta]) -> None:
        while True:
            pause = 0.2
            with suppress(StoreUnavailable):
                pause = turn().total_seconds()
            self.scheduler.sleep(pause)

    @contextmanager
    def _interruptible(self) -> Iterator[Interrupt]:
        strand = self.scheduler.current
        assert strand is not None
        strand.context.pop("hit", None)

        def hit(error: type[BaseException] = JobLost) -> None:
            strand.context.update(hit=error)

        yield hit

    # ── faults and people ────────────────────────────────────────────────────────────────────────────

    def _outside(self) -> None:
        random = self.random
        while self.scheduler.now < TROUBLE:
            self.scheduler.sleep(random.random() * 3)
            worker = random.choice([each for each in self._workers if each.alive])
            random.choice(
                (self._crash, self.suspend, self._cut, self._cut, self._jump, self._interfere, self._another)
            )(worker)
        self.quiet = True
        self.cut.clear()
        for worker in self._workers:
            worker.paused_until = min(worker.paused_until, self.scheduler.now)
        self._crash(random.choice([each for each in self._workers if each.alive]))
        self._watch_the_reapers()

    def _watch_the_reapers(self) -> None:
        """The jobs of the worker that has just died are taken away from it in time, by whichever of the others."""
        # Until what was under way to the store has arrived.
        self.scheduler.sleep(2 * LEASE + REAPED_WITHIN)
        while not self._all_final():
            latest = self.clock.now() - timedelta(seconds=REAPED_WITHIN)
            for row in self.store.tables[BOX.name].values():
                if row.lease_expires_at is not None and row.lease_expires_at < latest:
                    self.violations.append(f"job {row.id}: its lease has been over for longer than {REAPED_WITHIN} s")
                    return
            self.scheduler.sleep(1.0)

    def _crash(self, worker: Process) -> None:
        self.scheduler.kill(worker)
        for attempt in self.attempts:
            attempt.over = attempt.over or attempt.worker is worker
        self._start_worker()

    def suspend(self, worker: Process) -> None:
        """For a while, perhaps beyond its leases."""
        worker.paused_until = self.scheduler.now + self.random.random() * 3 * LEASE

    def _cut(self, worker: Process) -> None:
        self.cut[worker.name] = self.scheduler.now + self.random.random() * 3 * LEASE

    def _jump(self, _worker: Process) -> None:
        if self.random.random() < 0.3:
            self.jumped = True
            self.clock.jump(timedelta(seconds=self.random.uniform(-20, 60)))

    def _interfere(self, _worker: Process) -> None:
        job = [self.random.randint(1, len(self._jobs))]
        if self.random.random() < 0.5:
            self.store.cancel(BOX, JobFilter(ids=job))
        # One that succeeded would write its last steps again, as it should.
        elif self.store.retry(BOX, JobFilter(ids=job, states=[JobState.CANCELED])):
            self.retried.update(job)

    def _another(self, _worker: Process) -> None:
        jobs = self._crowd() if self.random.random() < 0.2 else [self._new()]
        self._jobs += jobs
        self.store.insert(BOX, jobs)

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────

    def _all_final(self) -> bool:
        return all(row.status in FINAL for row in self.store.tables[BOX.name].values())

    def _check_the_end(self) -> None:
        for row in self.store.tables[BOX.name].values():
            if row.status not in FINAL:
                self.violations.append(f"job {row.id} is {row.status} at the end (waits {row.waits!r})")
            if row.error and "for which it waited" in row.error:
                self._check_canceled(row)
            if row.status in (JobState.LOST, JobState.FAILED):
                self.violations.append(f"job {row.id} is {row.status}, with attempts left")
            steps = [step for job_id, step in self.store.effects if job_id == row.id]
            wanted = [] if row.task in ("light", *TASKS_OF_MANY) else list(range(row.args["steps"]))
            if row.status is JobState.SUCCEEDED and row.task in TASKS_OF_MANY and row.result != row.id:
                self.violations.append(f"job {row.id} has the result {row.result} of another job of its batch")
            if row.status is JobState.SUCCEEDED and steps != wanted:
                self.violations.append(f"job {row.id} wrote the steps {steps}; expected {wanted}, each once")
            if steps != wanted[: len(steps)]:
                self.violations.append(f"job {row.id} wrote the steps {steps}, some twice or none")

    def _check_canceled(self, row: Row) -> None:
        ended = [self.store.tables[BOX.name][each] for each in row.after]
        if row.after_failure is AfterFailure.RUN:
            self.violations.append(f"job {row.id} was canceled because of another, though it was to run all the same")
        if not any(each.status is not JobState.SUCCEEDED or each.id in self.retried for each in ended):
            self.violations.append(f"job {row.id} was canceled although all that it waited for succeeded")


def _track(_error: BaseException | str, /, **_context: Any) -> None:
    """Nobody is interested in these either."""


def _kind(ending: Ending) -> str:
    match ending:
        case Requeued(error=None):
            return "retry"
        case Requeued() | Failed():
            return "failed"
    return "done"


class Nobody:
    """A ``JobObserver`` that is not interested."""

    def see(self, event: JobEvent) -> None:
        return


class FlakyStore:
    """A worker's way to the store: it takes time, and now and then an answer or a request does not arrive."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self.call, getattr(self._world.store, name))

    def claim(self, *arguments: Any, **options: Any) -> Any:
        claimed = self.call(self._world.store.claim, *arguments, **options)
        if claimed and not self._world.quiet and self._world.random.random() < 0.05:
            self._world.suspend(self._process)
        return claimed

    def record(self, box: JobBox, outcomes: Sequence[JobOutcome]) -> Collection[int]:
        answer: Collection[int] = self.call(self._record, box, outcomes)
        return answer

    def _record(self, box: JobBox, outcomes: Sequence[JobOutcome]) -> Collection[int]:
        held = {each.job.id for each in outcomes if self._world.store.holds(box, each.job.held) is not None}
        answer = self._world.store.record(box, outcomes)
        for each in outcomes:
            self._world.check_outcome(each)
        if set(answer) != held:
            self._world.violations.append(f"{self._process.name} recorded the ends of {set(answer)}, and held {held}")
        return answer

    def unit(self, *arguments: Any) -> FlakyUnit:
        return FlakyUnit(self, self._world.store.unit(*arguments))

    def call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self._travel(slow=0.03)
        if self._is_cut():
            raise StoreUnavailable("out of reach")
        answer = method(*arguments, **options)
        self._travel(slow=0.2 if self._is_cut() else 0.03)
        if not self._world.quiet and self._world.random.random() < 0.02:
            raise StoreUnavailable("gone with its answer")
        return answer

    def _is_cut(self) -> bool:
        return self._world.scheduler.now < self._world.cut.get(self._process.name, 0.0)

    def _travel(self, *, slow: float) -> None:
        world = self._world
        late = not world.quiet and world.random.random() < slow
        world.scheduler.sleep(world.random.random() * (LEASE if late else 0.01))


class FlakyUnit:
    """The same for an attempt's writes. A session does not outlive its connection."""

    def __init__(self, way: FlakyStore, unit: Any) -> None:
        self._way, self._unit = way, unit

    @property
    def session(self) -> Any:
        return self._unit.session

    def awaited_session(self, visit: Any) -> Any:
        return self._unit.awaited_session(visit)

    @property
    def in_use(self) -> bool:
        return bool(self._unit.in_use)

    def checkpoint(self, state: Any) -> bool:
        return bool(self._sent(self._unit.checkpoint, state))

    def end(self, ending: Any, **options: Any) -> bool:
        return bool(self._sent(self._unit.end, ending, **options))

    def close(self) -> None:
        self._unit.close()

    def _sent(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return self._way.call(method, *arguments, **options)
        except StoreUnavailable:
            self._unit.lose()
            raise
