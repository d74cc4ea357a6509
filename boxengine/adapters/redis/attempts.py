"""Recent failed attempts: a short list for each item, and for each box an index of the items that failed last.

The number of items and a time limit of a day bound the memory that a box takes. A delivery writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import redis
from redis.exceptions import ResponseError

from boxengine.adapters.redis.connection import translated
from boxengine.adapters.redis.foreign import is_number
from boxengine.ports.people.attempts import KEPT_ATTEMPTS, Attempt

KEPT = timedelta(days=1)
"""Counted from an item's last failure."""


class RedisAttempts:
    """``Attempts`` over Redis; a flush is one round trip, and a second one if old items must be removed."""

    def __init__(self, client: redis.Redis, *, prefix: str = "", items: int = 5_000) -> None:
        """Args:
        items: how many items of a box are kept, those that failed last.
        """
        self._client = client
        self._prefix = prefix
        self._items = items

    def add(self, failed: Mapping[str, Sequence[Attempt]]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for box, attempts in failed.items():
            index = self._index(box)
            for attempt in attempts:
                key = self._key(box, attempt.item_id)
                pipeline.rpush(key, _encode(attempt))
                pipeline.ltrim(key, -KEPT_ATTEMPTS, -1)
                pipeline.expire(key, KEPT)
            pipeline.zadd(index, {str(each.item_id): each.at.timestamp() for each in attempts})
            pipeline.expire(index, KEPT)
            pipeline.zcard(index)
        with translated("write failed attempts", self._client):
            answers = self._executed(pipeline)
            last = -1
            for box, attempts in failed.items():
                last += 3 * len(attempts) + 3
                count = answers[last]
                if isinstance(count, int) and count > self._items:
                    self._drop(box, count - self._items)

    def of(self, box: str, item_id: int, uuid: str) -> list[Attempt]:
        with translated("read failed attempts", self._client):
            try:
                found: Any = self._client.lrange(self._key(box, item_id), 0, -1)
            except ResponseError:
                return []  # somebody else's key
        attempts = (_decode(value, item_id) for value in found)
        return [attempt for attempt in attempts if attempt is not None and attempt.uuid == uuid]

    def _drop(self, box: str, number: int) -> None:
        popped: Any = self._client.zpopmin(self._index(box), number)
        keys = [self._key(box, int(member)) for member, _ in popped if is_number(member)]
        if keys:
            self._client.delete(*keys)

    def _executed(self, pipeline: Any) -> list[Any]:
        """Executes the pipeline. A command fails if another program has set a key of another type; the others still work."""
        answers: list[Any] = pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception) and not isinstance(answer, ResponseError):
                raise answer
        return answers

    def _index(self, box: str) -> str:
        return f"{self._prefix}boxengine:attempts:{box}"

    def _key(self, box: str, item_id: int) -> str:
        return f"{self._prefix}boxengine:attempts:{box}:{item_id}"


def _encode(attempt: Attempt) -> str:
    return json.dumps([attempt.at.isoformat(), attempt.uuid, attempt.number, attempt.reason])


def _decode(value: bytes, item_id: int) -> Attempt | None:
    """The attempt; None if another program wrote the value."""
    try:
        at, uuid, number, reason = json.loads(value)
        moment = datetime.fromisoformat(at).astimezone(UTC)
        return Attempt(item_id=item_id, uuid=str(uuid), at=moment, number=int(number), reason=str(reason))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
