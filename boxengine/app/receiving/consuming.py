"""The consuming process: it turns Kafka messages into rows of the inbox boxes that have a ``source``.

It is a process of its own (``boxengine consume``), separate from the one that processes the rows. So a slow handler never
makes a consumer miss its group's deadline, and each process scales by its own measure: this one by the topics' partitions,
the other by the boxes' buckets. It needs the database and Kafka, and Redis only if commits are announced through it
(``wakeup``).
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from boxengine.adapters.kafka.consumer import SILENCE, KafkaSource
from boxengine.adapters.kafka.consumer_config import consumer_config, dead_letter_config
from boxengine.adapters.kafka.dead_letters import DeadLetterTopic
from boxengine.adapters.kafka.pool import ProducerPool
from boxengine.adapters.sql.connecting.engine import connect as connect_database
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.receiving.inbox import SqlInbox
from boxengine.adapters.system import SystemClock
from boxengine.adapters.telemetry.liveness_log import log_liveness, log_silence
from boxengine.adapters.telemetry.logs import report
from boxengine.app.boxes import Boxes
from boxengine.app.receiving.sources import Source, sources
from boxengine.app.servers.passwords import database_password
from boxengine.domain.box import Box
from boxengine.engine.consuming.dead_letters import FailedRows, OtherBox
from boxengine.engine.consuming.loop import ConsumeLimits, Consumer
from boxengine.engine.consuming.repetitions import Repetitions
from boxengine.engine.running.closing import Closing
from boxengine.engine.running.health import Health
from boxengine.engine.running.outages import Outages
from boxengine.engine.running.threads import ThreadGroup
from boxengine.engine.running.worker import Loop, Worker
from boxengine.engine.tracking import GuardedTracker
from boxengine.errors import SchemaMismatch, SourceUnavailable, StoreUnavailable
from boxengine.ports import DeadLetters, ErrorTracker, Observer, Service, Tracer
from boxengine.settings import Resolved
from boxengine.settings.drivers import demand_url

TURN_LIMIT = timedelta(minutes=2)
"""A batch that takes longer counts as hung."""
CLOSING_TIME = timedelta(seconds=10)
"""How long all consumers together have to commit and leave their groups."""


@dataclass(frozen=True, slots=True)
class _NamedConsumer:
    """One consumer, with the name of its thread and the source that it reads."""

    name: str
    consumer: Consumer
    kafka: KafkaSource


class Consuming:
    """All parts of one consuming process, not started yet."""

    def __init__(
        self,
        resolved: Resolved,
        boxes: Sequence[str] = (),
        *,
        observer: Observer,
        tracer: Tracer,
        place: str = "0",
    ) -> None:
        """Makes no connection yet.

        Args:
            boxes: names; empty: all inbox boxes with a source.
            place: identifies this process among equal ones on this machine, and stays the same after a restart.

        Raises:
            UnknownBox: a box does not exist or has no source; the error lists the boxes that have one.
            ConfigurationError: a source's arguments are wrong.
            BoxError: ``database.url`` (``BadUsage``) or ``confluent-kafka`` is missing, or the latter refuses the configuration.
        """
        self._resolved = resolved
        self._place = place
        self._observer = observer
        self._clock = SystemClock()
        tracker = resolved.error_tracker
        self._track: ErrorTracker = report if tracker is None else GuardedTracker(tracker, fallback=report)
        self._health: Health | None = None
        self._outages = Outages(
            observer=observer, error_tracker=self._track, clock=self._clock, missing=self._report_missing
        )
        self._sources = sources(resolved, boxes)
        self._store = _connect(resolved, connections=sum(source.concurrency for source in self._sources.values()))
        self._inbox = SqlInbox(self._store)
        self._items = Boxes(resolved, observer=observer, tracer=tracer)
        self._dead_letter_topics: list[Closing] = []
        self._consumers = [
            self._consumer(source, number) for source in self._sources.values() for number in range(source.concurrency)
        ]

    @property
    def boxes(self) -> list[Box]:
        """The boxes that are fed."""
        return [source.box for source in self._sources.values()]

    def health(self, **options: Any) -> Health:
        """The health state that the probes report: the database, Kafka, and the consumers' progress."""
        checks = {"database": self._store.ping, "kafka": self._check_kafka}
        self._health = Health(clock=self._clock, checks=checks, turned=log_liveness, silent=log_silence, **options)
        return self._health

    def worker(self, *, health: Health, services: Sequence[Service] = ()) -> Worker:
        """The consumers as a worker; stopping it commits what is stored and leaves the groups.

        Raises:
            SchemaMismatch: a box's table, or that of its dead letters, cannot recognize a repeated message, or a table has no
                column for one of the source's ``attributes``, which is not checked while the database is down; or the box's
                model has none.
        """
        try:
            for source in self._sources.values():
                with suppress(StoreUnavailable):  # the consumers find out when it is back
                    self._check_table(source)
                self._check_model(source)
        except SchemaMismatch:
            self.close()
            raise
        return Worker(
            sources=[self._loop(each, health) for each in self._consumers],
            processors=(),
            housekeeping=(),
            services=services,
            close=self._closings(),
            health=health,
            clock=self._clock,
            error_tracker=self._track,
            closing_time=CLOSING_TIME,
        )

    def close(self) -> None:
        """Leaves the groups and closes all connections, even if closing one of them fails."""
        with ExitStack() as closing:
            for group in reversed(self._closings()):
                for each in group:
                    closing.callback(each.close)

    def _closings(self) -> list[list[Closing]]:
        return [
            [Closing(each.name, each.consumer.close) for each in self._consumers],
            self._dead_letter_topics,
            [Closing("the database's connections", self._store.close)],
        ]

    def _check_table(self, source: Source) -> None:
        lacking = sorted(source.attributes.keys() - self._inbox.columns(source.box))
        if lacking:
            raise SchemaMismatch(
                f"box {source.box.name}: its source sets {', '.join(lacking)}, and table {source.box.table!r} has no such column"
            )
        if source.dead_letter_box is not None:
            # Found at the first bad message, it would stop all partitions there.
            self._inbox.columns(source.dead_letter_box)

    def _check_model(self, source: Source) -> None:
        """Items are written through the box's model. Without one they have boxengine's own columns alone."""
        columns = self._items.creator(source.box.name, source.box.type).columns
        lacking = sorted(source.attributes.keys() - columns)
        if lacking:
            raise SchemaMismatch(
                f"box {source.box.name}: its source sets {', '.join(lacking)}, which its model does not have: give the box a "
                "model with such a column"
            )

    # ── the parts ────────────────────────────────────────────────────────────────────────────────────

    def _consumer(self, source: Source, number: int) -> _NamedConsumer:
        config = consumer_config(
            bootstrap_servers=source.bootstrap_servers,
            group=source.group,
            config=source.config,
            slot=self._slot(source, number),
        )
        commit = f"kafka (commit of {source.box.label}-{number})"
        kafka = KafkaSource(
            topics=source.topics,
            config=config,
            waiting=partial(self._report_wait, commit),
            absent=partial(self._report_topic, source.box),
        )
        creator = self._items.creator(source.box.name, source.box.type)
        consumer = Consumer(
            source.box,
            kafka,
            inbox=self._inbox,
            create_batch=creator.create_batch,
            dead_letters=self._dead_letters(source),
            outages=self._outages,
            error_tracker=self._track,
            observer=self._observer,
            clock=self._clock,
            limits=ConsumeLimits(batch_size=source.batch_size, max_payload=source.max_payload_bytes),
            rules=source.attributes,
            # A create middleware changes what was received, perhaps differently each time.
            repetitions=None
            if creator.rewrites
            else Repetitions(source.box, error_tracker=self._track, clock=self._clock),
        )
        return _NamedConsumer(f"consumer-{source.box.label}-{number}", consumer, kafka)

    def _slot(self, source: Source, number: int) -> str:
        """Which member of the group a consumer is; names the box where the group reads for several."""
        boxes = [each for each in self._resolved.sources.values() if each["group"] == source.group]
        return f"{self._place}.{number}" if len(boxes) == 1 else f"{self._place}.{source.box.label}.{number}"

    def _dead_letters(self, source: Source) -> DeadLetters:
        if source.dead_letter_topic is not None:
            config = dead_letter_config(bootstrap_servers=source.bootstrap_servers, config=source.config)
            topic = DeadLetterTopic(source.dead_letter_topic, config=config, producers=ProducerPool())
            self._dead_letter_topics.append(Closing(f"dead letter topic {source.dead_letter_topic}", topic.close))
            return topic
        box = source.dead_letter_box or source.box
        creator = self._items.creator(box.name, box.type)
        create_batch = creator.unlimited().create_batch
        if source.dead_letter_box is not None:
            return OtherBox(box, create_batch=create_batch, inbox=self._inbox)
        unguarded = creator.unguarded().create_batch
        return FailedRows(
            box, create_batch=create_batch, unguarded=unguarded, inbox=self._inbox, rules=source.attributes
        )

    def _report_missing(self, what: str, reason: str | None) -> None:
        """A parent's sources ask no broker, so its check of Kafka finds nothing: its child processes report it."""
        if self._health is not None:
            self._health.missing(what, reason)

    def _report_wait(self, what: str, reason: str | None) -> None:
        if self._health is not None:
            self._health.missing(what, reason, after=SILENCE)

    def _report_topic(self, box: Box, topic: str, reason: str | None) -> None:
        what = f"consuming {topic} for {box.name}"
        if reason is None:
            self._outages.worked(what)
        else:
            self._outages.failed(what, SourceUnavailable(reason), needed=True)

    def _check_kafka(self) -> None:
        for each in self._consumers:
            each.kafka.check()

    def _loop(self, named: _NamedConsumer, health: Health) -> Loop:
        return Loop(
            ThreadGroup(
                named.name,
                named.consumer.turn,
                limit=TURN_LIMIT,
                health=health,
                clock=self._clock,
                outages=self._outages,
                randomness=random.Random(secrets.token_hex(8)),
            )
        )


def _connect(resolved: Resolved, *, connections: int) -> SqlStore:
    url = demand_url(resolved.settings)
    password = database_password(resolved.settings, url)
    return SqlStore(connect_database(url, connections=connections + 1, writes=True, password=password), writes=True)
