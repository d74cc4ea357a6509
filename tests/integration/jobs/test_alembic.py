"""Alembic over the tables of long jobs: its migration makes them whole, and finds nothing to do afterwards."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import DeclarativeBase

import boxengine
from boxengine import Job, JobItem
from boxengine.adapters.sql.jobs import schema, upgrade
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
    project = project_of(engine, tmp_path)
    assert "boxengine" not in project.revise()
    project.upgrade()
    boxes = [pipeline.box for pipeline in project.resolved.jobs.values()]
    assert schema.check(engine, boxes[:1], {"report_job": ReportJob}) == []
    with engine.connect() as connection:
        assert upgrade.plan(connection, boxes[:1], {"report_job": ReportJob}) == []
    assert schema.create(engine, boxes, {"report_job": ReportJob}) == _all_of("import_jobs")
    project.check()
    command.downgrade(project.config, "base")
    assert schema.create(engine, boxes[:1], {"report_job": ReportJob}) == _all_of("report_jobs")
    engine.dispose()


def test_a_migration_gives_the_tables_the_settings_that_db_create_gives_them(postgres_url: str, tmp_path: Path) -> None:
    engine = create_engine(postgres_url)
    project = project_of(engine, tmp_path)
    project.revise()
    project.upgrade()
    wanted = ["autovacuum_vacuum_scale_factor=0.02", "autovacuum_vacuum_threshold=1000", "fillfactor=80"]
    assert _settings(engine) == dict.fromkeys(_all_of("report_jobs"), wanted)
    project.check()
    # As an earlier version left it.
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE report_jobs RESET (fillfactor)"))
    written = project.revise()
    assert written.count("op.execute") == 1
    project.upgrade()
    assert _settings(engine) == dict.fromkeys(_all_of("report_jobs"), wanted)
    engine.dispose()


def project_of(engine: Engine, tmp_path: Path) -> Project:
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text(textwrap.dedent(ENVIRONMENT))
    (folder / "script.py.mako").write_text(textwrap.dedent(TEMPLATE))
    file = tmp_path / "outbox.yml"
    file.write_text(CONFIGURATION)
    return Project(folder, engine, boxengine.load(file).resolved, Base.metadata)


def _settings(engine: Engine) -> dict[str, list[str]]:
    """The storage settings of the job box's tables, by table."""
    query = text("SELECT relname, reloptions FROM pg_class WHERE relkind = 'r' AND relname = ANY (:names)")
    with engine.connect() as connection:
        rows = connection.execute(query, {"names": _all_of("report_jobs")})
        return {name: sorted(options or ()) for name, options in rows}


def _all_of(table: str) -> list[str]:
    return [table, f"{table}_events", f"{table}_schedules", f"{table}_after"]
