"""What is not needed is not imported: half of the time of a command's start goes into imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cli.project import Project
from tests.eventually import eventually

TELLING = """
import gc, json, sys
from pathlib import Path

class Told:
    def __init__(self, folder):
        self.folder = Path(folder)
    def __call__(self, item, payload):
        told = {"modules": sorted(sys.modules), "collecting": gc.isenabled()}
        (self.folder / "writing").write_text(json.dumps(told))
        (self.folder / "writing").rename(self.folder / "told")
"""


def imported(statement: str) -> set[str]:
    program = f"{statement}; import json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    return set(json.loads(done.stdout))


def told_at_delivery(folder: Path, *, postgres_url: str, redis_url: str) -> dict[str, Any]:
    told = folder / "told"
    transports = f"telling.Told: {{folder: '{folder}'}}"
    project = Project(folder, database=postgres_url, redis=redis_url, transports=transports)
    (folder / "telling.py").write_text(TELLING)
    project.run("db", "create")
    project.fill(1)
    with project.worker():
        eventually(told.exists)
    found: dict[str, Any] = json.loads(told.read_text())
    return found


def test_the_commands_are_known_before_anything_is_imported_that_they_work_with() -> None:
    modules = imported("import boxengine.cli.main")
    assert "boxengine.cli.start" in modules
    unneeded = {"sqlalchemy", "pydantic", "redis", "psycopg", "yaml", "opentelemetry", "rich.console"}
    assert unneeded & modules == set()


def test_a_pause_imports_no_database_driver(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    arguments = ["--config", str(project.config), "pause", "order_outbox_item"]
    run = f"from boxengine.cli import main\ntry: main.run({arguments!r})\nexcept SystemExit: pass\nprint()"
    done = subprocess.run(
        [sys.executable, "-c", f"{run}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "order_outbox_item: paused" in done.stdout
    modules = set(json.loads(done.stdout.splitlines()[-1]))
    assert "boxengine.adapters.redis.pauses" in modules
    assert {"sqlalchemy", "psycopg", "rich.console", "boxengine.adapters.sql.store"} & modules == set()


def test_a_configuration_is_loaded_without_what_writes_rows() -> None:
    modules = imported("import boxengine.app.boxes")
    assert {"sqlalchemy", "psycopg", "redis", "boxengine.adapters.telemetry.opentelemetry"} & modules == set()


def test_a_model_does_not_import_the_engine() -> None:
    modules = imported("from boxengine import OutboxItem")
    assert "sqlalchemy.orm" in modules
    assert {"boxengine.app.boxes", "pydantic", "redis", "psycopg"} & modules == set()


def test_a_worker_imports_neither_kafka_nor_metrics_nor_what_draws_where_none_is_asked_for(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    modules = told_at_delivery(tmp_path, postgres_url=postgres_url, redis_url=redis_url)["modules"]
    unneeded = {
        "boxengine.adapters.kafka.pool",
        "boxengine.adapters.http.transport",
        "boxengine.web.metrics",
        "confluent_kafka",
        "prometheus_client",
        "rich.console",
        "rich.progress",
        "sqlalchemy.dialects.sqlite",
        "urllib3",
    }
    assert unneeded & set(modules) == set()


def test_a_worker_looks_for_garbage_once_it_delivers(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    assert told_at_delivery(tmp_path, postgres_url=postgres_url, redis_url=redis_url)["collecting"]
