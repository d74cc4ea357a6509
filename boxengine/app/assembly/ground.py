"""What the loops of one worker share."""

from __future__ import annotations

import secrets
from datetime import timedelta

from boxengine.adapters.sql.sessions.async_session import lend
from boxengine.adapters.telemetry.logs import report
from boxengine.app.assembly.choosing import Choices, choose
from boxengine.app.running.loops import LoopMaker
from boxengine.app.servers.connected import Servers
from boxengine.domain.box import Box
from boxengine.engine.awaiting.event_loop import EventLoop
from boxengine.engine.awaiting.wrapping import Awaiting
from boxengine.engine.jobs.bells import Bells
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.polling.survey import MANY, Survey, covered
from boxengine.engine.running.health import Health
from boxengine.engine.running.lease_length import LeaseLength
from boxengine.engine.running.outages import Outages
from boxengine.engine.timing import TIMING
from boxengine.engine.tracking import GuardedTracker
from boxengine.ports import ErrorTracker, Observer, Tracer
from boxengine.settings import Resolved, Settings

ROUND_TRIPS = 4
"""To Redis, between the start of a lease and the first item: the take, the boxes' pauses, remembered failures, the note of the
item in hand. Every other thread's round trip may come before the renewal of the lease."""


class Ground:
    """Everything that the loops share: the settings, the servers, the boxes and their observers. Made once per worker."""

    def __init__(
        self,
        resolved: Resolved,
        servers: Servers,
        choices: Choices,
        *,
        observer: Observer,
        tracer: Tracer,
        health: Health,
        name: str,
        bells: Bells,
    ) -> None:
        """Args: see ``assemble``."""
        self.resolved = resolved
        self.settings: Settings = choices.applied_to(resolved.settings)
        self.servers = servers
        self.choices = choices
        self.observer = servers.strangers.observer = observer
        self.tracer = tracer
        self.health = health
        self.name = name
        self.bells = bells
        self.clock = servers.clock
        self.timing = TIMING
        tracker = resolved.error_tracker
        self.track: ErrorTracker = report if tracker is None else GuardedTracker(tracker, fallback=report)
        self.token = secrets.token_hex(8)
        self.pipelines = choose(resolved, choices.boxes)
        self.boxes: list[Box] = [pipeline.box for pipeline in self.pipelines.values()]
        self.outages = Outages(observer=observer, error_tracker=self.track, clock=self.clock, missing=health.missing)
        self.loops = LoopMaker(health=health, clock=self.clock, outages=self.outages, seed=self.token)
        self.schedule = Schedule(
            self.boxes, partitions=choices.partitions or self.settings.poller.concurrency, clock=self.clock
        )
        self.threads = self.settings.processor.threads_count
        self.lease = LeaseLength(
            timedelta(seconds=self.timing.lease),
            round_trips=ROUND_TRIPS + self.threads,
            observer=observer,
            timing=self.timing,
        )
        self.pauses = PauseWatch(
            servers.pauses,
            self.boxes,
            clock=self.clock,
            auto_disabled=self.settings.polling_auto_disabled,
            resumed=self.schedule.wake,
            measured=self.lease.measured,
            timing=self.timing,
        )
        self.survey = self._survey()
        self.event_loop = EventLoop()
        self.awaiting = Awaiting(
            self.event_loop,
            lend=lend,
            clock=self.clock,
            cutoff=self.settings.processor.cutoff_timeout,
            paused=self.pauses.paused,
            concurrency={name: box.async_concurrency for name, box in self.settings.boxes.items()},
        )
        self.middlewares = self.awaiting.middlewares(resolved.middlewares)

    def _survey(self) -> Survey | None:
        """None: the boxes are few enough to check each by itself."""
        if len(covered(self.boxes)) < MANY:
            return None
        return Survey(
            self.boxes, store=self.servers.store, schedule=self.schedule, pauses=self.pauses, outages=self.outages
        )
