"""A worker's pool has a connection for each of its threads, whatever says how many there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, QueuePool

import boxengine
from boxengine.app.assembly import Choices
from boxengine.app.servers.connected import Servers, connect
from boxengine.app.servers.database import SPARE_CONNECTIONS
from boxengine.cli import main
from boxengine.cli.lifecycle import Plan, Process

CONFIGURATION = """
database: {url: "postgresql+psycopg://nobody@127.0.0.1:1/nothing"}
outbox_items: {order_outbox_item: {transports: {log: {}}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "outbox.yml"
    file.write_text(CONFIGURATION)
    return file


def size(engine: Engine) -> int:
    assert isinstance(engine.pool, QueuePool)
    return engine.pool.size()


def test_start_makes_as_many_connections_as_its_options_need(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Plan] = []

    def planned(_process: Process, plan: Plan, *_: Any, **__: Any) -> int:
        plans.append(plan)
        return 0

    monkeypatch.setattr(Process, "run", planned)
    for name in ("shared_tables.refuse_shared_tables", "bucket_sizes.refuse_other_sizes"):
        monkeypatch.setattr(f"boxengine.app.checking.{name}", lambda *_: None)  # they look into the database
    with pytest.raises(SystemExit) as ended:
        main.run(["--config", str(file), "start", "-c", "50", "--poll-threads", "7"])
    assert ended.value.code in (None, 0)
    _, servers, choices = plans[0].work.args  # type: ignore[attr-defined]
    assert (choices.processor_threads, choices.poller_threads) == (50, 7)
    assert size(servers.store.engine) == 50 + 7 + SPARE_CONNECTIONS


def test_a_worker_inside_an_application_makes_as_many_connections_as_its_threads_need(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Made(Exception):
        """Ends the start."""

    made: list[Servers] = []

    def noted(*arguments: Any, **options: Any) -> Servers:
        made.append(connect(*arguments, **options))
        raise Made

    monkeypatch.setattr("boxengine.app.running.in_application.connect", noted)
    with pytest.raises(Made):
        boxengine.running(file, threads=50).start()
    assert size(made[0].store.engine) == 50 + 1 + SPARE_CONNECTIONS


def test_what_is_not_chosen_is_as_configured(file: Path) -> None:
    settings = boxengine.load(file).resolved.settings
    assert Choices().applied_to(settings) == settings
    assert Choices(processor_threads=0, poller_threads=0).applied_to(settings) == settings, "no threads is no choice"
