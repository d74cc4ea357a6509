"""The parent of ``--processes``: what it does about children that die."""

from __future__ import annotations

from pathlib import Path

from boxengine.cli.processes import LONGEST_PAUSE, Place
from tests.cli.project import Project
from tests.eventually import eventually

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
