"""What every parity test has: a rig on each database in turn, and Redis seen from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from boxengine.app import servers
from boxengine.app.servers import Servers
from tests.integration.engine.rig import Rig

DATABASES = {"postgresql": "postgres_url", "mariadb": "mysql_url"}
"""Name to the fixture that gives an empty database."""
RETRIES: dict[str, Any] = {"max_retries": 2, "minimal_retry_interval": 0.05, "maximal_retry_interval": 0.1}
"""Retries that a test need not wait for."""
QUEUE = "order_outbox_item:job_queue"
MakeRig = Callable[..., Rig]


@contextmanager
def rigs(request: pytest.FixtureRequest, folder: Path, database: str) -> Iterator[MakeRig]:
    """Makes rigs on the database of that name."""
    url: str = request.getfixturevalue(DATABASES[database])
    redis_url: str = request.getfixturevalue("redis_url")
    with ExitStack() as stack:

        def make(**config: Any) -> Rig:
            rig = stack.enter_context(Rig(folder, database=url, redis=redis_url, **config))
            rig.create_tables()
            return rig

        yield make


@contextmanager
def servers_of(rig: Rig) -> Iterator[Servers]:
    """The adapters of a rig's configuration, as a command of the CLI has them."""
    connected = servers.connect(rig.boxes.resolved.settings)
    yield connected
    connected.close()


class Spy:
    """Redis as another client sees it."""

    def __init__(self, client: Redis) -> None:
        self.client = client

    def text(self, key: str) -> str | None:
        value = self.client.get(key)
        return value.decode() if isinstance(value, bytes) else None

    def keys(self, pattern: str) -> set[str]:
        return {key.decode() for key in self.client.scan_iter(pattern)}

    def elements(self) -> list[bytes]:
        """The jobs in the box's queue, the oldest last."""
        found: Any = self.client.lrange(QUEUE, 0, -1)
        return list(found)
