"""Who shares a producer: one pool per process, one producer per configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any, Protocol

from boxengine.adapters.kafka.client import Client, load_client
from boxengine.adapters.kafka.messages import Message
from boxengine.adapters.kafka.producers import SharedProducer
from boxengine.adapters.kafka.reasons import Answer
from boxengine.adapters.kafka.transactions import TransactionalProducers
from boxengine.errors import BoxError


class Sender(Protocol):
    """Sends batches, from any number of threads."""

    def send(self, messages: Sequence[Message]) -> list[Answer]:
        """One answer per message, in order; at least one message."""

    def close(self) -> None:
        """Frees what it holds; a later ``send`` makes it anew."""


class ProducerPool:
    """The producers of one process: transports with equal configurations share one.

    Made by whoever composes the process and given to each transport as ``producers``; a transport without one makes
    its own.

    Args:
        worker: names this process among those that run with the same configuration, and stays the same when it is
            restarted; part of the ``transactional.id`` of its producers.
        threads: how many may send at once; also the initial number of transactional producers.
        client: for tests.
        missing: called with the brokers and the reason while somebody waits for unreachable brokers, and with None once
            they answer (``Health.missing``).

    Raises:
        BoxError: ``confluent-kafka`` is not installed.
    """

    def __init__(
        self,
        *,
        worker: str = "0",
        threads: int = 1,
        client: Callable[[], Client] = load_client,
        missing: Callable[[str, str | None], None] = lambda _what, _reason: None,
    ) -> None:
        self.client = client()
        self._missing = missing
        self._worker = worker
        self._threads = threads
        self._lock = Lock()
        self._leases: dict[str, tuple[Sender, int]] = {}
        self._transactional: dict[tuple[str, str], str] = {}
        """The key of the configuration for each brokers and ``transactional.id``."""

    def check(self, config: Mapping[str, Any]) -> None:
        """Has librdkafka look at a configuration that will be used, without connecting to anything.

        Raises:
            BoxError: it refuses the configuration, or another one has the same ``transactional.id``, and producers of the two
                would fence each other in turn.
        """
        self.client.check(config)
        name = config.get("transactional.id")
        if name is not None and self._transactional.setdefault((_servers(config), name), _key(config)) != _key(config):
            raise BoxError(
                f"kafka: transactional_id {name!r} is also used with other settings, and producers of the two would fence each "
                "other: use the same settings, or another transactional_id"
            )

    def lease(self, config: Mapping[str, Any]) -> Sender:
        """The sender for this configuration; adds one user. No broker is asked before the first ``send``."""
        key = _key(config)
        with self._lock:
            sender, users = self._leases.get(key) or (self._make(config), 0)
            self._leases[key] = (sender, users + 1)
        return sender

    def release(self, config: Mapping[str, Any]) -> None:
        """Removes one user; the last one closes the sender."""
        key = _key(config)
        with self._lock:
            sender, users = self._leases.pop(key)
            if users > 1:
                self._leases[key] = (sender, users - 1)
                return
        sender.close()

    def _make(self, config: Mapping[str, Any]) -> Sender:
        missing = partial(self._missing, f"kafka {_servers(config)}")
        prefix = config.get("transactional.id")
        if prefix is None:
            return SharedProducer(config, self.client, missing=missing)
        return TransactionalProducers(
            config, self.client, prefix=f"{prefix}-{self._worker}", slots=self._threads, missing=missing
        )


def _key(config: Mapping[str, Any]) -> str:
    return repr(sorted(config.items()))


def _servers(config: Mapping[str, Any]) -> str:
    return str(config.get("bootstrap.servers", config.get("metadata.broker.list")))
