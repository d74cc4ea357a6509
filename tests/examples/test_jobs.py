"""The example of long jobs, which is what the pages about them show."""

from __future__ import annotations

import importlib
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, func, select, text
from sqlalchemy.orm import Session
from starlette.routing import Mount
from starlette.testclient import TestClient

import boxengine
from boxengine.adapters.sql.jobs import schema
from boxengine.adapters.sql.jobs.desk import SqlJobDesk
from boxengine.app.boxes import load_for_worker
from boxengine.app.jobs.connecting import connect_jobs
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


def test_the_script_of_the_page_makes_its_tables_and_a_job(
    monkeypatch: pytest.MonkeyPatch, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", postgres_url)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.delitem(sys.modules, "imports", raising=False)
    boxes = load_for_worker(EXAMPLE / "outbox.yml")
    monkeypatch.setattr(sys.modules["imports"], "create_job", boxes.create_job)
    runpy.run_path(str(EXAMPLE / "send.py"))
    assert capsys.readouterr().out == "job 1\n"
    monkeypatch.delitem(sys.modules, "imports")


def test_prices_are_converted_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    path = tmp_path / "outbox.yml"
    path.write_text(
        f"database: {{url: '{postgres_url}'}}\n"
        "job_items: {price_job: {tasks: {convert: prices.ConvertPrices}, batch_size: 50, concurrency: 1}}\n" + FAST
    )
    boxes = load_for_worker(path)
    calls: list[int] = []
    prices = sys.modules["prices"]
    fetch_rates = prices.fetch_rates

    def counted(currencies: Any) -> Any:
        calls.append(len(currencies))
        return fetch_rates(currencies)

    monkeypatch.setattr(prices, "fetch_rates", counted)
    store = connect_jobs(boxes.resolved.settings, boxes.resolved.jobs, threads=False)
    box = boxes.resolved.jobs["price_job"].box
    schema.create(store.engine, [box], {})
    with store.engine.begin() as connection:
        jobs: list[Any] = [
            {"task": "convert", "args": {"cents": 100, "currency": currency}, "max_attempts": 1}
            for currency in ("EUR", "GBP", "JPY", "XXX")
        ]
        boxes.create_jobs(connection, "price_job", jobs)
    desk = SqlJobDesk(store)
    with boxengine.running(boxes):
        eventually(lambda: desk.stat(box).total == 1)
    rows = reversed(desk.list(box, JobFilter(), limit=5))
    assert [(row["status"], row["result"]) for row in rows] == [
        ("succeeded", {"cents": 100}),
        ("succeeded", {"cents": 85}),
        ("queued", None),
        ("failed", None),
    ]
    assert calls == [4]
    store.close()
    monkeypatch.delitem(sys.modules, "prices")


FAST = "jobs: {heartbeat: 0.05, poll_interval: 0.02}\nprobes: {enabled: false}\n"
STAFF = {"x-staff": "letmein"}
API = "/boxengine/api/v1/jobs/import-job:1"


def test_an_import_over_http_is_followed_canceled_and_goes_on_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    (tmp_path / "fast.yml").write_text(FAST)
    monkeypatch.setenv("DATABASE_URL", postgres_url)
    # Long jobs need no Redis; none is there.
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("BOXENGINE_CONFIG", f"{EXAMPLE / 'outbox.yml'}:{tmp_path / 'fast.yml'}")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    for module in ("imports", "uploads"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    uploads = importlib.import_module("uploads")
    imports = sys.modules["imports"]
    monkeypatch.setattr(imports, "create_job", uploads.boxes.create_job)
    monkeypatch.setattr(imports, "CHUNK", 10)
    engine = create_engine(postgres_url)
    lines = [f"item {n}" for n in range(300)]

    def orders() -> int:
        with Session(engine) as session:
            return session.scalar(select(func.count()).select_from(imports.Order)) or 0

    with TestClient(uploads.app) as client:

        def heard() -> Any:
            return client.get(f"{API}/status", headers=STAFF).json()["heartbeat_at"]

        imports.Base.metadata.create_all(engine)
        with engine.connect() as blocker:
            # While this transaction lasts, the handler's second chunk waits for it.
            blocker.execute(
                text(
                    "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                    "PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END $$"
                )
            )
            blocker.execute(
                text(
                    "CREATE TRIGGER wait BEFORE INSERT ON orders FOR EACH ROW WHEN (NEW.id > 10) EXECUTE FUNCTION wait()"
                )
            )
            blocker.commit()
            blocker.execute(text("SELECT pg_advisory_xact_lock(1)"))
            assert client.post("/uploads", json={"customer": "ACME", "lines": lines}).json() == {"import": 1}
            eventually(lambda: client.get("/imports/1").json()["progress"] == {"done": 10, "total": 300})
            page = client.get("/boxengine/boxes/import-job/jobs/1", headers=STAFF).text
            assert "10 of 300" in page
            assert client.post(f"{API}/cancel").status_code == 401, "a customer is not the staff"
            token = re.search(
                r'name="csrf" value="([^"]+)"',
                client.get("/boxengine/boxes/import-job/jobs/act?action=cancel&id=1", headers=STAFF).text,
            )
            assert token
            canceled = client.post(f"{API}/cancel", headers={**STAFF, "x-csrf-token": token[1]})
            assert canceled.json()["cancel_requested"] is True
            before = heard()
            eventually(lambda: heard() > before)
            blocker.rollback()
        eventually(lambda: client.get("/imports/1").json()["status"] == "canceled")
        done = client.get("/boxengine/api/boxes/import-job/jobs/1", headers=STAFF).json()["checkpoint"]
        assert 10 <= done < 300
        assert orders() == done, "what its checkpoints committed, and no more"
        client.post(
            "/boxengine/boxes/import-job/jobs/act",
            headers={**STAFF, "x-csrf-token": token[1]},
            data={"action": "retry", "id": 1},
            follow_redirects=False,
        )
        eventually(lambda: client.get("/imports/1").json()["status"] == "succeeded")
        assert client.get("/imports/1").json()["result"] == {"imported": 300}
        assert orders() == 300, "it went on from the checkpoint: no order stands there twice"
        assert client.get("/imports/2").status_code == 404
        assert "300 of 300" in client.get("/boxengine/boxes/import-job/jobs/1", headers=STAFF).text
    engine.dispose()
    mounted: list[Any] = [route.app for route in uploads.app.routes if isinstance(route, Mount)]
    mounted[0].state.site.servers.close()
    for module in ("imports", "uploads"):
        monkeypatch.delitem(sys.modules, module)


def test_losses_are_computed_in_processes_one_of_which_is_killed_at_its_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    (tmp_path / "fast.yml").write_text(FAST + "job_items: {risk_job: {timeout: PT1S}}\n")
    monkeypatch.setenv("DATABASE_URL", postgres_url)
    monkeypatch.setenv("BOXENGINE_CONFIG", f"{EXAMPLE / 'risk.yml'}:{tmp_path / 'fast.yml'}")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    boxes = load_for_worker()
    store = connect_jobs(boxes.resolved.settings, boxes.resolved.jobs, threads=False)
    box = boxes.resolved.jobs["risk_job"].box
    schema.create(store.engine, [box], {})
    portfolio = {"loans": [1000.0, 2500.0, 400.0], "default_rate": 0.2}

    def create(years: int, attempts: int) -> int:
        with store.engine.begin() as connection:
            args = {**portfolio, "years": years}
            return boxes.create_job(connection, "risk_job", task="estimate_losses", args=args, max_attempts=attempts)

    desk = SqlJobDesk(store)
    short, endless = create(1200, 1), create(10**9, 1)
    with boxengine.running(boxes):
        eventually(lambda: sum(desk.stat(box).finished.values()) == 2)
    done: Any = desk.show(box, short)
    assert (done["status"], done["progress"]) == ("succeeded", {"done": 1200, "total": 1200})
    assert (done["result"]["years"], done["result"]["worst"]) == (1200, 3900.0)
    assert done["result"] == done["checkpoint"]
    killed: Any = desk.show(box, endless)
    assert killed["status"] == "failed"
    assert "JobTimeout: no end within 1 s (timeout); the handler was stopped" in killed["error"]
    assert killed["checkpoint"]["years"] >= killed["progress"]["done"] > 0, "what it told before it was killed"
    store.close()
    monkeypatch.delitem(sys.modules, "risk")


PAGES = {
    "outbox.yml": "jobs.md",
    "imports.py": "jobs.md",
    "send.py": "jobs.md",
    "prices.py": "jobs-handlers.md",
    "risk.py": "jobs-handlers.md",
    "risk.yml": "jobs-handlers.md",
    "uploads.py": "jobs-http.md",
}


@pytest.mark.parametrize(("name", "page"), PAGES.items())
def test_the_page_shows_the_example(name: str, page: str) -> None:
    assert (EXAMPLE / name).read_text().strip() in (ROOT / "docs" / page).read_text()
