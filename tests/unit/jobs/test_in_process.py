"""The worker's side of a handler that runs in another process; what such a process says is written down here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from boxengine.domain.jobs import JobState
from boxengine.ports.job_processes import (
    Answer,
    Begun,
    Call,
    FromProcess,
    Order,
    ProcessGone,
    Prolonged,
    Raised,
    Refused,
    Returned,
    ToProcess,
)
from tests.unit.jobs.crew import Crew


class Scripted:
    """A process that says this, one after the other. An error is raised; None lets a moment pass."""

    def __init__(self, *says: FromProcess | ProcessGone | None) -> None:
        self.says = list(says)
        self.heard: list[ToProcess] = []
        self.killed = 0

    def send(self, message: ToProcess) -> None:
        self.heard.append(message)

    def receive(self, within: float) -> FromProcess | None:
        said = self.says.pop(0)
        if isinstance(said, ProcessGone):
            raise said
        return said

    def kill(self) -> None:
        self.killed += 1


class Processes:
    """Lends these, one after the other."""

    def __init__(self, *processes: Scripted) -> None:
        self.left = list(processes)
        self.closed = False

    @contextmanager
    def borrow(self) -> Iterator[Scripted]:
        yield self.left.pop(0)


GONE = ProcessGone("(pid 5) was killed by SIGBUS")


def crew_of(*processes: Scripted, **options: Any) -> Crew:
    crew = Crew(_never, processes=Processes(*processes), **options)
    crew.create()
    return crew


def _never(_job: object) -> None:
    raise AssertionError("called in the worker's own process")


def answers(process: Scripted) -> Sequence[Answer]:
    return [each for each in process.heard if isinstance(each, Answer)]


def test_what_the_process_returns_is_the_result_and_the_order_has_the_job() -> None:
    process = Scripted(Begun(), Returned('{"n": 1}'))
    crew = crew_of(process)
    crew.work()
    assert (crew.row().status, crew.row().result) == (JobState.SUCCEEDED, {"n": 1})
    (order,) = process.heard
    assert isinstance(order, Order)
    assert (order.job.id, order.job.task) == (1, "report")
    assert process.killed == 0


def test_a_failure_that_the_handler_returned_fails_the_attempt() -> None:
    crew = crew_of(Scripted(Begun(), Refused("no good")))
    crew.work()
    assert crew.ends() == ["requeued"]
    assert "no good" in str(crew.row().error)


def test_a_process_that_died_before_it_began_is_replaced_and_costs_no_attempt() -> None:
    crew = crew_of(Scripted(GONE), Scripted(Begun(), Returned("null")))
    crew.work()
    assert crew.ends() == ["succeeded"]


def test_an_attempt_fails_where_no_process_can_begin() -> None:
    crew = crew_of(Scripted(GONE), Scripted(GONE), Scripted(Begun(), Returned("null")))
    crew.work()
    assert crew.ends() == ["requeued"]
    assert "process (pid 5) was killed by SIGBUS before it could call the handler" in str(crew.row().error)


def test_a_process_that_dies_once_it_has_begun_fails_the_attempt() -> None:
    process = Scripted(Begun(), GONE)
    crew = crew_of(process, Scripted(Begun(), Returned("null")))
    crew.work()
    assert crew.ends() == ["requeued"]
    assert "process (pid 5) was killed by SIGBUS before the handler had ended" in str(crew.row().error)


def test_a_heartbeat_that_prolongs_the_lease_is_passed_on() -> None:
    class Beaten(Scripted):
        def receive(self, within: float) -> FromProcess | None:
            if len(self.says) == 2:
                crew.pass_time(20)
                crew.keeper.turn()
            return super().receive(within)

    process = Beaten(Begun(), None, Returned("null"))
    crew = crew_of(process)
    crew.work()
    order, prolonged = process.heard
    assert isinstance(order, Order)
    assert isinstance(prolonged, Prolonged)
    assert prolonged.held == order.job.held
    assert prolonged.until - order.until == 20


def test_the_watchdog_kills_the_process_before_the_lease_can_be_given_away_and_nothing_is_written() -> None:
    class Late(Scripted):
        def receive(self, within: float) -> FromProcess | None:
            if not self.says:
                crew.pass_time(55)
                crew.watchdog.turn()
                assert self.killed == 1
                raise GONE
            return super().receive(within)

    crew = crew_of(Late(Begun()))
    crew.work()
    assert crew.ends() == ["lost"]
    assert crew.row().status is JobState.RUNNING


def test_a_process_is_killed_at_the_time_limit_which_begins_with_the_handler() -> None:
    class Slow(Scripted):
        def receive(self, within: float) -> FromProcess | None:
            crew.pass_time(12)
            crew.watchdog.turn()
            if self.killed:
                raise GONE
            return super().receive(within)

    process = Slow(None, Begun(), None, None)
    crew = crew_of(process, timeout=timedelta(seconds=24))
    crew.work()
    assert process.says == [None]
    assert "JobTimeout: no end within 24 s (timeout); the handler was stopped" in str(crew.row().error)


def test_errors_of_the_job_are_raised_in_the_process_and_it_may_go_on() -> None:
    process = Scripted(Begun(), Call("retry", "-1"), Call("checkpoint", '{"at": 3}'), Returned("null"))
    crew = crew_of(process)
    crew.work()
    assert answers(process) == [
        Answer(
            error="InvalidItem",
            text="retry: in_: expected a timedelta, or seconds, not below zero and not beyond 36,500 days; got -1",
        ),
        Answer(),
    ]
    assert (crew.row().status, crew.row().checkpoint) == (JobState.SUCCEEDED, {"at": 3})


def test_a_handler_of_which_the_worker_stops_before_it_has_ended_leaves_its_job_to_the_lease() -> None:
    class Stopping(Scripted):
        def receive(self, within: float) -> FromProcess | None:
            if not self.says:
                processes.closed = True
                raise GONE
            return super().receive(within)

    processes = Processes(Stopping(Begun()))
    crew = Crew(_never, processes=processes)
    crew.create()
    crew.work()
    assert crew.ends() == ["lost"]
    assert crew.row().status is JobState.RUNNING


def test_what_a_handler_raised_is_told_in_its_own_words() -> None:
    raised = Raised("KeyError", "KeyError: 'x'", '  File "their.py", line 7, in handle\n')
    crew = Crew(_never, processes=Processes(Scripted(Begun(), raised)))
    crew.create(max_attempts=1)
    crew.work()
    assert str(crew.row().error).partition("report: ")[2] == "KeyError: 'x'\n  File \"their.py\", line 7, in handle"
    ((error, _context),) = crew.told
    assert str(error) == "KeyError: 'x'"
