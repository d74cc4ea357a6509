"""What happens around the workers: Redis goes, clocks jump, people act, workers are stopped and replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.domain.job import Job
from boxengine.errors import StoreUnavailable
from boxengine.ports import Signal
from tests.simulation.faults import PAUSES
from tests.simulation.scenario import FAILING, FROM_OUTSIDE, MOVING, OF_SUBSCRIPTIONS, RESTORED, REWOUND, STOPPED

if TYPE_CHECKING:
    from tests.simulation.history import History


def disturbances(history: History) -> Iterator[tuple[str, Callable[[], None], str]]:
    """Name, body and role of each strand that this history wants."""
    for kind, act in (_ACTS | {MOVING: _move, RESTORED: _restore} | _ON_SUBSCRIPTIONS).items():
        mean = history.scenario.faults.get(kind)
        if mean is not None:
            yield kind, _repeated(history, kind, act, mean), "operator" if act is _send_back else kind
    yield "supervisor", lambda: _replace_workers(history), "supervisor"


def _repeated(history: History, kind: str, act: Callable[[History], str], mean: float) -> Callable[[], None]:
    def body() -> None:
        while True:
            history.scheduler.sleep(history.random.expovariate(1 / mean))
            if not history.faults.active:
                return
            detail = act(history)
            if detail:
                history.record.fault(kind, "outside", detail)

    return body


def _replace_workers(history: History) -> None:
    """As an orchestrator does: a worker that is gone is replaced after a while."""
    while True:
        history.scheduler.sleep(1.0)
        if sum(worker.working for worker in history.workers) < history.scenario.workers:
            history.hire()


def _flush(history: History) -> str:
    history.servers.flush_redis()
    history.record.paused_since.clear()
    return "everything forgotten"


def _outage(history: History) -> str:
    history.faults.redis_up = False
    history.record.fault("redis down", "outside")
    history.scheduler.sleep(history.random.choice([0.1, 1.0, 6.0]))
    history.faults.redis_up = True
    return ""


def _lose_leases(history: History) -> str:
    for box in history.boxes:
        history.servers.queue.lose_leases(box)
    history.servers.leases.flush()
    return "nobody holds anything"


def _duplicate_jobs(history: History) -> str:
    box = history.random.choice(history.boxes)
    bucket = history.random.randrange(box.bucket_size)
    job = Job(bucket, int(history.clock.now().timestamp()), (1,))
    for _ in range(history.random.randint(1, 3)):
        history.servers.queue.push_raw(box, job.encode().encode())
    return f"{box.name} bucket {bucket}"


def _foreign_jobs(history: History) -> str:
    element = history.random.choice([b"", b"garbage", b"\xff\xfe", b"1:2", b"99:1:1", b"-1:5:5", b"0:x:1", b"0:1:"])
    history.servers.queue.push_raw(history.random.choice(history.boxes), element)
    return repr(element)


def _clock_jump(history: History) -> str:
    span = timedelta(seconds=history.random.uniform(-5.0, 5.0))
    place = history.random.randrange(len(history.workers) + 1)
    if place == len(history.workers):
        history.clock.jump(span)
        return f"of the database by {span.total_seconds():.1f} s"
    history.workers[place].clock.skew += span
    return f"of {history.workers[place].process.name} by {span.total_seconds():.1f} s"


def _stop(history: History) -> str:
    working = [worker for worker in history.workers if worker.working]
    if not working:
        return ""
    worker = history.random.choice(working)
    worker.stop()
    return worker.process.name


def _crash(history: History) -> str:
    alive = [worker for worker in history.workers if worker.process.alive]
    if not alive:
        return ""
    worker = history.random.choice(alive)
    history.record.note("outside", f"SIGKILL for {worker.process.name}")
    history.scheduler.kill(worker.process)
    return worker.process.name


def _pause(history: History) -> str:
    worker = history.random.choice(history.workers)
    seconds = history.random.choice(PAUSES)
    worker.process.paused_until = history.scheduler.now + seconds
    return f"{worker.process.name} for {seconds} s"


def _pause_box(history: History) -> str:
    box = history.random.choice(history.boxes)
    enabled = history.random.random() < 0.5
    history.pause(box, paused=not enabled)
    return f"{box.name} {'resumed' if enabled else 'paused'}"


def _operate(history: History) -> str:
    box = history.random.choice(history.boxes)
    rows = [row for row in history.servers.store.rows(box) if row.status in {Status.PENDING, Status.FAILED}]
    if not rows:
        return ""
    row = history.random.choice(rows)
    discard = row.status == Status.PENDING or history.random.random() < 0.3
    history.act(box, row, discard=discard)
    return f"{'discards' if discard else 'retries'} {box.name}/{row.id}"


def _move(history: History) -> str:
    """The database goes on as a logical copy; the first worker that claims there brings its log over."""
    store = history.servers.store
    for claim in store.move_to_another_server():
        history.blame_cut(claim)
    return "as a logical copy"


def _restore(history: History) -> str:
    """The database is lost, and goes on as a dump of a while ago; what was committed since is gone."""
    store = history.servers.store
    dump, dumped = store.dump(), history.record.step
    history.scheduler.sleep(history.random.choice([0.0, 0.1, 0.5, 2.0]))
    if not history.faults.active:
        return ""
    history.record.undone.append((dumped, history.record.step))
    for claim in store.restore(dump):
        history.blame_cut(claim)
    return "what was committed since the dump is gone"


def _stop_subscription(history: History) -> str:
    """Nobody delivers one subscription for longer than items of the others are kept."""
    box = history.random.choice(_subscriptions(history))
    history.pause(box, paused=True)
    history.record.fault(STOPPED, "outside", box.name)
    history.scheduler.sleep(history.random.choice([1.0, 4.0, 9.0]))
    if history.faults.active:
        history.pause(box, paused=False)
    return ""


def _fail_subscription(history: History) -> str:
    """The receivers of one subscription refuse everything for a while."""
    box = history.random.choice(_subscriptions(history))
    history.faults.failing.add(box.name)
    history.record.fault(FAILING, "outside", box.name)
    history.scheduler.sleep(history.random.choice([0.1, 1.0, 4.0]))
    history.faults.failing.discard(box.name)
    return ""


def _send_back(history: History) -> str:
    """A person has one subscription deliver again from an item on."""
    box = history.random.choice(_subscriptions(history))
    rows = history.servers.store.rows(box)
    if not rows:
        return ""
    item = history.random.choice(rows).id
    try:
        anew = history.servers.store.send_back(box, item)
    except StoreUnavailable:
        return ""
    history.servers.memory.forget(box, anew)
    history.wake(Signal(box.name, None))
    return f"{box.name} from {item} on; {anew} begin anew"


def _subscriptions(history: History) -> list[Box]:
    return [box for box in history.boxes if box.subscription is not None]


_ACTS: dict[str, Callable[[History], str]] = {
    "redis flushed": _flush,
    "redis down": _outage,
    "leases lost": _lose_leases,
    "duplicate jobs": _duplicate_jobs,
    "foreign jobs": _foreign_jobs,
    "clock jump": _clock_jump,
    "worker stops": _stop,
    "worker crashes": _crash,
    "worker pauses": _pause,
    "box paused": _pause_box,
    "operator": _operate,
}

_ON_SUBSCRIPTIONS: dict[str, Callable[[History], str]] = {
    STOPPED: _stop_subscription,
    FAILING: _fail_subscription,
    REWOUND: _send_back,
}

if _ACTS.keys() != FROM_OUTSIDE.keys() or _ON_SUBSCRIPTIONS.keys() != OF_SUBSCRIPTIONS.keys():
    raise ImportError("every fault from outside needs its act, and the other way round")
