"""One row's installation: a database, a topic, a configuration, and ``boxengine`` processes over them."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from redis import Redis
from sqlalchemy import create_engine

from boxengine.adapters.sql.making import schema
from boxengine.app.boxes import Boxes, load
from boxengine.embedded.process import free_port
from tests.chaos.kafka.servers import Servers

OUTBOX, INBOX = "order_outbox_item", "order_inbox_item"
KEYS = 997
BATCH = 1_000
PAYLOAD = 500
STOP_PATIENCE = 60.0
"""Seconds for a process that has nothing left to deliver."""
TELLING = 2.0
"""Seconds for one that does not stop to log what its threads do."""
LAST_WORDS = 4_000
"""Characters of its log."""


class Committed(NamedTuple):
    """One item as the application knows to have committed it."""

    id: int
    key: str
    payload: bytes


@dataclass(slots=True)
class Process:
    """One ``boxengine start`` or ``boxengine consume``."""

    handle: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """As a crash would end it. Harmless when it has ended."""
        self.handle.kill()
        self.handle.wait()

    def stop(self) -> list[str]:
        """SIGTERM; what went wrong, if anything did."""
        code = self.handle.poll()
        if code is not None:
            return [f"{self.log.stem} ended by itself with exit code {code}"]
        self.handle.send_signal(signal.SIGTERM)
        try:
            code = self.handle.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self.handle.send_signal(signal.SIGUSR1)
            with suppress(subprocess.TimeoutExpired):
                self.handle.wait(TELLING)
            self.kill()
            words = self.log.read_text(errors="replace")[-LAST_WORDS:]
            return [f"{self.log.stem} had to be killed after SIGTERM; its log ends: {words}"]
        return [] if code == 0 else [f"{self.log.stem} ended with exit code {code} after SIGTERM"]


@dataclass(slots=True)
class Site:
    """What a row acts on."""

    folder: Path
    servers: Servers
    database: str
    topic: str
    boxes: Boxes
    probes: int
    """Port."""
    _processes: list[Process] = field(default_factory=list)

    def fill(self, count: int) -> list[Committed]:
        """Commits so many outbox items of 500 bytes over 997 keys."""
        committed: list[Committed] = []
        engine = create_engine(self.servers.postgres.url(self.database))
        for start in range(0, count, BATCH):
            batch: list[Any] = [_order(number) for number in range(start, min(count, start + BATCH))]
            with engine.begin() as connection:
                ids = self.boxes.create_outbox_batch(connection, OUTBOX, batch)
            committed += [
                Committed(id_, each["event_key"], each["payload"]) for id_, each in zip(ids, batch, strict=True)
            ]
        engine.dispose()
        return committed

    def run(self, command: str) -> Process:
        """Starts one and returns at once."""
        log = self.folder / f"{command}-{len(self._processes) + 1}.log"
        with log.open("wb") as output:
            handle = subprocess.Popen(
                [sys.executable, "-m", "boxengine", command],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(self.servers.code)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._processes.append(Process(handle, log))
        return self._processes[-1]

    def close(self) -> None:
        for process in self._processes:
            process.kill()

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of a query."""
        with psycopg.connect(self.servers.postgres.url(self.database).replace("+psycopg", "")) as connection:
            return connection.execute(query.encode()).fetchall()

    def pending(self) -> int:
        return int(self.ask(f"SELECT count(*) FROM {OUTBOX}s WHERE status = 0")[0][0])

    def tracebacks(self) -> list[str]:
        """One sentence for each log that holds one."""
        return [
            f"a traceback in {process.log.name}"
            for process in self._processes
            if "Traceback (most recent call last)" in process.log.read_text(errors="replace")
        ]


@contextmanager
def outbox_site(servers: Servers, folder: Path, **transport: Any) -> Iterator[Site]:
    """An outbox without retries (``max_retries: 0``) and without strict order that is drained into a topic.

    Args:
        transport: arguments of the transport beside topic and servers.
    """
    topic = f"orders-{secrets.token_hex(4)}"
    kafka = {"topic": topic, "bootstrap_servers": servers.bootstrap, **transport}
    box = {"bucket_size": 64, "max_retries": 0, "transports": {"kafka": kafka}}
    with _site(servers, folder, topic, {"outbox_items": {OUTBOX: box}}) as site:
        yield site


@contextmanager
def outbox_sites(servers: Servers, folder: Path, names: Sequence[str], **transport: Any) -> Iterator[Site]:
    """The same with several boxes, which feed one topic."""
    topic = f"orders-{secrets.token_hex(4)}"
    kafka = {"topic": topic, "bootstrap_servers": servers.bootstrap, **transport}
    box = {"bucket_size": 16, "max_retries": 0, "transports": {"kafka": kafka}}
    with _site(servers, folder, topic, {"outbox_items": dict.fromkeys(names, box)}) as site:
        yield site


@contextmanager
def inbox_site(servers: Servers, folder: Path, **source: Any) -> Iterator[Site]:
    """An inbox that is fed from a topic.

    Args:
        source: keys of the source beside topics, group and servers.
    """
    topic = f"orders-{secrets.token_hex(4)}"
    kafka = {"topics": [topic], "group": topic, "bootstrap_servers": servers.bootstrap, **source}
    with _site(servers, folder, topic, {"inbox_items": {INBOX: {"source": {"kafka": kafka}}}}) as site:
        yield site


@contextmanager
def _site(servers: Servers, folder: Path, topic: str, boxes: Mapping[str, Any]) -> Iterator[Site]:
    folder.mkdir(parents=True)
    database = f"chaos_{secrets.token_hex(4)}"
    url = servers.postgres.create_database(database)
    probes = free_port()
    config = folder / "outbox.yml"
    settings = {
        "database": {"url": url},
        "redis": {"url": servers.redis.url()},
        "probes": {"enabled": True, "port": probes},
        **boxes,
    }
    config.write_text(json.dumps(settings))  # JSON is YAML
    with Redis.from_url(servers.redis.url()) as client:
        client.flushall()
    servers.make_topic(topic)
    loaded = load(config)
    engine = create_engine(url)
    schema.create(engine, [pipeline.box for pipeline in loaded.resolved.pipelines.values()])
    engine.dispose()
    site = Site(folder, servers, database, topic, loaded, probes)
    with ExitStack() as stack:
        stack.callback(_drop, servers, database)
        stack.callback(site.close)
        yield site


def _order(number: int) -> dict[str, Any]:
    text = f"order {number}".encode()
    return {"event_key": f"key-{number % KEYS}", "payload": text.ljust(PAYLOAD, b".")}


def _drop(servers: Servers, database: str) -> None:
    with psycopg.connect(servers.postgres.url().replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {database} WITH (FORCE)".encode())
