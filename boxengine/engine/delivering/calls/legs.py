"""Hands single items to one transport. It runs for every item of a batch, so it must cost little."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from boxengine.domain.item import Item
from boxengine.engine.delivering.calls.sent import Sent
from boxengine.engine.delivering.calls.transports import Carrier
from boxengine.engine.delivering.calls.watch import Watch
from boxengine.ports import Around, Claim, Result, events


class Counts:
    """The counts of a batch's calls of one transport."""

    __slots__ = ("calls", "failures", "name", "seconds")

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0
        self.failures = 0
        """Calls that did not deliver."""
        self.seconds = 0.0


class Leg(Counts):
    """How to hand an item to a transport, worked out once per batch."""

    __slots__ = ("around", "call", "carrier")

    def __init__(self, carrier: Carrier, claim: Claim, around: Around | None) -> None:
        """Args:
        around: makes what is opened around each call; None: nothing is.
        """
        super().__init__(carrier.name)
        self.carrier = carrier
        self.around = around
        self.call = _caller(carrier, claim)


def told(legs: Iterable[Counts], watch: Watch, sent: Sent) -> Sent:
    """Reports each transport's calls to the observer; returns ``sent`` with the transports that answered."""
    for leg in legs:
        if not leg.calls:
            continue
        watch.observer.see(
            events.Transported(
                watch.box, leg.name, items=leg.calls, failed=leg.failures, seconds=leg.seconds, calls=leg.calls
            )
        )
        if leg.failures < leg.calls:
            sent = sent.answered(leg.name, took=leg.calls - leg.failures)
    return sent


def _caller(carrier: Carrier, claim: Claim) -> Callable[[Item], Result]:
    if not carrier.has_single:
        return lambda item: carrier.send_batch([item], claim)[0]
    if carrier.single_wants_session:
        return lambda item: carrier.single()(item, item.payload, session=claim.session)
    if carrier.disposable:
        return lambda item: carrier.single()(item, item.payload)
    kept = carrier.single()
    return lambda item: kept(item, item.payload)
