"""Hands single items to one transport. It runs for every item of a batch, so it must cost little."""

from __future__ import annotations

from collections.abc import Callable

from boxengine.domain.item import Item
from boxengine.engine.delivering.transports import Carrier
from boxengine.ports import Claim, Result


class Leg:
    """How to hand an item to a transport, worked out once per batch, and the counts of that batch's calls."""

    __slots__ = ("call", "calls", "carrier", "failures", "name", "seconds")

    def __init__(self, carrier: Carrier, claim: Claim) -> None:
        self.carrier = carrier
        self.name = carrier.name
        self.call = _caller(carrier, claim)
        self.calls = 0
        self.failures = 0
        """Calls that did not deliver."""
        self.seconds = 0.0


def _caller(carrier: Carrier, claim: Claim) -> Callable[[Item], Result]:
    if not carrier.has_single:
        return lambda item: carrier.send_batch([item], claim)[0]
    if carrier.single_wants_session:
        return lambda item: carrier.single()(item, item.payload, session=claim.session)
    if carrier.disposable:
        return lambda item: carrier.single()(item, item.payload)
    kept = carrier.single()
    return lambda item: kept(item, item.payload)
