"""The parent of ``--processes``: what it does about children that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.telemetry.ledger import Ledger, ProcessLedgers
from boxengine.adapters.telemetry.progress import ChildProcesses, publisher
from boxengine.cli import processes
from boxengine.cli.context import Globals
from boxengine.cli.processes import LONGEST_PAUSE, Place, Supervisor
from boxengine.cli.signals import StopRequest
from boxengine.embedded.process import free_port
from boxengine.engine.running.health import Health, HealthVerdict
from tests.cli.project import Project
from tests.eventually import PATIENCE, eventually
from tests.tidying import tidy_up
from tests.web.test_server import body, get

DYING = "import os, sys\nif '--child' in sys.argv:\n    os._exit(3)\n"


def test_a_process_that_dies_at_every_start_is_started_again_after_growing_pauses(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    project = Project(tmp_path, database=postgres_url, redis=redis_url, transports="transports.Broken: {}")
    (tmp_path / "transports.py").write_text(DYING + (tmp_path / "transports.py").read_text())
    with project.worker("--processes", "2") as worker:
        eventually(lambda: worker.logged("process 1 ended with 3; another is started in 0.5 s"))
        eventually(lambda: worker.logged("process 1 ended with 3; another is started in 1.0 s"))


def test_a_process_that_ends_after_old_temporary_files_were_deleted_is_replaced(
    tmp_path: Path, postgres_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    with project.worker("--processes", "2") as worker:
        eventually(lambda: len(worker.logged("started: order_outbox_item")) == 2)
        tidy_up(temporary)
        os.kill(worker.logged("process 1 started")[0]["pid"], signal.SIGKILL)
        eventually(lambda: len(worker.logged("started: order_outbox_item")) == 3)


def test_the_pauses_between_starts_have_a_limit_however_often_a_process_dies() -> None:
    place = Place(1)
    pauses = [place.next_pause() for _ in range(3000)]
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert set(pauses[10:]) == {LONGEST_PAUSE}


def test_a_parent_whose_processes_die_at_every_start_is_not_ready(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    port = free_port()
    project = Project(tmp_path, database=postgres_url, redis=redis_url, transports="transports.Broken: {}")
    (tmp_path / "transports.py").write_text(DYING + (tmp_path / "transports.py").read_text())
    project.config.write_text(
        project.config.read_text().replace("probes: {enabled: false}", f"probes: {{port: {port}}}")
    )
    with project.worker("--processes", "2") as worker:
        for pause in ("0.5", "1.0", "2.0"):
            eventually(partial(worker.logged, f"process 2 ended with 3; another is started in {pause} s"))
            status, answer = body(get(port, "/readiness/outbox"))
            assert status == 503
            assert [reason.partition(".")[0].partition(":")[0] for reason in answer["reasons"]] == ["1", "2"]


def test_a_parent_that_waits_for_its_processes_to_stop_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    health = Health(clock=clock, checks={})
    seen: list[HealthVerdict] = []

    class Waiting(Supervisor):
        def _stop(self, _ledgers: ProcessLedgers) -> int:
            clock.advance(timedelta(seconds=200))
            seen.extend([health.alive(), health.ready()])
            return 0

    def stopped(**_options: Any) -> StopRequest:
        request = StopRequest()
        request.ask()
        return request

    monkeypatch.setattr(processes, "stop_request", stopped)
    monkeypatch.setattr(processes, "endpoints", lambda *_: [])
    assert make(Waiting, health=health).run() == 0
    assert seen == [HealthVerdict(ok=True), HealthVerdict(ok=False, reasons=("stopping",))]


def test_a_process_that_crashes_while_all_stop_does_not_make_its_parent_seem_to_hang(tmp_path: Path) -> None:
    ledgers = ProcessLedgers(tmp_path)
    ledger = Ledger(ledgers.path("1"))
    publisher(ledger)("processor", 100.0, 200.0)
    ledger.close()
    others = ChildProcesses(ledgers, expected=lambda: ["1", "2"])
    assert list(others.complaints(300.0)) == ["1: processor: no progress for 200 s"]
    supervisor = make(Supervisor, count=2)
    crashing, working = supervisor._children
    crashing.name, working.name = "1", "2"
    crashing.process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"], stdin=subprocess.PIPE)
    working.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.PIPE)
    with ThreadPoolExecutor(1) as thread:
        try:
            stopping = thread.submit(supervisor._stop, ledgers)
            eventually(lambda: not list(others.complaints(300.0)))
            assert working.process.poll() is None
        finally:
            working.process.kill()
        assert stopping.result(PATIENCE) == 1


def make(kind: type[Supervisor], *, count: int = 1, health: Health | None = None) -> Supervisor:
    """A parent that has started nothing yet."""
    boxes: Any = None
    stacks: Any = SimpleNamespace()
    parts: dict[str, Any] = {"health": lambda **_: health, "grace": timedelta(seconds=200), "stacks": stacks}
    return kind(boxes, Globals(), [], count=count, **parts)
