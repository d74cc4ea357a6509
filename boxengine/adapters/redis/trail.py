"""The trail of people's actions: a list of JSON objects, of which the oldest are dropped."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import redis
from redis.exceptions import ResponseError

from boxengine.adapters.redis.connection import translated
from boxengine.adapters.redis.foreign import is_wrong_type
from boxengine.ports.people.trail import Deed

KEY = "boxengine:console:trail"


class RedisTrail:
    """``Trail`` over one list; entries that Redis loses are still in the log."""

    def __init__(self, client: redis.Redis, *, prefix: str = "", kept: int = 1_000) -> None:
        self._client = client
        self._key = prefix + KEY
        self._kept = kept

    def add(self, deed: Deed) -> None:
        with translated("write the trail", self._client):
            try:
                self._push(deed)
            except ResponseError as error:
                if not is_wrong_type(error):
                    raise
                self._client.delete(self._key)
                self._push(deed)

    def latest(self, limit: int) -> list[Deed]:
        with translated("read the trail", self._client):
            try:
                found: Any = self._client.lrange(self._key, 0, limit - 1)
            except ResponseError as error:
                if not is_wrong_type(error):
                    raise
                found = []
        return [deed for deed in map(_decode, found) if deed is not None]

    def _push(self, deed: Deed) -> None:
        pipeline = self._client.pipeline()
        pipeline.lpush(self._key, json.dumps({**asdict(deed), "at": deed.at.isoformat()}))
        pipeline.ltrim(self._key, 0, self._kept - 1)
        pipeline.execute()


def _decode(value: bytes) -> Deed | None:
    """The deed; None if another program wrote the value."""
    try:
        fields = json.loads(value)
        at = datetime.fromisoformat(fields.pop("at")).astimezone(UTC)
        return Deed(at=at, **{name: str(text) for name, text in fields.items()})
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
