"""Jobs that wait for other jobs, over memory, PostgreSQL and MariaDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from boxengine.domain.jobs import AfterFailure, Canceled, Ending, Failed, JobState, Requeued, Succeeded
from boxengine.errors import InvalidItem
from boxengine.ports.jobs import JobFilter
from tests.conformance.conftest import SERVERS
from tests.conformance.jobs import BOX, JobHarness, SqlHarness, claim, end, new

ANYWAY = AfterFailure.RUN


def look(jobs: JobHarness) -> list[int]:
    """What a worker may claim after its next look."""
    jobs.store.promote(BOX)
    return [job.id for job in claim(jobs)]


def create(jobs: JobHarness, *after: int, **attributes: Any) -> int:
    (made,) = jobs.create(new(after=after, **attributes))
    return made


def test_a_job_begins_when_all_that_it_waits_for_have_succeeded(jobs: JobHarness) -> None:
    jobs.create(new(), new())
    first, second = claim(jobs)
    last = create(jobs, first.id, second.id)
    assert look(jobs) == []
    assert jobs.desk.stat(BOX).blocked == 1
    assert end(jobs, second, Succeeded())
    assert look(jobs) == []
    assert jobs.row(last)["after"] == [
        {"id": first.id, "status": "running", "waits": True},
        {"id": second.id, "status": "succeeded", "waits": False},
    ]
    assert end(jobs, first, Succeeded())
    assert look(jobs) == [last]
    assert jobs.kinds(last) == ["queued", "released", "picked"]
    assert not any(each["waits"] for each in jobs.row(last)["after"])


def test_another_attempt_of_the_predecessor_is_waited_for(jobs: JobHarness) -> None:
    first = jobs.one()
    last = create(jobs, first.id)
    end(jobs, first, Requeued(pause=timedelta(0), error="no"))
    jobs.store.promote(BOX)
    (again,) = claim(jobs)
    assert again.id == first.id
    end(jobs, again, Succeeded())
    assert look(jobs) == [last]


@pytest.mark.parametrize(("ending", "how"), [(Failed(error="no"), "failed"), (Canceled(), "was canceled")])
def test_when_a_predecessor_does_not_succeed_all_that_follow_are_canceled_with_the_reason(
    jobs: JobHarness, ending: Ending, how: str
) -> None:
    first = jobs.one()
    second = create(jobs, first.id)
    third = create(jobs, second)
    end(jobs, first, ending)
    assert look(jobs) == []
    jobs.store.promote(BOX)
    rows = [jobs.row(each) for each in (second, third)]
    assert [row["status"] for row in rows] == ["canceled", "canceled"]
    assert [row["error"] for row in rows] == [
        f"job {first.id}, for which it waited, {how}",
        f"job {second}, for which it waited, was canceled",
    ]
    assert all(row["finished_at"] is not None for row in rows)
    assert jobs.row(second)["events"][-1]["payload"] == {"reason": rows[0]["error"]}


def test_a_lost_predecessor_cancels_too(jobs: JobHarness) -> None:
    first = jobs.one(new(max_attempts=1))
    last = create(jobs, first.id)
    jobs.pass_time(61)
    assert jobs.store.reap(BOX).lost == (first.id,)
    assert look(jobs) == []
    assert jobs.row(last)["error"] == f"job {first.id}, for which it waited, was lost"


def test_a_job_that_is_to_run_anyway_waits_for_the_end_only(jobs: JobHarness) -> None:
    first = jobs.one()
    last = create(jobs, first.id, after_failure=ANYWAY)
    assert look(jobs) == []
    end(jobs, first, Failed(error="no"))
    assert look(jobs) == [last]


def test_who_has_succeeded_already_is_not_waited_for(jobs: JobHarness) -> None:
    first = jobs.one()
    end(jobs, first, Succeeded())
    last = create(jobs, first.id)
    assert [job.id for job in claim(jobs)] == [last]


def test_who_has_failed_already_cancels_or_is_passed_over(jobs: JobHarness) -> None:
    first = jobs.one()
    end(jobs, first, Failed(error="no"))
    canceled, runs = create(jobs, first.id), create(jobs, first.id, after_failure=ANYWAY)
    assert look(jobs) == [runs]
    assert jobs.row(canceled)["status"] == "canceled"


def test_jobs_of_one_call_may_wait_for_more_jobs_than_a_statement_has_parameters(jobs: JobHarness) -> None:
    first = jobs.one().id
    followers = [new(after=range(start, start + 1000)) for start in range(first, first + 70_000, 1000)]
    with pytest.raises(InvalidItem, match=rf"after: there is no job {first + 1}\b"):
        jobs.create(*followers)


def test_a_job_that_is_not_there_is_refused_and_nothing_is_created(jobs: JobHarness) -> None:
    with pytest.raises(InvalidItem, match="after: there is no job 999999"):
        jobs.create(new(), new(after=(999_999,)))
    assert jobs.desk.list(BOX, JobFilter(), limit=9) == []


def test_a_predecessor_deleted_by_hand_cancels(jobs: JobHarness) -> None:
    (first,) = jobs.create(new(delay=timedelta(hours=1)))
    last = create(jobs, first)
    jobs.delete(first)
    assert look(jobs) == []
    assert jobs.row(last)["error"] == f"job {first}, for which it waited, is not there any more"


def test_a_follower_deleted_by_hand_keeps_no_predecessor_from_its_retention(jobs: JobHarness) -> None:
    first = jobs.one()
    last, other = create(jobs, first.id), create(jobs, first.id)
    jobs.delete(last)
    assert end(jobs, first, Succeeded())
    assert look(jobs) == [other]
    assert not jobs.store.promote(BOX).followers
    jobs.pass_time(86_401)
    assert jobs.store.delete_finished(BOX) == 1
    assert jobs.desk.show(BOX, first.id) is None


@pytest.mark.parametrize("ending", [Succeeded(), Failed(error="no")])
def test_retention_tells_the_followers_first(jobs: JobHarness, ending: Ending) -> None:
    first = jobs.one()
    last = create(jobs, first.id)
    end(jobs, first, ending)
    jobs.pass_time(86_401)
    assert jobs.store.delete_finished(BOX) == 1
    expected = [last] if isinstance(ending, Succeeded) else []
    assert look(jobs) == expected
    assert jobs.row(last)["status"] == ("running" if expected else "canceled")
    assert jobs.row(last)["after"] == [{"id": first.id, "status": None, "waits": False}]


def test_a_released_job_still_waits_for_its_time_and_its_lock(jobs: JobHarness) -> None:
    first = jobs.one()
    jobs.create(new(lock_key="k"))
    (holder,) = claim(jobs)
    delayed, locked = create(jobs, first.id, delay=timedelta(hours=1)), create(jobs, first.id, lock_key="k")
    end(jobs, first, Succeeded())
    assert look(jobs) == []
    end(jobs, holder, Succeeded())
    assert look(jobs) == [locked]
    jobs.pass_time(3601)
    assert look(jobs) == [delayed]


def test_an_idempotency_key_that_is_known_changes_nothing_about_the_first_job(jobs: JobHarness) -> None:
    (first,) = jobs.create(new(delay=timedelta(hours=1)))
    (known,) = jobs.create(new(idempotency_key="a"))
    assert create(jobs, first, idempotency_key="a") == known
    assert look(jobs) == [known]
    follower = create(jobs, first, idempotency_key="b")
    assert create(jobs, idempotency_key="b") == follower
    assert look(jobs) == []


def test_a_job_behind_others_is_canceled_by_hand(jobs: JobHarness) -> None:
    first = jobs.one()
    last = create(jobs, first.id)
    assert jobs.desk.cancel(BOX, JobFilter(ids=[last])) == 1
    end(jobs, first, Succeeded())
    assert look(jobs) == []
    assert jobs.kinds(last) == ["queued", "canceled"]


def test_queued_again_together_jobs_keep_their_order(jobs: JobHarness) -> None:
    first = jobs.one()
    last = create(jobs, first.id)
    end(jobs, first, Failed(error="no"))
    assert look(jobs) == []
    assert jobs.desk.retry(BOX, JobFilter(states=[JobState.FAILED, JobState.CANCELED])) == 2
    jobs.store.promote(BOX)
    (again,) = claim(jobs)
    assert again.id == first.id
    end(jobs, again, Succeeded())
    assert look(jobs) == [last]


def test_queued_again_alone_a_job_does_not_wait_for_what_has_failed(jobs: JobHarness) -> None:
    first = jobs.one()
    last = create(jobs, first.id)
    end(jobs, first, Failed(error="no"))
    assert look(jobs) == []
    assert jobs.desk.retry(BOX, JobFilter(ids=[last])) == 1
    assert look(jobs) == [last]


def test_a_look_says_whether_jobs_wait_for_others(jobs: JobHarness) -> None:
    first = jobs.one()
    assert not jobs.store.promote(BOX).followers
    create(jobs, first.id)
    assert jobs.store.promote(BOX).followers


def test_a_long_chain_of_canceled_jobs_ends_in_one_look(jobs: JobHarness) -> None:
    first = jobs.one()
    chain = [first.id]
    for _ in range(5):
        chain.append(create(jobs, chain[-1]))
    end(jobs, first, Failed(error="no"))
    for _ in range(5):  # in memory a look goes on for one generation
        jobs.store.promote(BOX)
    assert {jobs.row(each)["status"] for each in chain[1:]} == {"canceled"}


# ── of databases alone ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=SERVERS)
def tables(request: pytest.FixtureRequest, job_databases: Callable[[str], SqlHarness]) -> Iterator[SqlHarness]:
    harness = job_databases(request.param)
    yield harness
    harness.close()


def test_jobs_of_one_transaction_may_wait_for_each_other(tables: SqlHarness) -> None:
    with tables.engine.begin() as connection:
        (first,) = tables.insert(connection, new())
        (last,) = tables.insert(connection, new(after=(first,)))
    (job,) = claim(tables)
    assert job.id == first
    end(tables, job, Succeeded())
    assert look(tables) == [last]


def test_a_job_whose_creation_commits_after_its_predecessor_has_ended_begins(tables: SqlHarness) -> None:
    first = tables.one()
    with tables.engine.begin() as connection:
        (last,) = tables.insert(connection, new(after=(first.id,)))
        assert end(tables, first, Succeeded())  # and nobody waits for anybody
        assert look(tables) == []
    assert look(tables) == [last]


def test_a_follower_is_found_behind_more_jobs_than_one_look_reads(
    tables: SqlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxengine.adapters.sql.jobs.followers.LATEST", 1)
    monkeypatch.setattr("boxengine.adapters.sql.jobs.followers.WINDOW", 2)
    first, blocker = tables.create(new(), new(delay=timedelta(hours=1)))
    for _ in range(4):
        create(tables, blocker)
    last = create(tables, first)
    for job in (*claim(tables), tables.one()):  # the later end hides the first
        end(tables, job, Succeeded())
    found = [each for _ in range(4) for each in look(tables)]
    assert found == [last]
