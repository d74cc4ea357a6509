"""Mistakes that handlers make with their sessions, and what the attempt's error says about them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from boxengine.domain.jobs import JobState
from tests.integration.jobs.shop import Shop

ADVICE = "an earlier statement of the handler failed"
DUPLICATE = "IntegrityError"


@pytest.fixture
def shop(postgres_url: str, tmp_path: Path) -> Iterator[Shop]:
    with closing(Shop(tmp_path, postgres_url)) as shop:
        yield shop


@pytest.fixture
def mysql_shop(mysql_url: str, tmp_path: Path) -> Iterator[Shop]:
    with closing(Shop(tmp_path, mysql_url)) as shop:
        yield shop


def effects(shop: Shop) -> list[str]:
    with shop.engine.connect() as connection:
        return list(connection.scalars(text("SELECT body FROM effects ORDER BY id")))


def end_of(shop: Shop, task: str, state: JobState, **args: Any) -> Any:
    with shop.worker():
        return shop.becomes(shop.create(task, args=args, max_attempts=1), state)


@pytest.mark.parametrize("then", ["end", "checkpoint", "statement"])
@pytest.mark.parametrize("how", ["statement", "flush"])
def test_whoever_goes_on_after_a_failed_statement_is_told_of_it_and_of_savepoints(
    shop: Shop, how: str, then: str
) -> None:
    row = end_of(shop, "swallow", JobState.FAILED, how=how, then=then)
    if (how, then) == ("flush", "statement"):
        assert "previous exception during flush" in row["error"], "SQLAlchemy's own words"
    else:
        assert ADVICE in row["error"]
        assert "begin_nested()" in row["error"]
    assert DUPLICATE in row["error"] or then == "statement", "what has failed first"
    assert (row["checkpoint"], effects(shop)) == (None, [])


def test_a_mistake_in_a_transaction_is_no_outage(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    row = end_of(shop, "swallow", JobState.FAILED, how="statement")
    assert "StoreUnavailable" not in row["error"]
    assert not [record for record in caplog.records if "does not answer" in record.getMessage()]


def test_an_error_in_a_savepoint_leaves_the_rest(shop: Shop) -> None:
    row = end_of(shop, "swallow", JobState.SUCCEEDED, how="savepoint", then="checkpoint")
    assert (row["result"], effects(shop)) == ("done", ["first"])


def test_a_handler_that_rolls_back_may_go_on(shop: Shop) -> None:
    row = end_of(shop, "swallow", JobState.SUCCEEDED, how="flush", then="rollback")
    assert (row["result"], effects(shop)) == ("done", [])


def test_mariadb_keeps_what_was_written_before_a_failed_statement(mysql_shop: Shop) -> None:
    row = end_of(mysql_shop, "swallow", JobState.SUCCEEDED, how="statement", then="checkpoint")
    assert (row["result"], effects(mysql_shop)) == ("done", ["first"])


@pytest.mark.parametrize("what", ["execute", "delete"])
def test_a_call_of_the_session_that_nobody_awaits_fails_the_attempt_and_undoes_the_rest(shop: Shop, what: str) -> None:
    row = end_of(shop, "forget", JobState.FAILED, what=what)
    assert f"BoxError: session.{what}(...): was not awaited" in row["error"]
    assert effects(shop) == []


def test_a_forgotten_await_is_found_among_many_statements(shop: Shop) -> None:
    row = end_of(shop, "forget", JobState.FAILED, what="execute", statements=100)
    assert "session.execute(...): was not awaited" in row["error"]


def test_a_checkpoint_that_nobody_awaits_is_named(shop: Shop) -> None:
    row = end_of(shop, "forget", JobState.FAILED, what="checkpoint")
    assert "job.checkpoint(...): was not awaited" in row["error"]


def test_a_call_that_another_task_awaits_is_awaited(shop: Shop) -> None:
    row = end_of(shop, "forget", JobState.SUCCEEDED, what="task")
    assert (row["result"], effects(shop)) == ("done", ["kept", "in a task"])


@pytest.mark.parametrize("how", ["begin", "commit", "close"])
@pytest.mark.parametrize("task", ["commit", "commit_awaited"])
def test_only_the_job_commits_and_closes_its_session(shop: Shop, task: str, how: str) -> None:
    row = end_of(shop, task, JobState.FAILED, how=how)
    assert "leave out begin(), commit() and close(); begin_nested() makes savepoints" in row["error"]
    assert effects(shop) == []


@pytest.mark.parametrize("task", ["block", "block_awaited"])
def test_what_a_handler_writes_in_a_block_of_the_session_is_kept(shop: Shop, task: str) -> None:
    end_of(shop, task, JobState.SUCCEEDED)
    assert effects(shop) == ["in a block"]


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("the session", "InvalidRequestError: This Session has been permanently closed"),
        ("job.session", "JobLost: job 1 of report_job: its handler has ended"),
        ("job.checkpoint", "JobLost: job 1 of report_job: its handler has ended"),
        ("job.progress", "JobLost: job 1 of report_job: its handler has ended"),
        ("job.ensure_held", "JobLost: job 1 of report_job: its handler has ended"),
    ],
)
def test_a_thread_that_outlives_its_handler_is_refused_and_leaves_no_transaction_open(
    shop: Shop, way: str, told: str
) -> None:
    with shop.worker():
        shop.becomes(shop.create("leave_a_thread", args={"test": shop.test, "way": way}), JobState.SUCCEEDED)
        busy = _keep_all_threads_busy(shop)
        shop.gates["the handler has ended"].set()
        assert shop.gates["the thread has ended"].wait(60)
        assert any(each.startswith(told) for each in shop.gates.open), shop.gates.open
        assert _open_transactions(shop) == []
        for gate in busy:
            gate.set()
    assert effects(shop) == []


def _keep_all_threads_busy(shop: Shop) -> list[threading.Event]:
    """Returns once none of them is at the end of an earlier job any more, with what lets them go."""
    ids = [shop.guarded() for _ in range(shop.box.concurrency)]
    for each in ids:
        assert shop.gates[f"begun {each}"].wait(60)
    return [shop.gates[f"go {each}"] for each in ids]


def _open_transactions(shop: Shop) -> list[Any]:
    query = "SELECT query FROM pg_stat_activity WHERE query LIKE '%too late%' AND state LIKE 'idle in transaction%'"
    with shop.engine.connect() as connection:
        return list(connection.scalars(text(query)))
