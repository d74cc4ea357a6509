"""Where one fault is played: servers, three boxes, the feed that fills them and the workers that empty them."""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from redis import Redis
from sqlalchemy import create_engine

from boxengine.adapters.sql.making import schema
from boxengine.app.boxes import load
from boxengine.domain.box import Storage
from boxengine.embedded import EmbeddedValkey
from tests.chaos.checker import DELIVERED, Order, SourceRow
from tests.chaos.crew import Crew, Kind
from tests.chaos.feed import Feed
from tests.chaos.record import Attempt, read
from tests.chaos.scene import Ground, Scene
from tests.servers.proxy import FaultProxy

STRICT, KEYED, PLAIN = "strict_outbox_item", "keyed_outbox_item", "plain_outbox_item"
SHARES = {STRICT: 0.5, KEYED: 0.25, PLAIN: 0.25}
ORDERS = {STRICT: Order.BUCKET, KEYED: Order.KEY, PLAIN: Order.UNLESS_REFUSED}
GENERAL_TIMEOUT = 10.0
"""Seconds; after which the database ends the transaction of a worker that has fallen silent."""
_DATABASE, _REDIS = "CHAOS_DATABASE_URL", "CHAOS_REDIS_URL"
"""Environment variables that lead a worker elsewhere than the configuration."""


@dataclass(frozen=True, slots=True)
class Servers(Ground):
    """The same with a Valkey, as outboxes need it."""

    redis: EmbeddedValkey
    storage: Storage = Storage.TABLE
    """Of every box; a log is PostgreSQL's."""
    box_options: Mapping[str, object] = field(default_factory=dict)
    """Further keys of every box."""


@dataclass(slots=True, kw_only=True)
class Stage(Scene):
    """A scene with three boxes of items."""

    servers: Servers
    feed: Feed
    database_proxy: FaultProxy
    redis_proxy: FaultProxy
    """Both stand before the servers for those who are ``behind_proxies``."""
    application_proxy: FaultProxy
    """Before the database for the feed."""
    cleanup: ExitStack
    """What is to be closed after the verdict."""
    doomed: set[tuple[str, int]] = field(default_factory=set)
    """Box and id of items that must end as failed."""
    touched: set[tuple[str, int]] = field(default_factory=set)
    """Box and id of items that a fault wrote to; nothing is promised about them."""
    passed: set[tuple[str, int]] = field(default_factory=set)
    """Box and id of items whose rows retention may have deleted: it must have taken them for delivered."""

    @property
    def behind_proxies(self) -> Kind:
        """A worker that reaches both servers through the proxies."""
        database, redis = self.servers.database.url(self.database), self.servers.redis.url()
        return Kind(
            environment={_DATABASE: self.database_proxy.url(database), _REDIS: self.redis_proxy.url(redis)},
        )

    @contextmanager
    def redis(self) -> Iterator[Redis]:
        """A client past the proxy."""
        with Redis.from_url(self.servers.redis.url()) as client:
            yield client

    def rows(self) -> list[SourceRow]:
        """All items of all boxes."""
        with self.session() as connection:
            there = [
                SourceRow(box, id_, status)
                for box in ORDERS
                for id_, status in connection.exec_driver_sql(f"SELECT id, status FROM {self._items(box)} ORDER BY id")
            ]
        deleted = self.passed.difference((row.box, row.id) for row in there)
        return there + [SourceRow(*each, DELIVERED) for each in sorted(deleted)]

    def _items(self, box: str) -> str:
        """A relation with the id and status of each item. What a log's position has passed is delivered or in the side table."""
        if self.servers.storage is Storage.TABLE:
            return f"{box}s"
        passed = (
            "pg_visible_in_snapshot(t.xact, p.passed) OR (t.id <= p.place AND pg_visible_in_snapshot(t.xact, p.batch))"
        )
        return (
            f"(SELECT id, status FROM {box}s UNION ALL SELECT t.id, CASE WHEN {passed} THEN 2 ELSE 0 END FROM {box}s_log AS t "
            f"JOIN {box}s_positions AS p USING (bucket) WHERE NOT EXISTS (SELECT 1 FROM {box}s AS s WHERE s.id = t.id)) AS items"
        )

    def written_tables(self) -> list[str]:
        """Those to which workers write outcomes."""
        names = [f"{box}s" for box in ORDERS]
        return names if self.servers.storage is Storage.TABLE else [*names, *(f"{name}_positions" for name in names)]

    def pending(self) -> int:
        """Rows that wait."""
        with self.session() as connection:
            counts = [
                connection.exec_driver_sql(f"SELECT count(*) FROM {self._items(box)} WHERE status = 0")
                for box in ORDERS
            ]
            return sum(row[0] for cursor in counts for row in cursor)

    def attempts(self) -> list[Attempt]:
        return read(self.record)


@contextmanager
def staged(
    folder: Path,
    servers: Servers,
    *,
    items: int,
    rate: float,
    randomness: random.Random,
    transports: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Stage]:
    """A stage with empty boxes, dropped afterwards; the folder stays. The feed is not started yet.

    Args:
        transports: by box, another of the recorder's than the usual one.
    """
    folder.mkdir(parents=True)
    name = f"chaos_{secrets.token_hex(4)}"
    servers.database.create(name)
    url, own_url = servers.database.url(name), servers.database.own_url(name)
    with ExitStack() as stack:
        stack.callback(servers.database.drop, name)
        with Redis.from_url(servers.redis.url()) as client:
            client.flushall()
        database_proxy = stack.enter_context(FaultProxy.before(url))
        redis_proxy = stack.enter_context(FaultProxy.before(servers.redis.url()))
        config = folder / "outbox.yml"
        config.write_text(_configuration(url, servers, folder / "record", transports))
        boxes = load(config)
        engine = create_engine(own_url)
        schema.create(engine, [pipeline.box for pipeline in boxes.resolved.pipelines.values()])
        engine.dispose()
        crew = Crew(folder, servers.code)
        stack.callback(crew.close)
        application = stack.enter_context(FaultProxy.before(url))
        through = application.url(own_url)
        feed = Feed(
            boxes,
            through,
            connect_args=servers.database.feed_arguments,
            shares=SHARES,
            items=items,
            rate=rate,
            randomness=random.Random(randomness.random()),
        )
        yield Stage(
            folder=folder,
            servers=servers,
            database=name,
            crew=crew,
            feed=feed,
            randomness=randomness,
            database_proxy=database_proxy,
            redis_proxy=redis_proxy,
            application_proxy=application,
            cleanup=stack,
        )


def _configuration(database: str, servers: Servers, record_path: Path, transports: Mapping[str, str]) -> str:
    """JSON is YAML."""

    def box(name: str, transport: str, *, pause: float, **options: object) -> dict[str, object]:
        transport = transports.get(name, transport)
        return {
            "transports": {f"tests.chaos.recorder.{transport}": {"path": str(record_path), "pause": pause}},
            "minimal_retry_interval": 0.1,
            "maximal_retry_interval": 0.2,
            # Versions before 0.2.0 know no such key.
            **({"storage": servers.storage.value} if servers.storage is Storage.LOG else {}),
            **servers.box_options,
            **options,
        }

    return json.dumps(
        {
            "database": {"url": f"${{{_DATABASE}:-{database}}}"},
            "redis": {"url": f"${{{_REDIS}:-{servers.redis.url()}}}"},
            "probes": {"enabled": False},
            "processor": {"general_timeout": GENERAL_TIMEOUT, "cutoff_timeout": 5},
            "outbox_items": {
                STRICT: box(STRICT, "InBatches", pause=0.004, strict_order=True),
                KEYED: box(KEYED, "OneByOne", pause=0.0005, strict_order="key"),
                # Named, because an older version's default discards items that a later one of their key has overtaken.
                PLAIN: box(PLAIN, "InBatches", pause=0.004, max_retries=5, retry_strategies=["exponential_backoff"]),
            },
        }
    )
