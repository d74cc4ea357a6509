"""Each statement of a job box is the one in ``golden``, where it can be read and reviewed as SQL.

A server answers them, since what a claim does next depends on what it found. After a change on purpose: ``make golden-sql``,
and read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from boxengine.adapters.sql.jobs import schema
from boxengine.domain.jobs import Beat, ClaimedJob, JobOutcome, JobState, Requeued, Succeeded
from boxengine.ports.jobs import JobFilter
from tests.conformance.jobs import BOX, SqlHarness, new
from tests.unit.sql.golden import REWRITE, by_statement, rendered

FOLDER = Path(__file__).parent / "golden"


@pytest.mark.parametrize("dialect", ["postgresql", "mysql"])
def test_every_statement_of_a_job_box_is_the_one_that_was_reviewed(
    dialect: str, request: pytest.FixtureRequest
) -> None:
    harness = SqlHarness(request.getfixturevalue({"postgresql": "postgres_url", "mysql": "mysql_url"}[dialect]))
    try:
        found = Sayings(harness).found
    finally:
        harness.close()
    file = FOLDER / f"{dialect}.sql"
    text = rendered({"work": found, "make": {"tables": schema.ddl(dialect, [BOX], {})}})
    if os.environ.get(REWRITE):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert by_statement(text) == by_statement(file.read_text())


class Sayings:
    """What is said to the server in the life of a few jobs, by the step that says it."""

    def __init__(self, harness: SqlHarness) -> None:
        self.found: dict[str, list[str]] = {}
        self._harness = harness
        store, desk = harness.store, harness.desk
        self._tell("looks of an idle worker", lambda: (store.promote(BOX), store.reap(BOX), store.delete_finished(BOX)))
        first, *_ = self._tell("create", lambda: harness.create(new(), new(lock_key="a"), new(lock_key="a")))
        self._tell("create a follower", lambda: harness.create(new(after=(first,))))
        plain, keyed = self._tell("claim, with a lock_key", lambda: store.claim(BOX, 3, worker="w"))
        harness.create(new(lock_key="a"))
        self._tell("claim, with a held lock_key", lambda: store.claim(BOX, 1, worker="w"))
        self._tell("claim by age too", lambda: store.claim(BOX, 1, worker="w", oldest=1))
        self._tell("heartbeat", lambda: store.beat(BOX, [Beat(plain.held, {"done": 1}), Beat(keyed.held, None)]))
        self._tell("checkpoint", lambda: self._unit(plain).checkpoint({"line": 7}))
        self._tell("end with the handler's session", lambda: self._unit(plain).end(Succeeded(result=1)))
        again = Requeued(pause=timedelta(0), error="timed out")
        self._tell("ends of several", lambda: store.record(BOX, [JobOutcome(keyed, again)]))
        self._tell("jobs whose time has come, and followers", lambda: store.promote(BOX))
        self._tell("lag", lambda: store.lag(BOX))
        self._tell("backlog", lambda: store.backlog(BOX, limit=10))
        jobs = store.claim(BOX, 3, worker="w")
        self._tell("give back", lambda: store.give_back(BOX, [jobs[0].held]))
        harness.pass_time(100)
        self._tell("reap", lambda: store.reap(BOX))
        self._tell("cancel", lambda: desk.cancel(BOX, JobFilter(ids=[jobs[0].id])))
        self._tell("retry", lambda: desk.retry(BOX, JobFilter(states=[JobState.CANCELED])))
        self._tell("statistics", lambda: desk.stat(BOX))
        harness.pass_time(2 * BOX.retention.total_seconds())
        self._tell("deletion of old jobs", lambda: store.delete_finished(BOX))

    def _unit(self, job: ClaimedJob) -> Any:
        return self._harness.store.unit(BOX, job)

    def _tell(self, name: str, step: Callable[[], Any]) -> Any:
        with spoken(self._harness.engine) as texts:
            answer = step()
        self.found[name] = texts
        return answer


@contextmanager
def spoken(engine: Engine) -> Iterator[list[str]]:
    """The statements that are executed meanwhile."""
    texts: list[str] = []

    def keep(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        texts.append(statement.replace("%%", "%"))

    event.listen(engine, "before_cursor_execute", keep)
    try:
        yield texts
    finally:
        event.remove(engine, "before_cursor_execute", keep)
