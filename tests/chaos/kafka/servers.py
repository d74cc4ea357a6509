"""The servers of a run, all real and all its own: PostgreSQL, Valkey, and a Kafka broker behind a proxy."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey, ServerNotStarted
from boxengine.embedded.process import free_port
from tests.chaos.snapshot import copy_of_the_code
from tests.eventually import eventually
from tests.servers.kafka import KafkaBroker, jar_folder, prepare
from tests.servers.proxy import FaultProxy

PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Servers:
    """What all rows of a run share; each row has a database and a topic of its own."""

    postgres: EmbeddedPostgres
    redis: EmbeddedValkey
    broker: KafkaBroker
    proxy: FaultProxy
    """Between the broker and the workers. The judge goes past it."""
    code: Path
    """Where the workers find boxengine: a copy, so that editing the tree does not disturb a run."""

    @property
    def bootstrap(self) -> str:
        """The broker as the workers know it."""
        return f"127.0.0.1:{self.proxy.port}"

    def make_topic(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        topic = NewTopic(name, num_partitions=PARTITIONS, replication_factor=1)
        admin.create_topics([topic])[name].result(timeout=30)

    def make_topic_anew(self, name: str) -> None:
        """Deletes it, with all that is in it, and makes it at once."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        admin.delete_topics([name], operation_timeout=30)[name].result(30)
        topic = NewTopic(name, num_partitions=PARTITIONS, replication_factor=1)
        eventually(
            lambda: admin.create_topics([topic])[name].exception(30) is None, patience=30, what="the topic made anew"
        )


@contextmanager
def running_servers() -> Iterator[Servers]:
    """Starts them; they end with the block.

    Raises:
        ServerNotStarted: no real broker can be had here.
    """
    missing = prepare(os.environ)
    if missing:
        raise ServerNotStarted(f"no Kafka broker: {missing}")
    with tempfile.TemporaryDirectory(prefix="boxengine-chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL's own account must be able to walk in where the caller is root
        outside = free_port()
        with (
            FaultProxy("127.0.0.1", outside) as proxy,
            EmbeddedPostgres(folder / "postgres", durable=False) as postgres,
            EmbeddedValkey(folder / "valkey", durable=False) as redis,
            KafkaBroker(
                folder / "kafka", jars=jar_folder(os.environ), settings=_second_listener(outside, proxy.port)
            ) as broker,
        ):
            yield Servers(postgres, redis, broker, proxy, copy_of_the_code(folder / "code"))


def _second_listener(port: int, advertised: int) -> dict[str, str]:
    """For the workers: it listens on one port and tells them to come back through the proxy's."""
    controller = f"127.0.0.1:{free_port()}"
    plain = "PLAINTEXT://127.0.0.1:{port}"
    return {
        "listeners": _listed(plain, f"PROXIED://127.0.0.1:{port}", f"CONTROLLER://{controller}"),
        "advertised.listeners": _listed(plain, f"PROXIED://127.0.0.1:{advertised}"),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@{controller}",
    }


def _listed(*listeners: str) -> str:
    return ",".join(listeners)
