"""Which of the claimed items may be sent now, and with what payload."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import itemgetter
from typing import assert_never

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.domain.outcome import Discard, Verdict
from boxengine.domain.retry import RetryStrategy
from boxengine.engine.answers import failed, refusal
from boxengine.engine.attempt import ends_the_worker
from boxengine.engine.delivering.batches.remembered import Remembered
from boxengine.engine.delivering.batches.resting import Resting
from boxengine.engine.delivering.batches.strategies import Answer, Asking
from boxengine.engine.delivering.calls.sent import Failed
from boxengine.ports import Claim, RememberedFailure

_CREATED_AT, _PROCESSED_AT = (itemgetter(Item._fields.index(name)) for name in ("raw_created_at", "processed_at"))


@dataclass(frozen=True, slots=True)
class Admitted:
    """The items that may be sent, and what became of the others. Items in neither are left as they are."""

    items: Sequence[Item]
    failed: Sequence[Failed] = ()
    """Attempts that failed before the item could be sent."""
    discarded: Sequence[Discard] = ()
    recalled: Mapping[ItemId, RememberedFailure] = field(default_factory=dict)
    """By item, failures that were remembered outside the database."""
    at_rest: bool = False
    """Whether items were left out because the database refused their outcomes."""


class Admission:
    """Admits the items of one box. Shared by threads."""

    def __init__(
        self,
        box: Box,
        *,
        strategies: Sequence[RetryStrategy],
        resting: Resting,
        remembered: Remembered,
        new: timedelta,
    ) -> None:
        """Args:
        new: items that are younger cannot have failed in a batch whose outcome is unknown.
        """
        self._box = box
        self._strategies = strategies
        self._resting = resting
        self._remembered = remembered
        self._new = new
        self._preparations: list[tuple[str, Callable[[Item], object]]] = []
        if box.extra_options is not None:
            self._preparations.append(("extra_options", Item.with_extra_options))
        if box.payload_builder is not None:
            self._preparations.append(("payload builder", _building(box.payload_builder)))

    def admit(self, claim: Claim, *, number: int) -> Admitted:
        """Passes the claim's items through every step that may keep one from being sent.

        Args:
            number: how many batches of the hold came before. Untried rows are looked up in ``remembered`` in the first batch
                only, because the drain knows of its own later failures.
        """
        items, unreadable = _readable(claim)
        at_rest = False
        if self._resting:
            readable, items = items, self._resting.awake(items)
            at_rest = len(items) < len(readable)
        if not items:
            return Admitted(items, unreadable, at_rest=at_rest)
        tried = any(map(_PROCESSED_AT, items))
        recalled: Mapping[ItemId, RememberedFailure] = {}
        if tried or (number == 0 and not self._are_new(items, claim.now)):
            recalled = self._remembered.of(items)
            if recalled:
                items = [self._remembered.counted(item, recalled.get(item.id)) for item in items]
        refused = list(unreadable)
        discarded: list[Discard] = []
        if tried and self._strategies:
            items, failures, discarded = self._wanted(items, Asking(self._box, claim, self._strategies))
            refused += failures
        for where, prepare in self._preparations:
            items, failures = _prepared(items, prepare, where)
            refused += failures
        return Admitted(items, refused, discarded, recalled, at_rest)

    def _are_new(self, items: Sequence[Item], now: datetime) -> bool:
        """Whether none of the items can have been tried. If so, they are sent without a round trip to ``remembered``."""
        oldest, newest = min(items, key=_CREATED_AT), max(items, key=_CREATED_AT)
        # A writer's clock may be a little ahead of the database's.
        return all(abs(now - item.created_at) < self._new for item in (oldest, newest))

    def _wanted(self, items: Sequence[Item], asking: Asking) -> tuple[list[Item], list[Failed], list[Discard]]:
        """The items that no strategy skips or discards."""
        wanted, refused, discarded = list[Item](), list[Failed](), list[Discard]()
        for item in items:
            answer: Answer = Verdict.PROCESS if item.processed_at is None else asking.about(item)
            match answer:
                case Verdict.PROCESS:
                    wanted.append(item)
                case Verdict.SKIP:
                    pass  # its row stays as it is
                case Discard() as discard:
                    discarded.append(discard)
                case Failed() as failure:
                    refused.append(failure)
                case never:
                    assert_never(never)
        return wanted, refused, discarded


def _readable(claim: Claim) -> tuple[Sequence[Item], list[Failed]]:
    if not claim.unreadable:
        return claim.items, []
    items = [item for item in claim.items if item.id not in claim.unreadable]
    unreadable = [item for item in claim.items if item.id in claim.unreadable]
    return items, [Failed(item, claim.unreadable[item.id], "table") for item in unreadable]


def _prepared(items: Sequence[Item], prepare: Callable[[Item], object], where: str) -> tuple[list[Item], list[Failed]]:
    """The items as the model's code makes them. It is the user's code; whatever it raises fails only its own item."""
    ready, refused = list[Item](), list[Failed]()
    for item in items:
        try:
            answer = prepare(item)
        except BaseException as error:
            if ends_the_worker(error):
                raise
            refused.append(Failed(item, error, where))
            continue
        if isinstance(answer, Item):
            ready.append(answer)
        else:
            refused.append(Failed(item, refusal(answer), where))
    return ready, refused


def _building(build: Callable[[Item], object]) -> Callable[[Item], object]:
    """Returns the item with its payload, or the builder's answer if that is a refusal."""

    def built(item: Item) -> object:
        payload = build(item)
        return payload if failed(payload) else item._replace(payload=payload)

    return built
