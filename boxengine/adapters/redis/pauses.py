"""Stores which boxes are paused, in the keys that sbmt-outbox's own API reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import redis
from redis.exceptions import ResponseError

from boxengine.adapters.redis import keys
from boxengine.adapters.redis.connection import translated
from boxengine.adapters.redis.foreign import is_wrong_type
from boxengine.domain.box import Box

_MANY = 20
"""With this many boxes, their pauses are read together."""
_FALSE = frozenset({b"false", b"0", b"f", b"off"})
"""Values that Rails reads as false, in lower case; all others are true."""


class RedisPauses:
    """``Pauses`` over one hash per box: ``id`` and ``polling_enabled``, as sbmt-outbox writes it."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def set(self, box: Box, *, polling_enabled: bool) -> None:
        """Remembers it for all workers."""
        value = "true" if polling_enabled else "false"
        with translated("pause or resume a box", self._client):
            try:
                self._write(box, value)
            except ResponseError as error:
                if not is_wrong_type(error):
                    raise
                self._client.delete(keys.pause(box))
                self._write(box, value)

    def forget(self, box: Box) -> None:
        """The box follows the configuration again."""
        with translated("forget a pause", self._client):
            self._client.delete(keys.pause(box))

    def polling_enabled(self, boxes: Sequence[Box]) -> Mapping[str, bool]:
        """By box name, for the boxes that somebody has paused or resumed; ignores keys that are not hashes."""
        if not boxes:
            return {}
        with translated("look for paused boxes", self._client):
            if len(boxes) >= _MANY:
                # The account may not be allowed to SORT by patterns, or another program may have taken the set's name.
                with suppress(ResponseError):
                    return self._of_many(boxes)
            pipeline = self._client.pipeline(transaction=False)
            for box in boxes:
                pipeline.hget(keys.pause(box), "polling_enabled")
            found = [_known(answer) for answer in pipeline.execute(raise_on_error=False)]
        return {box.name: value.lower() not in _FALSE for box, value in zip(boxes, found, strict=True) if value}

    def _of_many(self, boxes: Sequence[Box]) -> Mapping[str, bool]:
        """Two commands for hundreds of boxes: SORT reads a field of the hash of each member of a set."""
        found: dict[str, bool] = {}
        for side in {(box.type, box.namespace) for box in boxes}:
            some = {keys.box_id(box).encode(): box for box in boxes if (box.type, box.namespace) == side}
            told = self._told(next(iter(some.values())))
            if not some.keys() <= told.keys():
                # The first time, and after FLUSHALL.
                first = next(iter(some.values()))
                self._client.sadd(keys.boxes(first), *some)
                told = self._told(first)
            for name, box in some.items():
                value = told.get(name)
                if value:
                    found[box.name] = value.lower() not in _FALSE
        return found

    def _told(self, box: Box) -> dict[bytes, bytes | None]:
        """By id, the setting of each outbox, or of each inbox, as people have made it."""
        answer: Any = self._client.sort(
            keys.boxes(box), by="nosort", get=["#", f"{keys.pause_prefix(box)}*->polling_enabled"]
        )
        return dict(zip(answer[::2], answer[1::2], strict=True))

    def _write(self, box: Box, value: str) -> None:
        self._client.hset(keys.pause(box), items=["id", keys.box_id(box), "polling_enabled", value])


def _known(answer: bytes | Exception | None) -> bytes | None:
    if isinstance(answer, ResponseError) and is_wrong_type(answer):
        return None
    if isinstance(answer, Exception):
        raise answer
    return answer
