"""What the retry strategies say about items that were tried before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, assert_never

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.domain.outcome import Discard, DiscardCause, Verdict
from boxengine.domain.retry import RetryStrategy
from boxengine.engine.answers import discard
from boxengine.engine.attempt import discard_log, ends_the_worker
from boxengine.engine.delivering.calls.sent import Failed
from boxengine.errors import StoreUnavailable
from boxengine.ports import Claim

Answer: TypeAlias = Literal[Verdict.PROCESS, Verdict.SKIP] | Discard | Failed
"""Send the item, leave it as it is, discard it, or record that a strategy failed."""


class Asking:
    """Asks a box's strategies about the items of one claim; also what they may ask in return (``RetryContext``)."""

    def __init__(self, box: Box, claim: Claim, strategies: Sequence[RetryStrategy]) -> None:
        self.box = box
        self.now = claim.now
        self._claim = claim
        self._strategies = strategies
        self._overtaken: Mapping[ItemId, ItemId] | None = None
        """By item, a later one of its key that was delivered. None: nobody has asked yet."""

    def later_delivered(self, item: Item) -> bool:
        """Whether a later item of its key and event name has been delivered."""
        if self._overtaken is None:
            tried = [known for known in self._claim.items if known.processed_at is not None]
            self._overtaken = self._claim.later_delivered(tried)
        return item.id in self._overtaken

    def about(self, item: Item) -> Answer:
        """What to do with the item.

        Raises:
            StoreUnavailable: the database did not answer a strategy's question.
        """
        try:
            verdict, strategy = self._first(item)
        except StoreUnavailable:
            raise
        except BaseException as error:  # a strategy is user's code
            if ends_the_worker(error):
                raise
            return Failed(item, error, "retry strategy")
        match verdict:
            case Verdict.PROCESS | Verdict.SKIP:
                return verdict
            case Verdict.DISCARD:
                return self._discard(item, strategy)
            case never:
                assert_never(never)

    def _first(self, item: Item) -> tuple[Verdict, object]:
        """The first answer that is not PROCESS, and who gave it."""
        for strategy in self._strategies:
            answer: object = strategy(item, self)
            if not isinstance(answer, Verdict):
                discard(answer)
                raise TypeError(f"retry strategy {strategy!r} must return PROCESS, SKIP or DISCARD, not {answer!r}")
            if answer is not Verdict.PROCESS:
                return answer, strategy
        return Verdict.PROCESS, None

    def _discard(self, item: Item, strategy: object) -> Discard:
        later = (self._overtaken or {}).get(item.id)
        cause = DiscardCause.STRATEGY if later is None else DiscardCause.OVERTAKEN
        return Discard(item.id, cause, item.errors_count, discard_log(strategy, later=later, now=self.now))
