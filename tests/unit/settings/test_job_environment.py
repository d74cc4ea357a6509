"""What environment variables say of long jobs holds where no file does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from boxengine.errors import ConfigurationError
from boxengine.settings import explain
from tests.unit.settings.folder import Folder

BOXES = """
    job_items:
      report_job:
      load_job: {concurrency: 7, lease_ttl: 30}
"""
VARIABLES = {
    "WORKERS_JSON": '[{"queue": "report_job", "concurrency": 4}, {"queue": "load_job", "concurrency": 9}]',
    "DL_HEARTBEAT_SEC": "5",
    "DL_REAPER_PERIOD_SEC": "2.5",
    "DL_DEFAULT_LEASE_TTL_SEC": "90",
    "DL_DB_DSN": "postgresql://u@db/shop",
}


def test_each_variable_is_the_default_of_its_key_and_a_file_goes_before_it(folder: Folder) -> None:
    folder.environ.update(VARIABLES)
    settings = folder.settings(BOXES)
    report, load = settings.job_items["report_job"], settings.job_items["load_job"]
    assert (report.concurrency, report.lease_ttl) == (4, timedelta(seconds=90))
    assert (load.concurrency, load.lease_ttl) == (7, timedelta(seconds=30))
    assert (settings.jobs.heartbeat, settings.jobs.reaper_period) == (timedelta(seconds=5), timedelta(seconds=2.5))
    assert settings.database.url == "postgresql://u@db/shop"
    rows = {row.path: row.source for row in explain(settings)}
    assert rows["job_items.report_job.concurrency"] == "environment ($WORKERS_JSON)"
    assert rows["jobs.heartbeat"] == "environment ($DL_HEARTBEAT_SEC)"
    assert rows["job_items.load_job.concurrency"] == "outbox.yml"


def test_database_url_goes_before_the_dsn(folder: Folder) -> None:
    folder.environ.update(VARIABLES, DATABASE_URL="postgresql://own/db")
    assert folder.settings(BOXES).database.url == "postgresql://own/db"


def test_a_configuration_without_long_jobs_is_left_alone(folder: Folder) -> None:
    folder.environ.update(VARIABLES)
    settings = folder.settings("owner: me")
    assert (settings.database.url, settings.jobs.heartbeat) == (None, timedelta(seconds=10))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "expected a list such as"),
        ("{}", "expected a list such as"),
        ('[{"queue": "report_job"}]', "expected a list such as"),
        ('[{"queue": "nope", "concurrency": 1}]', "names the queue 'nope'; expected one of report_job, load_job"),
    ],
)
def test_workers_that_make_no_sense_are_refused(folder: Folder, text: str, expected: str) -> None:
    folder.environ.update(WORKERS_JSON=text)
    assert expected in folder.problems(BOXES)["job_items"]


@pytest.mark.parametrize("variable", ["DL_HEARTBEAT_SEC", "DL_DEFAULT_LEASE_TTL_SEC"])
@pytest.mark.parametrize("value", ["soon", "nan", "-1"])
def test_a_time_that_is_none_names_its_variable(folder: Folder, variable: str, value: str) -> None:
    folder.environ[variable] = value
    folder.write("job_items: {report_job: }")
    with pytest.raises(ConfigurationError) as error:
        folder.load()
    assert variable in str(error.value)
