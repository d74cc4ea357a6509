"""The loops beside the deliveries: announcing, measuring, watching, cleaning up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from boxengine.app.assembly.announcing import announced
from boxengine.app.assembly.delivering import Delivering
from boxengine.app.assembly.ground import Ground
from boxengine.app.running.loops import JobLoops
from boxengine.engine.polling.bounding import BoundsWatch
from boxengine.engine.retention import Retention
from boxengine.engine.running.backlog import Backlog
from boxengine.engine.running.closing import Closing
from boxengine.engine.running.heartbeat import Heartbeat
from boxengine.engine.running.history import HistoryRecorder
from boxengine.engine.running.table_watch import TableWatch
from boxengine.engine.running.worker import Loop
from boxengine.ports import Engagement, events

_LATE = "the database does not answer in time for the stop; the worker is listed for half a minute more"


class Housekeeping:
    """Heartbeat, history, measurements, watches and retention."""

    def __init__(self, ground: Ground, delivering: Delivering, recorder: HistoryRecorder, jobs: JobLoops) -> None:
        self._ground = ground
        self._recorder = recorder
        self._heartbeat = self._make_heartbeat(delivering, jobs)
        self._job_heartbeats = job_heartbeats(ground, jobs, at_work=self._at_work(delivering, jobs))
        self._backlog = self._make_backlog()

    def loops(self) -> list[Loop]:
        """The loops, without the lease keeper's and the event loop's, which are made elsewhere."""
        ground = self._ground
        # Without metrics nobody would see the measurements.
        measuring = [ground.loops.make("backlog", self._backlog.turn)] if ground.settings.metrics.enabled else []
        return [
            ground.loops.make("heartbeat", self._heartbeat.turn),
            *(ground.loops.make("job-heartbeat", each.turn) for each in self._job_heartbeats),
            ground.loops.make("recorder", self._recorder.turn),
            ground.loops.make("tables", TableWatch(ground.servers.store, outages=ground.outages).turn),
            *self._bounding(),
            *measuring,
            self._retention(),
        ]

    def release(self) -> list[Closing]:
        """Gives up everything that it holds in Redis, and its entries beside the jobs."""
        return [
            left_in_redis("the backlog's leases", self._backlog.release),
            left_in_redis("the worker's entry", self._heartbeat.withdraw),
            *withdrawals(self._job_heartbeats),
            Closing(
                "the last seconds of the history",
                self._recorder.flush,
                late="Redis does not answer in time for the stop; lost: the last seconds of the history",
            ),
        ]

    def _make_heartbeat(self, delivering: Delivering, jobs: JobLoops) -> Heartbeat:
        ground, deliveries = self._ground, delivering.deliveries
        return Heartbeat(
            ground.servers.workers,
            announced(ground, jobs),
            circuits=lambda: [circuit for delivery in deliveries.values() for circuit in delivery.open_circuits()],
            tell=lambda circuit: ground.observer.see(events.CircuitOpen(deliveries[circuit.box].box, circuit)),
            at_work=self._at_work(delivering, jobs),
            database=ground.servers.store.identity,
            beside=lambda worker, boxes: ground.observer.see(events.NamesTwice(worker, boxes)),
        )

    def _at_work(self, delivering: Delivering, jobs: JobLoops) -> Callable[[], Sequence[Engagement]]:
        return lambda: [*delivering.processor.at_work.engagements(), *jobs.at_work()]

    def _bounding(self) -> list[Loop]:
        boxes = [box for box in self._ground.boxes if self._ground.servers.store.bounded(box)]
        if not boxes:
            return []
        store = self._ground.servers.store
        watch = BoundsWatch(
            boxes,
            store=store,
            ping=store.ping,
            schedule=self._ground.schedule,
            outages=self._ground.outages,
            clock=self._ground.clock,
        )
        return [self._ground.loops.make("bounds", watch.turn)]

    def _make_backlog(self) -> Backlog:
        return Backlog(
            self._ground.boxes,
            store=self._ground.servers.store,
            queue=self._ground.servers.queue,
            leases=self._ground.servers.leases,
            pauses=self._ground.pauses,
            outages=self._ground.outages,
            observer=self._ground.observer,
            clock=self._ground.clock,
            token=self._ground.token,
        )

    def _retention(self) -> Loop:
        retention = Retention(
            self._ground.boxes,
            store=self._ground.servers.store,
            leases=self._ground.servers.leases,
            outages=self._ground.outages,
            observer=self._ground.observer,
            clock=self._ground.clock,
            token=self._ground.token,
            partitions=self._ground.servers.store,
        )
        return self._ground.loops.make("retention", retention.turn, limit=timedelta(hours=1), interrupt=retention.stop)


def job_heartbeats(ground: Ground, jobs: JobLoops, *, at_work: Callable[[], Sequence[Engagement]]) -> list[Heartbeat]:
    """Announce the worker in its job boxes. Those who look at them need no Redis, and may know no other boxes."""
    return [Heartbeat(fleet, announced(ground, jobs), at_work=at_work) for fleet in jobs.fleets]


def withdrawals(heartbeats: Sequence[Heartbeat]) -> list[Closing]:
    """The end of these announcements."""
    return [Closing("the worker's entry beside the jobs", each.withdraw, late=_LATE) for each in heartbeats]


def left_in_redis(what: str, release: Callable[[], object]) -> Closing:
    """The closing of something in Redis that expires by itself if Redis does not answer in time."""
    return Closing(what, release, late=f"Redis does not answer in time for the stop; left to run out by itself: {what}")
