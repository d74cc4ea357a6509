"""What docs/security.md says accounts need on the tables of a box of jobs is enough."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, event, text

import boxengine
from boxengine.adapters.sql.jobs.checkup import SqlJobCheckup
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.app.boxes import load_for_worker
from boxengine.domain.jobs import JobState
from tests.integration.jobs.handlers import ReportJob
from tests.integration.jobs.shop import Shop

APPLICATION = {"": "INSERT, SELECT", "_events": "INSERT, SELECT", "_after": "INSERT, SELECT"}
WORKER = dict.fromkeys(("", "_events", "_schedules", "_after"), "SELECT, INSERT, UPDATE, DELETE")


@pytest.fixture
def shop(postgres_url: str, tmp_path: Path) -> Iterator[Shop]:
    with closing(Shop(tmp_path, postgres_url)) as shop:
        yield shop


@contextmanager
def account(shop: Shop, name: str, grants: dict[str, str]) -> Iterator[Engine]:
    """An account with these privileges on the tables with these endings, and USAGE on their sequences."""
    role, table = f"{name}_{shop.engine.url.database}", shop.box.table
    sequences = text(
        "SELECT s.relname FROM pg_class AS s JOIN pg_depend AS d ON d.objid = s.oid JOIN pg_class AS t ON t.oid = d.refobjid "
        "WHERE s.relkind = 'S' AND t.relname = ANY(:tables)"
    )
    with shop.engine.begin() as owner:
        owner.execute(text(f"CREATE ROLE {role} LOGIN"))
        for ending, privileges in grants.items():
            owner.execute(text(f"GRANT {privileges} ON {table}{ending} TO {role}"))
        for sequence in owner.scalars(sequences, {"tables": [f"{table}{ending}" for ending in grants]}).all():
            owner.execute(text(f"GRANT USAGE ON SEQUENCE {sequence} TO {role}"))
    engine = create_engine(shop.engine.url.set(username=role))
    try:
        yield engine
    finally:
        engine.dispose()
        with shop.engine.begin() as owner:
            owner.execute(text(f"DROP OWNED BY {role}"))
            owner.execute(text(f"DROP ROLE {role}"))


def test_doctor_names_each_of_the_workers_privileges_that_is_missing(shop: Shop) -> None:
    with account(shop, "worker", WORKER) as worker:
        checkup = SqlJobCheckup(SqlJobs(worker, {shop.box.name: ReportJob}), {shop.box.name: ReportJob})
        for ending in WORKER:
            table = f"{shop.box.table}{ending}"
            assert not [remark for remark in checkup.remarks([shop.box]) if remark.is_finding]
            with shop.engine.begin() as owner:
                owner.execute(text(f"REVOKE INSERT ON {table} FROM {worker.url.username}"))
            (remark,) = [remark for remark in checkup.remarks([shop.box]) if remark.is_finding]
            assert remark.text == f"This account may not INSERT on {table}."
            assert str(remark.advice).startswith(f"As its owner: GRANT INSERT ON {table} TO {worker.url.username}")
            with shop.engine.begin() as owner:
                owner.execute(text(f"GRANT INSERT ON {table} TO {worker.url.username}"))


def test_doctor_names_each_sequence_that_the_worker_may_not_draw_from(shop: Shop) -> None:
    with account(shop, "worker", WORKER) as worker:
        checkup = SqlJobCheckup(SqlJobs(worker, {shop.box.name: ReportJob}), {shop.box.name: ReportJob})
        for ending in ("", "_events"):
            sequence = f"{shop.box.table}{ending}_id_seq"
            with shop.engine.begin() as owner:
                owner.execute(text(f"REVOKE USAGE ON SEQUENCE {sequence} FROM {worker.url.username}"))
            (remark,) = [remark for remark in checkup.remarks([shop.box]) if remark.is_finding]
            assert remark.text == f"This account may not draw from {sequence}."
            with shop.engine.begin() as owner:
                owner.execute(text(str(remark.advice).removeprefix("As its owner: ")))
            assert not [remark for remark in checkup.remarks([shop.box]) if remark.is_finding]


def test_doctor_names_each_table_whose_rows_row_level_security_may_hide(shop: Shop) -> None:
    with account(shop, "worker", WORKER) as worker:
        checkup = SqlJobCheckup(SqlJobs(worker, {shop.box.name: ReportJob}), {shop.box.name: ReportJob})
        for ending in WORKER:
            table = f"{shop.box.table}{ending}"
            with shop.engine.begin() as owner:
                owner.execute(text(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"))
            (remark,) = [remark for remark in checkup.remarks([shop.box]) if remark.is_finding]
            assert remark.text.startswith(f"Row-level security may hide rows of {table} from this account")
            with shop.engine.begin() as owner:
                owner.execute(text(str(remark.advice).removeprefix("As its owner: ")))
            assert not [remark for remark in checkup.remarks([shop.box]) if remark.is_finding]


def test_the_applications_and_the_workers_privileges_are_enough(shop: Shop, tmp_path: Path) -> None:
    with account(shop, "app", APPLICATION) as application, account(shop, "worker", WORKER) as worker:
        with application.begin() as connection:
            args = {"rows": 1}
            first = shop.boxes.create_job(connection, ReportJob, task="export", args=args, idempotency_key="once")
            again = shop.boxes.create_job(connection, ReportJob, task="export", args=args, idempotency_key="once")
            later = shop.boxes.create_job(connection, ReportJob, task="export", args=args, after=[first])
        url = worker.url.render_as_string(hide_password=False)
        own = tmp_path / "worker.yml"
        own.write_text(shop.path.read_text().replace(shop.engine.url.render_as_string(hide_password=False), url))
        assert url in own.read_text()
        with shop.engine.begin() as owner:
            owner.execute(text(f"GRANT ALL ON effects, effects_id_seq TO {worker.url.username}"))
        with boxengine.running(load_for_worker(own)):
            assert shop.becomes(first, JobState.SUCCEEDED)
            assert shop.becomes(later, JobState.SUCCEEDED)
        assert again == first


def test_they_are_enough_where_somebody_else_has_created_the_job_in_the_same_moment(shop: Shop) -> None:
    others: list[int] = []

    def create_first(*_: object) -> None:
        if not others:
            others.append(shop.create("export", args={"rows": 1}, idempotency_key="once"))

    with account(shop, "app", APPLICATION) as application:
        event.listen(application, "savepoint", create_first)
        with application.begin() as connection:
            mine = shop.boxes.create_job(connection, ReportJob, task="export", args={"rows": 1}, idempotency_key="once")
    assert [mine] == others
