"""The servers of a run, and what every work sets up on them: its own database, a configuration, a table."""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import redis
from psycopg.sql import SQL, Identifier

from bench.table import BenchLog, BenchTable
from boxengine.adapters.sql.log.tables import names_of
from boxengine.adapters.sql.making import schema
from boxengine.app.boxes import Boxes, load
from boxengine.app.servers.database import connect_store
from boxengine.domain.box import Storage
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey

OUTBOX = "order_outbox_item"
INBOX = "payment_inbox_item"
LOG_PREFIX = "app=%a pid=%p "
"""The prefix of PostgreSQL's log lines, by which ``bench.counting`` finds out who sent a statement, and ``bench.console`` which
lines are about the same one."""
CONNECTIONS = "600"
"""For 200 processes, each of which writes on one connection and may notify on another."""
BUFFERS = {"shared_buffers": "1GB", "max_wal_size": "8GB"}
"""Usual settings for tables of this size. With an untouched installation's 128 MB and 1 GB, the rate of every program, the
floors included, halves at a million rows. Durability stays the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How big a run is."""

    quick: bool
    rounds: int

    def pick(self, full: int, quick: int) -> int:
        """The size of a work."""
        return quick if self.quick else full

    def long_rounds(self) -> int:
        """The number of rounds of a work whose rounds take minutes each."""
        return max(1, self.rounds // 2 if not self.quick else 1)


class Stand:
    """PostgreSQL with default durability (fsync and synchronous_commit on) and larger buffers, and Valkey, both on loopback."""

    def __init__(self, folder: Path, scale: Scale) -> None:
        """Nothing is started yet.

        Args:
            folder: an empty folder for data, configurations and sockets.
        """
        self.folder = folder
        self.scale = scale
        self._postgres = EmbeddedPostgres(
            folder / "postgres",
            durable=True,
            settings={"log_line_prefix": LOG_PREFIX, "max_connections": CONNECTIONS, **BUFFERS},
        )
        self._valkey = EmbeddedValkey(folder / "valkey", durable=False)
        self._redis_databases = itertools.cycle(range(16))

    @contextmanager
    def running(self) -> Iterator[None]:
        """The servers; they run while the block does."""
        with self._postgres, self._valkey:
            yield

    @property
    def postgres_log(self) -> Path:
        return self._postgres.log_path

    @contextmanager
    def site(
        self,
        *,
        buckets: int,
        transport: Mapping[str, Mapping[str, Any]] | None,
        outboxes: Sequence[str] = (OUTBOX,),
        inboxes: Sequence[str] = (),
        box_options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Iterator[Site]:
        """A fresh database with the tables of the boxes, and their configuration; dropped afterwards.

        Args:
            transport: the transport of every box, as in the YAML file; None: its subscriptions have theirs.
            box_options: further keys of every box.
            settings: further keys of the file.
        """
        name = f"bench_{secrets.token_hex(4)}"
        self._administer("CREATE DATABASE {}", name)
        try:
            # Two sites may exist at once, with boxes of the same name.
            redis_url = self._valkey.url(next(self._redis_databases))
            box = {**({} if transport is None else {"transports": dict(transport)}), **(box_options or {})}
            path = self.folder / f"{name}.yml"
            # Every JSON document is YAML.
            path.write_text(
                json.dumps(
                    {
                        "bucket_size": buckets,
                        "database": {"url": self._postgres.url(name)},
                        "redis": {"url": redis_url},
                        "probes": {"enabled": False},
                        **({"outbox_items": dict.fromkeys(outboxes, box)} if outboxes else {}),
                        **({"inbox_items": dict.fromkeys(inboxes, box)} if inboxes else {}),
                        **settings,
                    }
                )
            )
            yield Site(self, path, load(path), name, redis_url)
        finally:
            self._administer("DROP DATABASE {} WITH (FORCE)", name)

    def _administer(self, statement: LiteralString, database: str) -> None:
        dsn = self._postgres.url().replace("+psycopg", "")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(SQL(statement).format(Identifier(database)))


class Site:
    """One database and its configuration."""

    def __init__(self, stand: Stand, config: Path, boxes: Boxes, database: str, redis_url: str) -> None:
        self.stand = stand
        self.config = config
        self.boxes = boxes
        self.database = database
        self._redis_url = redis_url
        store = connect_store(boxes.resolved.settings)
        try:
            all_boxes = [pipeline.box for pipeline in boxes.resolved.pipelines.values()]
            schema.create(store.engine, all_boxes)
            self.dsn = store.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        finally:
            store.close()

    def table(self, name: str = OUTBOX) -> BenchTable:
        """A box's table."""
        box = self.boxes.written(name)
        if box.storage is Storage.LOG:
            return BenchLog(self.dsn, names_of(box.table)[0], box.bucket_size)
        return BenchTable(self.dsn, box.table, box.bucket_size)

    def forget_queues(self) -> None:
        """Deletes what an earlier round left in Redis."""
        with self.redis() as client:
            client.flushdb()

    @contextmanager
    def redis(self) -> Iterator[redis.Redis]:
        """A client of this site's logical database; statistics cover the whole server."""
        with redis.Redis.from_url(self._redis_url, decode_responses=True) as client:
            yield client

    def execute(self, statement: str) -> None:
        """One statement in a transaction of its own."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode())
