"""The simulation bites: each deliberate bug breaks the promise that it names, within few seeds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boxengine.domain.outcome import Settlement
from boxengine.engine.delivering.batches.recording import Recording
from boxengine.engine.delivering.calls.deadline import Deadline
from boxengine.engine.delivering.calls.sending import Sending
from tests.simulation.async_mutants import ASYNC_MUTANTS
from tests.simulation.bounds_mutants import BOUNDS_MUTANTS
from tests.simulation.log_mutants import LOG_MUTANTS
from tests.simulation.mutants import MUTANTS, backoff_ignored
from tests.simulation.mutation import Mutant, MutantMisfit, Surgery, breaks, hunt
from tests.simulation.promises import Promise
from tests.simulation.subscription_mutants import SUBSCRIPTION_MUTANTS

SEEDS = 5000


ALL = (*MUTANTS, *LOG_MUTANTS, *SUBSCRIPTION_MUTANTS, *ASYNC_MUTANTS, *BOUNDS_MUTANTS)


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_a_deliberate_bug_breaks_the_promise_it_names(mutant: Mutant) -> None:
    assert hunt(mutant, seeds=(*range(mutant.first, mutant.first + SEEDS), *range(mutant.first))), mutant.bug


def test_every_mutant_tells_its_bug() -> None:
    assert len(ALL) >= 15
    assert all(mutant.bug for mutant in ALL)


def test_every_promise_but_soundness_has_a_mutant_that_breaks_it() -> None:
    assert {mutant.promise for mutant in ALL} >= set(Promise) - {Promise.SOUND}


# ── a mutant that does not fit the code is an error, whatever it breaks ──────────────────────────────


def test_a_mutant_of_an_attribute_that_is_gone_is_a_misfit() -> None:
    @breaks(Promise.ENDS)
    def outdated(surgery: Surgery) -> None:
        surgery.setattr(Sending, "_send_everything", lambda _self: None)

    with pytest.raises(MutantMisfit, match="_send_everything does not exist"):
        hunt(outdated, seeds=range(1))


def test_a_mutant_of_a_method_whose_arguments_changed_is_a_misfit() -> None:
    @breaks(Promise.ENDS)
    def outdated(surgery: Surgery) -> None:
        surgery.setattr(Sending, "send", lambda self: self._ordering.blocked.clear())

    with pytest.raises(MutantMisfit, match="arguments of Sending"):
        hunt(outdated, seeds=range(1))


@pytest.mark.parametrize("promise", [Promise.ENDS, Promise.SOUND])
def test_a_mutant_that_calls_what_is_gone_is_a_misfit(promise: Promise) -> None:
    @breaks(promise)
    def outdated(surgery: Surgery) -> None:
        surgery.setattr(Recording, "commit", lambda self, claim, _settlement: self.commit_all(claim, Settlement()))

    with pytest.raises(MutantMisfit, match="commit_all"):
        hunt(outdated, seeds=range(50))


def test_a_mutant_that_makes_the_engine_raise_is_a_misfit() -> None:
    """Unless that is the promise it names."""

    @breaks(Promise.ENDS)
    def unrelated(surgery: Surgery) -> None:
        surgery.setattr(Deadline, "passed", lambda _self, *, begun: int(f"soon {begun}"))

    with pytest.raises(MutantMisfit, match="soon"):
        hunt(unrelated, seeds=range(50))


def test_a_bug_that_breaks_another_promise_is_not_taken_for_the_one_named() -> None:
    misnamed = replace(backoff_ignored, promise=Promise.EFFECTS)
    assert not hunt(misnamed, seeds=range(50))
    assert hunt(backoff_ignored, seeds=range(50))
