"""A project that plays all the dashboard shows: deliveries, failures, outages, timeouts, messages, dead letters."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer
from sqlalchemy import Engine, text

import boxengine

TRANSPORTS = '''
import threading

from boxengine import create_outbox_item


class Shaky:
    """Refuses every third item for ever, and another third once. Of each that it takes it tells the other box."""

    def __call__(self, item, payload, *, session):
        create_outbox_item(session, "good_outbox_item", event_key=item.event_key, payload=payload)
        return not (item.id % 3 == 0 or (item.id % 3 == 1 and item.errors_count == 0))


class Slow:
    """Takes longer for a batch than a job may."""

    def __call__(self, item, payload):
        threading.Event().wait(0.3)


def rest(job):
    """There is nothing to do."""
'''
BOXES: dict[str, dict[str, Any]] = {
    "good_outbox_item": {"transports": {"log": {}}},
    "shaky_outbox_item": {
        "max_retries": 2,
        "minimal_retry_interval": "PT0.2S",
        "maximal_retry_interval": "PT0.2S",
        "retry_strategies": ["exponential_backoff", "latest_available"],
        "key_index": True,
        "transports": {"transports.Shaky": {}},
    },
    "slow_outbox_item": {"transports": {"transports.Slow": {}}},
}
OLD = text(
    "INSERT INTO good_outbox_items (uuid, event_key, bucket, status, payload, created_at, processed_at)"
    " SELECT gen_random_uuid(), 'old', 0, 2, '', now() - interval '20 days', now() - interval '20 days'"
    " FROM generate_series(1, 100)"
)
CUT = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'boxengine%'"
)


def write(folder: Path, *, postgres: str, redis: str, kafka: str, topic: str, ports: tuple[int, int]) -> None:
    """The project's files: the worker's configuration, and over it the consumer's, which has a port of its own."""
    folder.mkdir()
    (folder / "transports.py").write_text(TRANSPORTS)
    source = {"topics": [topic], "group": topic}
    settings = {
        "database": {"url": postgres},
        "redis": {"url": redis},
        "kafka": {"bootstrap_servers": kafka},
        "metrics": {"enabled": True, "port": ports[0]},
        "probes": {"enabled": False},
        "processor": {"cutoff_timeout": "PT1S"},
        "poller": {"rate_limit": 5},  # at 60, a busy machine hardly gets to enough fruitless polls a minute
        "outbox_items": BOXES,
        "job_items": {"report_job": {"tasks": {"rest": "transports.rest"}}},
        "inbox_items": {"arrived_inbox_item": {"transports": {"log": {}}, "source": {"kafka": source}}},
    }
    (folder / "outbox.yml").write_text(yaml.safe_dump(settings))
    (folder / "consumer.yml").write_text(yaml.safe_dump({"metrics": {"port": ports[1]}}))


class Traffic:
    """What happens in this project, a round a second."""

    def __init__(self, boxes: boxengine.Boxes, engine: Engine, producer: Producer, topic: str) -> None:
        self._boxes, self._engine, self._producer, self._topic = boxes, engine, producer, topic
        self._rounds = count()
        with engine.begin() as connection:
            connection.execute(OLD)

    def go_on(self) -> None:
        """One round. In every second stretch of 20 there is nothing new, so that polls are throttled."""
        number = next(self._rounds)
        if number % 40 < 20:
            with self._engine.begin() as connection:
                for name, amount, keys in (("good", 30, 7), ("shaky", 30, 7), ("slow", 10, 1)):
                    self._boxes.create_outbox_batch(
                        connection,
                        f"{name}_outbox_item",
                        [{"event_key": n % keys, "payload": b"x"} for n in range(amount)],
                    )
                self._boxes.create_job(connection, "report_job", task="rest")
        if number % 10 == 9:
            with self._engine.begin() as connection:
                connection.execute(CUT)
        for key, twice in ((b"good", str(number)), (b"good", "the same"), (b"\xff", f"dead {number}")):
            self._producer.produce(self._topic, b"x", key=key, headers={"Idempotency-Key": twice})
        self._producer.flush(10)
