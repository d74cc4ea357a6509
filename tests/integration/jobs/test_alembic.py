"""Alembic over the tables of long jobs: its migration makes them whole, and finds nothing to do afterwards."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase

import boxengine
from boxengine import Job, JobItem
from boxengine.adapters.sql.jobs import schema
from tests.integration.test_alembic import ENVIRONMENT, TEMPLATE, Project

HERE = "tests.integration.jobs.test_alembic"
CONFIGURATION = f"""
job_items:
  report_job: {{model: {HERE}.ReportJob, tasks: {{export: {HERE}.export}}}}
  import_job: {{tasks: {{export: {HERE}.export}}}}
"""


class Base(DeclarativeBase):
    pass


class ReportJob(JobItem, Base):
    __tablename__ = "report_jobs"


def export(job: Job[Any]) -> None:
    raise AssertionError("nobody calls it")


@pytest.mark.parametrize("server", ["postgres_url", "mysql_url"])
def test_a_migration_makes_all_tables_of_a_model_and_leaves_those_without_one_alone(
    server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    engine = create_engine(request.getfixturevalue(server))
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text(textwrap.dedent(ENVIRONMENT))
    (folder / "script.py.mako").write_text(textwrap.dedent(TEMPLATE))
    file = tmp_path / "outbox.yml"
    file.write_text(CONFIGURATION)
    project = Project(folder, engine, boxengine.load(file).resolved, Base.metadata)
    assert "boxengine" not in project.revise()
    project.upgrade()
    boxes = [pipeline.box for pipeline in project.resolved.jobs.values()]
    assert schema.check(engine, boxes[:1], {"report_job": ReportJob}) == []
    assert schema.create(engine, boxes, {"report_job": ReportJob}) == _all_of("import_jobs")
    project.check()
    command.downgrade(project.config, "base")
    assert schema.create(engine, boxes[:1], {"report_job": ReportJob}) == _all_of("report_jobs")
    engine.dispose()


def _all_of(table: str) -> list[str]:
    return [table, f"{table}_events", f"{table}_schedules", f"{table}_after"]
