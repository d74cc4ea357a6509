"""A project with a box for each thing that can go wrong, and how to bring it about."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml
from confluent_kafka import Producer
from sqlalchemy import Engine, NullPool, create_engine, text

from boxengine.app.boxes import load
from boxengine.embedded.process import free_port
from tests.deployment.dashboard import running, scraping

TOPIC = "arrived"
JOB_BOX = "report_job"
PAUSED_JOB_BOX = "paused_job"
TRANSPORTS = '''
from pathlib import Path
from threading import Event

from boxengine.errors import Unavailable


class Moody:
    """Does what the file says that has the box's name: ok, refuse, away or hang; ok without a file."""

    def __call__(self, item, payload):
        while (mood := self._mood(item)) == "hang":
            Event().wait(0.1)
        if mood == "slow":
            Event().wait(0.3)
        if mood == "away":
            raise Unavailable("the receiver is away")
        return mood != "refuse"

    def _mood(self, item):
        return mood(item.box_name)


class Slowly:
    """Around each batch that the consumer stores: takes 20 ms per message while the inbox's mood is slow."""

    def __call__(self, model, attributes, call_next):
        for _ in attributes:
            if mood("arrived_item") == "slow":
                Event().wait(0.02)
        return call_next()


def fail(job):
    raise ValueError("no such region")


def rest(job):
    """There is nothing to do."""


def mood(box):
    file = Path("moods") / box
    return file.read_text() if file.exists() else "ok"
'''
SLOWLY = {"middlewares": {"create_batch": ["transports.Slowly"]}}
PATIENT = {"max_retries": 1000, "minimal_retry_interval": "PT0.2S", "maximal_retry_interval": "PT0.5S"}
OVERTAKEN = {**PATIENT, "retry_strategies": ["exponential_backoff", "latest_available"], "key_index": True}
BOXES: dict[str, dict[str, Any]] = {
    "late_item": PATIENT,
    "failing_item": {"max_retries": 0},
    "newest_item": {**OVERTAKEN, "minimal_retry_interval": "PT2S", "maximal_retry_interval": "PT2S"},
    "disorder_item": {"strict_order": "key"},
    "stranded_item": {},
    "renamed_item": {},
    "stuck_item": {"bucket_size": 256},
    "slow_item": {},
    "away_item": {},
}


class Stand:
    """The project in a folder, its programs, and what an operator does to it."""

    def __init__(self, folder: Path, *, postgres: str, redis: str, kafka: str, rules: Mapping[str, Any]) -> None:
        self.folder = folder
        self._ports, self._web = (free_port(), free_port()), free_port()
        self._kafka = kafka
        (folder / "moods").mkdir(parents=True)
        (folder / "transports.py").write_text(TRANSPORTS)
        transports: dict[str, Any] = {"transports": {"transports.Moody": {}}}
        source = {"topics": [TOPIC], "group": TOPIC}
        settings = {
            "database": {"url": postgres},
            "redis": {"url": redis},
            "kafka": {"bootstrap_servers": kafka},
            "metrics": {"enabled": True, "port": self._ports[0]},
            "probes": {"enabled": False},
            "processor": {"cutoff_timeout": "PT1S", "threads_count": 8},
            "outbox_items": {name: {**transports, **box} for name, box in BOXES.items()},
            "jobs": {"reaper_period": 1},
            "job_items": {
                JOB_BOX: {"max_attempts": 1, "tasks": {"fail": "transports.fail"}},
                PAUSED_JOB_BOX: {"tasks": {"rest": "transports.rest"}},
            },
            "inbox_items": {"arrived_item": {"transports": {"log": {}}, "source": {"kafka": source}}},
        }
        (folder / "outbox.yml").write_text(yaml.safe_dump(settings))
        (folder / "consumer.yml").write_text(yaml.safe_dump({"metrics": {"port": self._ports[1]}, **SLOWLY}))
        (folder / "rules.yml").write_text(yaml.safe_dump(dict(rules)))
        self._cli = [sys.executable, "-m", "boxengine", "--config", "outbox.yml"]
        self.call("db", "create")
        self._boxes = load(folder / "outbox.yml")
        self._engine: Engine = create_engine(postgres, poolclass=NullPool)

    def worker(self) -> AbstractContextManager[None]:
        return running([*self._cli, "start"], self.folder, "worker")

    def consumer(self) -> AbstractContextManager[None]:
        return running([*self._cli, "--config", "consumer.yml", "consume"], self.folder, "consumer")

    def prometheus(self) -> AbstractContextManager[None]:
        more = {"rule_files": ["rules.yml"]}
        return running(scraping(self.folder, self._ports, self._web, **more), self.folder, "prometheus")

    def mood(self, box: str, mood: str) -> None:
        """How the receiver behaves towards a box from now on."""
        (self.folder / "moods" / box).write_text(mood)

    def create(self, box: str, count: int = 1, *, keys: int = 1) -> None:
        with self._engine.begin() as connection:
            items: list[Any] = [{"event_key": n % keys, "payload": b"x"} for n in range(count)]
            self._boxes.create_outbox_batch(connection, box, items)

    def create_job(self, box: str = JOB_BOX, *, delay: int = 0) -> None:
        """One that fails, or, in the other box, one without anything to do."""
        with self._engine.begin() as connection:
            self._boxes.create_job(connection, box, task="fail" if box == JOB_BOX else "rest", delay=delay)

    def call(self, *command: str) -> None:
        """What an operator does on the command line."""
        subprocess.run([*self._cli, *command], cwd=self.folder, check=True, capture_output=True)

    def execute(self, *statements: str) -> None:
        with self._engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))

    def number(self, query: str) -> int:
        with self._engine.connect() as connection:
            return int(connection.execute(text(query)).scalar_one())

    def send(self, count: int, *, key: bytes) -> None:
        """Messages for the consumer."""
        producer = Producer({"bootstrap.servers": self._kafka})
        for _ in range(count):
            producer.produce(TOPIC, b"x", key=key)
        producer.flush(30)

    def scraped(self) -> bool:
        """Whether Prometheus has read the numbers of the worker and of the consumer."""
        return len(self._ask("query?query=up==1")["result"]) == 2

    def alerts(self) -> dict[str, str]:
        """``pending`` or ``firing`` by the alert's name, for those that are one of them."""
        found = self._ask("alerts").get("alerts", [])
        by_state = sorted(found, key=lambda each: str(each["state"]), reverse=True)  # the last one counts: firing
        return {each["labels"]["alertname"]: each["state"] for each in by_state}

    def _ask(self, what: str) -> dict[str, Any]:
        try:
            with urlopen(f"http://127.0.0.1:{self._web}/api/v1/{what}", timeout=10) as answer:
                return dict(json.load(answer)["data"])
        except OSError:
            return {"result": []}  # Prometheus starts
