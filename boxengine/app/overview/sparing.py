"""Limits how often questions are asked: however many people look, the database spends only a share of its time on them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from datetime import timedelta
from math import sqrt
from time import monotonic
from typing import Any, TypeVar

from boxengine.errors import BoxError

T = TypeVar("T")
SHARE = 0.0025
"""The share of one processor's time that the database may spend on all questions together."""
CHEAP = 0.01
"""If one round of all questions takes no longer than these seconds, they may spend twice the share: so the figures of a small
installation follow the rhythm of the live page. From twice as long on, the share holds."""
SELDOM = 60.0
"""The longest time in seconds until a question is asked again: older figures would be useless to people on call. The share is
exceeded only if one round of all questions takes more than 0.15 s."""
AFTER_FAILURE = 10.0
"""The longest time in seconds until a question that failed is asked again, so that a recovery shows soon."""


class Sparing:
    """Asks a question again only when the cost of all questions is spread over enough time.

    The interval of a question is proportional to the square root of its cost: of all ways to keep within the share, this one
    leaves answers the youngest. It is never less than the cost divided by the share.
    """

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], _Answer] = {}
        self._costs, self._roots = 0.0, 0.0
        """The sums over all answers of their costs, and of the costs' square roots. Kept up to date, because with hundreds of
        boxes it would take longer to add them up for each of a thousand questions than to answer these."""
        self._asked_at: float | None = None
        """When the question was asked whose answer is awaited; None: none is."""
        self._changes = defaultdict[str, int](int)

    def ask(self, name: tuple[str, str], question: Callable[[], T]) -> T:
        """A new answer, or the last one. An error counts as an answer, and is raised again.

        Args:
            name: whom the question is about, and what it asks.
        """
        known = self._answers.setdefault(name, _Answer())
        changes = self._changes[name[0]]
        if known.changes != changes or monotonic() - known.at >= self._interval(known):
            self._asked_at, cost = monotonic(), known.cost
            try:
                _put(question, known)
            finally:
                self._asked_at = None
                self._costs += known.cost - cost
                self._roots += sqrt(known.cost) - sqrt(cost)
            known.changes = changes
        if known.error is not None:
            raise known.error.with_traceback(None)
        answer: T = known.value
        return answer

    @property
    def awaits(self) -> timedelta:
        """For how long the answer to a question has been awaited; zero: none is. Any thread may ask."""
        asked_at = self._asked_at
        return timedelta(0) if asked_at is None else timedelta(seconds=monotonic() - asked_at)

    def age(self, name: tuple[str, str]) -> timedelta:
        """How long ago this answer was given; zero if the question was never asked."""
        known = self._answers.get(name)
        return timedelta(0) if known is None else timedelta(seconds=monotonic() - known.at)

    def forget(self, about: str) -> None:
        """Makes every question about it be asked anew when it next comes up, because something has changed."""
        self._changes[about] += 1

    def _interval(self, known: _Answer) -> float:
        share = SHARE * max(1.0, 2 * CHEAP / max(CHEAP, self._costs))
        longest = SELDOM if known.error is None else AFTER_FAILURE
        return min(longest, sqrt(known.cost) * self._roots / share)


class _Answer:
    """The answer to a question, and its cost."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: BoxError | None = None
        self.at = -1e9
        self.changes = 0
        """How many changes were known when the question was asked."""
        self.costs: deque[float] = deque([0.0, 0.0], maxlen=2)
        """How many seconds the last two answers took."""

    @property
    def cost(self) -> float:
        """The cheaper of the two, because one may include the time to connect."""
        return min(self.costs)


def _put(question: Callable[[], Any], into: _Answer) -> None:
    began = monotonic()
    try:
        into.value, into.error = question(), None
    except BoxError as error:
        into.error = error
    into.at = monotonic()
    into.costs.append(into.at - began)
