"""What a user's configuration names: transports, strategies, middlewares, a model."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from sqlalchemy import Column, Integer, MetaData, Table, Uuid

from boxengine.domain.item import Item
from boxengine.domain.outcome import PROCESS, Verdict


class Log:
    def __init__(self, level: str = "info") -> None:
        self.level = level

    def __call__(self, item: Item, payload: object) -> None: ...


class Kafka:
    def __init__(
        self,
        *,
        topic: str,
        bootstrap_servers: str | None = None,
        config: dict[str, Any] | None = None,
        required_acks: int | None = None,
        max_retries: int | None = None,
        delivery_timeout: float = 60.0,
        producers: object = None,
    ) -> None:
        self.producers = producers
        self.delivery_timeout = delivery_timeout
        self.topic, self.bootstrap_servers, self.config = topic, bootstrap_servers, config
        self.required_acks, self.max_retries = required_acks, max_retries

    def __call__(self, item: Item, payload: object) -> None: ...


class Http:
    def __init__(self, url: str) -> None:
        raise AssertionError("made at the start, though only its signature was to be looked at")

    def call_batch(self, items: Sequence[Item]) -> list[None]:
        return [None for _ in items]


class Anything:
    def __init__(self, **arguments: object) -> None:
        self.arguments = arguments

    def __call__(self, item: Item, payload: object) -> None: ...


class Punctual:
    def __init__(self, timeout: float) -> None:
        self.timeout = timeout

    def __call__(self, item: Item, payload: object) -> None: ...


class NoTransport:
    pass


class Unfinished(ABC):
    """What others have in common, named by mistake in place of one of them."""

    def __call__(self, item: Item, payload: object) -> bool:
        return bool(self.topic())

    @abstractmethod
    def topic(self) -> str: ...


def deliver(item: Item, payload: object, *, loudly: bool = False, session: object = None) -> bool:
    return loudly


class Ready:
    def call_batch(self, items: Sequence[Item]) -> list[None]:
        return [None for _ in items]


ready = Ready()


class Patient:
    def __call__(self, item: Item, context: object) -> Verdict:
        return PROCESS


def always_three(key: object, bucket_size: int) -> int:
    return 3 % bucket_size


class Timed:
    def __call__(self, subject: object, call_next: Any) -> Any:
        return call_next()


class Stamped:
    def __call__(self, model: object, attributes: object, call_next: Any) -> Any:
        return call_next()


def passed_on(item: Item, call_next: Any) -> Any:
    return call_next()


class Demanding:
    def __init__(self, needed: str) -> None: ...

    def __call__(self, subject: object, call_next: Any) -> Any: ...


def track(error: BaseException | str, /, **context: object) -> None: ...


def table(name: str) -> Table:
    columns = [Column(column, Integer) for column in ("event_key", "bucket", "status")]
    return Table(name, MetaData(), *columns)


class OrderOutboxItem:
    __table__ = table("shop_orders")
    __box_name__ = "a_item"

    payload = b"stored"

    def build_payload(self) -> bytes:
        return b"built of " + self.payload


class Described:
    __table__ = table("described_items")
    __box_name__ = "a_item"

    extra_options: ClassVar = {"key": "same for all"}
    event_key = "7"

    @property
    def extra_log_details(self) -> dict[str, str]:
        return {"order": self.event_key}


class Wrong:
    __table__ = table("wrong_items")
    __box_name__ = "a_item"

    extra_options = 5


class Plain:
    __table__ = table("plain_items")
    __box_name__ = "b_item"


class Received(Plain):
    __box_type__ = "inbox"


class Keyed:
    __table__ = Table(
        "keyed_items",
        MetaData(),
        Column("id", Uuid),
        Column("event_key", Integer),
        Column("bucket", Integer),
        Column("status", Integer),
    )


class Customer:
    __table__ = Table("customers", MetaData(), Column("id", Integer), Column("status", Integer))


number_of_items = 7


# ── what a plain call would not run ──────────────────────────────────────────────────────────────────


async def later(*_arguments: object, **_options: object) -> None: ...


def bit_by_bit(*_arguments: object, **_options: object) -> Any:
    yield


async def stream(*_arguments: object, **_options: object) -> Any:
    yield


class Later:
    """Fits everywhere, and would do its work nowhere."""

    async def __call__(self, *_arguments: object, **_options: object) -> None: ...


class LaterInBatches:
    async def call_batch(self, items: Sequence[Item]) -> list[None]:
        return [None for _ in items]


class EarlyButLaterInBatches(LaterInBatches):
    def __call__(self, item: Item, payload: object) -> None: ...


class Streaming:
    def call_batch(self, items: Sequence[Item]) -> Any:
        yield from items


later_with_arguments = functools.partial(later, loudly=True)
ready_later = Later()


class LaterOutboxItem:
    __table__ = table("later_items")

    async def build_payload(self) -> bytes:
        return b""

    async def extra_options(self) -> dict[str, object]:
        return {}

    @property
    async def extra_log_details(self) -> dict[str, object]:
        return {}


class BoundOutboxItem:
    __table__ = table("bound_items")

    build_payload = b"one"

    def extra_options(self, item: Item) -> dict[str, object]:
        return {"key": item.event_key}

    @staticmethod
    def extra_log_details() -> dict[str, object]:
        return {}
