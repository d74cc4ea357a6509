"""Retry strategies: may an item that failed before be tried now?

Strategies are asked in the configured order; the first that does not return PROCESS decides. Pauses
(``Backoff``) belong to the box, and the store's query applies them, so an item that comes here is past them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.outcome import DISCARD, PROCESS, SKIP, Verdict


class RetryContext(Protocol):
    """What a strategy may ask about an item's surroundings."""

    box: Box
    now: datetime
    """The store's clock, with zone UTC."""

    def later_delivered(self, item: Item) -> bool:
        """Whether a later item of the same key (and event name, if the box has them) has been delivered.

        Copies that a replay has made do not count: they hold an older state.

        Without an index by key this reads the whole table: a box with custom strategies that call it sets ``key_index``.
        """


RetryStrategy = Callable[[Item, RetryContext], Verdict]


class ExponentialBackoff:
    """Due at ``processed_at + min(maximal, minimal * multiplier ** (errors_count - 1))``.

    The store does not return rows before that; this check is for items that reach the processor another way.
    """

    def __call__(self, item: Item, context: RetryContext) -> Verdict:
        backoff = context.box.backoff
        if backoff is None or item.processed_at is None or item.errors_count == 0:
            return PROCESS
        # Jitter only shortens pauses, so only the shortest possible pause can be enforced here.
        shortest = backoff.delay(item.errors_count) * (1 - backoff.jitter)
        return PROCESS if context.now >= item.processed_at + shortest else SKIP


class LatestAvailable:
    """Discards an item that a later one of its key has overtaken: the receiver already has the newer state.

    Only a *delivered* later item counts. The reference also counts one still undelivered, and loses both if that one fails.
    """

    def __call__(self, item: Item, context: RetryContext) -> Verdict:
        return DISCARD if context.later_delivered(item) else PROCESS


class NoDelay:
    """Retries at the next poll."""

    def __call__(self, item: Item, context: RetryContext) -> Verdict:  # noqa: ARG002 - the signature that all strategies share
        return PROCESS


BUILT_IN: dict[str, Callable[[], RetryStrategy]] = {
    "exponential_backoff": ExponentialBackoff,
    "latest_available": LatestAvailable,
    "compacted_log": LatestAvailable,
    "no_delay": NoDelay,
}
DEFAULT = ("exponential_backoff",)
"""``latest_available`` gives items up, so it is used only if the configuration names it."""
WAITING = frozenset(name for name, made in BUILT_IN.items() if made is ExponentialBackoff)
"""Names of the strategies under which a failed row is not due before its pause is over."""
READING_KEYS = frozenset(name for name, made in BUILT_IN.items() if made is LatestAvailable)
"""Names of the strategies that look for later rows of an item's key."""
