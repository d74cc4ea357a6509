"""Workers of two versions at once, as during every deployment."""

from __future__ import annotations

from tests.chaos.crew import Kind
from tests.chaos.fault import Fault
from tests.chaos.snapshot import code_of
from tests.chaos.stage import Stage

_OLDER = "05e36ac"
"""The commit that the older workers run."""


def _older(stage: Stage) -> Kind:
    folder = stage.folder / f"boxengine-{_OLDER}"
    return Kind(before=[folder if folder.exists() else code_of(_OLDER, folder)])


def _hire_one_of_each(stage: Stage) -> None:
    stage.crew.hire()
    stage.crew.hire(_older(stage))


def _replace(stage: Stage) -> None:
    """One that comes and one that goes, of either version by turns: two workers of the same version for a moment."""
    stage.crew.hire(Kind() if len(stage.injections) % 2 == 0 else _older(stage))
    stage.crew.wait_until_started()
    stage.wait_for_work()
    leaving = stage.crew.running[0]
    with stage.injecting(leaving.pid):
        stage.crew.dismiss(leaving)
    stage.pause(1.0, 3.0)


FAULTS = {"two-versions": Fault(inject=_replace, times=6, hire=_hire_one_of_each, note=f"this one and commit {_OLDER}")}
