"""A job's watchdog stops the handler's thread between a statement and its answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from pymysql.connections import Connection

from boxengine.domain.jobs import Succeeded
from boxengine.errors import JobLost, JobTimeout
from tests.conformance.jobs import BOX, SqlHarness, claim, end, new


@pytest.fixture
def jobs(mysql_url: str) -> Iterator[SqlHarness]:
    harness = SqlHarness(mysql_url)
    yield harness
    harness.close()


def strike(monkeypatch: pytest.MonkeyPatch, statement: str, error: type[Exception]) -> None:
    """Once, when the driver is about to read the answer to this statement."""
    driver: Any = Connection
    read, send = driver._read_query_result, driver._execute_command
    sent: list[bool] = []

    def note(self: Any, command: int, sql: Any) -> Any:
        if statement.encode() in (sql if isinstance(sql, bytes) else str(sql).encode()):
            sent.append(True)
        return send(self, command, sql)

    def answer(self: Any, unbuffered: bool = False) -> Any:
        if sent:
            monkeypatch.undo()
            raise error
        return read(self, unbuffered)

    monkeypatch.setattr(Connection, "_execute_command", note)
    monkeypatch.setattr(Connection, "_read_query_result", answer)


@pytest.mark.parametrize("error", [JobLost, JobTimeout])
def test_the_next_handler_gets_no_answer_to_the_statement_of_the_one_that_was_stopped(
    jobs: SqlHarness, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    jobs.create(new(), new())
    first, second = claim(jobs)
    unit = jobs.store.unit(BOX, first)
    unit.session.execute(sa.text("SELECT 1"))
    strike(monkeypatch, "SELECT 'of the first'", error)
    with pytest.raises(error):
        unit.session.execute(sa.text("SELECT 'of the first'"))
    unit.session.rollback()
    assert unit.checkpoint({"done": 1}) is True
    unit.close()
    unit = jobs.store.unit(BOX, second)
    assert unit.session.scalar(sa.text("SELECT 'of the second'")) == "of the second"
    unit.close()
    assert end(jobs, second, Succeeded())


def test_a_checkpoint_that_is_struck_leaves_no_answer_to_others(
    jobs: SqlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.create(new(), new())
    first, second = claim(jobs)
    strike(monkeypatch, "checkpoint", JobTimeout)
    with pytest.raises(JobTimeout):
        jobs.store.unit(BOX, first).checkpoint({"done": 1})
    unit = jobs.store.unit(BOX, second)
    assert unit.session.scalar(sa.text("SELECT 'of the second'")) == "of the second"
    unit.close()
    assert end(jobs, second, Succeeded())
