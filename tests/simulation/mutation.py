"""What a mutant is, how it is put into the engine, and how it is hunted.

A mutant that no longer fits the code proves nothing: an attribute that is gone, a changed signature or a ``TypeError``
in the patch breaks histories just as well as the bug would. Each of these ends the hunt as ``MutantMisfit``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import pytest

from tests.simulation.promises import Promise, Violation
from tests.simulation.verdict import broken_promises

SLIPS = (TypeError, AttributeError, NameError, LookupError)
"""What a patch raises that was written for other code. No deliberate bug raises any of these."""


class MutantMisfit(Exception):
    """The mutant no longer fits the code; mend the mutant."""


class Surgery:
    """Replaces parts of the engine for as long as a test runs, and notices when a replacement does not fit."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.misfits: list[str] = []

    def setattr(self, owner: Any, name: str, replacement: Any) -> None:
        """Replaces an attribute of a class or module.

        Raises:
            MutantMisfit: there is no such attribute, or it is called in another way than the replacement.
        """
        where = f"{owner.__name__}.{name}"
        if not hasattr(owner, name):
            raise MutantMisfit(f"{where} does not exist")
        original = getattr(owner, name)
        if not callable(original):
            if type(replacement) is not type(original):
                raise MutantMisfit(f"{where} is a {type(original).__name__}, its replacement is not")
            self._patch.setattr(owner, name, replacement)
            return
        if not _takes_the_calls_of(original, replacement):
            raise MutantMisfit(f"its replacement does not take the arguments of {where}{inspect.signature(original)}")
        self._patch.setattr(owner, name, self._watched(where, replacement))

    def _watched(self, where: str, replacement: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(replacement)
        def watched(*arguments: Any, **options: Any) -> Any:
            try:
                return replacement(*arguments, **options)
            except SLIPS as slip:
                self.misfits.append(f"the replacement of {where} raised {slip!r}")
                raise

        return watched


def _takes_the_calls_of(original: Callable[..., Any], replacement: Callable[..., Any]) -> bool:
    """Whether the replacement can be called in every way in which the original can."""
    parameters = inspect.signature(original).parameters.values()
    by_place = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_name = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    try:
        for optional in (False, True):
            inspect.signature(replacement).bind(
                *(p for p in by_place if optional or p.default is p.empty),
                **{p.name: p for p in by_name if optional or p.default is p.empty},
            )
    except TypeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Mutant:
    """One deliberate bug."""

    name: str
    bug: str
    """In words."""
    promise: Promise
    """The one that must break."""
    apply: Callable[[Surgery], None]
    only: tuple[str, ...] | None
    """The faults of the histories in which it is looked for; None: those that each seed draws."""
    first: int
    """The seed to begin with."""


def breaks(
    promise: Promise, *, only: tuple[str, ...] | None = None, first: int = 0
) -> Callable[[Callable[[Surgery], None]], Mutant]:
    """Makes a mutant of a function that performs the surgery; its docstring is the bug.

    Args:
        only: the faults that show a bug which few histories meet; it is found without them, too, but later.
        first: the seed to begin with, for bugs that no earlier seed shows.
    """

    def make(surgery: Callable[[Surgery], None]) -> Mutant:
        return Mutant(surgery.__name__, surgery.__doc__ or "", promise, surgery, only, first)

    return make


def hunt(mutant: Mutant, *, seeds: Iterable[int]) -> Collection[Violation]:
    """Runs histories with the mutant until one breaks the promise it names; what that one breaks, empty where none does.

    A history that breaks the promise without the mutant as well shows nothing: the hunt goes on.

    Raises:
        MutantMisfit: the mutant does not fit the code, so that what it breaks says nothing.
    """
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patch:
            surgery = Surgery(patch)
            mutant.apply(surgery)
            found = broken_promises(seed, only=mutant.only)
        unrelated = [str(each) for each in found if each.promise is Promise.SOUND is not mutant.promise]
        if misfits := surgery.misfits or unrelated:
            raise MutantMisfit(f"{mutant.name}, seed {seed}: {misfits[0]}")
        if mutant.promise in _names(found) and mutant.promise not in _names(broken_promises(seed, only=mutant.only)):
            return found
    return ()


def _names(found: Iterable[Violation]) -> set[Promise]:
    return {each.promise for each in found}
