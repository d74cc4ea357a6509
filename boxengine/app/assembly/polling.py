"""The loops that look for due rows, and listen for hints of them."""

from __future__ import annotations

from datetime import timedelta

from boxengine.app.assembly.ground import Ground
from boxengine.engine.delivering.holds.processor import Processor
from boxengine.engine.polling.checks import Checks, never_quiet
from boxengine.engine.polling.listener import Listener
from boxengine.engine.polling.looks import PollLimits
from boxengine.engine.polling.poller import Poller
from boxengine.engine.polling.tactics import TACTICS
from boxengine.engine.polling.throttlers import Pace
from boxengine.engine.running.worker import Loop


class Polling:
    """The poller with its checks, survey and listener."""

    def __init__(self, ground: Ground, processor: Processor) -> None:
        self._ground = ground
        self._processor = processor
        self._quiet = never_quiet if ground.survey is None else ground.survey.quiet
        self.poller = self._poller()

    def loops(self) -> list[Loop]:
        """All loops that look for due rows, or listen for hints of them."""
        poller = self.poller
        threads = self._ground.settings.poller.threads_count
        loops = [self._ground.loops.make("poller", poller.turn, count=threads, interrupt=self._ground.schedule.stop)]
        if self._ground.survey is not None:
            loops.append(self._ground.loops.make("survey", self._ground.survey.turn))
        if self._ground.servers.wakeups is not None:
            listener = Listener(
                self._ground.servers.wakeups,
                self._ground.schedule,
                queue_announced=poller.queue_announced,
                ring=self._ground.bells.ring,
                want=self._processor.want,
                read_from_start=self._ground.servers.store.read_from_start,
                quiet=self._quiet,
            )
            interrupt = self._ground.servers.wakeups.interrupt
            loops.append(self._ground.loops.make("listener", listener.turn, interrupt=interrupt))
        return loops

    def _poller(self) -> Poller:
        settings = self._ground.settings.poller
        pace = Pace(
            rate_limit=settings.rate_limit,
            rate_interval=settings.rate_interval.total_seconds(),
            min_queue_size=settings.min_queue_size,
            max_queue_size=settings.max_queue_size,
            min_queue_timelag=settings.min_queue_timelag.total_seconds(),
            queue_delay=settings.queue_delay.total_seconds(),
        )
        tactic = TACTICS[self._ground.choices.tactic or settings.tactic](pace)
        checks = Checks(
            self._ground.schedule,
            store=self._ground.servers.store,
            queue=self._ground.servers.queue,
            pauses=self._ground.pauses,
            wakeups=self._ground.servers.wakeups,
            tactic=tactic,
            clock=self._ground.clock,
            quiet=self._quiet,
            timing=self._ground.timing,
        )
        return Poller(
            self._ground.schedule,
            checks=checks,
            store=self._ground.servers.store,
            queue=self._ground.servers.queue,
            leases=self._ground.servers.leases,
            pauses=self._ground.pauses,
            tactic=tactic,
            middlewares=self._ground.middlewares.poll,
            outages=self._ground.outages,
            observer=self._ground.observer,
            tracer=self._ground.tracer,
            clock=self._ground.clock,
            token=self._ground.token,
            queue_jobs=self._processor.dispatch,
            hand_out=self._processor.hand_out,
            limits=PollLimits(
                regular=settings.regular_items_batch_size,
                retryable=settings.retryable_items_batch_size,
                lease_ttl=min(timedelta(seconds=self._ground.timing.lease), settings.general_timeout),
            ),
            timing=self._ground.timing,
        )
