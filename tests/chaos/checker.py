"""Holds a run to the promises of SEMANTICS 9, from the source tables and the record alone.

The checker knows the boxes' order and when faults were injected. It knows nothing of the engine.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.chaos.record import Attempt

FAILED = 1
"""``status`` of a row that was given up."""
DELIVERED = 2
"""``status`` of a delivered row."""


class Order(enum.Enum):
    """What a box promises about the order of first deliveries."""

    BUCKET = enum.auto()
    """They follow the ids within each bucket."""
    KEY = enum.auto()
    """They follow the ids within each key."""
    UNLESS_REFUSED = enum.auto()
    """They follow the ids within each key; who was refused before may be overtaken."""


class SourceRow(NamedTuple):
    """One row of a box's table after the run."""

    box: str
    id: int
    status: int


@dataclass(frozen=True, slots=True)
class Injection:
    """One fault: when it began, when it was over, and whom it struck."""

    begin: float
    """Monotonic seconds."""
    end: float
    victims: frozenset[int] | None = None
    """Processes; None: all."""

    def strikes(self, attempt: Attempt, *, slack: float) -> bool:
        """Whether the attempt may have been in work when the fault came, or went on when it was over.

        Args:
            slack: seconds for which a batch may be in work.
        """
        is_victim = self.victims is None or attempt.pid in self.victims
        return is_victim and self.begin - slack <= attempt.at <= self.end + slack


@dataclass(frozen=True, slots=True)
class Findings:
    """One sentence for each item with which something is wrong, and what was repeated."""

    lost: list[str]
    reordered: list[str]
    duplicates: int
    """Deliveries beyond the first of an item."""
    unexplained: list[str]
    """Those of them that no fault explains: neither delivery was in work at one."""
    in_work: int
    """Deliveries that faults may have cut off from their commit: the most that may come twice."""


def judge(
    *,
    rows: Sequence[SourceRow],
    committed: Collection[tuple[str, int]],
    attempts: Sequence[Attempt],
    orders: Mapping[str, Order],
    injections: Sequence[Injection],
    slack: float,
    doomed: Collection[tuple[str, int]] = (),
    touched: Collection[tuple[str, int]] = (),
) -> Findings:
    """Compares what was committed with what was received.

    Args:
        rows: of all boxes, after the run.
        committed: box and id of what the application knows to have committed.
        attempts: in the order in which they were received.
        injections: the faults that may repeat what was in work; empty where none may.
        slack: seconds, see ``Injection.strikes``.
        doomed: box and id of what must end as failed.
        touched: box and id of what somebody else wrote to; nothing is promised about it.
    """
    if touched:
        rows = [row for row in rows if (row.box, row.id) not in touched]
        committed = set(committed).difference(touched)
        attempts = [attempt for attempt in attempts if (attempt.box, attempt.id) not in touched]
    repeats = list(_repeats(attempts))
    return Findings(
        lost=list(_lost(rows, committed, attempts, frozenset(doomed))),
        reordered=list(_reordered(attempts, orders)),
        duplicates=len(repeats),
        unexplained=[
            f"item {again.id} of {again.box} was delivered at {first.at:.3f} and again at {again.at:.3f}; no fault explains it"
            for first, again in repeats
            if not any(injection.strikes(each, slack=slack) for injection in injections for each in (first, again))
        ],
        in_work=sum(
            attempt.taken and any(injection.strikes(attempt, slack=slack) for injection in injections)
            for attempt in attempts
        ),
    )


def _lost(
    rows: Sequence[SourceRow],
    committed: Collection[tuple[str, int]],
    attempts: Sequence[Attempt],
    doomed: frozenset[tuple[str, int]],
) -> Iterator[str]:
    received = {(attempt.box, attempt.id) for attempt in attempts if attempt.taken}
    known = {(row.box, row.id) for row in rows}
    for box, id_ in sorted(set(committed) - known):
        yield f"item {id_} of {box} was committed, and its row is gone"
    for box, id_ in sorted(received - known):
        yield f"item {id_} of {box} was delivered, and was never committed"
    for row in rows:
        if (row.box, row.id) in doomed:
            if row.status != FAILED:
                yield f"item {row.id} of {row.box} ended with status {row.status}; it must fail"
        elif row.status != DELIVERED:
            yield f"item {row.id} of {row.box} ended with status {row.status}"
        elif (row.box, row.id) not in received:
            yield f"item {row.id} of {row.box} counts as delivered, and nobody received it"


def _reordered(attempts: Sequence[Attempt], orders: Mapping[str, Order]) -> Iterator[str]:
    """Items that a later one of their scope overtook: it was delivered before they had their turn."""
    furthest: dict[tuple[str, int | str], int] = defaultdict(int)
    had_its_turn: set[tuple[str, int]] = set()
    for attempt in attempts:
        order = orders[attempt.box]
        scope = (attempt.box, attempt.bucket if order is Order.BUCKET else attempt.key)
        item = (attempt.box, attempt.id)
        if item not in had_its_turn and (attempt.taken or order is Order.UNLESS_REFUSED):
            had_its_turn.add(item)
            if attempt.id < furthest[scope]:
                yield f"item {attempt.id} of {attempt.box}, key {attempt.key}, came after item {furthest[scope]}"
        if attempt.taken:
            furthest[scope] = max(furthest[scope], attempt.id)


def _repeats(attempts: Sequence[Attempt]) -> Iterator[tuple[Attempt, Attempt]]:
    """Each delivery after the first of its item, with the one before it."""
    last: dict[tuple[str, int], Attempt] = {}
    for attempt in attempts:
        if attempt.taken:
            item = (attempt.box, attempt.id)
            if item in last:
                yield last[item], attempt
            last[item] = attempt
