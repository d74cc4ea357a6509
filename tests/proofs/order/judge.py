"""Judges a run from outside: by what the application noted in its own table, and by what was received, in that order.

Nothing here knows the engine or its tables. An item has the name that the application gave it: the number of its part, and its
place there. A *part* is what one transaction wrote at one moment for one key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol


class Part(NamedTuple):
    """One row of the application's ledger, written in the transaction of its items and before them."""

    number: int
    key: int
    items: int
    first: int
    """What the key's lock counted for the first item; 0 where nothing was locked."""
    transaction: int
    snapshot: str
    """What was visible when the part was about to be written, as PostgreSQL prints it."""


class Order(Protocol):
    """What the deliveries of one key must follow."""

    def see(self, part: Part, place: int) -> str | None:
        """The next item that was received for the first time; a sentence if it came too late."""


class ByCounter:
    """Each key's counter, which the application moved on under the key's row lock."""

    def __init__(self) -> None:
        self._highest: dict[int, int] = {}

    def see(self, part: Part, place: int) -> str | None:
        counter, highest = part.first + place, self._highest.get(part.key, 0)
        if counter > highest:
            self._highest[part.key] = counter
            return None
        return f"key {part.key}: the item that its lock counted as {counter:,} came after {highest:,}"


class Moment:
    """What was visible when a part was about to be written."""

    def __init__(self, part: Part) -> None:
        _, end, running = part.snapshot.split(":")
        self.number = part.number
        self._end = int(end)
        # PostgreSQL leaves the asking transaction out.
        under_way = {*map(int, filter(None, running.split(","))), part.transaction}
        self._running = {each for each in under_way if each < self._end}

    def shows(self, transaction: int) -> bool:
        """Whether a committed transaction had ended by then."""
        return transaction < self._end and transaction not in self._running

    def is_before(self, other: Moment) -> bool:
        """Each snapshot of a server shows what any earlier one shows, and perhaps more."""
        return (self._end, -len(self._running)) < (other._end, -len(other._running))


class BySnapshot:
    """What was committed before something else of its key was written comes before it.

    By snapshots, not by clocks: a snapshot tells exactly who had committed, also of a writer who was killed and never said so.
    Of transactions that overlapped nothing is asked, nor of the parts of one transaction.
    """

    def __init__(self) -> None:
        self._latest: dict[int, Moment] = {}
        """By key, of all that was received, what was written last."""

    def see(self, part: Part, place: int) -> str | None:
        latest = self._latest.get(part.key)
        if latest is not None and latest.number == part.number:
            return None
        own = Moment(part)
        if latest is None or latest.is_before(own):
            self._latest[part.key] = own
        if latest is None or not latest.shows(part.transaction):
            return None
        return (
            f"key {part.key}: item {place} of part {part.number} came after one of part {latest.number}, "
            "which was written when it had been committed"
        )


class Judge:
    """Counts what was received against what was committed."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._received: dict[int, int] = {}
        """By part, a bit for each place."""
        self.items = 0
        """Received at least once."""
        self.repeated = 0
        """Received again."""
        self.inversions = 0
        self.unknown = 0
        """Received, and never committed."""
        self.sentences: list[str] = []
        """Of what is wrong, the first few."""

    def receive(self, number: int, place: int, part: Part | None) -> None:
        """The next item that reached the receiver.

        Args:
            part: as it was committed; None: it was not.
        """
        if part is None or place >= part.items:
            self.unknown += 1
            self._tell(f"item {place} of part {number} was received, and nobody committed it")
            return
        before, bit = self._received.get(number, 0), 1 << place
        if before & bit:
            self.repeated += 1
            return
        self._received[number] = before | bit
        self.items += 1
        wrong = self._order.see(part, place)
        if wrong is not None:
            self.inversions += 1
            self._tell(wrong)

    def lost(self, committed: Iterable[tuple[int, int]]) -> int:
        """How many items were never received.

        Args:
            committed: number and items of each part.
        """
        count = 0
        for number, places in self._missing(committed):
            count += len(places)
            self._tell(f"part {number} was committed, and nobody received its items {', '.join(map(str, places))}")
        return count

    def _missing(self, committed: Iterable[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
        for number, items in committed:
            received = self._received.get(number, 0)
            if received != (1 << items) - 1:
                yield number, [place for place in range(items) if not received >> place & 1]

    def _tell(self, sentence: str) -> None:
        if len(self.sentences) < MOST_SENTENCES:
            self.sentences.append(sentence)


MOST_SENTENCES = 10
