"""Paused boxes, where sbmt-outbox's own API looks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import redis
from redis.exceptions import ResponseError

from boxengine.adapters.redis import keys
from boxengine.adapters.redis.connection import translated
from boxengine.adapters.redis.foreign import is_wrong_type
from boxengine.domain.box import Box

_FALSE = frozenset({b"false", b"0", b"f", b"off"})
"""What Rails takes for false when it reads the hash, in small letters; all else is true."""


class RedisPauses:
    """``Pauses`` over one hash per box: ``id`` and ``polling_enabled``, as sbmt-outbox writes it."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def set(self, box: Box, *, polling_enabled: bool) -> None:
        """Remembers it for all workers."""
        value = "true" if polling_enabled else "false"
        with translated("pause or resume a box"):
            try:
                self._write(box, value)
            except ResponseError as error:
                if not is_wrong_type(error):
                    raise
                self._client.delete(keys.pause(box))
                self._write(box, value)

    def polling_enabled(self, boxes: Sequence[Box]) -> Mapping[str, bool]:
        """By box name, for those boxes that somebody paused or resumed; what is no hash was written by nobody."""
        if not boxes:
            return {}
        with translated("look for paused boxes"):
            pipeline = self._client.pipeline(transaction=False)
            for box in boxes:
                pipeline.hget(keys.pause(box), "polling_enabled")
            found = [_known(answer) for answer in pipeline.execute(raise_on_error=False)]
        return {box.name: value.lower() not in _FALSE for box, value in zip(boxes, found, strict=True) if value}

    def _write(self, box: Box, value: str) -> None:
        self._client.hset(keys.pause(box), items=["id", keys.box_id(box), "polling_enabled", value])


def _known(answer: bytes | Exception | None) -> bytes | None:
    if isinstance(answer, ResponseError) and is_wrong_type(answer):
        return None
    if isinstance(answer, Exception):
        raise answer
    return answer
