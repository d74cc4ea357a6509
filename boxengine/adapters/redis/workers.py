"""Lists the live worker processes: one key each, which expires, and a set of their ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import redis

from boxengine.adapters.redis.connection import milliseconds, translated
from boxengine.adapters.worker_entry import decoded, encoded
from boxengine.ports import WorkerInfo

INDEX = "boxengine:workers"

_NEVER = -1
"""Redis's answer for a key that does not expire."""

_ANNOUNCE = """
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'set' and kind ~= 'none' then redis.call('DEL', KEYS[1]) end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('SADD', KEYS[1], ARGV[1])
"""


class RedisWorkers:
    """``Workers`` over Redis: an announcement is one script, so ten seconds of life cost one command."""

    def __init__(self, client: redis.Redis, *, prefix: str = "") -> None:
        self._client = client
        self._index = prefix + INDEX
        self._prefix = prefix
        self._announce = client.register_script(_ANNOUNCE)

    def announce(self, worker: WorkerInfo, *, ttl: timedelta) -> None:
        with translated("announce a worker", self._client):
            self._announce(
                keys=[self._index, self._key(worker.id)],
                args=[worker.id, json.dumps(encoded(worker)), milliseconds(ttl)],
            )

    def withdraw(self, worker_id: str) -> None:
        with translated("withdraw a worker", self._client):
            pipeline = self._client.pipeline()
            pipeline.delete(self._key(worker_id))
            pipeline.srem(self._index, worker_id)
            pipeline.execute()

    def living(self) -> list[WorkerInfo]:
        with translated("look for workers", self._client):
            found: Any = self._client.smembers(self._index)
            members = list(found)
            names = [self._key(member.decode(errors="replace")) for member in members]
            known = self._announced(names) if names else []
            gone = [member for member, value in zip(members, known, strict=True) if value is None]
            if gone:
                # A worker that is still alive adds itself again with its next announcement.
                self._client.srem(self._index, *gone)
        living = [worker for worker in map(_read, filter(None, known)) if worker is not None]
        return sorted(living, key=lambda worker: (worker.started_at, worker.id))

    def _announced(self, names: Sequence[str]) -> list[bytes | None]:
        """What stands in these keys. One that never expires was copied from another server, and its worker may be long gone."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.mget(names)
        for name in names:
            pipeline.pttl(name)
        known, *left = pipeline.execute()
        return [None if each == _NEVER else value for value, each in zip(known, left, strict=True)]

    def _key(self, worker_id: str) -> str:
        return f"{self._prefix}boxengine:worker:{worker_id}"


def _read(value: bytes) -> WorkerInfo | None:
    """The worker; None if another program wrote the value."""
    try:
        return decoded(json.loads(value))
    except (ValueError, RecursionError):
        return None
