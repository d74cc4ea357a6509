"""A thousand short histories of long jobs keep every promise, and deliberate bugs break them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from boxengine.adapters.memory.jobs import MemoryJobs, table
from boxengine.domain.jobs import FINAL, AfterFailure, Due, JobBox, JobOutcome, Reaped, Succeeded, end_of_waiting
from boxengine.engine.jobs.batch import BatchRunner
from boxengine.engine.jobs.handle import Job
from boxengine.engine.jobs.handover import Handover
from boxengine.engine.jobs.reaper import Reaper
from boxengine.engine.jobs.run import Run
from boxengine.engine.jobs.timing import JobTiming
from tests.simulation.jobs.coroutines import SimulatedVisit
from tests.simulation.jobs.world import World
from tests.simulation.mutation import Surgery

HISTORIES = 1_000
CHUNK = 250
SEEDS = 400


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_every_history_of_long_jobs_keeps_every_promise(first: int) -> None:
    broken = {seed: found for seed in range(first, first + CHUNK) if (found := World(seed).run())}
    assert not broken, "\n".join(f"seed {seed}: {found[0]}" for seed, found in broken.items())


def test_a_seed_replays_exactly() -> None:
    first, second = World(7), World(7)
    first.run()
    second.run()
    assert first.scheduler.now == second.scheduler.now
    assert first.store.effects == second.store.effects


# ── mutants ──────────────────────────────────────────────────────────────────────────────────────────

Mutation = Callable[[Surgery], None]
MUTANTS: list[Mutation] = []


def mutant(mutation: Mutation) -> Mutation:
    MUTANTS.append(mutation)
    return mutation


@mutant
def the_token_is_not_looked_at(surgery: Surgery) -> None:
    surgery.setattr(MemoryJobs, "holds", lambda self, box, held: self._rows(box).get(held.id))


@mutant
def a_handler_may_use_more_than_its_lease(surgery: Surgery) -> None:
    surgery.setattr(JobTiming, "usable", lambda _self, lease: 2 * lease)


@mutant
def a_late_heartbeat_revives_a_lost_job(surgery: Surgery) -> None:
    surgery.setattr(Run, "is_lost", lambda _self: False)


@mutant
def no_handler_is_stopped_in_time(surgery: Surgery) -> None:
    surgery.setattr(Run, "stop_if_late", lambda _self: None)


@mutant
def a_held_key_does_not_stop_a_claim(surgery: Surgery) -> None:
    surgery.setattr(MemoryJobs, "_held_keys", lambda _self, box: set())


@mutant
def the_next_of_a_key_is_forgotten(surgery: Surgery) -> None:
    surgery.setattr(MemoryJobs, "_let_go", lambda _self, box, key: None)


@mutant
def a_job_is_begun_after_its_lease_ran_out(surgery: Surgery) -> None:
    surgery.setattr(Run, "may_begin", lambda _self: True)


@mutant
def the_ends_of_many_are_recorded_without_their_fence(surgery: Surgery) -> None:
    def record(self: MemoryJobs, box: JobBox, outcomes: Sequence[JobOutcome]) -> set[int]:
        for each in outcomes:
            self.end(box, self.tables[box.name][each.job.id], each.ending)
        return {each.job.id for each in outcomes}

    surgery.setattr(MemoryJobs, "record", record)


@mutant
def one_lost_job_spoils_the_ends_of_the_others(surgery: Surgery) -> None:
    original = MemoryJobs.record

    def record(self: MemoryJobs, box: JobBox, outcomes: Sequence[JobOutcome]) -> set[int]:
        all_held = all(self.holds(box, each.job.held) for each in outcomes)
        return original(self, box, outcomes) if all_held else set()

    surgery.setattr(MemoryJobs, "record", record)


@mutant
def no_job_waits_for_others(surgery: Surgery) -> None:
    surgery.setattr(table, "end_of_waiting", lambda _status, _after_failure: True)


@mutant
def followers_are_never_let_go(surgery: Surgery) -> None:
    surgery.setattr(MemoryJobs, "_release", lambda _self, box, row: False)


@mutant
def a_failed_predecessor_is_passed_over(surgery: Surgery) -> None:
    surgery.setattr(table, "end_of_waiting", lambda status, _after_failure: status in FINAL)


@mutant
def a_job_that_is_to_run_anyway_is_canceled(surgery: Surgery) -> None:
    original = end_of_waiting
    surgery.setattr(table, "end_of_waiting", lambda status, _after_failure: original(status, AfterFailure.CANCEL))


@mutant
def nobody_reaps(surgery: Surgery) -> None:
    surgery.setattr(MemoryJobs, "reap", lambda _self, box: Reaped())


@mutant
def the_reaper_is_slow(surgery: Surgery) -> None:
    original = Reaper.turn

    def turn(self: Reaper) -> timedelta:
        original(self)
        return timedelta(seconds=60)

    surgery.setattr(Reaper, "turn", turn)


@mutant
def a_job_of_a_batch_ends_for_its_neighbour(surgery: Surgery) -> None:
    original = BatchRunner._answers

    def answers(self: BatchRunner, answers: object, runs: Sequence[Run]) -> Sequence[object]:
        return list(reversed(original(self, answers, runs)))

    surgery.setattr(BatchRunner, "_answers", answers)


@mutant
def a_batch_succeeds_whatever_is_said_of_its_jobs(surgery: Surgery) -> None:
    surgery.setattr(BatchRunner, "_ending", lambda self, run, answer: Succeeded(result=run.job.id))


@mutant
def a_call_gets_jobs_of_all_tasks(surgery: Surgery) -> None:
    def take_alike(self: Handover, run: Run, most: int) -> list[Run]:
        return [self._given.popleft() for _ in range(min(most, len(self._given)))]

    surgery.setattr(Handover, "take_alike", take_alike)


@mutant
def a_coroutine_is_not_cancelled_when_it_loses_its_job(surgery: Surgery) -> None:
    surgery.setattr(SimulatedVisit, "cancel", lambda _self: None)
    surgery.setattr(Run, "demand", lambda _self: None)


@mutant
def nobody_promotes(surgery: Surgery) -> None:
    surgery.setattr(MemoryJobs, "promote", lambda _self, box: Due())


@mutant
def a_checkpoint_does_not_carry_the_session(surgery: Surgery) -> None:
    original = Job.checkpoint

    def checkpoint(self: Job[Any], state: Any) -> None:
        original(self, state)
        self._unit.session.append((self.id, (self.state or 1) - 1))

    surgery.setattr(Job, "checkpoint", checkpoint)


@pytest.mark.parametrize("mutation", MUTANTS, ids=lambda mutation: mutation.__name__)
def test_a_deliberate_bug_is_seen(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    surgery = Surgery(monkeypatch)
    mutation(surgery)
    assert any(World(seed).run() for seed in range(SEEDS))
    assert not surgery.misfits
