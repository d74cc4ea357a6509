"""The leases on buckets that a hold has taken: kept alive while work goes on, then let go."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import redis

from boxengine.adapters.redis import keys
from boxengine.adapters.redis.connection import Arguments, milliseconds, translated
from boxengine.ports import Clock, Hold

# A key that a stranger has replaced by another type makes its command fail, and the lease count as lost.
_EXTEND = """
local token, ttl, lease_prefix = ARGV[1], ARGV[2], ARGV[3]
local lost = {}
for i = 4, #ARGV do
  local lease = lease_prefix .. ARGV[i] .. ':lock'
  if redis.pcall('GET', lease) == token then
    redis.call('PEXPIRE', lease, ttl)
  else
    lost[#lost + 1] = ARGV[i]
  end
end
return lost
"""

_RELEASE = """
local wanted, token, lease_prefix = KEYS[1], ARGV[1], ARGV[2]
local kept = {}
for i = 3, #ARGV do
  local lease = lease_prefix .. ARGV[i] .. ':lock'
  if redis.pcall('GET', lease) == token then
    if redis.pcall('SREM', wanted, ARGV[i]) == 1 then
      kept[#kept + 1] = ARGV[i]
    else
      redis.call('DEL', lease)
    end
  end
end
return kept
"""


class BucketLeases:
    """The half of ``RedisJobQueue`` that works on holds; one object serves all threads.

    A lease is touched only while it carries the hold's token, and the hold is kept in step with what the server said.
    """

    def __init__(self, client: redis.Redis, *, clock: Clock) -> None:
        self._clock = clock
        self._extend = client.register_script(_EXTEND)
        self._release = client.register_script(_RELEASE)

    def extend(self, hold: Hold, *, ttl: timedelta) -> frozenset[int]:
        """Renews the leases of the hold's buckets and returns those that were lost; unless some were, the hold lasts longer."""
        asked_at = self._clock.monotonic()
        arguments: Arguments = [hold.token, milliseconds(ttl), keys.bucket_lease_prefix(hold.box), *hold.buckets]
        with translated("extend leases"):
            lost = frozenset(map(int, self._extend(args=arguments)))
        hold.buckets -= lost
        if not lost:
            hold.valid_until = asked_at + ttl.total_seconds()
        return lost

    def release(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        """Frees these leases and returns those wanted again, whose leases stay with what is left of their time."""
        asked = frozenset(buckets)
        if not asked:
            return frozenset()
        arguments: Arguments = [hold.token, keys.bucket_lease_prefix(hold.box), *asked]
        with translated("release leases"):
            kept = frozenset(map(int, self._release(keys=[keys.wanted(hold.box)], args=arguments)))
        hold.buckets -= asked - kept
        return kept
