"""Handlers of many jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from boxengine import Failure
from boxengine.domain.jobs import JobState
from boxengine.engine.jobs.batch_handle import BatchJob
from boxengine.engine.jobs.batch_handler import BatchHandler
from boxengine.errors import InvalidItem, JobLost, JobTimeout
from boxengine.ports.jobs import JobFilter
from tests.unit.jobs.crew import BOX, Crew

Jobs = Sequence[BatchJob[Any]]


def crew_of(handler: Callable[[Jobs], object], jobs: int, *, size: int = 10, **options: Any) -> Crew:
    """With so many jobs, one batch of which is claimed."""
    crew = Crew(BatchHandler(handler), batch_size=size, **options)
    for number in range(jobs):
        crew.create(args={"n": number})
    return crew


def states(crew: Crew) -> list[str]:
    return [str(row.status) for row in crew.jobs.tables[BOX.name].values()]


def test_each_job_of_a_batch_has_an_answer_of_its_own() -> None:
    crew = crew_of(
        lambda jobs: [{"twice": 2 * jobs[0].args["n"]}, jobs[1].retry(in_=60), Failure("no good"), ValueError("bad")], 4
    )
    crew.work()
    assert states(crew) == ["succeeded", "queued", "queued", "queued"]
    rows = [crew.row(number) for number in (1, 2, 3, 4)]
    assert rows[0].result == {"twice": 0}
    pauses = [row.available_at - crew.clock.now() for row in rows[1:]]
    assert pauses == [timedelta(seconds=60), BOX.pause_after(1), BOX.pause_after(1)]
    assert rows[1].error is None
    assert "report: no good" in str(rows[2].error)
    assert "ValueError: bad" in str(rows[3].error)
    assert crew.ends() == ["succeeded", "requeued", "requeued", "requeued"]
    assert crew.told == []


def test_none_means_that_all_have_succeeded() -> None:
    crew = crew_of(lambda _jobs: None, 3)
    crew.work()
    assert states(crew) == ["succeeded"] * 3
    assert crew.runs.all() == []


@pytest.mark.parametrize("answers", [None, [None, None]], ids=["no list", "a list"])
def test_a_retry_that_was_asked_for_and_not_returned_is_no_success(answers: object) -> None:
    def handler(jobs: Jobs) -> object:
        jobs[1].retry(in_=60)
        return answers

    crew = crew_of(handler, 2)
    crew.work()
    assert states(crew) == ["succeeded", "queued"]
    assert crew.row(2).available_at - crew.clock.now() == timedelta(seconds=60)


def test_a_result_counts_whatever_was_asked_for_before() -> None:
    def handler(jobs: Jobs) -> object:
        jobs[0].retry(in_=60)
        return [{"done": True}]

    crew = crew_of(handler, 1)
    crew.work()
    assert crew.row(1).result == {"done": True}


def test_a_call_gets_what_is_there_and_never_more_than_the_batch_size() -> None:
    sizes: list[int] = []
    crew = crew_of(lambda jobs: sizes.append(len(jobs)), 7, size=3)
    while "queued" in states(crew):
        crew.claimer.turn()
        while crew.handover.waiting:
            crew.run()
    assert sizes == [3, 3, 1]
    assert states(crew) == ["succeeded"] * 7


def test_a_call_gets_jobs_of_one_task() -> None:
    seen: list[list[int]] = []
    crew = crew_of(lambda jobs: seen.append([job.id for job in jobs]), 1)
    other = crew.create("export")
    crew.create()
    crew.claimer.turn()
    crew.run()
    crew.run()
    assert seen == [[1, 3]]
    assert "has no task 'export'; known: report" in str(crew.row(other).error)


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (lambda jobs: [1], "returned 1 answer for 2 jobs; expected one for each job"),
        (lambda jobs: {1: "done"}, "returned dict"),
        (lambda jobs: (job for job in jobs), "returned generator"),
        (lambda jobs: jobs[5], "IndexError"),
    ],
)
def test_an_error_of_the_handler_itself_fails_every_attempt_and_is_told_at_once(
    handler: Callable[[Jobs], object], says: str
) -> None:
    crew = crew_of(handler, 2)
    crew.work()
    assert states(crew) == ["queued"] * 2
    assert all(says in str(crew.row(number).error) for number in (1, 2))
    ((error, context),) = crew.told
    assert says in f"{type(error).__name__}: {error}"
    assert context == {"box": "report_job", "task": "report", "jobs": [1, 2]}


def test_an_answer_that_cannot_be_kept_fails_its_own_attempt() -> None:
    crew = crew_of(lambda jobs: [object(), (job for job in jobs), "fine"], 3)
    crew.work()
    assert states(crew) == ["queued", "queued", "succeeded"]
    assert "expected what JSON can hold" in str(crew.row(1).error)
    assert "the handler returned a generator whose code nobody runs" in str(crew.row(2).error)


def test_arguments_that_cannot_be_read_fail_their_own_attempt() -> None:
    """The handler could not leave the job out: it does not know which of them raises when it asks."""

    class Codec:
        def encode(self, args: Any) -> Any:
            return args

        def decode(self, stored: Any) -> Any:
            if stored["n"] == 1:
                raise InvalidItem("a field is missing")
            return stored["n"]

    crew = crew_of(lambda jobs: [job.args for job in jobs], 3, codecs={"report": Codec()})
    crew.work()
    assert states(crew) == ["succeeded", "queued", "succeeded"]
    assert [crew.row(number).result for number in (1, 3)] == [0, 2]
    assert "InvalidItem: a field is missing" in str(crew.row(2).error)
    assert crew.told == []


def test_the_last_failed_attempt_ends_the_job() -> None:
    crew = Crew(BatchHandler(lambda jobs: [Failure("no good")] * len(jobs)), batch_size=10)
    crew.create(max_attempts=1)
    crew.work()
    assert states(crew) == ["failed"]
    assert [context["job"] for _, context in crew.told] == [1]


def test_a_job_whose_cancel_was_seen_is_canceled_and_the_others_are_not() -> None:
    def handler(jobs: Jobs) -> list[object]:
        crew.jobs.cancel(BOX, JobFilter(ids=[2]))
        crew.pass_time(10)
        crew.keeper.turn()
        return [None if job.cancelled else job.id for job in jobs]

    crew = crew_of(handler, 3)
    crew.work()
    assert states(crew) == ["succeeded", "canceled", "succeeded"]


def test_progress_of_each_job_goes_with_its_end() -> None:
    def handler(jobs: Jobs) -> None:
        for job in jobs:
            job.progress(at=job.id)

    crew = crew_of(handler, 2)
    crew.work()
    assert [crew.row(number).progress for number in (1, 2)] == [{"at": 1}, {"at": 2}]


def test_a_lost_job_stops_the_call_and_costs_the_others_no_attempt() -> None:
    def handler(jobs: Jobs) -> None:
        crew.row(1).token += 1
        crew.pass_time(10)
        crew.keeper.turn()
        crew.watchdog.turn()
        while True:  # where JobLost rises
            pass

    crew = crew_of(handler, 3)
    crew.work()
    assert crew.ends() == ["lost", "requeued", "requeued"]
    assert [(crew.row(number).status, crew.row(number).attempt) for number in (2, 3)] == [(JobState.QUEUED, 0)] * 2
    assert crew.row(1).status is JobState.RUNNING
    assert crew.told == []


def test_a_job_that_is_lost_without_a_stop_keeps_no_other_from_its_end() -> None:
    def handler(jobs: Jobs) -> list[int]:
        crew.row(1).token += 1
        crew.pass_time(10)
        crew.keeper.turn()
        with pytest.raises(JobLost):
            jobs[0].ensure_held()
        return [job.id for job in jobs]

    crew = crew_of(handler, 2)
    crew.work()
    assert crew.ends() == ["lost", "succeeded"]
    assert crew.row(1).status is JobState.RUNNING


def test_what_lost_its_lease_while_it_waited_is_left_out_of_the_batch() -> None:
    seen: list[int] = []
    crew = crew_of(lambda jobs: seen.extend(job.id for job in jobs), 0)
    crew.create(lease_ttl=timedelta(seconds=4))
    crew.create()
    crew.claimer.turn()
    crew.pass_time(3.5)
    crew.run()
    assert seen == [2]
    assert crew.ends() == ["lost", "succeeded"]


def test_a_call_that_takes_too_long_is_stopped_once_and_every_attempt_has_failed() -> None:
    risen: list[type[BaseException]] = []

    def handler(jobs: Jobs) -> None:
        crew.pass_time(20)
        try:
            crew.watchdog.turn()
            while True:  # where JobTimeout rises
                pass
        except JobTimeout as error:
            risen.append(type(error))
            for _ in range(1000):  # where nothing does
                pass
            raise

    crew = crew_of(handler, 3, timeout=timedelta(seconds=20))
    crew.work()
    assert risen == [JobTimeout]
    assert states(crew) == ["queued"] * 3
    assert all("no end within 20 s" in str(crew.row(number).error) for number in (1, 2, 3))


def test_a_pause_below_zero_is_refused() -> None:
    def handler(jobs: Jobs) -> None:
        with pytest.raises(InvalidItem, match="below zero"):
            jobs[0].retry(in_=-1)

    crew = crew_of(handler, 1)
    crew.work()
    assert states(crew) == ["succeeded"]


def test_two_threads_share_the_jobs_and_nothing_is_claimed_for_busy_ones() -> None:
    crew = crew_of(lambda _jobs: None, 30, size=10)
    crew.claimer.turn()
    assert crew.jobs.stat(BOX).taken == 20
    first = crew.handover.take()
    assert first is not None
    crew.handover.take_alike(first, 9)
    assert crew.handover.waiting == 10
    assert crew.handover.room(0.0) == 0
