"""From a message of librdkafka to a value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from operator import methodcaller
from typing import Any

from boxengine.domain.message import ReceivedMessage

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NO_TIMESTAMP = -1
_HEADERS = methodcaller("headers")
"""If a header's name is not UTF-8, confluent-kafka returns a list with a hole and leaves its exception pending: the
interpreter raises it at some later statement, or crashes at the hole. A call through ``methodcaller`` is checked."""


def message_of(received: Any, *, cluster: str = "") -> ReceivedMessage:
    """The received message as a value. Parts that cannot be represented are left out, and named in ``unreadable``."""
    problems: list[str] = []
    headers: tuple[tuple[str, bytes | None], ...] = ()
    try:
        headers = tuple(_HEADERS(received) or ())
    except (SystemError, UnicodeError) as error:
        cause = error.__cause__ or error
        problems.append(f"the headers cannot be read, a name among them may not be UTF-8: {cause}")
    kind, milliseconds = received.timestamp()
    moment = None
    if kind and milliseconds != NO_TIMESTAMP:
        try:
            moment = EPOCH + timedelta(milliseconds=milliseconds)
        except OverflowError:
            problems.append(
                f"the timestamp {milliseconds} is not a date: Kafka's timestamps are milliseconds since 1970"
            )
    return ReceivedMessage(
        received.topic(),
        received.partition(),
        received.offset(),
        received.key(),
        received.value(),
        headers,
        moment,
        cluster,
        "; ".join(problems),
    )
