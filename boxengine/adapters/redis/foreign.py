"""Keys under our names that hold what we never put there: deleted, for Redis holds nothing that cannot be lost.

Redis answers a command for a list with WRONGTYPE where somebody has set a string; left alone, one such key would stop every
box that is waited for in the same call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import redis
from redis.exceptions import ResponseError

from boxengine.adapters.redis import keys
from boxengine.domain.box import Box


def is_wrong_type(error: ResponseError) -> bool:
    """Whether the error says so; out of a script the word stands in the middle of the message."""
    return "WRONGTYPE" in str(error)


def drop_foreign(client: redis.Redis, box: Box) -> list[bytes]:
    """Deletes those of its queue's keys that are of a wrong type; which they were, as a person would want to read it."""
    expected = dict(_expected(box))
    pipeline = client.pipeline(transaction=False)
    for key in expected:
        pipeline.type(key)
    found: list[Any] = pipeline.execute()
    foreign = {
        key: actual.decode()
        for key, actual in zip(expected, found, strict=True)
        if actual not in (expected[key], b"none")
    }
    if foreign:
        client.delete(*foreign)
    return [f"the key {key}, a {actual}".encode() for key, actual in foreign.items()]


def _expected(box: Box) -> Iterator[tuple[str, bytes]]:
    yield keys.job_queue(box), b"list"
    yield keys.queued(box), b"hash"
    yield keys.wanted(box), b"set"
    yield keys.in_work(box), b"hash"
