"""The transport ``kafka``: items become messages, and are delivered once the brokers have acknowledged them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import Any

from boxengine.adapters.cloudevents import CloudEvents, Format, demand_format
from boxengine.adapters.kafka.config import demand_servers, producer_config
from boxengine.adapters.kafka.messages import Message, MessageEncoder
from boxengine.adapters.kafka.pool import ProducerPool, Sender
from boxengine.adapters.kafka.reasons import Answer
from boxengine.adapters.serializers import Serializer, to_bytes
from boxengine.adapters.serializers import loaded as loaded_serializer
from boxengine.adapters.serializers import serializer as find_serializer
from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.engine.attempt import ends_the_worker, reason_of
from boxengine.errors import BoxError, Unavailable

DELIVERY_TIMEOUT = 60.0
"""Seconds."""


class KafkaTransport:
    """Sends each item as one message with the item's headers.

    ``call_batch`` hands over the whole batch, waits for every delivery report and has one result per item. Items of one
    key go out in their order. That a later one is not acknowledged after an earlier one failed holds only between
    batches: under strict order the engine puts at most one item of a key into a batch.

    What only one message is guilty of (too large, or an unknown topic where ``topic`` is a template) is a ``Failure`` of its
    item, an attempt. What every message would have met (no broker answers, credentials refused, the producer broke, the only
    topic does not exist) is ``Unavailable``: the items stay pending, and no attempt is counted, however long it takes.

    Args:
        topic: name, or a template over the item (``orders.{event_name}``; see ``ItemTemplate``).
        key: template of the message's key; default: the item's ``options.key``, else its event key.
        bootstrap_servers: ``host:port``, several separated by commas or as a list.
        config: librdkafka's own settings, passed on untouched and over all others. Keep credentials in the environment.
        format: ``plain``; ``cloudevents`` for CloudEvents in binary mode, ``cloudevents_structured`` in structured mode.
        source, content_type: attributes of the CloudEvents.
        serializer: ``bytes``, ``json`` or a dotted path; see ``boxengine.adapters.serializers``.
        transactional: one Kafka transaction per batch; see ``boxengine.adapters.kafka.transactions``.
        transactional_id: needed for it; the worker's own name, the same after a restart (``orders-${HOSTNAME}``).
        delivery_timeout: seconds after which a batch without an acknowledgement is given up, to be sent again later.
            Keep it well under the processor's ``general_timeout``.
        required_acks, max_retries: as in the reference.
        producers: the pool of this process, where transports with equal settings find one producer.

    Raises:
        BoxError: ``confluent-kafka`` is missing, or any of the above is wrong. No broker is asked.
    """

    def __init__(
        self,
        *,
        topic: str,
        bootstrap_servers: str | Sequence[str] | None = None,
        key: str | None = None,
        config: Mapping[str, Any] | None = None,
        format: Format = "plain",  # noqa: A002 - the name of the YAML key
        source: str | None = None,
        content_type: str | None = "application/json",
        serializer: str | Serializer = "bytes",
        transactional: bool = False,
        transactional_id: str | None = None,
        delivery_timeout: float = DELIVERY_TIMEOUT,
        required_acks: int | str | None = None,
        max_retries: int | None = None,
        producers: ProducerPool | None = None,
    ) -> None:
        if transactional:
            _demand_id(transactional_id)
        self._encode = MessageEncoder(
            topic=topic,
            key=key,
            serializer=find_serializer(serializer),
            cloud_events=CloudEvents.of(format, transport="kafka", source=source, content_type=content_type),
        )
        self._config = producer_config(
            bootstrap_servers=bootstrap_servers,
            config=config,
            delivery_timeout=timedelta(seconds=delivery_timeout),
            required_acks=required_acks,
            max_retries=max_retries,
            transactional_id=transactional_id if transactional else None,
        )
        demand_servers(self._config)
        self._producers = producers or ProducerPool()
        self._producers.check(self._config)
        self._lock = Lock()
        self._sender: Sender | None = None

    @staticmethod
    def checks(arguments: Mapping[str, Any]) -> Iterator[tuple[str | None, Callable[[], object]]]:
        """What shows that an argument is wrong before the transport is made; see ``boxengine.settings.transports``."""
        topic, key, config = arguments["topic"], arguments.get("key"), arguments.get("config") or {}
        encoder = partial(MessageEncoder, serializer=to_bytes, cloud_events=None)
        servers = {"bootstrap.servers": arguments.get("bootstrap_servers")}
        yield "topic", partial(encoder, topic=topic, key=None)
        yield "key", partial(encoder, topic="any", key=key)
        yield "bootstrap_servers", partial(demand_servers, {**servers, **config})
        yield "format", partial(demand_format, arguments.get("format", "plain"), transport="kafka")
        yield "serializer", partial(loaded_serializer, arguments.get("serializer", "bytes"))
        if arguments.get("transactional"):
            yield "transactional_id", partial(_demand_id, arguments.get("transactional_id"))
        # These depend on one another: the message names the one that is wrong.
        yield None, partial(_config_without_servers, arguments)

    def __call__(self, item: Item, payload: Any) -> Answer:
        return self.call_batch([item._replace(payload=payload)])[0]

    def call_batch(self, items: Sequence[Item]) -> list[Answer]:
        messages: list[Message] = []
        unsent: dict[int, Answer] = {}
        for index, item in enumerate(items):
            try:
                messages.append(self._encode(item))
            except Unavailable as outage:
                # What comes after it could overtake it.
                unsent.update(dict.fromkeys(range(index, len(items)), outage))
                break
            except BaseException as error:  # a user's serializer may raise anything, and only this item fails
                if ends_the_worker(error):
                    raise
                unsent[index] = Failure(f"kafka: the message could not be built: {reason_of(error)}")
        sent = self._leased().send(messages) if messages else []
        if not unsent:
            return sent
        rest = iter(sent)
        return [unsent[index] if index in unsent else next(rest) for index in range(len(items))]

    def close(self) -> None:
        """Lets go of the producer; a later delivery takes it up again."""
        with self._lock:
            sender, self._sender = self._sender, None
        if sender is not None:
            self._producers.release(self._config)

    def _leased(self) -> Sender:
        with self._lock:
            if self._sender is None:
                self._sender = self._producers.lease(self._config)
            return self._sender


def _config_without_servers(arguments: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: arguments.get(name) for name in ("config", "required_acks", "max_retries")}
    timeout = timedelta(seconds=arguments.get("delivery_timeout", DELIVERY_TIMEOUT))
    return producer_config(bootstrap_servers=None, delivery_timeout=timeout, **given)


def _demand_id(transactional_id: str | None) -> None:
    if not transactional_id:
        raise BoxError("kafka: transactional needs transactional_id, a name that is this worker's own")
