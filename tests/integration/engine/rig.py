"""One configuration on real servers: its tables, its rows, its workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from uuid import uuid4

import sqlalchemy as sa
import yaml

import boxengine
from boxengine.adapters.sql.connecting.engine import connect as connect_database
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.dialects.mysql import MySqlStatements
from boxengine.adapters.sql.making import schema
from boxengine.app import assembly
from boxengine.app.servers.connected import connect as connect_servers
from boxengine.domain.box import Box
from boxengine.engine.delivering.calls.pipeline import Middlewares, TransportSpec
from boxengine.engine.observation import NullTracer
from boxengine.engine.running.worker import Worker
from tests.integration.engine.watcher import Watcher

BOX = "order_outbox_item"
QUICK: Mapping[str, Any] = {
    "bucket_size": 4,
    "wakeup": "none",
    # Looks again after 0.1 s, so that a test need not wait for the once-a-second look of the default tactic.
    "poller": {"tactic": "aggressive"},
    "processor": {"brpop_delay": 0.2},
}


class Rig:
    """An installation for a test. It has one box, ``order_outbox_item``, if the configuration names none."""

    def __init__(self, folder: Path, *, database: str, redis: str, **config: Any) -> None:
        """Args:
        config: top-level keys of the configuration, which override ``QUICK``; ``box`` stands for the keys of the one outbox
            box, ``connection`` and ``coordinator`` for further keys of ``database`` and ``redis``.
        """
        box, connection, coordinator = (config.pop(key, {}) for key in ("box", "connection", "coordinator"))
        if not {"outbox_items", "inbox_items"} & config.keys():
            config["outbox_items"] = {BOX: box}
        self.config = {
            **QUICK,
            "database": {"url": database, **connection},
            "redis": {"url": redis, **coordinator},
            **config,
        }
        self.path = folder / "outbox.yml"
        self.path.write_text(yaml.safe_dump(self.config))
        self.boxes = boxengine.load(self.path)
        self.engine = connect_database(database, connections=4)
        self.tracked: list[tuple[BaseException | str, dict[str, Any]]] = []
        """What was reported to the error tracker."""
        self._change(error_tracker=self._track)

    # ── configuration ────────────────────────────────────────────────────────────────────────────────

    def box(self, name: str = BOX) -> Box:
        return self.boxes.box(name)

    def carry(self, *transports: Any, box: str = BOX, **named: Any) -> None:
        """Sets the box's transports; each is a transport or a ``TransportSpec``."""
        specs = [spec_of(transport, name=type(transport).__name__) for transport in transports]
        specs += [spec_of(transport, name=name) for name, transport in named.items()]
        pipelines = dict(self.boxes.resolved.pipelines)
        pipelines[box] = replace(pipelines[box], transports=tuple(specs))
        self._change(pipelines=pipelines)

    def surround(self, **kinds: Sequence[Any]) -> None:
        """Sets middlewares by kind."""
        self._change(middlewares=Middlewares(**{kind: tuple(each) for kind, each in kinds.items()}))

    def decide(self, *strategies: Any, box: str = BOX) -> None:
        """Sets the box's retry strategies."""
        pipelines = dict(self.boxes.resolved.pipelines)
        pipelines[box] = replace(pipelines[box], retry_strategies=strategies)
        self._change(pipelines=pipelines)

    def _change(self, **resolved: Any) -> None:
        self.boxes = boxengine.Boxes(replace(self.boxes.resolved, **resolved))

    def _track(self, error: BaseException | str, /, **context: Any) -> None:
        self.tracked.append((error, context))

    # ── tables and rows ──────────────────────────────────────────────────────────────────────────────

    def create_tables(self) -> None:
        resolved = self.boxes.resolved
        models = [pipeline.model for pipeline in resolved.pipelines.values() if pipeline.model is not None]
        schema.create(self.engine, [pipeline.box for pipeline in resolved.pipelines.values()], models)

    def create(self, *keys: object, box: str = BOX, **attributes: Any) -> list[int]:
        """Commits one item per key, through the library's own functions."""
        items: list[Any] = [{"event_key": key, "payload": b"{}", **attributes} for key in keys]
        side = self.box(box).type
        put = self.boxes.create_outbox_batch if side == "outbox" else self.boxes.create_inbox_batch
        with self.engine.begin() as connection:
            return put(connection, box, items)

    def insert(self, *, box: str = BOX, **columns: Any) -> int:
        """Commits a row by plain SQL, as another program would; this wakes no worker."""
        now = self.now()
        values = {
            "uuid": str(uuid4()),
            "event_key": "k",
            "bucket": 0,
            "status": 0,
            "payload": b"{}",
            "errors_count": 0,
            "created_at": now,
            "updated_at": now,
            **columns,
        }
        return self.put(values, box=box)

    def put(self, values: Mapping[str, Any], *, box: str = BOX) -> int:
        """Commits a row with these columns and no others."""
        names, places = ", ".join(values), ", ".join(f":{name}" for name in values)
        statement = sa.text(f"INSERT INTO {self.box(box).table} ({names}) VALUES ({places})")
        with self.engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                return int(connection.execute(sa.text(f"{statement} RETURNING id"), values).scalar_one())
            return int(connection.execute(statement, values).lastrowid)

    def now(self) -> datetime:
        """The database's clock in the form of its columns."""
        sql = "SELECT now()" if self.engine.dialect.name == "postgresql" else "SELECT utc_timestamp(6)"
        with self.engine.connect() as connection:
            moment: datetime = connection.execute(sa.text(sql)).scalar_one()
            return moment

    def execute(self, sql: str, **values: Any) -> None:
        with self.engine.begin() as connection:
            connection.execute(sa.text(sql), values)

    def ask(self, sql: str, **values: Any) -> list[Any]:
        """The rows of a query."""
        with self.engine.connect() as connection:
            return list(connection.execute(sa.text(sql), values))

    def rows(self, box: str = BOX) -> dict[int, Any]:
        """The committed rows by id; fields by column name, moments with their zone, options as a mapping."""
        found = self.ask(f"SELECT * FROM {self.box(box).table} ORDER BY id")
        return {
            row.id: SimpleNamespace(**{name: plain(value, name) for name, value in row._mapping.items()})
            for row in found
        }

    def row(self, row_id: int, box: str = BOX) -> Any:
        return self.rows(box)[row_id]

    def statuses(self, box: str = BOX) -> list[int]:
        """The statuses of the rows, in id order."""
        return [row.status for row in self.rows(box).values()]

    def cut_connections(self, *, of_claims: bool = False) -> None:
        """Makes the server end all other connections to this database, or only those of claims."""
        if self.engine.dialect.name == "postgresql":
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            self.ask(f"{cut} AND pid <> pg_backend_pid()" + (" AND state = 'idle in transaction'" if of_claims else ""))
            return
        others = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        for number in self._holders_of_buckets() if of_claims else [row.id for row in self.ask(others)]:
            with suppress(sa.exc.DBAPIError):  # the connection may have ended by itself
                self.execute(f"KILL CONNECTION {number}")

    def _holders_of_buckets(self) -> set[int]:
        """Not the server's list of transactions, which it renews only if nobody has asked for a while: other tests ask, too."""
        box = self.box()
        names = MySqlStatements(SqlStore(self.engine).table(box))._lock_names(box.buckets)
        asked = {f"name{number}": name for number, name in enumerate(names)}
        (holders,) = self.ask(f"SELECT {', '.join(f'IS_USED_LOCK(:{key})' for key in asked)}", **asked)
        return {holder for holder in holders if holder is not None}

    # ── workers ──────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def worker(self, watcher: Watcher | None = None, **choices: Any) -> Iterator[Watcher]:
        """A running worker, stopped cleanly at the end."""
        watching = watcher or Watcher()
        worker = self.assemble(watching, **choices)
        worker.start()
        try:
            yield watching
        finally:
            stuck = worker.stop(within=timedelta(seconds=30))
        assert stuck == []

    def assemble(self, watcher: Watcher, **choices: Any) -> Worker:
        connected = connect_servers(self.boxes.resolved.settings)
        return assembly.assemble(
            self.boxes.resolved,
            connected,
            choices=assembly.Choices(**choices),
            observer=watcher,
            tracer=NullTracer(),
            health=assembly.health(connected),
        )

    def deliver(self, count: int, **choices: Any) -> Watcher:
        """Runs a worker until this many outcomes are settled."""
        with self.worker(**choices) as watcher:
            watcher.wait_for_settled(count)
        return watcher

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.engine.dispose()


def plain(value: Any, name: str) -> Any:
    """A column's value in one form, whichever driver returned it."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return json.loads(value) if name == "options" and isinstance(value, str) else value


def spec_of(transport: Any, *, name: str) -> TransportSpec:
    """An entry of ``transports`` that yields this very object."""
    if isinstance(transport, TransportSpec):
        return transport
    return TransportSpec(name=name, build=constant(transport))


def constant(transport: Any) -> Callable[[], Any]:
    def build() -> Any:
        return transport

    return build
