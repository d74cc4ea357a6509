"""The example of long jobs, which is what ``docs/jobs.md`` shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, func, select
from sqlalchemy.orm import Session

import boxengine
from boxengine.adapters.sql.jobs.desk import SqlJobDesk
from boxengine.app.boxes import load_for_worker
from boxengine.app.jobs import connect_jobs
from boxengine.ports.jobs import JobFilter
from tests.eventually import eventually

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "jobs"


def test_an_upload_is_imported(monkeypatch: pytest.MonkeyPatch, postgres_url: str) -> None:
    monkeypatch.setenv("DATABASE_URL", postgres_url)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.delitem(sys.modules, "imports", raising=False)
    boxes = load_for_worker(EXAMPLE / "outbox.yml")
    imports = sys.modules["imports"]
    monkeypatch.setattr(imports, "create_job", boxes.create_job)
    engine = create_engine(postgres_url)
    imports.Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        job = imports.upload(session, "ACME", [f"item {n}" for n in range(250)])
    pipelines = boxes.resolved.jobs
    store = connect_jobs(boxes.resolved.settings, pipelines, threads=False)
    desk, box = SqlJobDesk(store), pipelines["import_job"].box
    with boxengine.running(boxes):
        eventually(lambda: desk.stat(box).finished)
    (row,) = desk.list(box, JobFilter(), limit=5)
    assert (row["id"], row["status"], row["result"]) == (job, "succeeded", {"imported": 250})
    assert (row["checkpoint"], row["progress"]) == (250, {"done": 250, "total": 250})
    with Session(engine) as session:
        assert session.scalar(select(func.count()).select_from(imports.Order)) == 250
    store.close()
    engine.dispose()
    monkeypatch.delitem(sys.modules, "imports")


@pytest.mark.parametrize("name", ["outbox.yml", "imports.py"])
def test_the_page_shows_the_example(name: str) -> None:
    assert (EXAMPLE / name).read_text().strip() in (ROOT / "docs" / "jobs.md").read_text()
