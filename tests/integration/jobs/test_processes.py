"""Handlers in processes of their own, run by a real worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from boxengine.domain.jobs import JobState
from boxengine.ports.jobs import JobFilter
from tests.eventually import eventually
from tests.integration.jobs.shop import NAME, Shop

HERE = "tests.integration.jobs.computing"
TASKS = {
    name: f"{HERE}.{name}"
    for name in (
        "who",
        "in_two_attempts",
        "until_cancelled",
        "hold_the_interpreter",
        "die",
        "write",
        "no_json",
        "fork",
        "pools",
    )
} | {"measure": f"{HERE}.Measure"}


def shop_of(folder: Path, url: str, **keys: Any) -> Shop:
    box = {
        "model": "tests.integration.jobs.handlers.ReportJob",
        "executor": "process",
        "concurrency": 1,
        "retry_interval": 0,
        "tasks": TASKS,
        "contracts": {"measure": f"{HERE}.Picture"},
        **keys,
    }
    return Shop(folder, url, job_items={NAME: box})


@pytest.fixture
def shop(postgres_url: str, tmp_path: Path) -> Iterator[Shop]:
    with closing(shop_of(tmp_path, postgres_url)) as shop:
        yield shop


def runs(pid: int) -> bool:
    """Whether the process does: one that has ended may wait for its parent to hear of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def ended(pid: int) -> bool:
    return not runs(pid)


def gone(*pids: int) -> None:
    for pid in pids:
        eventually(partial(ended, pid), what=f"the end of process {pid}")


def told(shop: Shop, job: int) -> dict[str, int]:
    """The pids that a handler at work has told."""
    return dict(eventually(lambda: shop.job(job)["checkpoint"]))


def test_a_process_is_kept_for_the_next_job_replaced_when_it_died_and_ended_with_the_worker(shop: Shop) -> None:
    with shop.worker():
        first, second = (shop.becomes(shop.create("who"), JobState.SUCCEEDED)["result"] for _ in range(2))
        assert first == second
        assert first["parent"] == os.getpid() != first["pid"]
        os.kill(first["pid"], signal.SIGKILL)
        gone(first["pid"])
        third = shop.becomes(shop.create("who", max_attempts=1), JobState.SUCCEEDED)["result"]
        assert third["pid"] != first["pid"]
        assert runs(third["pid"])
    assert not runs(third["pid"])


def test_a_job_in_a_process_has_checkpoint_progress_retry_and_contracts(shop: Shop) -> None:
    with shop.worker():
        job = shop.create("in_two_attempts", idempotency_key="k")
        row = shop.becomes(job, JobState.SUCCEEDED)
        assert row["result"] == {"state": "half", "attempt": 3, "id": job, "key": "k"}
        assert row["progress"] == {"done": 3}
        measured = shop.becomes(shop.create("measure", args={"width": 21}), JobState.SUCCEEDED)
        assert measured["result"] == 42


def test_what_a_handler_raises_is_the_error_of_its_attempt(shop: Shop) -> None:
    with shop.worker():
        row = shop.becomes(shop.create("in_two_attempts", max_attempts=1), JobState.FAILED)
        assert "in_two_attempts: ValueError: in the middle\n" in row["error"]
        assert "computing.py" in row["error"]
        row = shop.becomes(shop.create("write", max_attempts=1), JobState.FAILED)
        assert "job.session: a handler in a process of its own has none" in row["error"]
        row = shop.becomes(shop.create("no_json", max_attempts=1), JobState.FAILED)
        assert "the handler's result: expected what JSON can hold" in row["error"]


def test_a_process_that_dies_fails_its_attempt_alone_and_takes_along_what_it_has_started(shop: Shop) -> None:
    deaths = {
        "segfault": "was killed by SIGSEGV before the handler had ended",
        "exit": "ended with exit code 3 before the handler had ended",
        "killed": "was killed by SIGKILL (memory may have been short) before the handler had ended",
    }
    with shop.worker():
        for how, says in deaths.items():
            row = shop.becomes(shop.create("die", args={"how": how}, max_attempts=1), JobState.FAILED)
            assert f"JobProcessDied: the handler's process (pid {row['checkpoint']['pid']}) {says}" in row["error"]
            gone(row["checkpoint"]["program"])
        shop.becomes(shop.create("who", max_attempts=1), JobState.SUCCEEDED)


def test_a_handler_may_compute_in_pools_of_processes_that_are_forked(shop: Shop) -> None:
    with shop.worker():
        shop.becomes(shop.create("pools"), JobState.SUCCEEDED)


def test_a_process_that_a_handler_forks_gives_no_answer_and_takes_no_job(shop: Shop) -> None:
    with shop.worker():
        forks = [shop.becomes(shop.create("fork"), JobState.SUCCEEDED) for _ in range(3)]
    assert [job["result"] for job in forks] == ["parent"] * 3


def test_a_process_that_takes_too_long_is_killed_and_its_thread_works_again(postgres_url: str, tmp_path: Path) -> None:
    with closing(shop_of(tmp_path, postgres_url, timeout=1)) as shop, shop.worker():
        row = shop.becomes(shop.create("hold_the_interpreter", max_attempts=1), JobState.FAILED)
        assert "JobTimeout: no end within 1 s (timeout); the handler was stopped" in row["error"]
        gone(row["checkpoint"]["pid"], row["checkpoint"]["program"])
        shop.becomes(shop.create("who"), JobState.SUCCEEDED)


def test_two_jobs_run_in_two_processes_at_once_and_see_that_they_are_to_be_canceled(
    postgres_url: str, tmp_path: Path
) -> None:
    with closing(shop_of(tmp_path, postgres_url, concurrency=2)) as shop, shop.worker():
        jobs = [shop.create("until_cancelled") for _ in range(2)]
        pids = {told(shop, job)["pid"] for job in jobs}
        assert len(pids - {os.getpid()}) == 2
        assert [shop.job(job)["status"] for job in jobs] == ["running"] * 2
        assert shop.desk.cancel(shop.box, JobFilter(ids=jobs)) == 2
        for job in jobs:
            shop.becomes(job, JobState.CANCELED)


def test_a_process_whose_job_was_given_to_another_worker_is_killed(shop: Shop) -> None:
    with shop.worker():
        job = shop.create("hold_the_interpreter")
        pids = told(shop, job)
        with shop.engine.begin() as connection:
            connection.execute(text("UPDATE report_jobs SET token = token + 1"))
        gone(*pids.values())
        shop.becomes(shop.create("who"), JobState.SUCCEEDED)
        assert shop.job(job)["status"] == "running"


def test_a_killed_worker_leaves_no_process_behind(shop: Shop) -> None:
    worker = subprocess.Popen([sys.executable, "-m", "boxengine", "--config", str(shop.path), "start"])
    try:
        pids = told(shop, shop.create("hold_the_interpreter"))
        assert all(map(runs, pids.values()))
    finally:
        worker.kill()
        worker.wait()
    gone(*pids.values())


def test_a_worker_that_is_asked_to_stop_lets_the_handler_end(shop: Shop) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "boxengine", "--config", str(shop.path), "start"], start_new_session=True
    )
    try:
        job = shop.create("until_cancelled")
        pid = told(shop, job)["pid"]
        for each in (worker.pid, pid):  # as a service manager does
            os.kill(each, signal.SIGTERM)
        assert shop.desk.cancel(shop.box, JobFilter(ids=[job])) == 1
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.wait()
    assert shop.job(job)["status"] == "canceled"
    gone(pid)
