"""Tells what another program has written under boxengine's names, and deletes such keys: nothing in Redis is too dear to lose.

Redis answers a list command with WRONGTYPE if somebody has set a string there. If it stayed, one such key would stop every
box that the same call waits for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import redis
from redis.exceptions import ResponseError

from boxengine.adapters.redis import keys
from boxengine.domain.box import Box

DIGITS = 18
"""The most that a number of boxengine's has."""
LONGEST_LEASE = timedelta(hours=1)
"""No worker takes a lease for longer. Another one was copied here without its time limit, or Redis's clock was set back."""


def is_number(text: bytes) -> bool:
    """Whether it is a whole number that boxengine may have written. Python converts no text of thousands of digits."""
    return text.isdigit() and len(text) <= DIGITS


def is_wrong_type(error: ResponseError) -> bool:
    """Whether the error is WRONGTYPE; from a script, the word is in the middle of the message."""
    return "WRONGTYPE" in str(error)


def drop_foreign(client: redis.Redis, box: Box) -> list[bytes]:
    """Deletes the box's queue keys that are of a wrong type; returns their names in a form for people."""
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
