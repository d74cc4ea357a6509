"""A box whose items went to a topic, and the audit that compares both."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from boxengine.adapters.kafka.topic_reader import TopicReader
from boxengine.adapters.matching import SqliteMatching
from boxengine.adapters.sql.looking.audit import SqlAudit
from boxengine.adapters.sql.looking.items import SqlItems
from boxengine.adapters.system import SystemClock
from boxengine.domain.item import rfc3339
from boxengine.engine.audit.audit import Audit
from boxengine.engine.audit.findings import Finding
from boxengine.engine.audit.table import TableAudit
from boxengine.engine.audit.topic import TopicAudit
from tests.integration.audit.bench import Bench

Message = Mapping[str, Any]


class TopicBench:
    """One box, one topic. ``message`` is what the transport would have made of a row; ``send`` is up to the test."""

    def __init__(self, bench: Bench, *, bootstrap: str, topic: str, folder: Path) -> None:
        self.bench = bench
        self.bootstrap = bootstrap
        self.topic = topic
        self._others: list[str] = []
        self._folder = folder

    # ── the topic ────────────────────────────────────────────────────────────────────────────────────

    def message(self, row_id: int, *, partition: int = 0, key: str | None = None, **headers: str) -> Message:
        """Of a row that is there."""
        (row,) = [each for each in self.bench.harness.rows(self.bench.box) if each["id"] == row_id]
        own = {
            "Outbox-Name": self.bench.box.name,
            "Idempotency-Key": str(row["uuid"]),
            "Sequence-ID": str(row_id),
            "Created-At": rfc3339(row["created_at"]),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return {"key": key or row["event_key"], "partition": partition, "headers": own, "value": b"{}"}

    def stray(self, row_id: int, *, ago: float = 60, **more: Any) -> Message:
        """Of a row that is not there."""
        headers = {
            "Outbox-Name": self.bench.box.name,
            "Idempotency-Key": str(uuid.uuid4()),
            "Sequence-ID": str(row_id),
            "Created-At": rfc3339(self.bench.ago(ago)),
        }
        return {"key": "7", "partition": 0, "headers": headers, "value": b"{}", **more}

    def send(self, *messages: Message) -> None:
        """In this order, acknowledged."""
        with self.producing() as producer:
            self.hand_over(producer, messages)

    def hand_over(self, producer: Producer, messages: Sequence[Message]) -> None:
        for message in messages:
            producer.produce(self.topic, **message)
        assert producer.flush(30) == 0

    @contextmanager
    def producing(self, **config: Any) -> Iterator[Producer]:
        yield Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 1, **config})

    def delete_before(self, offset: int, *, partition: int = 0) -> None:
        """As the topic's retention does."""
        place = TopicPartition(self.topic, partition, offset)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_records([place])[place].result(timeout=30)

    def add_topic(self) -> None:
        """Goes on with another topic, which is audited together with those before."""
        self._others.append(self.topic)
        self._make_topic(f"{self.topic}-too")

    def make_compacted(self) -> None:
        """Goes on with another topic, which is."""
        self._make_topic(f"{self.topic}-compacted", **{"cleanup.policy": "compact"})

    def _make_topic(self, name: str, **config: str) -> None:
        self.topic = name
        new = NewTopic(name, num_partitions=1, replication_factor=1, config=config)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([new])[self.topic].result(timeout=30)

    # ── the audit ────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def auditing(self, **options: Any) -> Iterator[Audit]:
        store = self.bench.store
        items, rows = SqlItems(store), SqlAudit(store, page=2)
        log = TopicReader(topics=[*self._others, self.topic], bootstrap_servers=self.bootstrap, clock=SystemClock())
        matching = SqliteMatching(self._folder)
        table = TableAudit(self.bench.box, store=store, items=items, rows=rows)
        topic = TopicAudit(self.bench.box, items=items, rows=rows, log=log, matching=matching, **options)
        try:
            yield Audit(table, topic)
        finally:
            log.close()
            matching.close()

    def findings(self, **options: Any) -> list[Finding]:
        with self.auditing(**options) as audit:
            return list(audit.findings())

    def told(self, **options: Any) -> list[tuple[str, int | None, str | None]]:
        """Kind, item and key of each finding."""
        return sorted((str(each.kind), each.item, each.key) for each in self.findings(**options))
