"""What is not needed is not imported: half of the time of a command's start goes into imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_group

from boxengine.cli import commands, items, main
from boxengine.cli.on_demand import Home
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
    program = f"{statement}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    return set(json.loads(done.stdout.splitlines()[-1]))


def told_at_delivery(folder: Path, *, postgres_url: str, redis_url: str) -> dict[str, Any]:
    told = folder / "told"
    transports = f"telling.Told: {{folder: '{folder}'}}"
    project = Project(folder, database=postgres_url, redis=redis_url, transports=transports)
    (folder / "telling.py").write_text(TELLING)
    project.run("db", "create")
    project.fill(1)
    # One of Project's has more imported when it begins.
    with subprocess.Popen(
        [sys.executable, "-m", "boxengine", "start"], cwd=folder, stderr=subprocess.DEVNULL
    ) as worker:
        try:
            eventually(told.exists)
        finally:
            worker.kill()
    found: dict[str, Any] = json.loads(told.read_text())
    return found


def test_the_commands_are_known_before_anything_is_imported_that_they_work_with() -> None:
    """Their names are: each command's own module is imported when it is asked for."""
    program = "from boxengine.cli import main; import typer; names = list(typer.main.get_command(main.cli).commands)"
    modules = imported(f"{program}; assert 'status' in names and 'items' in names, names")
    unneeded = {"sqlalchemy", "redis", "psycopg", "yaml", "opentelemetry", "rich.console", "boxengine.ports"}
    assert unneeded & modules == set()
    assert {name for name in modules if name.startswith("boxengine.cli.")} == {
        "boxengine.cli.commands",
        "boxengine.cli.context",
        "boxengine.cli.main",
        "boxengine.cli.on_demand",
    }


def test_a_process_that_ends_does_not_search_its_modules_for_garbage() -> None:
    program = "import atexit, gc, sys; atexit.register(lambda: print(gc.get_freeze_count() > 1000))"
    command = f"{program}; sys.argv[1:] = ['--version']; from boxengine.cli.main import run; run()"
    done = subprocess.run([sys.executable, "-c", command], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "True"


LISTING = """
from boxengine.cli import main
try: main.run({arguments!r})
except SystemExit as end: assert not end.code
"""


@pytest.mark.parametrize("group", ["", "items"])
def test_the_list_of_commands_imports_none_of_them(group: str) -> None:
    modules = imported(LISTING.format(arguments=[*group.split(), "--help"]) + "print()")
    own = {name for name in modules if name.startswith("boxengine.cli.")}
    assert own <= {f"boxengine.cli.{name}" for name in ("commands", "context", "items", "main", "on_demand")}


@pytest.mark.parametrize(
    ("cli", "homes"), [(main.cli, commands.COMMANDS), (items.cli, items.COMMANDS)], ids=["boxengine", "items"]
)
def test_the_list_of_commands_says_of_each_what_its_own_help_begins_with(
    cli: typer.Typer, homes: dict[str, Home]
) -> None:
    made = get_group(cli).commands
    assert {name: " ".join((made[name].help or "").partition("\n\n")[0].split()) for name in made} == {
        name: home.summary for name, home in homes.items()
    }


PAUSING = {"sqlalchemy", "psycopg", "boxengine.adapters.sql", "boxengine.ports.people", "boxengine.ports.store"}
ONE_THING = {
    "pause": (["pause", "order_outbox_item"], PAUSING),
    "resume": (["resume", "order_outbox_item"], PAUSING),
    "items show": (["items", "show", "order_outbox_item", "1"], {"redis", "boxengine.adapters.redis"}),
    "status": (["status"], set[str]()),
}
"""Commands that look at one thing, and what each does without; none needs what is in ``NEVER``."""
NEVER = {
    "boxengine.adapters.kafka",
    "boxengine.adapters.sql.shape.models",
    "boxengine.adapters.telemetry.opentelemetry",
    "boxengine.cli.create",
    "boxengine.cli.items_acting",
    "boxengine.cli.lifecycle",
    "boxengine.engine.create",
    "boxengine.engine.item_actions",
    "boxengine.engine.jobs.create",
    "boxengine.engine.jobs.handle",
    "boxengine.engine.polling",
    "boxengine.ports.events",
    "boxengine.web",
    "confluent_kafka",
    "prometheus_client",
    "rich.console",
    "rich.table",
    "sqlalchemy.dialects.mysql",
    "sqlalchemy.dialects.sqlite",
    "sqlalchemy.ext.asyncio",
    "sqlalchemy.orm",
    "starlette",
    "urllib3",
}


@pytest.mark.parametrize("name", ONE_THING)
def test_a_command_that_looks_at_one_thing_imports_what_it_needs_for_that(
    name: str, tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    project.run("db", "create")
    project.fill(1)
    command, unneeded = ONE_THING[name]
    arguments = ["--config", str(project.config), *command]
    run = f"from boxengine.cli import main\ntry: main.run({arguments!r})\nexcept SystemExit as end: assert not end.code\nprint()"
    done = subprocess.run(
        [sys.executable, "-c", f"{run}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    modules = set(json.loads(done.stdout.splitlines()[-1]))
    assert "boxengine.app.boxes" in modules
    assert (NEVER | unneeded) & modules == set()


def test_a_configuration_is_loaded_without_what_writes_rows() -> None:
    modules = imported("import boxengine.app.boxes")
    assert {"sqlalchemy", "psycopg", "redis", "boxengine.adapters.telemetry.opentelemetry"} & modules == set()


def test_a_model_does_not_import_the_engine() -> None:
    modules = imported("from boxengine import OutboxItem")
    assert "sqlalchemy.orm" in modules
    assert {"boxengine.app.boxes", "pydantic", "redis", "psycopg"} & modules == set()


def test_the_pytest_plugin_imports_nothing_that_no_test_asks_for() -> None:
    modules = imported("import boxengine.testing.plugin")
    assert {"sqlalchemy", "pydantic", "boxengine.engine", "boxengine.testing.connected"} & modules == set()


def test_boxes_in_a_database_need_no_greenlet() -> None:
    modules = imported("from boxengine.testing import DatabaseBoxes, MemoryBoxes, make_item")
    assert {"greenlet", "sqlalchemy.ext.asyncio"} & modules == set()


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


def test_a_worker_imports_no_orm_and_nothing_of_long_jobs_where_none_is_asked_for(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    modules = told_at_delivery(tmp_path, postgres_url=postgres_url, redis_url=redis_url)["modules"]
    unneeded = {
        "sqlalchemy.orm",
        "greenlet",
        "multiprocessing",
        "boxengine.app.jobs.loops",
        "boxengine.engine.jobs.runner",
    }
    assert unneeded & set(modules) == set()


def test_a_worker_looks_for_garbage_once_it_delivers(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    assert told_at_delivery(tmp_path, postgres_url=postgres_url, redis_url=redis_url)["collecting"]
