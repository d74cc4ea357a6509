"""A user's project in an empty folder: a configuration, custom transports, and ``boxengine`` as a process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from signal import Signals
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import Engine, create_engine, text

from boxengine import BatchAttributes
from boxengine.app.boxes import Boxes, load
from boxengine.cli import main
from tests import prepared

TRANSPORTS = '''
import json, os, threading
from pathlib import Path

class Broken:
    def __call__(self, item, payload):
        raise RuntimeError("the receiver is on fire")

class Gate:
    """Delivers once the file `open` is there; tells that it was reached."""
    def __init__(self, folder):
        self.folder = Path(folder)
    def __call__(self, item, payload):
        with (self.folder / "calls").open("a") as calls:
            calls.write(f"{item.id}\\n")
        (self.folder / "reached").write_text(str(item.id))
        pause = threading.Event()
        while not (self.folder / "open").exists():
            pause.wait(0.01)

class Unclosable:
    """Delivers; raises or hangs when it is closed, and keeps a thread that Python would wait for."""
    def __init__(self, how):
        self.how = how
    def __call__(self, item, payload):
        if self.how == "hang":
            threading.Thread(target=threading.Event().wait).start()
    def close(self):
        if self.how == "hang":
            threading.Event().wait()
        raise KeyboardInterrupt("no")

class Undying:
    """Delivers; what it leaves behind hangs when Python frees this module, where no thread of Python's can end it."""
    def __call__(self, item, payload):
        LEFT_BEHIND.append(Hanging())
        return True

class Hanging:
    def __del__(self, wait=threading.Event().wait):
        wait()

LEFT_BEHIND = []

class Fussy:
    """Refuses the keys in the file `refused`, or all where it says *; writes down what it delivers."""
    def __init__(self, folder):
        self.folder = Path(folder)
    def call_batch(self, items):
        refused = (self.folder / "refused").read_text().split()
        good = [not ("*" in refused or item.event_key in refused) for item in items]
        with (self.folder / "deliveries.jsonl").open("a") as file:
            for item, delivered in zip(items, good):
                if delivered:
                    file.write(json.dumps({"id": item.id, "event_key": item.event_key}) + "\\n")
        return good
    def __call__(self, item, payload):
        return self.call_batch([item])[0]
'''
FILE = "file: {path: deliveries.jsonl, fsync: false}"


class Project:
    """One folder with its ``outbox.yml``; commands run in it."""

    def __init__(self, folder: Path, *, database: str, redis: str, transports: str = FILE, more: str = "") -> None:
        self.folder = folder
        self.database = database
        self.config = folder / "outbox.yml"
        (folder / "transports.py").write_text(TRANSPORTS)
        self.config.write_text(self._configuration(database, redis, transports, more))
        # The writing side does not import the worker's transports.
        self._writer = folder / "writer.yml"
        self._writer.write_text(self._configuration(database, redis, "log: {}", more))

    @staticmethod
    def _configuration(database: str, redis: str, transports: str, more: str) -> str:
        return f"""
database: {{url: "{database}"}}
redis: {{url: "{redis}"}}
probes: {{enabled: false}}
outbox_items:
  order_outbox_item:
    transports: {{{transports}}}
{more}
"""

    def run(self, *arguments: str, stdin: bytes = b"", expect: int = 0) -> str:
        """Runs a command, checks its exit code, and returns its standard output; standard error is in ``errors``."""
        command, env = ["-m", "boxengine", *arguments], {**os.environ, "COLUMNS": "200"}
        done = prepared.run(command, cwd=self.folder, env=env, stdin=stdin)
        self.errors = done.stderr.decode()
        assert done.returncode == expect, f"exit {done.returncode}: {self.errors}{done.stdout.decode()}"
        return done.stdout.decode()

    def call(self, *arguments: str, expect: int = 0) -> str:
        """The same in this process, in a tenth of the time. Not for commands that import from the folder or must run in it."""
        out, err = io.StringIO(), io.StringIO()
        wide = patch.dict(os.environ, {"COLUMNS": "200"})
        with wide, redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main.run(["--config", str(self.config), *arguments])
        self.errors = err.getvalue()
        code = ended.value.code or 0
        assert code == expect, f"exit {code}: {self.errors}{out.getvalue()}"
        return out.getvalue()

    @contextmanager
    def worker(self, *options: str) -> Iterator[Worker]:
        """``boxengine start`` as a process; killed at the end if it still runs."""
        worker = Worker(self.folder, options)
        try:
            yield worker
        finally:
            worker.kill()

    def boxes(self) -> Boxes:
        """The loaded configuration, for writing items in this process."""
        return load(self._writer)

    def fill(self, count: int, *, keys: int = 100, box: str = "order_outbox_item") -> dict[str, list[int]]:
        """Commits items; returns their ids by event key, in order."""
        boxes, by_key = self.boxes(), dict[str, list[int]]()
        with self.engine() as engine:
            for start in range(0, count, 1000):
                batch: list[BatchAttributes] = [
                    {"event_key": str(number % keys), "payload": b"x" * 100}
                    for number in range(start, min(count, start + 1000))
                ]
                with engine.begin() as connection:
                    ids = boxes.create_outbox_batch(connection, box, batch)
                for item, id_ in zip(batch, ids, strict=True):
                    by_key.setdefault(str(item["event_key"]), []).append(id_)
        return by_key

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """The test's own connection pool."""
        engine = create_engine(self.database)
        try:
            yield engine
        finally:
            engine.dispose()

    def execute(self, *statements: str) -> None:
        """Runs SQL as another application would."""
        with self.engine() as engine, engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def counts(self, table: str = "order_outbox_items") -> dict[int, int]:
        """Rows by status."""
        with self.engine() as engine, engine.connect() as connection:
            rows = connection.execute(text(f"SELECT status, count(*) FROM {table} GROUP BY status")).all()
        return {int(status): int(count) for status, count in rows}

    def deliveries(self) -> list[dict[str, Any]]:
        """What the file transport wrote, line by line."""
        path = self.folder / "deliveries.jsonl"
        whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        return [json.loads(line) for line in whole.splitlines()]


class Worker:
    """A running ``boxengine start`` in its own process group, as a shell starts it."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self.log = folder / f"worker-{os.urandom(3).hex()}.log"
        command, env = ["-m", "boxengine", "start", *options], {**os.environ}
        with self.log.open("wb") as log:
            number = log.fileno()
            self.process = prepared.start(command, cwd=folder, env=env, stdout=number, stderr=number, own_group=True)

    def signal(self, number: Signals) -> None:
        self.process.send_signal(number)

    def signal_group(self, number: Signals) -> None:
        """Sends a signal to the process and its children, as a terminal or systemd does."""
        os.killpg(self.process.pid, number)

    def ended_after(self, send: Callable[[Signals], None], number: Signals) -> bool:
        """Sends the signal again unless it has ended; returns whether it has. A quick repetition does not count as a second."""
        if self.process.poll() is None:
            send(number)
        return self.process.poll() is not None

    def logged(self, text: str) -> list[dict[str, Any]]:
        """The log lines whose message contains the text."""
        return [line for line in self.lines() if text in line["message"]]

    def kill(self) -> None:
        """Ends the process as a crash would."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        with contextlib.suppress(ProcessLookupError):
            self.signal_group(signal.SIGKILL)

    def stop(self) -> int:
        """Sends SIGTERM; returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def lines(self) -> list[dict[str, Any]]:
        """The log lines so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


def first_deliveries_in_order(deliveries: list[dict[str, Any]], committed: dict[str, list[int]]) -> bool:
    """Whether every item was delivered, and the first deliveries of each key came in commit order."""
    seen: dict[str, dict[int, None]] = {}
    for line in deliveries:
        seen.setdefault(line["event_key"], {})[int(line["id"])] = None
    return {key: list(ids) for key, ids in seen.items()} == committed
