"""A console over real servers, and rows to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.delivering import fronts
from boxengine.adapters.sql.jobs import schema as job_schema
from boxengine.adapters.sql.looking import searching
from boxengine.adapters.sql.making import schema
from boxengine.app.boxes import Boxes, load
from boxengine.app.overview import sparing
from boxengine.app.servers.connected import Patience, Servers, connect
from boxengine.web.console import acting, live, pages
from boxengine.web.console.application import build
from tests.web.console.asgi import Client

OPERATE, READ = "the-token-to-operate", "the-token-to-read"
CONFIGURATION = """
database: {{url: "{database}"}}
redis: {{url: "{redis}"}}
console: {{operate_token: {operate}, read_token: {read}, hide: {{secret_outbox_item: true, order_outbox_item: [customer.email]}}}}
outbox_items:
  order_outbox_item: {{strict_order: key, max_retries: 3, transports: {{log: {{}}}}}}
  combined/outbox_item: {{strict_order: false, max_retries: 3, transports: {{log: {{}}}}}}
  secret_outbox_item: {{transports: {{log: {{}}}}}}
inbox_items:
  payment_inbox_item: {{transports: {{log: {{}}}}}}
"""

JOBS = (
    CONFIGURATION
    + """
jobs: {{heartbeat: 0.1, poll_interval: 0.02, reaper_period: 0.1}}
probes: {{enabled: false}}
job_items:
  report_job:
    tasks: {{export: tests.web.console.reports.export, wait: tests.web.console.reports.until_canceled}}
"""
)


@dataclass
class Console:
    """The application under test, with means to use it and to change its rows directly."""

    boxes: Boxes
    servers: Servers
    engine: sa.Engine
    app: Any

    def client(self, token: str | None = OPERATE, **options: Any) -> Client:
        """A client that acts as a program with this token; None: without a token."""
        return Client(self.app, {"authorization": f"Bearer {token}"} if token else {}, **options)

    def browser(self, token: str = OPERATE, **options: Any) -> Client:
        """A client that acts as a browser in which somebody has signed in."""
        client = Client(self.app, **options)
        assert client.sign_in(token).status == 303
        return client

    def again(self, **options: Any) -> Console:
        """Another application over the same servers."""
        return Console(self.boxes, self.servers, self.engine, build(self.boxes, servers=self.servers, **options))

    def create(self, box: str = "order_outbox_item", *items: dict[str, Any], count: int = 1, **same: Any) -> list[int]:
        """Commits items."""
        batch = list(items) or [{"event_key": "k", "payload": b"{}", **same} for _ in range(count)]
        side = self.boxes.box(box).type
        with self.engine.begin() as connection:
            return getattr(self.boxes, f"create_{side}_batch")(connection, box, batch)  # type: ignore[no-any-return]

    def change(self, item_id: int, *, box: str = "order_outbox_item", **columns: Any) -> None:
        """Changes a row directly, without the console."""
        sets = ", ".join(f"{name} = :{name}" for name in columns)
        table = self.boxes.box(box).table
        with self.engine.begin() as connection:
            connection.execute(sa.text(f"UPDATE {table} SET {sets} WHERE id = :id"), {**columns, "id": item_id})

    def fail(
        self, item_id: int, log: str = "http: Timeout: no answer", *, errors: int = 4, box: str = "order_outbox_item"
    ) -> None:
        """Marks the item as failed, with its attempts used up."""
        text = f"2026-01-31T12:00:00.000000Z {log}"
        self.change(item_id, box=box, status=1, errors_count=errors, error_log=text)

    def create_job(self, task: str = "export", *, box: str = "report_job", **attributes: Any) -> int:
        """Commits a long job."""
        with self.engine.begin() as connection:
            return self.boxes.create_job(connection, box, task=task, **attributes)

    def change_jobs(self, which: str = "true", **columns: Any) -> None:
        """Changes long jobs directly, without the console."""
        sets = ", ".join(f"{name} = :{name}" for name in columns)
        with self.engine.begin() as connection:
            connection.execute(sa.text(f"UPDATE report_jobs SET {sets} WHERE {which}"), columns)

    def statuses(self, box: str = "order_outbox_item") -> dict[int, int]:
        with self.engine.connect() as connection:
            rows = connection.execute(sa.text(f"SELECT id, status FROM {self.boxes.box(box).table}")).all()
        return {int(row[0]): int(row[1]) for row in rows}


@pytest.fixture
def make_console(tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Console]]:
    """Makes consoles over a database. However slow the machine is, their actions have ended when they answer, and no figure is
    spared."""
    monkeypatch.setattr(sparing, "SHARE", 100.0)
    monkeypatch.setattr(acting, "SOON", timedelta(minutes=2))
    monkeypatch.setattr(pages, "PATIENCE", 120)
    monkeypatch.setattr(live, "AFTER_CHANGE", 120)
    for each in (fronts, searching):
        monkeypatch.setattr(each, "SHORT", timedelta(minutes=2))
    with ExitStack() as stack:

        def make(database: str, configuration: str = CONFIGURATION) -> Console:
            path = tmp_path / "outbox.yml"
            path.write_text(configuration.format(database=database, redis=redis_url, operate=OPERATE, read=READ))
            boxes = load(path)
            servers = connect(boxes.resolved.settings, patience=Patience())
            stack.callback(servers.close)
            engine = sa.create_engine(servers.store.engine.url)
            stack.callback(engine.dispose)
            schema.create(engine, [pipeline.box for pipeline in boxes.resolved.pipelines.values()])
            job_schema.create(engine, [pipeline.box for pipeline in boxes.resolved.jobs.values()], {})
            return Console(boxes, servers, engine, build(boxes, servers=servers))

        yield make


@pytest.fixture
def console(make_console: Callable[..., Console], postgres_url: str) -> Console:
    return make_console(postgres_url)


@pytest.fixture(params=["postgresql", "mysql"])
def each_console(request: pytest.FixtureRequest, make_console: Callable[..., Console]) -> Console:
    """A console on every kind of database in turn."""
    name = "postgres_url" if request.param == "postgresql" else "mysql_url"
    return make_console(request.getfixturevalue(name))


@pytest.fixture
def job_console(make_console: Callable[..., Console], postgres_url: str) -> Console:
    """A console with a box of long jobs."""
    return make_console(postgres_url, JOBS)


@pytest.fixture(params=["postgresql", "mysql"])
def each_job_console(request: pytest.FixtureRequest, make_console: Callable[..., Console]) -> Console:
    """The same on every kind of database."""
    name = "postgres_url" if request.param == "postgresql" else "mysql_url"
    return make_console(request.getfixturevalue(name), JOBS)
