"""Remembers items' failures that the database refused to store: the item meta of sbmt-outbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta

import redis

from boxengine.adapters.redis import keys
from boxengine.adapters.redis.connection import milliseconds, translated
from boxengine.domain.box import Box
from boxengine.ports import Clock, RememberedFailure

_VERSION = 1
_ERROR_MSG_LENGTH = 200
_MOST_ERRORS = 2**31 - 2
"""One more still fits the column."""

# The ids are sent as one text, and only what is found is returned. Sent as hundreds of keys, with nearly all answers nil, they
# took the client four times as long, and client and server together almost three times.
_RECALL = """
local prefix, ids, names, found = ARGV[1], {}, {}, {}
for id in string.gmatch(ARGV[2], '%d+') do
  ids[#ids + 1] = id
  names[#names + 1] = prefix .. id
end
for first = 1, #names, 5000 do  -- unpack takes some 8,000 values
  local last = math.min(first + 4999, #names)
  for i, value in ipairs(redis.call('MGET', unpack(names, first, last))) do
    if value then
      found[#found + 1] = ids[first + i - 1]
      found[#found + 1] = value
    end
  end
end
return found
"""


class RedisFailures:
    """``FailureMemory`` over one key per item: JSON with version, timestamp, errors_count, error_msg, and uuid, which is ours."""

    def __init__(self, client: redis.Redis, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._recall = client.register_script(_RECALL)

    def remember(self, box: Box, failures: Mapping[int, RememberedFailure], *, ttl: timedelta) -> None:
        """Stores the failures by item id, with the first 200 characters of each error message."""
        if not failures:
            return
        timestamp = int(self._clock.now().timestamp())
        with translated("remember failures", self._client):
            pipeline = self._client.pipeline(transaction=False)
            for item_id, failure in failures.items():
                pipeline.set(keys.item_meta(box, item_id), _encode(failure, timestamp), px=milliseconds(ttl))
            pipeline.execute()

    def recall(self, box: Box, ids: Sequence[int]) -> Mapping[int, RememberedFailure]:
        """The remembered failures by item id; one that cannot be decoded counts as forgotten."""
        if not ids:
            return {}
        with translated("recall failures", self._client):
            answer = self._recall(args=[keys.item_meta_prefix(box), ",".join(map(str, ids))])
        found = zip(map(int, answer[::2]), map(_decode, answer[1::2]), strict=True)
        return {item_id: failure for item_id, failure in found if failure is not None}

    def forget(self, box: Box, ids: Sequence[int]) -> None:
        """Drops them."""
        if not ids:
            return
        with translated("forget failures", self._client):
            self._client.delete(*(keys.item_meta(box, item_id) for item_id in ids))


def _encode(failure: RememberedFailure, timestamp: int) -> str:
    meta = {
        "version": _VERSION,
        "timestamp": timestamp,
        "errors_count": failure.errors_count,
        "error_msg": failure.error_msg[:_ERROR_MSG_LENGTH],
    }
    if failure.uuid is not None:
        meta["uuid"] = failure.uuid
    return json.dumps(meta, separators=(",", ":"))


def _decode(value: str | bytes) -> RememberedFailure | None:
    try:
        meta = json.loads(value)
        uuid, message = meta.get("uuid"), str(meta.get("error_msg") or "")[:_ERROR_MSG_LENGTH]
        failure = RememberedFailure(int(meta["errors_count"]), message, None if uuid is None else str(uuid))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return failure if 0 <= failure.errors_count <= _MOST_ERRORS else None
