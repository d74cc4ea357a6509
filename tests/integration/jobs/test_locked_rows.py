"""A running job whose row somebody has locked: the leases of the others are prolonged all the same, and their ends recorded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from boxengine.domain.jobs import Beat, Held, JobOutcome, Succeeded
from tests.conformance.jobs import BOX, SqlHarness, new


@pytest.fixture(params=["postgres_url", "mysql_url"])
def jobs(request: pytest.FixtureRequest) -> Iterator[SqlHarness]:
    harness = SqlHarness(request.getfixturevalue(request.param))
    yield harness
    harness.close()


def test_a_heartbeat_prolongs_the_leases_of_the_others_and_does_not_take_the_job_for_lost(jobs: SqlHarness) -> None:
    ids = jobs.create(new(), new(), new())
    held = [job.held for job in jobs.store.claim(BOX, 3, worker="w")]
    beats = [Beat(each, {"done": 1}) for each in held]
    before = [jobs.row(job_id)["lease_expires_at"] for job_id in ids]
    with jobs.engine.connect() as somebody:
        somebody.execute(sa.text(f"UPDATE report_jobs SET priority = 7 WHERE id = {ids[1]}"))
        assert jobs.other.beat(BOX, beats) == {ids[0]: False, ids[1]: None, ids[2]: False}
        after = [jobs.row(job_id)["lease_expires_at"] for job_id in ids]
        assert [one > other for one, other in zip(after, before, strict=True)] == [True, False, True]
        somebody.rollback()
    gone = Beat(Held(ids[2], held[2].token + 1))
    assert jobs.other.beat(BOX, [*beats[:2], gone]) == {ids[0]: False, ids[1]: False}
    assert jobs.row(ids[1])["progress"] == {"done": 1}


def test_the_ends_of_the_others_are_recorded_and_the_locked_one_once_it_is_let_go(jobs: SqlHarness) -> None:
    ids = jobs.create(new(), new(lock_key="k"), new())
    ends = [JobOutcome(job, Succeeded(result={"n": 1})) for job in jobs.store.claim(BOX, 3, worker="w")]
    held = [end.job.held for end in ends]
    with jobs.engine.connect() as somebody:
        somebody.execute(sa.text(f"UPDATE report_jobs SET priority = 7 WHERE id = {ids[1]}"))
        assert jobs.other.record(BOX, ends) == {ids[0], ids[2]}
        assert jobs.other.still_held(BOX, held) == {ids[1]}
        somebody.rollback()
    assert jobs.other.record(BOX, ends) == {ids[1]}
    assert jobs.other.still_held(BOX, held) == set()
    assert [jobs.row(job_id)["status"] for job_id in ids] == ["succeeded"] * 3
