"""How an attempt at a long job ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from boxengine import Failure, Payload
from boxengine.adapters.memory.jobs import MemoryJobs
from boxengine.domain.jobs import Beat, JobBox, JobState, Succeeded
from boxengine.engine.jobs.batch_handler import BatchHandler
from boxengine.engine.jobs.handle import Job
from boxengine.engine.jobs.recorder import FOR_A_MOMENT
from boxengine.errors import InvalidItem, JobLost, JobRetry, JobTimeout, StoreConflict, StoreUnavailable
from boxengine.ports.jobs import JobEnded, JobFilter, JobsLeft
from tests.unit.jobs.crew import BOX, Crew
from tests.unit.test_json_values import nested


def test_what_the_handler_returns_is_the_result() -> None:
    crew = Crew(lambda job: {"n": job.args["n"] + 1})
    crew.create(args={"n": 1})
    crew.work()
    assert (crew.row().status, crew.row().result) == (JobState.SUCCEEDED, {"n": 2})
    assert crew.ends() == ["succeeded"]


def test_a_failed_attempt_waits_thirty_seconds_times_its_number() -> None:
    crew = Crew(raising(ValueError("no good")))
    crew.create()
    for attempt in (1, 2):
        crew.work()
        assert crew.row().available_at - crew.clock.now() == timedelta(seconds=30 * attempt)
        assert "ValueError: no good" in str(crew.row().error)
        crew.pass_time(30 * attempt)
    crew.work()
    assert crew.row().status is JobState.FAILED
    assert crew.ends() == ["requeued", "requeued", "failed"]
    ends = [event for event in crew.events if isinstance(event, JobEnded)]
    assert [(each.job.id, each.job.attempt) for each in ends] == [(1, 1), (1, 2), (1, 3)]
    assert all("ValueError: no good" in str(each.error) for each in ends)
    assert [context["job"] for _, context in crew.told] == [1]


def test_a_task_without_a_handler_fails_the_attempt() -> None:
    crew = Crew(lambda _job: None)
    crew.create("export")
    crew.work()
    assert "has no task 'export'; known: report" in str(crew.row().error)


@pytest.mark.parametrize("result", [object(), "a\0b", "half \ud83d", nested(100_000)])
def test_a_result_that_is_no_json_fails_the_attempt(result: object) -> None:
    crew = Crew(lambda _job: result)
    crew.create()
    crew.work()
    assert crew.row().status is JobState.QUEUED
    assert "expected what JSON can hold" in str(crew.row().error)


@pytest.mark.parametrize("tell", ["return", "progress", "checkpoint"])
def test_what_json_cannot_hold_is_named_with_its_type_and_what_to_give_instead(tell: str) -> None:
    value = {"at": datetime(2026, 1, 1, tzinfo=UTC)}

    def handler(job: Job[Any]) -> object:
        match tell:
            case "progress":
                job.progress(**value)
            case "checkpoint":
                job.checkpoint(value)
        return value

    crew = Crew(handler)
    crew.create()
    crew.work()
    assert crew.ends() == ["requeued"]
    assert "JSON can hold: ['at'] is of type datetime; give value.isoformat()" in str(crew.row().error)
    assert str(crew.row().error).count("is of type datetime") == 1


def test_a_payload_that_json_cannot_hold_is_told_of_once() -> None:
    crew = Crew(lambda _job: Payload.json().encode({"price": Decimal("1.5")}))
    crew.create()
    crew.work()
    assert str(crew.row().error).count(" of type Decimal") == 1


@pytest.mark.parametrize("failure", [Failure("no good"), ValueError("no good")])
def test_a_failure_that_is_returned_fails_the_attempt(failure: object) -> None:
    crew = Crew(lambda _job: failure)
    crew.create()
    crew.work()
    assert (crew.row().status, crew.ends()) == (JobState.QUEUED, ["requeued"])
    assert "no good" in str(crew.row().error)
    assert "JSON" not in str(crew.row().error)


@pytest.mark.parametrize("error", [SystemExit(1), KeyError("x"), MemoryError()])
def test_whatever_a_handler_raises_ends_its_attempt_alone(error: BaseException) -> None:
    crew = Crew(raising(error))
    crew.create()
    crew.work()
    assert crew.row().status is JobState.QUEUED
    assert crew.handover.room(0) == 2


def test_retry_asks_for_another_attempt_beyond_max_attempts() -> None:
    crew = Crew(lambda job: job.retry(in_=7))
    crew.create(max_attempts=1)
    crew.work()
    assert crew.row().status is JobState.QUEUED
    assert crew.row().available_at - crew.clock.now() == timedelta(seconds=7)


@pytest.mark.parametrize("pause", [-1, math.nan, math.inf, "5", True, timedelta(days=36_501)])
def test_a_pause_that_cannot_be_kept_fails_the_attempt(pause: Any) -> None:
    crew = Crew(lambda job: job.retry(in_=pause))
    crew.create()
    crew.work()
    assert crew.ends() == ["requeued"]
    assert "retry: in_: expected a timedelta, or seconds" in str(crew.row().error)


def test_a_retry_that_a_handler_raises_by_itself_has_the_pause_of_a_failed_attempt() -> None:
    """Without a pause it would run again and again, as fast as the database can claim it."""

    def handler(job: Job[Any]) -> None:
        raise JobRetry

    crew = Crew(handler)
    crew.create()
    crew.work()
    row = crew.row()
    assert (row.status, row.attempt) == (JobState.QUEUED, 1)
    assert row.available_at - crew.clock.now() == BOX.pause_after(1)


def test_retry_holds_where_the_handler_catches_it() -> None:
    def handler(job: Job[Any]) -> None:
        try:
            job.retry()
        except Exception:
            return

    crew = Crew(handler)
    crew.create()
    crew.work()
    assert crew.row().status is JobState.QUEUED
    assert crew.row().available_at - crew.clock.now() == timedelta(seconds=30)


# ── cancel ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_handler_that_sees_the_request_and_returns_has_canceled_the_job() -> None:
    def handler(job: Job[Any]) -> str:
        cancel(crew)
        job.session.append("undone")
        return "stopped" if job.cancelled else "went on"

    crew = Crew(handler)
    crew.create()
    crew.work()
    assert (crew.row().status, crew.row().result) == (JobState.CANCELED, None)
    assert crew.jobs.effects == []


def test_a_handler_that_does_not_look_succeeds() -> None:
    def handler(job: Job[Any]) -> str:
        cancel(crew)
        return "done"

    crew = Crew(handler)
    crew.create()
    crew.work()
    assert crew.row().status is JobState.SUCCEEDED


def test_a_handler_that_fails_after_it_saw_the_request_is_canceled() -> None:
    def handler(job: Job[Any]) -> None:
        cancel(crew)
        assert not job.cancelled

    crew = Crew(handler)
    crew.create()
    crew.work()
    assert crew.row().status is JobState.CANCELED


def cancel(crew: Crew) -> None:
    crew.jobs.cancel(BOX, JobFilter(ids=[1]))
    crew.pass_time(10)
    crew.keeper.turn()


# ── progress and checkpoints ─────────────────────────────────────────────────────────────────────────


def test_progress_goes_out_with_a_heartbeat_and_the_last_with_the_end() -> None:
    seen: list[Any] = []

    def handler(job: Job[Any]) -> None:
        job.progress(done=1)
        crew.keeper.turn()
        seen.append(crew.row().progress)
        crew.pass_time(2)
        crew.keeper.turn()
        seen.append(crew.row().progress)
        job.progress(done=2)

    crew = Crew(handler)
    crew.create()
    crew.work()
    assert seen == [None, {"done": 1}]
    assert crew.row().progress == {"done": 2}


def test_progress_and_checkpoints_take_what_json_can_hold() -> None:
    def handler(job: Job[Any]) -> None:
        with pytest.raises(InvalidItem, match="progress"):
            job.progress(done={1})
        with pytest.raises(InvalidItem, match="checkpoint"):
            job.checkpoint(float("nan"))

    crew = Crew(handler)
    crew.create()
    crew.work()
    assert crew.row().status is JobState.SUCCEEDED


def test_the_next_attempt_goes_on_from_the_checkpoint() -> None:
    begun = []

    def handler(job: Job[Any]) -> None:
        begun.append(job.state)
        job.session.append("first half")
        job.checkpoint({"at": 1})
        assert job.state == {"at": 1}
        job.session.append("second half")
        if job.attempt == 1:
            raise ValueError("broke off")

    crew = Crew(handler)
    crew.create()
    crew.work()
    crew.pass_time(30)
    crew.work()
    assert begun == [None, {"at": 1}]
    assert crew.jobs.effects == ["first half", "first half", "second half"]


# ── leases ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_lease_counts_from_the_moment_its_claim_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(lambda job: pytest.fail("the lease is over"))
    crew.create()
    claim = crew.jobs.claim

    def slow(*arguments: Any, **options: Any) -> Any:
        claimed = claim(*arguments, **options)
        crew.pass_time(56)
        return claimed

    monkeypatch.setattr(crew.jobs, "claim", slow)
    crew.claimer.turn()
    (run,) = crew.runs.all()
    with pytest.raises(JobLost):
        run.demand()


def test_a_lease_is_prolonged_from_the_moment_its_heartbeat_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(lambda job: None)
    crew.create()
    crew.claimer.turn()
    (run,) = crew.runs.all()
    beat = crew.jobs.beat

    def slow(*arguments: Any) -> Any:
        answer = beat(*arguments)
        crew.pass_time(30)
        return answer

    monkeypatch.setattr(crew.jobs, "beat", slow)
    crew.pass_time(10)
    crew.keeper.turn()  # sent at 10, answered at 40
    crew.pass_time(24.9)
    run.demand()
    crew.pass_time(0.2)
    with pytest.raises(JobLost):
        run.demand()


def test_one_heartbeat_goes_out_for_all_jobs_as_soon_as_one_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(lambda job: None)
    crew.create()
    crew.claimer.turn()
    crew.pass_time(5)
    crew.create()
    crew.claimer.turn()
    sent = []
    beat = crew.jobs.beat

    def counted(box: Any, beats: Any) -> Any:
        sent.append(len(beats))
        return beat(box, beats)

    monkeypatch.setattr(crew.jobs, "beat", counted)
    for _ in range(20):
        crew.pass_time(1)
        crew.keeper.turn()
    assert sent == [2, 2]


def test_one_lost_heartbeat_is_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(lambda job: None)
    crew.create(lease_ttl=timedelta(seconds=12))
    crew.claimer.turn()
    (run,) = crew.runs.all()
    crew.pass_time(4)
    with monkeypatch.context() as patch:
        patch.setattr(crew.jobs, "beat", raising(StoreUnavailable("gone")))
        crew.keeper.turn()
    crew.pass_time(4)
    crew.keeper.turn()
    crew.pass_time(4)
    run.demand()
    assert crew.jobs.reap(BOX).requeued == ()


def test_a_job_whose_row_somebody_has_locked_keeps_its_lease_and_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(lambda job: None)
    job_id = crew.create(lease_ttl=timedelta(seconds=12))
    crew.claimer.turn()
    (run,) = crew.runs.all()
    run.tell({"done": 1})
    crew.pass_time(4)
    with monkeypatch.context() as patch:
        patch.setattr(crew.jobs, "beat", lambda *_: {job_id: None})
        crew.keeper.turn()
    run.demand()
    assert crew.row().progress is None
    crew.pass_time(4)
    crew.keeper.turn()
    crew.pass_time(4)
    run.demand()
    assert crew.row().progress == {"done": 1}


def test_progress_that_the_database_refuses_costs_no_lease_and_no_other_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crew = Crew(lambda job: None, box=replace(BOX, concurrency=5))
    for _ in range(5):
        crew.create(lease_ttl=timedelta(seconds=12))
    crew.claimer.turn()
    runs = crew.runs.all()
    for run in runs:
        run.tell({"done": run.job.id})
    crew.pass_time(4)
    beat = crew.jobs.beat

    def picky(box: JobBox, beats: Sequence[Beat]) -> Mapping[int, bool | None]:
        if {"done": 2} in [each.progress for each in beats]:
            raise InvalidItem("nested too deeply")
        return beat(box, beats)

    monkeypatch.setattr(crew.jobs, "beat", picky)
    crew.keeper.turn()
    assert [crew.row(run.job.id).progress for run in runs] == [{"done": n} if n != 2 else None for n in range(1, 6)]
    crew.pass_time(7)
    for run in runs:
        run.demand()
    guilty = Job(runs[1], crew.jobs.unit(BOX, runs[1].job))
    with pytest.raises(InvalidItem, match="progress: the database refused the last values: nested too deeply"):
        guilty.progress(done=3)


def test_progress_is_what_it_was_when_the_handler_told_it() -> None:
    """A handler goes on counting in the same object, which may hold by then what JSON cannot."""
    crew = Crew(lambda job: None)
    crew.create()
    crew.claimer.turn()
    (run,) = crew.runs.all()
    days: dict[object, int] = {"monday": 1}
    Job(run, crew.jobs.unit(BOX, run.job)).progress(days=days)
    days[date(2026, 1, 31)] = 2
    crew.pass_time(4)
    crew.keeper.turn()
    assert crew.row().progress == {"days": {"monday": 1}}


def test_a_worker_that_was_suspended_beyond_its_lease_writes_nothing_and_learns_of_it() -> None:
    def handler(job: Job[Any]) -> None:
        job.session.append("of the zombie")
        crew.pass_time(61)
        crew.jobs.reap(BOX)
        for use in (job.ensure_held, lambda: job.checkpoint(1), lambda: job.progress(n=1), lambda: job.session):
            with pytest.raises(JobLost):
                use()
        raise JobLost("as it should")

    crew = Crew(handler)
    crew.create()
    crew.work()
    assert (crew.row().status, crew.row().checkpoint, crew.row().error) == (
        JobState.QUEUED,
        None,
        "its worker fell silent, and the lease ran out",
    )
    assert crew.jobs.effects == []
    assert crew.ends() == ["lost"]


def test_a_heartbeat_tells_that_somebody_else_has_the_job() -> None:
    def handler(job: Job[Any]) -> None:
        crew.row().token += 1
        crew.pass_time(10)
        crew.keeper.turn()
        job.ensure_held()

    crew = Crew(handler)
    crew.create()
    crew.work()
    assert crew.ends() == ["lost"]


def test_a_handler_whose_job_this_worker_has_claimed_again_has_lost_it() -> None:
    """As after the database's clock was set forward, or after a failover that has lost the first claim."""

    def handler(job: Job[Any]) -> None:
        if job.attempt == 1:
            crew.row().lease_expires_at = crew.clock.now() - timedelta(seconds=1)
            crew.reaper.turn()
            crew.claimer.turn()
            crew.pass_time(10)
            crew.keeper.turn()
            with pytest.raises(JobLost):
                job.ensure_held()
            refused.append(job.id)

    refused: list[int] = []
    crew = Crew(handler)
    crew.create()
    crew.work()
    assert crew.ends() == ["lost"]
    assert refused == [1]
    crew.run()
    assert crew.ends() == ["lost", "succeeded"]
    assert crew.runs.all() == []


def test_the_watchdog_stops_a_handler_that_only_computes() -> None:
    def handler(_job: Job[Any]) -> None:
        crew.pass_time(56)
        crew.watchdog.turn()
        while True:  # where JobLost rises
            pass

    crew = Crew(handler)
    crew.create()
    crew.work()
    assert crew.ends() == ["lost"]


def test_a_hit_that_comes_too_late_does_not_meet_the_next_job() -> None:
    hits = []

    def handler(job: Job[Any]) -> None:
        hits.append(crew.runs.all()[0].interrupt)

    crew = Crew(handler)
    crew.create()
    crew.create()
    crew.work()
    hits[0]()
    crew.run()
    assert crew.ends() == ["succeeded", "succeeded"]


def test_an_attempt_that_takes_too_long_is_stopped_and_has_failed() -> None:
    def handler(job: Job[Any]) -> None:
        job.session.append("undone")
        if job.attempt == 1:
            crew.pass_time(20)
            crew.watchdog.turn()
            while True:  # where JobTimeout rises
                pass
        crew.pass_time(19)
        crew.watchdog.turn()
        for _ in range(1000):  # where nothing does
            pass

    crew = Crew(handler, timeout=timedelta(seconds=20))
    crew.create()
    crew.work()
    assert (crew.row().status, crew.jobs.effects) == (JobState.QUEUED, [])
    assert "JobTimeout: no end within 20 s" in str(crew.row().error)
    crew.pass_time(60)
    crew.work()
    assert (crew.row().status, crew.jobs.effects) == (JobState.SUCCEEDED, ["undone"])


def test_a_handler_that_catches_the_stop_has_five_seconds_until_the_next_one() -> None:
    caught: list[float] = []

    def handler(_job: Job[Any]) -> str:
        crew.pass_time(20)
        for _ in range(2):
            try:
                crew.watchdog.turn()
                for _ in range(1000):
                    pass
            except JobTimeout:
                caught.append(crew.clock.monotonic())
                crew.watchdog.turn()
                crew.pass_time(5)
        return "cleaned up"

    crew = Crew(handler, timeout=timedelta(seconds=20))
    crew.create()
    crew.work()
    assert [moment - caught[0] for moment in caught] == [0, 5]
    assert crew.row().result == "cleaned up"


# ── the end, and a store that does not answer ────────────────────────────────────────────────────────


def test_an_end_that_could_not_be_recorded_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(lambda job: "once")
    crew.create()
    with monkeypatch.context() as patch:
        patch.setattr(crew.jobs, "record", raising(StoreUnavailable("gone")))
        assert crew.work() == timedelta(seconds=0.5)
    assert crew.row().status is JobState.RUNNING
    assert crew.recorder.turn(0.0) == timedelta(0)
    assert (crew.row().status, crew.row().result, crew.row().attempt) == (JobState.SUCCEEDED, "once", 1)
    assert crew.runs.all() == []


def test_an_outage_in_which_all_leases_have_ended_is_not_told_as_over(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(lambda job: None)
    crew.create(lease_ttl=timedelta(seconds=12))
    monkeypatch.setattr(crew.jobs, "record", raising(StoreUnavailable("gone")))
    crew.work()
    crew.pass_time(12)
    assert crew.recorder.turn(0.0) == timedelta(0)
    crew.keeper.turn()
    assert crew.ends() == ["lost"]
    assert crew.idling == ["recording the ends of jobs of report_job", "heartbeats for jobs of report_job"]
    assert crew.working == []


def _locking(patch: pytest.MonkeyPatch, crew: Crew, locked: int) -> None:
    """Somebody has locked this job's row."""
    record = crew.jobs.record

    def leaving_out(box: Any, outcomes: Any) -> set[int]:
        return record(box, [each for each in outcomes if each.job.id != locked])

    patch.setattr(crew.jobs, "record", leaving_out)


def test_an_end_whose_row_is_locked_is_tried_again_and_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(lambda job: "once")
    crew.create()
    crew.create()
    with monkeypatch.context() as patch:
        _locking(patch, crew, 1)
        crew.work()
        crew.run()
        assert [str(crew.row(job_id).status) for job_id in (1, 2)] == ["running", "succeeded"]
        crew.pass_time(FOR_A_MOMENT)
        crew.recorder.turn(0.0)
        assert "not recorded: 1;" in str(crew.pauses[0])
        crew.pass_time(0.5)
        crew.recorder.turn(0.0)
        assert len(crew.pauses) == 2
    crew.recorder.turn(0.0)
    assert crew.row().status is JobState.RUNNING
    crew.pass_time(0.5)
    crew.recorder.turn(0.0)
    assert (crew.row().status, crew.row().result, crew.row().attempt) == (JobState.SUCCEEDED, "once", 1)
    assert crew.runs.all() == []


def test_an_end_whose_row_is_locked_for_a_moment_as_by_a_heartbeat_is_no_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crew = Crew(lambda _job: None)
    crew.create()
    with monkeypatch.context() as patch:
        _locking(patch, crew, 1)
        crew.work()
    crew.recorder.turn(0.0)
    assert crew.row().status is JobState.RUNNING
    crew.pass_time(FOR_A_MOMENT)
    crew.recorder.turn(0.0)
    assert (crew.row().status, crew.pauses) == (JobState.SUCCEEDED, [])


def test_an_end_whose_row_is_locked_until_the_lease_is_over_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(lambda job: "once")
    crew.create()
    with monkeypatch.context() as patch:
        _locking(patch, crew, 1)
        crew.work()
        crew.pass_time(60)
        crew.recorder.turn(0.0)
    assert crew.ends() == ["lost"]
    assert crew.runs.all() == []


def test_a_worker_that_stops_waits_for_the_locked_row_of_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(lambda job: "once")
    crew.create()
    with monkeypatch.context() as patch:
        _locking(patch, crew, 1)
        crew.work()
        crew.recorder.finish()
    assert (crew.row().status, crew.ends()) == (JobState.SUCCEEDED, ["succeeded"])


def test_success_is_not_recorded_without_what_the_session_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(job: Job[Any]) -> None:
        job.session.append("gone with its connection")

    crew = Crew(handler)
    crew.create()
    with monkeypatch.context() as patch:
        patch.setattr("boxengine.adapters.memory.jobs.unit.MemoryUnit.end", raising(StoreUnavailable("gone")))
        assert crew.work() == timedelta(seconds=0.5)
    crew.recorder.turn(0.0)
    assert crew.row().status is JobState.QUEUED
    assert crew.jobs.effects == []


@pytest.mark.parametrize("through_the_session", [True, False])
def test_what_cannot_be_stored_fails_the_attempt(monkeypatch: pytest.MonkeyPatch, through_the_session: bool) -> None:
    end = MemoryJobs.end

    def refusing(self: MemoryJobs, box: Any, row: Any, ending: Any) -> None:
        if isinstance(ending, Succeeded):
            raise InvalidItem("a constraint")
        end(self, box, row, ending)

    monkeypatch.setattr(MemoryJobs, "end", refusing)
    crew = Crew(lambda job: job.session.append("undone") if through_the_session else None)
    crew.create()
    crew.work()
    assert "a constraint" in str(crew.row().error)
    assert crew.row().status is JobState.QUEUED
    assert crew.jobs.effects == []


def test_jobs_that_nobody_has_begun_are_given_back_at_the_end() -> None:
    crew = Crew(lambda job: None)
    crew.create()
    crew.claimer.turn()
    crew.claimer.stop()
    crew.claimer.give_back()
    assert (crew.row().status, crew.row().attempt) == (JobState.QUEUED, 0)


def test_a_handler_sees_that_the_worker_is_about_to_stop() -> None:
    seen: list[Any] = []

    def handler(job: Job[Any]) -> None:
        seen.append(job.stopping)
        crew.claimer.stop()
        seen.append(job.stopping)

    crew = Crew(handler)
    crew.create()
    crew.work()
    assert seen == [False, True]


@pytest.mark.parametrize("after", [0, 60])
@pytest.mark.parametrize("of_many", [False, True])
def test_a_retry_counts_as_an_attempt_unless_the_worker_is_stopping(*, of_many: bool, after: int) -> None:
    """Else a long job would have no attempts left after a few deployments."""

    def handler(job: Job[Any]) -> None:
        job.retry(in_=after)

    crew = Crew(BatchHandler(lambda jobs: [job.retry(in_=after) for job in jobs]) if of_many else handler)
    crew.create()
    crew.work()
    assert (crew.row().status, crew.row().attempt) == (JobState.QUEUED, 1)
    crew.pass_time(after)
    crew.claimer.turn()
    crew.runs.stop()
    crew.run()
    assert (crew.row().status, crew.row().attempt) == (JobState.QUEUED, 1)


def test_no_more_is_claimed_than_threads_are_idle() -> None:
    crew = Crew(lambda job: None)
    for _ in range(5):
        crew.create()
    crew.claimer.turn()
    assert crew.jobs.stat(BOX).taken == 2


# ── claims ahead, and ends together ──────────────────────────────────────────────────────────────────


def test_while_jobs_are_short_many_are_claimed_ahead_and_their_ends_recorded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crew = Crew(lambda job: None)
    for _ in range(100):
        crew.create()
    claims, records = counted(monkeypatch, crew, "claim"), counted(monkeypatch, crew, "record")
    while crew.jobs.stat(BOX).ready:
        crew.claimer.turn()
        while crew.handover.waiting:
            crew.runner.turn()
        crew.recorder.turn(0.0)
    assert [row.status for row in crew.jobs.tables[BOX.name].values()] == [JobState.SUCCEEDED] * 100
    assert claims[0] == 2  # nothing is known yet
    assert max(claims) >= 30
    assert max(records) >= 30


def test_one_long_job_ends_the_claims_ahead() -> None:
    crew = Crew(lambda job: crew.pass_time(job.args["takes"]))
    for _ in range(20):
        crew.create(args={"takes": 0})
    while crew.ends().count("succeeded") < 20:
        crew.work()
    crew.create(priority=1, args={"takes": 1})
    for _ in range(20):
        crew.create(args={"takes": 0})
    crew.claimer.turn()
    assert crew.jobs.stat(BOX).taken > BOX.concurrency
    crew.run()
    assert crew.row(21).status is JobState.SUCCEEDED
    assert crew.handover.room(0) == 0


def test_a_job_that_waits_behind_long_ones_is_given_back_within_a_second() -> None:
    crew = Crew(lambda job: None)
    for _ in range(20):
        crew.create()
    while crew.ends().count("succeeded") < 20:
        crew.work()
    for _ in range(20):
        crew.create()
    crew.claimer.turn()
    taken = crew.jobs.stat(BOX).taken
    assert taken > BOX.concurrency
    busy = [crew.handover.take() for _ in range(BOX.concurrency)]
    crew.pass_time(1.1)
    crew.claimer.turn()
    assert crew.jobs.stat(BOX).taken == len(busy)
    assert {row.attempt for row in crew.jobs.tables[BOX.name].values() if row.status is JobState.QUEUED} == {0}


def test_a_job_whose_return_nobody_confirmed_is_not_begun_here_and_is_returned_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crew = Crew(lambda job: pytest.fail("it may be somebody else's"))
    crew.create()
    crew.claimer.turn()
    give_back = crew.jobs.give_back

    def without_an_answer(*arguments: Any) -> None:
        give_back(*arguments)
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(crew.jobs, "give_back", without_an_answer)
        with pytest.raises(StoreUnavailable):
            crew.claimer.give_back()
    assert crew.handover.waiting == 0
    crew.claimer.give_back()
    assert (crew.row().status, crew.row().attempt, crew.runs.all()) == (JobState.QUEUED, 0, [])


def test_a_claimed_job_whose_lease_ran_out_is_not_begun() -> None:
    crew = Crew(lambda job: pytest.fail("it is somebody else's"))
    crew.create()
    crew.claimer.turn()
    crew.pass_time(60)
    crew.run()
    assert crew.ends() == ["lost"]


def test_jobs_that_are_lost_before_they_begin_let_no_more_be_claimed_ahead() -> None:
    crew = Crew(lambda job: pytest.fail("it is somebody else's"))
    for _ in range(40):
        crew.create()
    for _ in range(10):
        crew.claimer.turn()
        assert crew.handover.waiting == BOX.concurrency
        crew.pass_time(60)
        while crew.handover.waiting:
            crew.run()
    assert crew.ends() == ["lost"] * 10 * BOX.concurrency


def test_one_job_that_is_lost_keeps_no_other_ends_from_being_recorded() -> None:
    def handler(job: Job[Any]) -> None:
        if job.id == 1:
            crew.row(1).token += 1

    crew = Crew(handler)
    crew.create()
    crew.create()
    crew.claimer.turn()
    for _ in range(2):
        crew.runner.turn()
    crew.recorder.turn(0.0)
    assert (crew.row(1).status, crew.row(2).status) == (JobState.RUNNING, JobState.SUCCEEDED)
    assert crew.ends() == ["succeeded", "lost"]
    assert crew.runs.all() == []


def test_one_end_that_cannot_be_stored_fails_its_own_attempt_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    record = MemoryJobs.record

    def refusing(self: MemoryJobs, box: Any, outcomes: Any) -> Any:
        if any(isinstance(each.ending, Succeeded) and each.ending.result == 3 for each in outcomes):
            raise InvalidItem("no such character")
        return record(self, box, outcomes)

    monkeypatch.setattr(MemoryJobs, "record", refusing)
    crew = Crew(lambda job: job.id)
    for _ in range(5):
        crew.create()
    while any(row.status is JobState.QUEUED for row in crew.jobs.tables[BOX.name].values() if row.attempt == 0):
        crew.claimer.turn()
        while crew.handover.waiting:
            crew.runner.turn()
        crew.recorder.turn(0.0)
    assert [crew.row(number).result for number in (1, 2, 4, 5)] == [1, 2, 4, 5]
    assert crew.row(3).status is JobState.QUEUED
    assert "no such character" in str(crew.row(3).error)


def test_what_has_ended_is_recorded_when_the_worker_stops() -> None:
    crew = Crew(lambda job: "done")
    crew.create()
    crew.claimer.turn()
    crew.runner.turn()
    crew.claimer.stop()
    crew.recorder.finish()
    assert (crew.row().status, crew.row().result) == (JobState.SUCCEEDED, "done")


def test_a_worker_that_stops_names_the_jobs_whose_handlers_are_still_at_work() -> None:
    crew = Crew(lambda job: crew.recorder.leave())
    job_id = crew.create()
    crew.claimer.turn()
    crew.pass_time(1)
    crew.run()
    crew.recorder.leave()
    assert [event.jobs for event in crew.events if isinstance(event, JobsLeft)] == [[job_id]]


def test_a_worker_that_stops_tries_a_locked_table_again(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(lambda job: "done")
    crew.create()
    crew.claimer.turn()
    crew.runner.turn()
    record, refusals = crew.jobs.record, [StoreConflict("somebody has locked the table")] * 2

    def refusing(*arguments: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return record(*arguments)

    monkeypatch.setattr(crew.jobs, "record", refusing)
    crew.recorder.finish()
    assert (crew.row().status, crew.ends()) == (JobState.SUCCEEDED, ["succeeded"])


def counted(monkeypatch: pytest.MonkeyPatch, crew: Crew, name: str) -> list[int]:
    """How many jobs each call was about."""
    sizes: list[int] = []
    method = getattr(crew.jobs, name)

    def call(*arguments: Any, **options: Any) -> Any:
        answer = method(*arguments, **options)
        sizes.append(len(answer))
        return answer

    monkeypatch.setattr(crew.jobs, name, call)
    return sizes


def raising(error: BaseException) -> Any:
    def function(*_arguments: Any, **_options: Any) -> Any:
        raise error

    return function
