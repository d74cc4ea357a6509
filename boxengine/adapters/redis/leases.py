"""Leases on duties: one key each, which holds a token and expires.

Behind the token of a partition's lease stands how many partitions its holder has made of the box, as in ``token/6``.
"""

from __future__ import annotations

from datetime import timedelta

import redis

from boxengine.adapters.redis import keys
from boxengine.adapters.redis.connection import Arguments, milliseconds, translated
from boxengine.adapters.redis.foreign import LONGEST_LEASE
from boxengine.ports import LeaseName

# Only a string with an end is a lease: whatever else another program has set is replaced. Whoever divides the box otherwise means
# other buckets by this partition, and is no reason to leave these alone.
_ACQUIRE = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
local left = redis.call('PTTL', KEYS[1])
if redis.call('TYPE', KEYS[1]).ok ~= 'string' or left < 0 or left > tonumber(ARGV[3]) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
local theirs, ours = string.match(holder, '/%d+$'), string.match(ARGV[1], '/%d+$')
if theirs and ours and theirs ~= ours then return 1 end
return 0
"""

_RELEASE = """
if redis.pcall('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""


class RedisLeases:
    """``Leases`` over Redis; ``prefix`` comes before the key of each lease."""

    def __init__(self, client: redis.Redis, *, prefix: str = "") -> None:
        self._client = client
        self._prefix = prefix
        self._acquire = client.register_script(_ACQUIRE)
        self._release = client.register_script(_RELEASE)

    def acquire(self, name: LeaseName, token: str, *, ttl: timedelta) -> bool:
        """See ``Leases.acquire``."""
        with translated("take a lease", self._client):
            arguments: Arguments = [_value(name, token), milliseconds(ttl), milliseconds(LONGEST_LEASE)]
            return bool(self._acquire(keys=[self._prefix + keys.lease(name)], args=arguments))

    def release(self, name: LeaseName, token: str) -> None:
        """Frees it if ``token`` holds it."""
        with translated("free a lease", self._client):
            self._release(keys=[self._prefix + keys.lease(name)], args=[_value(name, token)])


def _value(name: LeaseName, token: str) -> str:
    return token if name.of is None else f"{token}/{name.of}"
