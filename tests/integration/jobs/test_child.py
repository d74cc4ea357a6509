"""One process for handlers, and what it does when its worker falls silent."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from boxengine.adapters.processes import inside
from boxengine.adapters.processes.child import Child, Start
from boxengine.adapters.processes.inside import WorkerLine
from boxengine.adapters.processes.pool import ProcessPool
from boxengine.app.jobs import process
from boxengine.domain.jobs import ClaimedJob, Held
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
)
from tests.eventually import PATIENCE

SETUP = process.Setup(
    box="report_job",
    handlers={
        "spin": "tests.integration.jobs.computing.until_cancelled",
        "refuse": "tests.integration.jobs.computing.refusing",
        "hold": "tests.integration.jobs.computing.hold_the_interpreter_until_told",
        "traced": "tests.integration.jobs.computing.traced",
        "impatient": "tests.integration.jobs.computing.impatient",
        "no": "tests.integration.jobs.nowhere.no",
    },
    contracts={},
    log_format=None,
    log_level=30,
)
START = Start(module=process.__name__, name="report-job", path=sys.path.copy(), setup=SETUP)
LATER = time.monotonic() + 1_000_000
LEASE = 2.0
"""Seconds, within which a handler that may go on does so."""


def job(task: str = "spin", args: Any = None) -> ClaimedJob:
    return ClaimedJob(
        id=7, token=3, task=task, args=args or {}, attempt=1, max_attempts=1, lease_ttl=timedelta(seconds=60)
    )


@contextmanager
def begun(start: Start = START) -> Iterator[Child]:
    child = Child(start)
    try:
        yield child
    finally:
        child.end()


def hear(child: Child, kind: type[FromProcess]) -> Any:
    message = child.receive(PATIENCE)
    assert isinstance(message, kind), message
    return message


def answer(child: Child, call: Call, *, value: bool | None = None) -> None:
    child.send(Answer(value, number=call.number))


def hear_the_end(child: Child) -> None:
    """Raises ``ProcessGone``. Something may have been on its way."""
    while True:
        hear(child, Call)


def test_a_worker_whose_standard_error_is_closed_has_processes_too() -> None:
    kept = os.dup(2)
    with Path(os.devnull).open() as other:
        # Taken by something that no other process inherits, as in a program that has closed it and gone on.
        os.dup2(other.fileno(), 2, inheritable=False)
    try:
        with begun() as child:
            child.send(Order(job("refuse", {"what": "failure"}), LATER))
            hear(child, Begun)
            hear(child, Refused)
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def test_a_process_ends_itself_where_the_lease_of_its_job_ends_and_its_worker_does_nothing() -> None:
    with begun() as child:
        child.send(Order(job(), LATER))
        hear(child, Begun)
        call = hear(child, Call)
        assert call.what == "checkpoint"
        child.send(Prolonged(Held(7, 2), 0.0))  # of another claim: it does not count
        answer(child, call)
        assert hear(child, Call).what == "cancelled"
        child.send(Prolonged(job().held, 0.0))
        with pytest.raises(ProcessGone, match="was killed by SIGKILL"):
            hear(child, Call)


@pytest.mark.parametrize("where", ["attempt", "creation", None], ids=["traced", "only its creation is", "not traced"])
def test_a_handlers_lines_name_its_job_and_trace_and_its_requests_continue_the_trace(
    where: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    context = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
    traced = replace(job("traced"), trace_context=context if where == "creation" else None)
    start = replace(START, setup=replace(SETUP, log_format="json", log_level=20))
    with begun(start) as child:
        child.send(Order(traced, LATER, context if where == "attempt" else {}))
        hear(child, Begun)
        returned = hear(child, Returned)
        child.send(Order(job("refuse", {"what": "error"}), LATER))
        hear(child, Begun)
        hear(child, Raised)
    assert json.loads(returned.result) == (context if where else {})
    (line,) = (json.loads(line) for line in capfd.readouterr().err.splitlines() if "at work" in line)
    tags = {"box": "report_job", "task": "traced", "job": 7, "attempt": 1} | ({"trace_id": trace_id} if where else {})
    assert {name: line[name] for name in line if name not in ("time", "level", "logger", "message", "pid")} == tags


def test_where_logs_are_the_applications_own_a_handlers_lines_name_its_job_too(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """If nothing is traced either. The other processes of these tests spare themselves the import of what makes tags."""
    with begun(replace(START, setup=replace(SETUP, handlers={"say": "tests.integration.jobs.own_logs.say"}))) as child:
        child.send(Order(job("say"), LATER))
        hear(child, Begun)
        hear(child, Returned)
    assert capfd.readouterr().err.splitlines() == ["at work of report_job, say, 7, attempt 1"]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1], ids=lambda each: each.name
)
def test_a_signal_to_all_processes_of_a_service_ends_no_handler(number: signal.Signals) -> None:
    with begun() as child:
        child.send(Order(job(), LATER))
        hear(child, Begun)
        call = hear(child, Call)
        os.kill(child.pid, number)
        for _ in range(2):
            answer(child, call, value=False)
            call = hear(child, Call)
            assert call.what == "cancelled"


def test_a_process_tells_where_its_handler_is(capfd: pytest.CaptureFixture[str]) -> None:
    with begun() as child:
        child.send(Order(job(), LATER))
        hear(child, Begun)
        call = hear(child, Call)
        os.kill(child.pid, signal.SIGUSR1)
        answer(child, call)
        hear(child, Call)
    assert "in until_cancelled" in capfd.readouterr().err


def test_a_handler_that_let_nobody_read_goes_on_if_its_lease_was_prolonged_meanwhile(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "go-on")
    release = os.open(path, os.O_RDWR)
    with begun() as child:
        child.send(Order(job("hold", {"until": str(path)}), LATER))
        hear(child, Begun)
        call = hear(child, Call)
        child.send(Prolonged(job().held, time.monotonic() + LEASE))
        answer(child, call)
        assert child.receive(LEASE) is None
        child.send(Prolonged(job().held, LATER))
        os.write(release, b".")
        hear(child, Returned)
    os.close(release)


def test_of_several_messages_that_waited_the_last_one_tells_when_the_lease_ends() -> None:
    with begun() as child:
        child.send(Order(job(), LATER))
        hear(child, Begun)
        call = hear(child, Call)
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        for until in (0.0, 0.0, LATER):
            child.send(Prolonged(job().held, until))
        answer(child, call)
        os.kill(child.pid, signal.SIGCONT)
        assert hear(child, Call).what == "cancelled"


def test_an_answer_that_nobody_waits_for_any_more_is_not_taken_for_the_next_one() -> None:
    with begun() as child:
        child.send(Order(job("impatient"), LATER))
        hear(child, Begun)
        first = hear(child, Call)
        os.kill(child.pid, signal.SIGALRM)
        second = hear(child, Call)
        assert (first.what, second.what) == ("checkpoint", "cancelled")
        answer(child, first, value=True)
        answer(child, second, value=False)
        assert hear(child, Returned).result == "false"


def test_what_a_handler_of_signals_raises_is_not_taken_for_the_end_of_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted:
        def send(self, _message: object) -> None:
            raise TimeoutError

    line = WorkerLine.__new__(WorkerLine)  # without its thread
    line._connection = cast("Any", Interrupted())
    monkeypatch.setattr(inside, "end_all", lambda: pytest.fail("ended"))
    with pytest.raises(TimeoutError):
        line.tell(Begun())


@pytest.mark.parametrize(
    ("what", "said"), [("failure", Refused("no good")), ("error", Raised("ValueError", "ValueError: no good", ""))]
)
def test_a_failure_that_a_handler_returns_is_told_as_one(what: str, said: FromProcess) -> None:
    with begun() as child:
        child.send(Order(job("refuse", {"what": what}), LATER))
        hear(child, Begun)
        assert child.receive(PATIENCE) == said


def test_a_handler_that_cannot_be_loaded_fails_its_attempts_alone() -> None:
    with begun() as child:
        child.send(Order(job("no"), LATER))
        hear(child, Begun)
        assert "has no attribute 'nowhere'" in hear(child, Raised).reason
        child.send(Order(job(), LATER))
        hear(child, Begun)


def test_a_process_that_cannot_start_says_how_it_ended() -> None:
    with begun(Start(module="boxengine.app.nowhere", name="x", path=sys.path, setup=None)) as child:
        with pytest.raises(ProcessGone, match="ended with exit code 1"):
            child.receive(PATIENCE)
        assert not child.alive


def test_a_closed_pool_ends_the_processes_that_are_at_work_and_begins_no_more() -> None:
    pool = ProcessPool(START)
    with pool.borrow() as child:
        child.send(Order(job(), LATER))
        hear(child, Begun)
        pool.close()
        with pytest.raises(ProcessGone, match="was killed by SIGKILL"):
            hear_the_end(child)
    with pytest.raises(ProcessGone, match="the worker stops"), pool.borrow():
        pass
