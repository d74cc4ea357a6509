"""On MySQL and MariaDB: whoever writes about a running job locks its row before an entry of an index, as a handler's end does.

Where one of two does it the other way around, each comes to wait for the other, and the server ends one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from boxengine.domain.jobs import ClaimedJob, Succeeded
from tests.conformance.jobs import BOX, SqlHarness, new
from tests.eventually import eventually

RUNNING = 30
Write = Callable[[SqlHarness, Sequence[ClaimedJob]], Any]


@pytest.fixture
def jobs(mysql_url: str) -> Iterator[SqlHarness]:
    harness = SqlHarness(mysql_url)
    with harness.engine.begin() as connection:
        # Among many rows the server prefers the index of those that run.
        connection.exec_driver_sql(
            "INSERT INTO report_jobs (task, args, status, finished_at) "
            "SELECT 't', '{}', 'succeeded', utc_timestamp(6) FROM seq_1_to_2000"
        )
    yield harness
    harness.close()


@pytest.mark.parametrize(
    "write",
    [
        lambda jobs, held: jobs.other.unit(BOX, held[0]).checkpoint({"at": 1}),
        lambda jobs, held: jobs.other.unit(BOX, held[0]).end(Succeeded()),
        lambda jobs, held: jobs.other.give_back(BOX, [job.held for job in held]),
    ],
    ids=["checkpoint", "end", "given back"],
)
def test_it_waits_for_a_handler_that_ends_and_neither_fails(jobs: SqlHarness, write: Write) -> None:
    jobs.create(*(new() for _ in range(RUNNING)))
    held = jobs.store.claim(BOX, RUNNING, worker="w")
    assert len(held) == RUNNING
    with ThreadPoolExecutor(1) as other, jobs.engine.connect() as handler:
        handler.exec_driver_sql(f"SELECT id FROM report_jobs WHERE id = {held[0].id} FOR UPDATE")
        written = other.submit(write, jobs, held)
        eventually(lambda: _waits(jobs))
        handler.exec_driver_sql(
            f"UPDATE report_jobs SET status = 'failed', holds = NULL, finished_at = utc_timestamp(6) WHERE id = {held[0].id}"
        )
        handler.commit()
        written.result(timeout=30)
    assert jobs.row(held[0].id)["status"] == "failed"


def _waits(jobs: SqlHarness) -> bool:
    """Not by ``information_schema.innodb_trx``, which gives whoever asks every few milliseconds the same answer for ever."""
    with jobs.engine.connect() as connection:
        found = connection.exec_driver_sql("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'").one()
        return int(found[1]) > 0
