"""What every parity test has: Redis seen from outside, and the adapters of a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis

from boxengine.app.servers.connected import Servers
from boxengine.app.servers.connected import connect as connect_servers
from tests.integration.engine.rig import Rig
from tests.integration.engine.rigs import MakeRig

__all__ = ["QUEUE", "RETRIES", "MakeRig", "Spy", "servers_of"]
RETRIES: dict[str, Any] = {"max_retries": 2, "minimal_retry_interval": 0.05, "maximal_retry_interval": 0.1}
"""Retries that a test need not wait for."""
QUEUE = "order_outbox_item:job_queue"


@contextmanager
def servers_of(rig: Rig) -> Iterator[Servers]:
    """The adapters of a rig's configuration, as a command of the CLI has them."""
    connected = connect_servers(rig.boxes.resolved.settings)
    yield connected
    connected.close()


class Spy:
    """Redis as another client sees it."""

    def __init__(self, client: Redis) -> None:
        self.client = client

    def text(self, key: str) -> str | None:
        value = self.client.get(key)
        return value.decode() if isinstance(value, bytes) else None

    def remaining(self, key: str) -> int:
        """Milliseconds until the key goes."""
        left: Any = self.client.pttl(key)
        return int(left)

    def keys(self, pattern: str) -> set[str]:
        return {key.decode() for key in self.client.scan_iter(pattern)}

    def elements(self) -> list[bytes]:
        """The jobs in the box's queue, the oldest last."""
        found: Any = self.client.lrange(QUEUE, 0, -1)
        return list(found)
