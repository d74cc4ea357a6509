"""The database, the worker and the console, each in its own process."""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psycopg
import sqlalchemy as sa

from bench.console.processes import Sessions, postmaster_of, whole
from bench.servers import OUTBOX, Site, Stand
from boxengine.domain.item import Status
from boxengine.embedded.process import ServerProcess, free_port

PROBE, IDLE = "probe_outbox_item", "idle_outbox_item"
TOKEN = "bench"
FAILED_SHARE, PENDING_SHARE = 0.01, 0.1
PROBES_PER_SECOND = 100
QUIET, LOGGED = "console", "console_logged"
"""The database roles of the two consoles. Writing each statement to the log would be a part of the cost that is measured, so the
statements are those of a second console, which runs only while they are measured."""


@dataclass(frozen=True, slots=True)
class Running:
    """The running database, worker and console, under load."""

    stand: Stand
    site: Site
    port: int
    latencies: Path
    sessions: Sessions
    """Those of the console."""
    postmaster: int

    @property
    def log(self) -> Path:
        """PostgreSQL's."""
        return self.stand.postgres_log

    def delivered(self) -> int:
        """How many rows of the large table have been delivered so far."""
        return _delivered(self.site)

    def console_seconds(self) -> float:
        """The processor time so far of the console's database sessions."""
        return self.sessions.seconds()

    def database_seconds(self) -> float:
        """The processor time so far of all of PostgreSQL."""
        return whole(self.postmaster)

    def ids(self, status: Status, limit: int) -> list[int]:
        """The oldest items of the large table with this status."""
        query = f"SELECT id FROM {OUTBOX}s WHERE status = {status:d} ORDER BY id LIMIT {limit}"
        with psycopg.connect(self.site.dsn, application_name="feeder") as connection:
            return [item_id for (item_id,) in connection.execute(query.encode())]

    @contextmanager
    def logged(self) -> Iterator[int]:
        """The port of a second console, all of whose statements PostgreSQL writes to its log."""
        with _console(self.stand, self.site, LOGGED) as port:
            yield port


@contextmanager
def running(stand: Stand, *, rows: int, per_second: int) -> Iterator[Running]:
    """A table of this many rows, a tenth kept pending, with a worker; a second box, whose items are timed; and the console."""
    latencies = stand.folder / "latencies"
    latencies.touch()
    boxes = (OUTBOX, PROBE, IDLE)
    options = {"strict_order": "key", "max_retries": 3}
    with stand.site(buckets=16, transport={}, outboxes=boxes, box_options=options) as site:
        settings = json.loads(site.config.read_text())
        paced = {"bench.console.receiver.Swallow": {"per_second": per_second}}
        for name, box in settings["outbox_items"].items():
            timed = {"bench.console.receiver.Stopwatch": {"path": str(latencies)}}
            settings["outbox_items"][name] = {
                **box,
                "transports": timed if name == PROBE else paced,
            }
        settings["console"] = {"operate_token": TOKEN}
        site.config.write_text(json.dumps(settings))
        fill(site, rows)
        stop = threading.Event()
        worker = _started(stand, "worker", site.config, "start", "-c", "4")
        threads = [
            threading.Thread(target=_top_up, args=(site, stop), daemon=True),
            threading.Thread(target=_probe, args=(site, stop), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            postmaster = _postmaster(site)
            with Sessions(postmaster, QUIET) as sessions, _console(stand, site, QUIET) as port:
                yield Running(stand, site, port, latencies, sessions, postmaster)
        finally:
            stop.set()
            for thread in threads:
                thread.join(30)
            worker.stop(signal.SIGTERM, patience=timedelta(seconds=30))


@contextmanager
def _console(stand: Stand, site: Site, role: str) -> Iterator[int]:
    """A console that connects to the database under this role; yields its port."""
    host = site.dsn.split("@")[-1]
    settings = json.loads(site.config.read_text()) | {"database": {"url": f"postgresql+psycopg://{role}@{host}"}}
    config, port = site.config.with_name(f"{role}.yml"), free_port()
    config.write_text(json.dumps(settings))
    web = _started(stand, role, config, "web", "--port", str(port))
    try:
        web.wait_until(lambda: _answers(port), patience=timedelta(seconds=60))
        yield port
    finally:
        web.stop(signal.SIGTERM, patience=timedelta(seconds=30))


def _started(stand: Stand, name: str, config: Path, *arguments: str) -> ServerProcess:
    command = [sys.executable, "-m", "boxengine", "--config", str(config), *arguments]
    return ServerProcess(command, log_path=stand.folder / f"{name}.log", last_signal=signal.SIGTERM)


def fill(site: Site, rows: int) -> None:
    """Inserts delivered rows, created over some hours; a hundredth have failed, and the youngest tenth are pending."""
    with psycopg.connect(site.dsn, autocommit=True) as connection:
        connection.execute(
            f"INSERT INTO {OUTBOX}s (uuid, event_key, event_name, bucket, payload, status, errors_count, error_log, "
            "created_at, processed_at) SELECT gen_random_uuid(), (n % 100003)::text, 'created', n % 100003 % 16, 'x', "
            f"CASE WHEN n > {rows * (1 - PENDING_SHARE)} THEN 0 WHEN n % {round(1 / FAILED_SHARE)} = 0 THEN 1 ELSE 2 END, "
            f"CASE WHEN n % {round(1 / FAILED_SHARE)} = 0 THEN 4 ELSE 0 END, "
            f"CASE WHEN n % {round(1 / FAILED_SHARE)} = 0 THEN '2026-01-31T12:00:00.000000Z http: Timeout: no answer' END, "
            f"now() - interval '1 day' * (1 - n / {rows}.0), now() FROM generate_series(1, {rows}) AS n"
        )
        # Pending rows have no failures, so that the worker takes them at once and no failed key holds them back.
        connection.execute(f"UPDATE {OUTBOX}s SET errors_count = 0, error_log = NULL WHERE status = 0")
        connection.execute(f"UPDATE {OUTBOX}s SET event_key = 'f' || event_key WHERE status = 1")
        connection.execute(f"VACUUM ANALYZE {OUTBOX}s")
        for role in (QUIET, LOGGED):
            connection.execute(f"CREATE ROLE {role} LOGIN SUPERUSER")
        connection.execute(f"ALTER ROLE {LOGGED} SET log_min_duration_statement = 0")


def _postmaster(site: Site) -> int:
    with psycopg.connect(site.dsn, application_name="feeder") as connection:
        return postmaster_of(connection.info.backend_pid)


def _top_up(site: Site, stop: threading.Event) -> None:
    """Inserts a new row for each that the worker has delivered, so that the number of pending rows stays the same."""
    insert = (
        f"INSERT INTO {OUTBOX}s (uuid, event_key, bucket, payload) SELECT gen_random_uuid(), (n %% 100003)::text, "
        "n %% 100003 %% 16, 'x' FROM generate_series(1, %s) AS n"
    )
    known = _delivered(site)
    with psycopg.connect(site.dsn, autocommit=True, application_name="feeder") as connection:
        while not stop.wait(0.5):
            now = _delivered(site)
            connection.execute(insert, [now - known])
            known = now


def _delivered(site: Site) -> int:
    with psycopg.connect(site.dsn, application_name="feeder") as connection:
        query = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = %s"
        row: tuple[int] | None = connection.execute(query, [f"{OUTBOX}s"]).fetchone()
        return row[0] if row else 0


def _probe(site: Site, stop: threading.Event) -> None:
    """Writes items to the second box at a low, steady rate."""
    engine = sa.create_engine(f"postgresql+psycopg://{site.dsn.partition('://')[2]}")
    number = 0
    while not stop.wait(1 / PROBES_PER_SECOND):
        number += 1
        with engine.begin() as connection:
            site.boxes.create_outbox_item(connection, PROBE, event_key=str(number), payload=b"x")
    engine.dispose()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
