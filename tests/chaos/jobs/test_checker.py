"""What the checker of long jobs sees, and what it lets pass."""

from __future__ import annotations

import pytest

from tests.chaos.checker import Injection
from tests.chaos.jobs.checker import Chunk, Findings, JobRow, judge, reruns
from tests.chaos.jobs.record import Effect

KEY = "customer 1"


def seen(job: int, token: int, *moments: float, key: str | None = None, pid: int = 1) -> list[Effect]:
    """Effects of one run."""
    return [Effect(at, at, pid, job, token, key) for at in moments]


def judged(
    rows: list[JobRow] | None = None,
    chunks: list[Chunk] | None = None,
    effects: list[Effect] | None = None,
    committed: tuple[int, ...] = (),
) -> Findings:
    return judge(rows=rows or [], committed=committed, chunks=chunks or [], effects=effects or [])


def test_jobs_one_after_the_other_are_as_promised() -> None:
    found = judged(
        rows=[JobRow(1, "succeeded", 2, 2), JobRow(2, "succeeded", 1, 1)],
        chunks=[Chunk(1, 1, 0, KEY), Chunk(1, 2, 1, KEY), Chunk(2, 1, 0, KEY)],
        effects=[*seen(1, 1, 0.0, 1.0, key=KEY), *seen(1, 2, 5.0, 6.0, key=KEY), *seen(2, 1, 6.1, key=KEY)],
        committed=(1, 2),
    )
    assert found == Findings([], [], [], 0)


@pytest.mark.parametrize(
    ("row", "chunks"),
    [
        (JobRow(1, "queued", 1, 1), [0]),
        (JobRow(1, "failed", 1, 1), [0]),
        (JobRow(1, "succeeded", 1, 2), [0]),
        (JobRow(1, "succeeded", 1, 2), [0, 0, 1]),
    ],
)
def test_a_job_without_its_end_or_with_other_rows_than_its_own_is_lost(row: JobRow, chunks: list[int]) -> None:
    assert len(judged(rows=[row], chunks=[Chunk(1, 1, number, None) for number in chunks]).lost) == 1


def test_a_job_that_was_committed_and_has_no_row_is_lost() -> None:
    assert judged(committed=(7,)).lost == ["job 7 was committed, and its row is gone"]


def test_two_runs_of_one_job_at_once_are_seen() -> None:
    assert len(judged(effects=[*seen(1, 1, 0.0, 2.0), *seen(1, 2, 1.0, 3.0)]).at_once) == 1


def test_a_run_within_another_one_is_seen() -> None:
    assert len(judged(effects=[*seen(1, 1, 0.0, 9.0), *seen(1, 2, 1.0, 2.0)]).at_once) == 1


def test_two_jobs_of_one_key_at_once_are_seen() -> None:
    effects = [*seen(1, 1, 0.0, 2.0, key=KEY), *seen(2, 1, 1.0, key=KEY)]
    assert judged(effects=effects).at_once == [
        f"lock_key {KEY}: effects of job 1 under token 1 came after those of job 2 under token 1 had begun"
    ]


def test_jobs_of_different_keys_may_run_at_once() -> None:
    assert not judged(effects=[*seen(1, 1, 0.0, 2.0, key="a"), *seen(2, 1, 1.0, 3.0, key="b")]).at_once


def test_an_effect_of_a_handler_that_was_suspended_before_it_is_counted_and_not_judged() -> None:
    late = Effect(0.5, 7.0, 1, 1, 1, None)
    found = judged(effects=[*seen(1, 1, 0.0), *seen(1, 2, 5.0, 9.0), late])
    assert (found.at_once, found.unpreventable) == ([], 1)


def test_a_row_that_was_written_under_an_older_token_than_the_end_is_a_zombies() -> None:
    found = judged(rows=[JobRow(1, "succeeded", 2, 1)], chunks=[Chunk(1, 1, 0, None)])
    assert found.zombies == ["job 1 ended under token 2, and its last row was written under token 1"]


def test_a_row_that_was_written_after_a_newer_run_had_begun_is_a_zombies() -> None:
    chunks = [Chunk(1, 1, 0, None), Chunk(1, 2, 1, None), Chunk(1, 1, 1, None), Chunk(1, 2, 2, None)]
    assert len(judged(rows=[JobRow(1, "succeeded", 2, 3)], chunks=chunks).zombies) == 1


def test_a_killed_workers_job_is_waited_for_until_its_next_run() -> None:
    killed = [Injection(10.0, 10.0, frozenset({1}))]
    others = [*seen(2, 1, 9.9, pid=2), *seen(2, 2, 30.0, pid=2), *seen(3, 1, 9.9, key=KEY), *seen(3, 2, 30.0, key=KEY)]
    assert reruns([*seen(1, 1, 9.0, 9.9), *seen(1, 2, 14.0, pid=2), *others], killed) == [4.0]
