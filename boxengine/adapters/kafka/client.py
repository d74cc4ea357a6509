"""The parts of ``confluent_kafka`` that a producer needs, imported once one is built."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from boxengine.adapters.kafka.farewell import part_with
from boxengine.errors import BoxError

LOGGER = logging.getLogger("boxengine.kafka")
CONNECTIONS = frozenset({"FAIL", "GETPID", "REQTMOUT"})
"""What librdkafka logs for each failed connection and each unanswered request, before it tries again."""

LOST = "_FATAL"
"""The name of the error that stands for one which the binding lost: see ``Client.error_of``."""

SERVERS = frozenset({"bootstrap.servers", "metadata.broker.list"})


class LibrdkafkaLog:
    """Receives librdkafka's own log lines, which would otherwise go to stderr.

    While a broker is down there is one every other second. They go to debug: the code that needs the broker reports the
    outage, once.
    """

    def log(self, level: int, message: str, facility: str, *arguments: object) -> None:
        """The binding calls this as it would call a logger's ``log``."""
        LOGGER.log(logging.DEBUG if facility in CONNECTIONS else level, message, facility, *arguments)


@dataclass(frozen=True, slots=True)
class Client:
    """The parts of ``confluent_kafka`` that we use. Tests pass their own."""

    producer: Any
    """Called with a configuration, makes a producer."""
    error: type[Any]
    """``KafkaError``: made of ``(code, text)``, holds the codes as attributes."""
    exception: type[Exception]
    """``KafkaException``: its first argument is a ``KafkaError``."""
    admin: Callable[[Mapping[str, Any], str, float], int] | None = None
    """Asks for ``max.message.bytes`` of a topic: of a producer's configuration, the topic, and seconds for the answer."""

    @property
    def raises(self) -> tuple[type[Exception], ...]:
        """What calls of a producer raise: see ``error_of``."""
        return (self.exception, SystemError)

    def make_producer(self, config: Mapping[str, Any]) -> Any:
        """A producer of this configuration.

        Raises:
            BoxError: librdkafka refuses the configuration.
        """
        try:
            return self.producer(dict(config), logger=LibrdkafkaLog())
        except (self.exception, TypeError, ValueError) as error:
            reason = error.args[0].str() if isinstance(error.args[0], self.error) else error
            raise BoxError(f"kafka: librdkafka refuses the configuration: {reason}") from error

    def make_error(self, name: str, text: str) -> Any:
        """A ``KafkaError`` of our own, by the name of its code."""
        return self.error(getattr(self.error, name), text)

    def error_of(self, error: BaseException) -> Any:
        """The ``KafkaError`` in an exception out of librdkafka's binding.

        The binding raises fatal errors out of ``poll`` and ``flush``, with the callbacks that follow still to be called:
        the first of them then breaks with a ``SystemError`` whose cause is the error itself. Seldom, with the binding's
        2.16, the error is lost, and the ``SystemError`` has no cause; a ``LOST`` error then stands for it.
        """
        if isinstance(error, self.exception):
            return error.args[0]
        if isinstance(error.__cause__, self.exception):
            return error.__cause__.args[0]
        return self.make_error(LOST, f"{type(error).__name__}: {error}")

    def check(self, config: Mapping[str, Any]) -> None:
        """Has librdkafka look at a configuration without connecting to anything.

        Raises:
            BoxError: it refuses the configuration.
        """
        offline = {key: value for key, value in config.items() if key not in SERVERS}
        self.make_producer({**offline, "log_level": 0})


def load_client() -> Client:
    """Imports ``confluent_kafka``.

    Raises:
        BoxError: it is not installed.
    """
    try:
        import confluent_kafka  # noqa: PLC0415 - an optional dependency, needed from here on
    except ImportError as error:
        raise BoxError('the kafka transport needs confluent-kafka: pip install "boxengine[kafka]"') from error
    return Client(confluent_kafka.Producer, confluent_kafka.KafkaError, confluent_kafka.KafkaException, largest_message)


def largest_message(config: Mapping[str, Any], topic: str, seconds: float) -> int:
    """``max.message.bytes`` of a topic.

    Raises:
        Exception: the broker does not answer, or may not be asked.
    """
    admin: Any = import_module("confluent_kafka.admin")
    of_a_producer = {"acks", "transactional.id", "delivery.timeout.ms", "message.timeout.ms"}
    connection = {key: value for key, value in config.items() if key not in of_a_producer}
    resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic)
    # ``log_level`` hides warnings about unused settings.
    clients = [admin.AdminClient({**connection, "enable.idempotence": False, "log_level": 3}, logger=LibrdkafkaLog())]
    try:
        asked = clients[0].describe_configs([resource], request_timeout=seconds)
        return int(asked[resource].result(seconds)["max.message.bytes"].value)
    finally:
        part_with(clients)
