"""The parent of ``--processes``: what it does about children that die."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.cli import processes
from boxengine.cli.context import Globals
from boxengine.cli.processes import LONGEST_PAUSE, Place, Supervisor
from boxengine.cli.signals import StopRequest
from boxengine.embedded.process import free_port
from boxengine.engine.running.health import Health, HealthVerdict
from tests.cli.project import Project
from tests.eventually import eventually
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
        def _stop(self) -> int:
            clock.advance(timedelta(seconds=200))
            seen.extend([health.alive(), health.ready()])
            return 0

    def stopped(**_options: Any) -> StopRequest:
        request = StopRequest()
        request.ask()
        return request

    monkeypatch.setattr(processes, "stop_request", stopped)
    monkeypatch.setattr(processes, "endpoints", lambda *_: [])
    boxes: Any = None
    stacks: Any = SimpleNamespace()
    grace = timedelta(seconds=200)
    parent = Waiting(boxes, Globals(), [], count=1, health=lambda **_: health, grace=grace, stacks=stacks)
    assert parent.run() == 0
    assert seen == [HealthVerdict(ok=True), HealthVerdict(ok=False, reasons=("stopping",))]
