"""What is less urgent is served too, however much urgent work there is."""

from __future__ import annotations

import pytest

from boxengine.domain.jobs import JobState
from boxengine.engine.jobs.aging import EVERY, AgedShare
from tests.unit.jobs.crew import BOX, Crew

assert BOX.aging is not None
AGED = BOX.aging.total_seconds() + 1


def test_a_stream_of_urgent_jobs_does_not_starve_the_others() -> None:
    # Long ones, so that none is claimed ahead.
    crew = Crew(lambda _job: crew.pass_time(1))
    low = crew.create(priority=200)
    crew.pass_time(1)
    for _ in range(4 * EVERY):
        crew.create(priority=1)
    for _ in range(EVERY):
        crew.work()
    assert crew.row(low).status is JobState.QUEUED
    crew.pass_time(AGED)
    for _ in range(EVERY + BOX.concurrency):
        crew.work()
    assert crew.row(low).status is JobState.SUCCEEDED
    assert any(row.status is JobState.QUEUED for row in crew.jobs.tables[BOX.name].values())


@pytest.mark.parametrize("size", [1, 3, 10, 25, 500])
def test_one_of_ten_jobs_may_be_an_old_one_whatever_the_size_of_a_claim(size: int) -> None:
    share, claimed, old = AgedShare(), 0, 0
    while claimed < 100 * EVERY * size:
        oldest = share.among(size)
        share.note(size, oldest)
        claimed, old = claimed + size, old + oldest
    assert old == pytest.approx(claimed / EVERY, abs=1)


def test_the_first_claim_of_a_process_looks_at_old_jobs() -> None:
    assert AgedShare().among(1) == 1


def test_a_claim_that_found_little_leaves_no_debt() -> None:
    share = AgedShare()
    share.note(0, share.among(500))
    assert sum(_one(share) for _ in range(EVERY)) == 1


def _one(share: AgedShare) -> int:
    oldest = share.among(1)
    share.note(1, oldest)
    return oldest
