"""The metrics of long jobs, moved by a running worker, after jobs whose ends are known."""

from __future__ import annotations

import uuid
from pathlib import Path

import yaml
from sqlalchemy import create_engine

import boxengine
from boxengine.adapters.sql.jobs import schema
from boxengine.app.boxes import load_for_worker
from tests.eventually import eventually
from tests.integration.jobs.handlers import GATES, Gates

HERE = "tests.integration.jobs.handlers"
LABELS = {"type": "job", "name": "report_job", "owner": "reports"}


def test_every_metric_of_long_jobs_has_its_value(tmp_path: Path, postgres_url: str) -> None:
    configuration = {
        "database": {"url": postgres_url},
        "metrics": {"enabled": True},
        "owner": "reports",
        "jobs": {"poll_interval": 0.02, "heartbeat": 0.1, "reaper_period": 0.1},
        "job_items": {
            "report_job": {
                "concurrency": 3,
                "max_attempts": 1,
                "tasks": {"guarded": f"{HERE}.Guarded", "export": f"{HERE}.export"},
            }
        },
    }
    path = tmp_path / "outbox.yml"
    path.write_text(yaml.safe_dump(configuration))
    boxes, test = load_for_worker(path), uuid.uuid4().hex
    gates = GATES[test] = Gates()
    engine = create_engine(postgres_url)
    schema.create(engine, [boxes.resolved.jobs["report_job"].box], {})
    with engine.begin() as connection:
        guarded = [boxes.create_job(connection, "report_job", task="guarded", args={"test": test}) for _ in range(2)]
        # Without the table that the handler writes to, it fails.
        boxes.create_job(connection, "report_job", task="export", args={"rows": 1})
    with boxengine.running(boxes) as worker:

        def value(metric: str, **labels: str) -> float:
            assert worker.registry is not None
            found = worker.registry.get_sample_value(metric, LABELS | labels)
            return 0.0 if found is None else found

        eventually(lambda: value("queue_tasks_in_progress") == 2)
        assert value("queue_running_job_processors") == 3
        assert value("queue_running_workers") == 1
        eventually(lambda: value("queue_jobs_ended_total", end="failed") == 1)
        assert value("queue_job_processor_cycle_duration_seconds_count") == 1
        for job in guarded:
            gates[f"go {job}"].set()
        eventually(lambda: value("queue_jobs_ended_total", end="succeeded") == 2)
        assert value("queue_job_processor_cycle_duration_seconds_count") == 3
        assert value("queue_job_processor_cycle_duration_seconds_bucket", le="86400.0") == 3
        assert value("queue_job_processor_cycle_duration_seconds_sum") > 0
        eventually(lambda: value("queue_tasks_in_progress") == 0)
        measured = worker.registry
        assert measured is not None
        waiting = [{**LABELS, "state": state} for state in ("ready", "delayed", "blocked")]
        eventually(lambda: all(measured.get_sample_value("queue_jobs_waiting", each) is not None for each in waiting))
        assert measured.get_sample_value("queue_oldest_ready_age_seconds", LABELS) is not None
        with engine.begin() as connection:
            boxes.create_job(connection, "report_job", task="guarded", args={"test": test}, delay=3600)
            connection.exec_driver_sql(
                "UPDATE report_jobs SET status = 'running', attempt = 1, token = 1, lease_expires_at = now() WHERE waits = 1"
            )
        eventually(lambda: value("queue_jobs_reaped_total", state="lost") == 1)
        assert value("queue_jobs_reaped_total", state="requeued") == 0
    del GATES[test]
    engine.dispose()
