"""Which worker processes are alive: one key each with a time limit, and a set of their ids."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import redis

from boxengine.adapters.redis.connection import milliseconds, translated
from boxengine.ports import WorkerInfo

INDEX = "boxengine:workers"

_ANNOUNCE = """
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('SADD', KEYS[1], ARGV[1])
"""


class RedisWorkers:
    """``Workers`` over Redis: an announcement is one script, so ten seconds of life cost one command."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._announce = client.register_script(_ANNOUNCE)

    def announce(self, worker: WorkerInfo, *, ttl: timedelta) -> None:
        with translated("announce a worker"):
            self._announce(keys=[INDEX, _key(worker.id)], args=[worker.id, _encode(worker), milliseconds(ttl)])

    def withdraw(self, worker_id: str) -> None:
        with translated("withdraw a worker"):
            pipeline = self._client.pipeline()
            pipeline.delete(_key(worker_id))
            pipeline.srem(INDEX, worker_id)
            pipeline.execute()

    def living(self) -> list[WorkerInfo]:
        with translated("look for workers"):
            found: Any = self._client.smembers(INDEX)
            ids = [member.decode() for member in found]
            known: Any = self._client.mget([_key(worker_id) for worker_id in ids]) if ids else []
            gone = [worker_id for worker_id, value in zip(ids, known, strict=True) if value is None]
            if gone:
                # A worker that lives puts itself back with its next announcement.
                self._client.srem(INDEX, *gone)
        return sorted((_decode(value) for value in known if value), key=lambda worker: (worker.started_at, worker.id))


def _key(worker_id: str) -> str:
    return f"boxengine:worker:{worker_id}"


def _encode(worker: WorkerInfo) -> str:
    return json.dumps(
        {
            "id": worker.id,
            "host": worker.host,
            "pid": worker.pid,
            "boxes": worker.boxes,
            "threads": worker.threads,
            "started_at": worker.started_at.isoformat(),
        }
    )


def _decode(value: bytes) -> WorkerInfo:
    fields = json.loads(value)
    fields["boxes"] = tuple(fields["boxes"])
    fields["started_at"] = datetime.fromisoformat(fields["started_at"])
    return WorkerInfo(**fields)
