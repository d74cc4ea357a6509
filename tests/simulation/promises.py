"""The promises that a history is held to, one name for each; a mutant names the one that it must break."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Promise(StrEnum):
    """What the checker can find broken. The value is the promise in words."""

    ENDS = "no loss: every item ends, and a failed one has a reason"
    FINAL = "no loss: a finished row changes no more, and only finished rows are deleted"
    OVERTAKEN = (
        "latest_available: an item tried before is discarded when, and only when, a later one of its key was delivered"
    )
    ACKNOWLEDGED = "acknowledged: delivered is written after every transport has confirmed"
    ATTEMPTS = "retries: every failed attempt counts, and max_retries is kept"
    PAUSES = "retries: no attempt before the pause or available_at is over"
    ONCE = "at least once: an item is sent again only with a reason, and never after its outcome"
    ISOLATED = "isolation: one item that no transport takes fails alone"
    FENCED = "fencing: nobody works on without a lease, and work is recorded or a fault explains why"
    CARE = "killing items: one that ends its workers fails with that reason after a few deaths, and no other does"
    STOPPED = "pause: nothing of a paused box is handed to a transport"
    ORDER = "order: first deliveries follow the ids"
    EFFECTS = "exactly once in the own database: a transport's writes are committed with the delivery or not at all"
    PROMPT = "promptness: where nothing goes wrong, nothing waits"
    SOUND = "soundness: the engine raises nothing that no fault explains"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise of one history."""

    promise: Promise
    text: str

    def __str__(self) -> str:
        return f"[{self.promise.name}] {self.text}"
