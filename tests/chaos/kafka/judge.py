"""Holds what arrived against what was committed. It knows nothing of how either came about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.kafka.site import Committed
from tests.chaos.kafka.topic import Message

SHOWN = 3
"""Sentences of each kind."""


@dataclass(frozen=True, slots=True)
class Findings:
    """One sentence for each item with which something is wrong, and what was repeated."""

    lost: list[str]
    reordered: list[str]
    repeats: int
    """Messages beyond the first of an item: those that a consumer drops by their ``Idempotency-Key``."""
    wrong: list[str]

    @property
    def sentences(self) -> tuple[str, ...]:
        return (*self.lost[:SHOWN], *self.reordered[:SHOWN], *self.wrong[:SHOWN])


def judge(committed: Sequence[Committed], messages: Sequence[Message]) -> Findings:
    """Message by message: which item it is, whether it is that item's, and what of its key came before it."""
    known = {item.id: item for item in committed}
    first: dict[str, Message] = {}
    last_of_key: dict[str, int] = defaultdict(int)
    repeats, reordered, wrong = 0, [], []
    for message in messages:
        item = known.get(message.item)
        if item is None or (item.key, item.payload) != (message.key, message.payload):
            wrong.append(f"message {message.partition}:{message.offset} is no committed item: {message.key}")
        elif message.idempotency_key in first:
            repeats += 1
        else:
            first[message.idempotency_key] = message
            if message.item < last_of_key[message.key]:
                reordered.append(f"item {message.item} of {message.key} came after item {last_of_key[message.key]}")
            last_of_key[message.key] = max(message.item, last_of_key[message.key])
    arrived = {message.item for message in first.values()}
    lost = [f"item {id_} was committed and never arrived" for id_ in known if id_ not in arrived]
    if len(arrived) != len(first):
        wrong.append(f"{len(first) - len(arrived)} items came under two Idempotency-Keys")
    return Findings(lost, reordered, repeats, wrong)
