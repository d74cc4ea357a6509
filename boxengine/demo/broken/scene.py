"""The scene that all situations share: servers, a box of orders, a receiver, a worker, and the console."""

from __future__ import annotations

import json
import re
import secrets
import signal
import sys
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from boxengine.demo.broken.receiver import Receiver
from boxengine.demo.stage import Stage
from boxengine.embedded.process import ServerProcess

BOX = "order_outbox_item"
_READY = timedelta(seconds=60)


class Scene(Stage):
    """After ``set_up`` it is in working order: everything runs except the worker."""

    configuration = "broken/outbox.yml"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.token = secrets.token_urlsafe(12)
        self.receiver = Receiver()
        self.url = ""
        """The console's URL, once it is up."""
        self._console: ServerProcess | None = None
        self._forgotten: sa.Connection | None = None

    @property
    def environment(self) -> dict[str, str]:
        more = {"BOXENGINE_DEMO_TOKEN": self.token, "BOXENGINE_DEMO_RECEIVER": str(self.receiver.port)}
        return super().environment | more

    def set_up(self) -> None:
        self.receiver.start()
        super().set_up()
        # The system chooses the port: one that is free now may be taken until the console listens.
        command = [sys.executable, "-m", "boxengine", "--config", str(self.config), "web", "--port", "0"]
        self._console = console = ServerProcess(
            command, log_path=self.folder / "console.log", last_signal=signal.SIGTERM
        )
        console.wait_until(lambda: self._hears_of_url(console.log()) and self.overview() is not None, patience=_READY)

    def tear_down(self) -> None:
        if self._console is not None:
            self._console.stop(signal.SIGTERM, patience=timedelta(seconds=10))
        self.receiver.stop()
        self.end_forgotten()
        super().tear_down()

    # ── what a situation does ────────────────────────────────────────────────────────────────────────

    def order(self, count: int, *, key: str | None = None, currency: str = "EUR") -> None:
        """Commits orders; without a key, each order has a different customer."""
        payload = json.dumps({"currency": currency}).encode()
        items: list[Any] = [{"event_key": key or f"customer-{number}", "payload": payload} for number in range(count)]
        with self.servers.store.engine.begin() as connection:
            self.boxes.create_outbox_batch(connection, BOX, items)

    def run_sql(self, statement: str) -> None:
        """Runs one statement, outside a transaction."""
        with self.servers.store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(statement.rstrip().removesuffix("."))

    def forget_transaction(self) -> None:
        """Simulates a report that reads the table and never ends its transaction."""
        engine = sa.create_engine(
            self.servers.store.engine.url, connect_args={"application_name": "monthly report"}, poolclass=sa.NullPool
        )
        self._forgotten = engine.connect().execution_options(isolation_level="REPEATABLE READ")
        self._forgotten.exec_driver_sql(f"SELECT count(*) FROM {BOX}s")  # noqa: S608 - our own name

    def end_forgotten(self) -> None:
        """Closes that connection, if it is still there."""
        forgotten, self._forgotten = self._forgotten, None
        if forgotten is not None:
            forgotten.invalidate()
            forgotten.close()

    # ── what the console says ────────────────────────────────────────────────────────────────────────

    def _hears_of_url(self, log: str) -> bool:
        found = re.search(r"the console is at (\S+)", log)
        self.url = found[1] if found else ""
        return found is not None

    def overview(self) -> Any:
        """The overview from the console's API; None: the console does not answer."""
        request = urllib.request.Request(  # noqa: S310 - our own address
            f"{self.url}api/overview", headers={"Authorization": f"Bearer {self.token}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - the same
                return json.load(answer)
        except (OSError, ValueError, urllib.error.URLError):
            return None

    def sentences(self) -> list[str]:
        """What the console says is wrong."""
        found = self.overview()
        return ["The console does not answer."] if found is None else [each["sentence"] for each in found["problems"]]
