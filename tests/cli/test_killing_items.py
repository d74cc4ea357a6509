"""An item that ends the process which sends it, among good neighbours, under a parent that starts the process anew."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import text

from tests.cli.project import Project
from tests.eventually import eventually

DEADLY = """
import os
from pathlib import Path

class Deadly:
    def call_batch(self, items):
        return [self(item, item.payload) for item in items]
    def __call__(self, item, payload):
        with Path("sent").open("a") as sent:
            sent.write(f"{item.event_key}\\n")
        if item.event_key == "5":
            os._exit(1)
"""


def test_an_item_that_ends_its_process_again_and_again_fails_with_a_reason_and_its_neighbours_are_delivered(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    project = Project(
        tmp_path, database=postgres_url, redis=redis_url, transports="deadly.Deadly: {}", more="    bucket_size: 1"
    )
    (tmp_path / "deadly.py").write_text(DEADLY)
    project.run("db", "create")
    project.fill(10, keys=10)
    with project.engine() as engine, project.worker("--processes", "2") as worker:

        def statuses() -> dict[str, int]:
            with engine.connect() as connection:
                rows = connection.execute(text("SELECT event_key, status FROM order_outbox_items"))
                return {row.event_key: row.status for row in rows}

        expected = {str(key): 1 if key == 5 else 2 for key in range(10)}
        eventually(lambda: statuses() == expected, what="all but the deadly item are delivered")
        with engine.connect() as connection:
            log = connection.execute(text("SELECT error_log FROM order_outbox_items WHERE status = 1")).scalar_one()
        assert worker.stop() == 0
    assert "worker: the worker ended while sending this item" in log
    sent = (tmp_path / "sent").read_text().split()
    assert sent.count("5") == 5, "twice among its neighbours, and three times alone"
    assert max(sent.count(str(key)) for key in range(10) if key != 5) == 3
