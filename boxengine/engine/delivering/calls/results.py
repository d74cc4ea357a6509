"""What ``call_batch`` may return: one result for each item that it was given."""

from __future__ import annotations

from collections.abc import Sequence

from boxengine.domain.words import plural
from boxengine.engine.answers import A_TRANSPORT, failed, refusal
from boxengine.engine.attempt import reason_of
from boxengine.errors import BoxError, Unavailable
from boxengine.ports import Result

_TEXTS = (str, bytes, bytearray, memoryview)
"""Sequences, but not of results."""


class WrongResults(BoxError):
    """A batch transport did not return one result for each item."""


def demand_results(answer: object, wanted: int) -> Sequence[Result]:
    """The answer, which must be so many results.

    Raises:
        Unavailable: it is one.
        WrongResults: it is something else.
    """
    counted = isinstance(answer, Sequence) and not isinstance(answer, _TEXTS)
    if counted and len(answer) == wanted:  # type: ignore[arg-type] # told by ``counted``
        return answer  # type: ignore[return-value] # likewise
    if isinstance(answer, Unavailable):
        raise answer
    if answer is not False and failed(answer):
        raise WrongResults(f"call_batch {reason_of(refusal(answer, awaited=A_TRANSPORT))}")
    told = plural(len(answer), "result") if counted else f"{answer!r:.200}"  # type: ignore[arg-type] # likewise
    given = plural(wanted, "item")
    raise WrongResults(f"call_batch was given {given} and must return as many results in a list, not {told}")
