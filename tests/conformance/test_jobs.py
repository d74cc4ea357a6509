"""The contract of ``JobStore`` and ``JobDesk``, over memory, PostgreSQL and MariaDB."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from boxengine.domain.jobs import (
    Beat,
    Canceled,
    ClaimedJob,
    Ending,
    Failed,
    Held,
    JobBacklog,
    JobOutcome,
    JobState,
    Requeued,
    Succeeded,
)
from boxengine.errors import InvalidItem, StoreConflict
from boxengine.ports.jobs import JobFilter, JobStore
from tests.conformance.jobs import BOX, JobHarness, claim, end, new

# ── claims ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_lowest_priority_number_goes_first_then_the_oldest(jobs: JobHarness) -> None:
    a, b, c, d = jobs.create(new(), new(), new(priority=5), new(priority=200))
    assert [job.id for job in claim(jobs, 3)] == [c, a, b]
    assert [job.id for job in claim(jobs)] == [d]
    assert claim(jobs) == []


def test_a_claimed_job_has_what_it_was_created_with(jobs: JobHarness) -> None:
    (made,) = jobs.create(
        new(
            "export",
            args={"day": "2026-01-01", "n": [1, 2]},
            partition_key="p",
            idempotency_key="i",
            trace_context={"traceparent": "a-b"},
        )
    )
    (job,) = claim(jobs, worker="host:1")
    assert (job.id, job.task, job.args) == (made, "export", {"day": "2026-01-01", "n": [1, 2]})
    assert (job.attempt, job.max_attempts, job.lease_ttl) == (1, 3, timedelta(seconds=60))
    assert (job.partition_key, job.idempotency_key, job.checkpoint) == ("p", "i", None)
    assert job.trace_context == {"traceparent": "a-b"}
    row = jobs.row(made)
    assert (row["status"], row["attempt"], row["worker"]) == ("running", 1, "host:1")
    assert row["lease_expires_at"] - row["heartbeat_at"] == pytest.approx(
        timedelta(seconds=60), abs=timedelta(seconds=1)
    )
    assert row["started_at"] is not None
    assert jobs.kinds(made) == ["queued", "picked"]


def test_a_delayed_job_is_claimed_when_its_time_has_come(jobs: JobHarness) -> None:
    jobs.create(new(delay=timedelta(seconds=3600)), new(delay=timedelta(seconds=7200)))
    due = jobs.store.promote(BOX)
    assert (due.promoted, due.ready) == (0, False)
    assert due.next_due is not None
    assert timedelta(seconds=3590) < due.next_due <= timedelta(seconds=3600)
    assert claim(jobs) == []
    jobs.pass_time(3601)
    assert jobs.store.promote(BOX).promoted == 1
    assert len(claim(jobs)) == 1


def test_a_look_says_whether_a_job_could_be_claimed(jobs: JobHarness) -> None:
    assert not jobs.store.promote(BOX).ready
    jobs.create(new(lock_key="a"), new(lock_key="a"))
    assert jobs.store.promote(BOX).ready
    assert len(claim(jobs, 2)) == 1
    # The other one waits for its key.
    assert not jobs.store.promote(BOX).ready


def test_two_claims_at_once_share_the_jobs(jobs: JobHarness) -> None:
    made = jobs.create(*(new() for _ in range(40)))
    taken = at_once(jobs, 20)
    assert sorted(taken) == made


def test_two_claims_at_once_never_take_two_jobs_of_one_lock_key(jobs: JobHarness) -> None:
    # Later ones go first, so that two claims see different jobs at the head of a key.
    for round_number in range(5):
        jobs.create(*(new(lock_key=f"{round_number}-{number % 3}", priority=100 - number) for number in range(12)))
        assert len(at_once(jobs, 6)) == 3


def at_once(jobs: JobHarness, count: int) -> list[int]:
    """What two processes claim in the same moment. A claim that a server breaks off for the other's sake is tried again."""
    begin, taken = threading.Barrier(2), list[int]()

    def take(store: JobStore) -> None:
        begin.wait()
        while True:
            with suppress(StoreConflict):
                taken.extend(job.id for job in store.claim(BOX, count, worker="w"))
                return

    threads = [threading.Thread(target=take, args=[store]) for store in (jobs.store, jobs.other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken


# ── lock keys ────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_behind_its_lock_costs_no_attempt_and_goes_when_the_holder_has_ended(jobs: JobHarness) -> None:
    first, second, third = jobs.create(new(lock_key="k"), new(lock_key="k"), new())
    taken = claim(jobs)
    assert [job.id for job in taken] == [first, third]
    assert claim(jobs) == []
    assert jobs.row(second)["attempt"] == 0
    assert jobs.kinds(second) == ["queued"]
    assert end(jobs, taken[0], Succeeded())
    assert [job.id for job in claim(jobs)] == [second]


@pytest.mark.parametrize("running", [False, True])
def test_keys_that_differ_in_spaces_at_their_end_stop_no_other_job(jobs: JobHarness, running: bool) -> None:
    """MySQL's collations take them for one key."""
    ids = jobs.create(new(lock_key="k"))
    taken = claim(jobs) if running else []
    ids += jobs.create(new(lock_key="k "), new(lock_key="j"), new())
    taken += claim(jobs)
    assert {job.id for job in taken} >= {ids[0], ids[2], ids[3]}
    assert end(jobs, next(job for job in taken if job.id == ids[0]), Succeeded())
    taken += claim(jobs)
    assert sorted(job.id for job in taken) == ids


def test_many_jobs_behind_one_lock_do_not_hide_the_others(jobs: JobHarness) -> None:
    jobs.create(*(new(lock_key="k", priority=1) for _ in range(50)))
    (other,) = jobs.create(new())
    assert len(claim(jobs, 1)) == 1
    assert [job.id for job in claim(jobs, 1)] == [other]


@pytest.mark.parametrize(
    "ending",
    [
        Succeeded(),
        Failed(error="no"),
        Canceled(),
        Requeued(pause=timedelta(seconds=30)),
    ],
)
def test_however_the_holder_ends_the_next_of_its_key_goes(jobs: JobHarness, ending: Ending) -> None:
    first, second, third = jobs.create(*(new(lock_key="k") for _ in range(3)))
    (holder,) = claim(jobs)
    assert holder.id == first
    assert end(jobs, holder, ending)
    assert [job.id for job in claim(jobs)] == [second]
    assert jobs.row(third)["status"] == "queued"


def test_a_canceled_job_passes_its_turn_on(jobs: JobHarness) -> None:
    _, second, third = jobs.create(*(new(lock_key="k") for _ in range(3)))
    (holder,) = claim(jobs)
    assert end(jobs, holder, Succeeded())
    assert jobs.desk.cancel(BOX, JobFilter(ids=[second])) == 1
    assert [job.id for job in claim(jobs)] == [third]


# ── the fence ────────────────────────────────────────────────────────────────────────────────────────


def test_claim_heartbeat_done_succeeded(jobs: JobHarness) -> None:
    job = jobs.one()
    before = jobs.row(job.id)["lease_expires_at"]
    jobs.pass_time(30)
    assert jobs.store.beat(BOX, [Beat(job.held, {"done": 3})]) == {job.id: False}
    row = jobs.row(job.id)
    assert row["progress"] == {"done": 3}
    assert row["lease_expires_at"] >= before - timedelta(seconds=1)
    assert jobs.store.unit(BOX, job).end(Succeeded(result={"rows": 7}), progress={"done": 9})
    row = jobs.row(job.id)
    assert (row["status"], row["result"], row["progress"]) == ("succeeded", {"rows": 7}, {"done": 9})
    assert row["lease_expires_at"] is None
    assert row["finished_at"] is not None
    assert jobs.kinds(job.id) == ["queued", "picked", "done"]


def test_one_heartbeat_serves_many_jobs_and_names_those_that_are_lost(jobs: JobHarness) -> None:
    jobs.create(*(new() for _ in range(3)))
    first, second, third = claim(jobs)
    jobs.desk.cancel(BOX, JobFilter(ids=[second.id]))
    end(jobs, third, Succeeded())
    beats = [Beat(job.held, {"of": job.id}) for job in (first, second, third)]
    assert jobs.store.beat(BOX, beats) == {first.id: False, second.id: True}
    assert [jobs.row(job.id)["progress"] for job in (first, second, third)] == [
        {"of": first.id},
        {"of": second.id},
        None,
    ]


def test_an_expired_lease_is_queued_again(jobs: JobHarness) -> None:
    job = jobs.one()
    assert jobs.store.reap(BOX).requeued == ()
    jobs.pass_time(61)
    assert jobs.store.reap(BOX).requeued == (job.id,)
    row = jobs.row(job.id)
    assert (row["status"], row["attempt"]) == ("queued", 1)
    assert jobs.kinds(job.id)[-1] == "requeue"
    (again,) = claim(jobs)
    assert (again.id, again.attempt) == (job.id, 2)
    assert again.token > job.token


def test_the_reaper_says_when_the_next_lease_ends(jobs: JobHarness) -> None:
    assert jobs.store.reap(BOX).next_expiry is None
    jobs.one()
    expiry = jobs.store.reap(BOX).next_expiry
    assert expiry is not None
    assert timedelta(seconds=30) < expiry <= timedelta(seconds=60)


def test_a_job_without_attempts_left_is_lost(jobs: JobHarness) -> None:
    job = jobs.one(new(max_attempts=1, lock_key="k"), new(lock_key="k"))
    jobs.pass_time(61)
    assert claim(jobs) == []
    assert jobs.store.reap(BOX).lost == (job.id,)
    row = jobs.row(job.id)
    assert (row["status"], row["finished_at"] is None) == ("lost", False)
    assert jobs.kinds(job.id)[-1] == "lost"
    assert len(claim(jobs)) == 1  # the next of the key


@pytest.mark.parametrize("again", [False, True], ids=["queued", "running elsewhere"])
def test_who_has_lost_a_job_can_write_nothing(jobs: JobHarness, again: bool) -> None:
    zombie = jobs.one()
    unit = jobs.store.unit(BOX, zombie)
    jobs.write(unit.session, "of the zombie")
    jobs.pass_time(61)
    jobs.store.reap(BOX)
    if again:
        claim(jobs)
    before = jobs.row(zombie.id)
    assert jobs.store.beat(BOX, [Beat(zombie.held, {"zombie": True})]) == {}
    assert unit.checkpoint({"zombie": True}) is False
    for ending in (Succeeded(), Failed(error="no"), Requeued(pause=timedelta(0)), Canceled()):
        assert end(jobs, zombie, ending) is False
    jobs.store.give_back(BOX, [zombie.held])
    unit.close()
    assert jobs.row(zombie.id) == before
    assert list(jobs.effects()) == []


def test_the_token_alone_decides(jobs: JobHarness) -> None:
    job = jobs.one()
    assert jobs.store.beat(BOX, [Beat(Held(job.id, job.token - 1))]) == {}
    assert jobs.store.beat(BOX, [Beat(job.held)]) == {job.id: False}


# ── many ends at once ────────────────────────────────────────────────────────────────────────────────


def record(jobs: JobHarness, *ends: tuple[ClaimedJob, Ending]) -> set[int]:
    return set(jobs.store.record(BOX, [JobOutcome(job, ending) for job, ending in ends]))


def test_ends_of_all_kinds_are_recorded_together(jobs: JobHarness) -> None:
    jobs.create(*(new() for _ in range(6)), new(lock_key="k"), new(lock_key="k"))
    done, empty, again, later, failed, canceled, holder = claim(jobs)
    ends: list[tuple[ClaimedJob, Ending]] = [
        (done, Succeeded(result={"rows": 7})),
        (empty, Succeeded()),
        (again, Requeued(pause=timedelta(0), counts=False)),
        (later, Requeued(pause=timedelta(hours=1), error="broke off\nat row 3")),
        (failed, Failed(error="no\ngood")),
        (canceled, Canceled()),
        (holder, Succeeded(result=[1])),
    ]
    assert record(jobs, *ends) == {job.id for job, _ in ends}
    rows = [jobs.row(job.id) for job, _ in ends]
    assert [row["status"] for row in rows] == [
        *["succeeded"] * 2,
        *["queued"] * 2,
        "failed",
        "canceled",
        "succeeded",
    ]
    assert [row["result"] for row in rows] == [{"rows": 7}, *[None] * 5, [1]]
    assert [row["error"] for row in rows] == [None, None, None, "broke off\nat row 3", "no\ngood", None, None]
    assert [row["attempt"] for row in rows] == [1, 1, 0, 1, 1, 1, 1]
    assert [row["finished_at"] is not None for row in rows] == [True, True, False, False, True, True, True]
    assert {row["lease_expires_at"] for row in rows} == {None}
    assert [jobs.kinds(job.id)[2:] for job, _ in ends] == [
        *[["done"]] * 2,
        *[["requeue"]] * 2,
        ["failed"],
        ["canceled"],
        ["done"],
    ]
    succeeded = [job for job, ending in ends if isinstance(ending, Succeeded)]
    assert [jobs.told(job.id, "done") for job in succeeded] == [[{"attempt": 1}]] * len(succeeded)
    assert [job.id for job in claim(jobs)] == [again.id, holder.id + 1]


def test_a_lost_job_among_many_is_refused_alone(jobs: JobHarness) -> None:
    jobs.create(*(new() for _ in range(3)))
    first, second, third = claim(jobs)
    lost = replace(second, token=second.token - 1)
    before = jobs.row(second.id)
    assert record(jobs, (first, Succeeded()), (lost, Failed(error="of a zombie")), (third, Succeeded())) == {
        first.id,
        third.id,
    }
    assert jobs.row(second.id) == before
    assert [jobs.row(job.id)["status"] for job in (first, third)] == ["succeeded"] * 2


def test_progress_goes_with_the_end_and_only_its_own(jobs: JobHarness) -> None:
    jobs.create(new(), new())
    first, second = claim(jobs)
    jobs.store.beat(BOX, [Beat(second.held, {"n": 1})])
    jobs.store.record(BOX, [JobOutcome(first, Succeeded(), {"n": 9}), JobOutcome(second, Succeeded())])
    assert [jobs.row(job.id)["progress"] for job in (first, second)] == [{"n": 9}, {"n": 1}]


def test_a_job_that_is_to_be_canceled_is_not_queued_again_among_others(jobs: JobHarness) -> None:
    jobs.create(new(), new())
    first, second = claim(jobs)
    jobs.desk.cancel(BOX, JobFilter(ids=[first.id]))
    again = Requeued(pause=timedelta(0), error="no")
    assert record(jobs, (first, again), (second, again)) == {first.id, second.id}
    assert [jobs.row(job.id)["status"] for job in (first, second)] == ["canceled", "queued"]
    assert [jobs.row(job.id)["error"] for job in (first, second)] == [None, "no"]
    assert jobs.kinds(first.id)[-1] == "canceled"


def test_one_value_that_cannot_be_stored_is_refused_and_nothing_is_recorded(jobs: JobHarness) -> None:
    jobs.create(new(), new())
    first, second = claim(jobs)
    try:
        record(jobs, (first, Succeeded()), (second, Succeeded(result="\0")))
    except InvalidItem:
        assert [jobs.row(job.id)["status"] for job in (first, second)] == ["running"] * 2
    else:
        # PostgreSQL alone knows no such character.
        assert jobs.row(second.id)["result"] == "\0"


def test_progress_that_the_database_refuses_is_the_progresss_fault_and_no_outage(jobs: JobHarness) -> None:
    """MariaDB takes no JSON that is nested deeper than 31 times."""
    job = jobs.one()
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    try:
        assert jobs.store.beat(BOX, [Beat(job.held, {"deep": deep})])
    except InvalidItem:
        assert jobs.row(job.id)["progress"] is None
    else:
        assert jobs.row(job.id)["progress"] == {"deep": deep}


# ── what handlers write ──────────────────────────────────────────────────────────────────────────────


def test_the_sessions_writes_commit_with_checkpoints_and_success(jobs: JobHarness) -> None:
    job = jobs.one()
    unit = jobs.store.unit(BOX, job)
    jobs.write(unit.session, "a")
    assert list(jobs.effects()) == []
    assert unit.checkpoint({"at": 1})
    assert list(jobs.effects()) == ["a"]
    jobs.write(unit.session, "b")
    assert unit.end(Succeeded())
    unit.close()
    assert list(jobs.effects()) == ["a", "b"]
    assert jobs.kinds(job.id) == ["queued", "picked", "done"]


def test_of_a_long_journal_the_latest_entries_are_shown_in_order(
    jobs: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("memory", "sql"):
        monkeypatch.setattr(f"boxengine.adapters.{each}.jobs.desk.LATEST_EVENTS", 3)
    job = jobs.one()
    jobs.store.give_back(BOX, [job.held])
    assert jobs.kinds(job.id) == ["queued", "picked", "requeue"]
    claim(jobs)
    assert jobs.kinds(job.id) == ["picked", "requeue", "picked"]


def test_the_journal_has_the_moment_of_the_end_and_not_of_the_sessions_first_statement(jobs: JobHarness) -> None:
    job = jobs.one()
    unit = jobs.store.unit(BOX, job)
    jobs.write(unit.session, "first")
    (meanwhile,) = jobs.create(new())
    assert unit.end(Succeeded())
    unit.close()
    (done,) = [event["ts"] for event in jobs.row(job.id)["events"] if event["kind"] == "done"]
    assert done >= jobs.row(meanwhile)["created_at"]


@pytest.mark.parametrize("ending", [Failed(error="no"), Requeued(pause=timedelta(seconds=1)), Canceled()])
def test_without_success_what_follows_the_last_checkpoint_is_undone(jobs: JobHarness, ending: Ending) -> None:
    job = jobs.one()
    unit = jobs.store.unit(BOX, job)
    jobs.write(unit.session, "a")
    unit.checkpoint([1, 2])
    jobs.write(unit.session, "b")
    assert unit.end(ending)
    unit.close()
    assert list(jobs.effects()) == ["a"]
    assert jobs.row(job.id)["checkpoint"] == [1, 2]


def test_a_later_attempt_finds_the_checkpoint(jobs: JobHarness) -> None:
    job = jobs.one()
    jobs.store.unit(BOX, job).checkpoint({"row": 500})
    end(jobs, job, Requeued(pause=timedelta(0), error="broke off"))
    (again,) = claim(jobs)
    assert (again.attempt, again.checkpoint) == (2, {"row": 500})
    assert jobs.row(job.id)["error"] == "broke off"


def test_a_requeued_job_waits_for_its_pause(jobs: JobHarness) -> None:
    job = jobs.one()
    end(jobs, job, Requeued(pause=timedelta(seconds=30)))
    jobs.store.promote(BOX)
    assert claim(jobs) == []
    jobs.pass_time(31)
    jobs.store.promote(BOX)
    assert [each.attempt for each in claim(jobs)] == [2]


def test_a_job_that_is_given_back_was_never_begun(jobs: JobHarness) -> None:
    job = jobs.one()
    jobs.store.give_back(BOX, [job.held])
    (again,) = claim(jobs)
    assert (again.id, again.attempt) == (job.id, 1)
    assert again.token > job.token


# ── people ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_queued_job_is_canceled_at_once_and_a_running_one_is_asked(jobs: JobHarness) -> None:
    running = jobs.one()
    (queued,) = jobs.create(new())
    assert jobs.desk.cancel(BOX, JobFilter(ids=[running.id, queued])) == 2
    assert jobs.row(queued)["status"] == "canceled"
    assert (jobs.row(running.id)["status"], jobs.row(running.id)["cancel_requested"]) == ("running", True)
    assert claim(jobs) == []
    assert end(jobs, running, Canceled())
    assert jobs.kinds(running.id)[-1] == "canceled"


def test_a_job_that_is_to_be_canceled_is_not_queued_again(jobs: JobHarness) -> None:
    for ends in ("by itself", "by the reaper", "given back"):
        job = jobs.one()
        jobs.desk.cancel(BOX, JobFilter(ids=[job.id]))
        match ends:
            case "by itself":
                assert end(jobs, job, Requeued(pause=timedelta(0)))
            case "by the reaper":
                jobs.pass_time(61)
                jobs.store.reap(BOX)
            case _:
                jobs.store.give_back(BOX, [job.held])
        row = jobs.row(job.id)
        assert (row["status"], row["lease_expires_at"], jobs.kinds(job.id)[-1]) == ("canceled", None, "canceled")
        assert row["finished_at"] is not None


def test_of_the_jobs_that_are_given_back_only_the_ones_to_be_canceled_end(jobs: JobHarness) -> None:
    job, other = jobs.one(new(lock_key="k")), jobs.one()
    behind, after = jobs.create(new(lock_key="k"), new(after=(job.id,)))
    assert claim(jobs) == []  # the one behind it is set aside
    jobs.desk.cancel(BOX, JobFilter(ids=[job.id]))
    jobs.store.give_back(BOX, [job.held, other.held])
    jobs.store.promote(BOX)
    assert [each.id for each in claim(jobs, 3)] == [other.id, behind]
    assert [jobs.row(each)["status"] for each in (job.id, after)] == ["canceled"] * 2


def test_a_retry_by_hand_gives_all_attempts_back(jobs: JobHarness) -> None:
    job = jobs.one(new(max_attempts=1))
    end(jobs, job, Failed(error="no"))
    assert jobs.desk.retry(BOX, JobFilter(states=[JobState.FAILED])) == 1
    (again,) = claim(jobs)
    assert (again.id, again.attempt) == (job.id, 1)
    assert jobs.desk.retry(BOX, JobFilter(ids=[job.id])) == 0  # it runs


def test_the_counts(jobs: JobHarness) -> None:
    jobs.create(new(lock_key="k"), new(lock_key="k"), new(delay=timedelta(hours=1)))
    claim(jobs)
    jobs.create(new(), new())
    done = jobs.one(new(priority=1))
    end(jobs, done, Succeeded())
    stat = jobs.desk.stat(BOX)
    assert (stat.total, stat.ready, stat.taken, stat.delayed, stat.blocked) == (5, 2, 1, 1, 1)
    assert stat.finished == {JobState.SUCCEEDED: 1}


def test_the_backlog_is_counted_up_to_a_limit_with_the_wait_of_the_oldest_ready_job(jobs: JobHarness) -> None:
    assert jobs.store.backlog(BOX, limit=10) == JobBacklog(ready=0, delayed=0, blocked=0, waits=timedelta(0))
    first, *_ = jobs.create(new(), *[new(lock_key="a")] * 3, new(), new(), new(delay=timedelta(days=1)))
    jobs.create(new(after=(first,)))
    jobs.pass_time(90)
    assert len(jobs.store.claim(BOX, 3, worker="w")) == 3
    found = jobs.store.backlog(BOX, limit=10)
    assert (found.ready, found.delayed) == (1, 1)
    assert found.blocked == 3, "two by the lock of a running one, and one by its predecessor"
    assert timedelta(seconds=90) <= found.waits < timedelta(seconds=180)
    limited = jobs.store.backlog(BOX, limit=1)
    assert (limited.ready, limited.delayed, limited.blocked) == (1, 1, 1)


def test_a_job_whose_time_has_come_is_part_of_the_backlog_before_a_worker_lets_it_go(jobs: JobHarness) -> None:
    jobs.create(new(delay=timedelta(seconds=30)), new(delay=timedelta(days=1)))
    jobs.pass_time(90)
    found, stat = jobs.store.backlog(BOX, limit=10), jobs.desk.stat(BOX)
    assert (found.ready, found.delayed) == (stat.ready, stat.delayed) == (1, 1)
    assert timedelta(seconds=60) <= found.waits < timedelta(seconds=150)


def test_lists_are_filtered_and_begin_with_the_newest(jobs: JobHarness) -> None:
    a, b, c = jobs.create(new("x"), new("y", lock_key="k"), new("x"))
    assert [row["id"] for row in jobs.desk.list(BOX, JobFilter(), limit=2)] == [c, b]
    assert [row["id"] for row in jobs.desk.list(BOX, JobFilter(task="x"), limit=9)] == [c, a]
    assert [row["id"] for row in jobs.desk.list(BOX, JobFilter(lock_key="k"), limit=9)] == [b]
    assert jobs.desk.list(BOX, JobFilter(states=[JobState.RUNNING]), limit=9) == []
    assert jobs.desk.show(BOX, 999_999) is None


def test_finished_jobs_go_when_their_retention_is_over(jobs: JobHarness) -> None:
    job = jobs.one()
    (queued,) = jobs.create(new())
    end(jobs, job, Succeeded())
    assert jobs.store.delete_finished(BOX) == 0
    jobs.pass_time(86_401)
    assert jobs.store.delete_finished(BOX) == 1
    assert jobs.desk.show(BOX, job.id) is None
    assert jobs.row(queued)["status"] == "queued"


# ── creating ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_same_idempotency_key_is_the_same_job(jobs: JobHarness) -> None:
    (first,) = jobs.create(new(idempotency_key="a"))
    again = jobs.create(new(idempotency_key="a"), new(), new(idempotency_key="b"), new(idempotency_key="b"))
    assert again[0] == first
    assert again[2] == again[3]
    assert len({first, *again}) == 3
    assert len(claim(jobs)) == 3
    assert jobs.kinds(first) == ["queued", "picked"]
