"""The demonstration's servers and worker."""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from importlib import resources
from pathlib import Path

from boxengine.adapters.sql.making import schema
from boxengine.app.boxes import Boxes, load
from boxengine.app.servers.connected import Servers, connect
from boxengine.demo import payments, shop
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from boxengine.embedded.process import ServerProcess


class Stage:
    """A real PostgreSQL, a real Valkey, the tables, and the worker as a separate process."""

    configuration = "outbox.yml"
    """The path of the configuration within ``boxengine.demo``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "deliveries.jsonl"
        self.log = folder / "worker.log"
        self.config = folder / "outbox.yml"
        self._postgres = EmbeddedPostgres(folder / "postgres", durable=True)
        self._valkey = EmbeddedValkey(folder / "valkey")
        self._worker: ServerProcess | None = None
        self.boxes: Boxes
        self.servers: Servers

    def set_up(self) -> None:
        """Starts the servers and makes the tables."""
        self._postgres.start()
        self._valkey.start()
        os.environ.update(self.environment)
        self.config.write_bytes((resources.files("boxengine.demo") / self.configuration).read_bytes())
        self.boxes = load(self.config)
        self.servers = connect(self.boxes.resolved.settings)
        engine = self.servers.store.engine
        schema.create(engine, [pipeline.box for pipeline in self.boxes.resolved.pipelines.values()])
        for base in (shop.Base, payments.Base):
            base.metadata.create_all(engine)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the configuration refers to."""
        return {
            "BOXENGINE_DEMO_DATABASE": self._postgres.url(),
            "BOXENGINE_DEMO_REDIS": self._valkey.url(),
            "BOXENGINE_DEMO_RECORD": str(self.record),
        }

    def start_worker(self) -> None:
        """Starts ``boxengine start`` where Ctrl-C does not reach it: the worker must stop before its servers do."""
        command = [sys.executable, "-m", "boxengine", "--config", str(self.config), "--log-format", "text", "start"]
        self._worker = ServerProcess(command, log_path=self.log, last_signal=signal.SIGTERM)

    def kill_worker(self) -> None:
        """Ends the worker as a crash would."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def kill_redis(self) -> None:
        """Kills Redis; everything it holds is lost."""
        self._valkey.kill()

    def start_redis(self) -> None:
        """Starts Redis again, if it is not running."""
        self._valkey.start()

    @property
    def worker_died(self) -> bool:
        """Whether the worker ended by itself."""
        return self._worker is not None and not self._worker.running

    def tear_down(self) -> None:
        """Stops everything that was started."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop(signal.SIGTERM, patience=timedelta(seconds=20))
        if hasattr(self, "servers"):
            self.servers.close()
        self._valkey.stop()
        self._postgres.stop()
