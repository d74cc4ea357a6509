"""The circuit breakers of one box's transports, asked before each batch and told after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.masking import masked_text
from boxengine.engine.attempt import reason_of, text_of
from boxengine.engine.delivering.receivers.breaker import Breaker, Permit
from boxengine.errors import Unavailable
from boxengine.ports import Clock, Observer, OpenCircuit, events


class Outcome(Protocol):
    """What ``Circuits`` reads from a batch that has been sent."""

    @property
    def unreachable(self) -> Mapping[str, Unavailable]:
        """By transport, why its receiver could not be reached."""

    @property
    def failed(self) -> Sequence[tuple[Item, object, str]]:
        """Item, what was returned or raised, and the transport's name."""

    @property
    def through(self) -> Collection[str]:
        """Transports that took at least one item."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one batch may do."""

    refused: Mapping[str, Unavailable] = field(default_factory=dict)
    """Transports that it must leave alone, and why."""
    probes: frozenset[str] = frozenset()
    """Transports for which this batch is the probe, so it should be small."""
    shut: bool = False
    """Whether no transport at all may be called."""


FREE = Entry()
LONGEST_REASON = 200
"""Characters."""


class Circuits:
    """One breaker for each name among the transports. Shared by threads."""

    def __init__(self, box: Box, transports: Iterable[str], *, observer: Observer, clock: Clock) -> None:
        def breaker(name: str) -> Breaker:
            def changed(circuit: OpenCircuit | None) -> None:
                observer.see(events.CircuitChanged(box, name, circuit))

            return Breaker(box.name, name, policy=box.circuit_breaker, clock=clock, changed=changed)

        self._breakers = {name: breaker(name) for name in transports}
        self._all = tuple(self._breakers.values())

    def open(self) -> list[OpenCircuit]:
        """The circuits that are open now, as far as is known."""
        return [breaker.circuit for breaker in self._all if breaker.circuit is not None and not breaker.forsaken]

    def breaker(self, name: str) -> Breaker:
        """The breaker of the transport with this name."""
        return self._breakers[name]

    def enter(self) -> Entry:
        """Asks what the next batch may do. Give the answer back with ``leave``."""
        for breaker in self._all:
            if not breaker.calm:
                return self._ask()
        return FREE

    def leave(self, entry: Entry, sent: Outcome | None) -> None:
        """Tells how the batch went; None: it was not sent."""
        if sent is None:
            for name in entry.probes:
                self._breakers[name].unsent()
        elif entry is not FREE or sent.unreachable or sent.failed or not all(each.calm for each in self._all):
            failures = Counter(where for _, _, where in sent.failed)
            for name in self._breakers:
                if name not in entry.refused:
                    self._tell(name, sent, failures[name], entry)

    def _ask(self) -> Entry:
        permits = {name: breaker.permit() for name, breaker in self._breakers.items()}
        refused = {name: self._refusal(name) for name, permit in permits.items() if permit is Permit.NO}
        probes = frozenset(name for name, permit in permits.items() if permit is Permit.PROBE)
        return Entry(refused, probes, shut=len(refused) == len(permits))

    def _refusal(self, name: str) -> Unavailable:
        circuit = self._breakers[name].circuit
        return Unavailable("circuit open" if circuit is None else circuit.reason)

    def _tell(self, name: str, sent: Outcome, failures: int, entry: Entry) -> None:
        breaker, probe = self._breakers[name], name in entry.probes
        if name in sent.unreachable:
            problem = sent.unreachable[name]
            breaker.unreachable(_said(problem), probe=probe, retry_after=problem.retry_after)
        elif name in sent.through:
            breaker.succeeded()
        elif failures:
            first = next(problem for _, problem, where in sent.failed if where == name)
            breaker.failed(failures, _said(first), probe=probe)
        elif probe:
            breaker.untried(self._breakers[each] for each in entry.refused)


def _said(problem: object) -> str:
    """The reason as ``status`` shows it: without passwords, and cut, because some libraries write long messages."""
    text = (text_of(problem) if isinstance(problem, Unavailable) else "") or reason_of(problem)
    return masked_text(text.partition("\n")[0][:LONGEST_REASON])
