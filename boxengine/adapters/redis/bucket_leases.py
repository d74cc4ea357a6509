"""Renews the leases of a hold's buckets while work goes on, then frees them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import redis

from boxengine.adapters.redis import keys
from boxengine.adapters.redis.connection import Arguments, milliseconds, translated
from boxengine.adapters.redis.script import Scripts
from boxengine.ports import Hold

# If another program has replaced a key by one of another type, its command fails, and the lease counts as lost.
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
local wanted, in_work, token, lease_prefix = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local kept = {}
for i = 3, #ARGV do
  local lease = lease_prefix .. ARGV[i] .. ':lock'
  if redis.pcall('GET', lease) == token then
    if redis.pcall('SREM', wanted, ARGV[i]) == 1 then
      kept[#kept + 1] = ARGV[i]
    else
      redis.call('DEL', lease)
      redis.pcall('HDEL', in_work, ARGV[i])
    end
  end
end
return kept
"""

_LEAVE = """
for i = 2, #ARGV do
  local holder = redis.pcall('HGET', KEYS[1], ARGV[i])
  if holder == ARGV[1] or holder == ARGV[1] .. '!' then redis.call('HDEL', KEYS[1], ARGV[i]) end
end
"""

_GIVE_WAY = """
local wanted, in_work, token, lease_prefix = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local kept = {}
for i = 3, #ARGV do
  local holder = redis.pcall('HGET', in_work, ARGV[i])
  if holder == token .. '!' and redis.pcall('GET', lease_prefix .. ARGV[i] .. ':lock') == token then
    redis.pcall('SREM', wanted, ARGV[i])
    redis.call('HSET', in_work, ARGV[i], token)
    kept[#kept + 1] = ARGV[i]
  elseif holder == token or holder == token .. '!' then
    redis.call('HDEL', in_work, ARGV[i])
  end
end
return kept
"""


class BucketLeases:
    """The half of ``RedisJobQueue`` that works on holds; one object serves all threads.

    A lease is touched only while it carries the hold's token.
    """

    def __init__(self, client: redis.Redis, scripts: Scripts) -> None:
        self._client = client
        self._extend = scripts.register(_EXTEND)
        self._release = scripts.register(_RELEASE)
        self._leave = scripts.register(_LEAVE)
        self._give_way = scripts.register(_GIVE_WAY)

    def extend(self, hold: Hold, *, ttl: timedelta) -> frozenset[int]:
        """Renews the leases of the hold's buckets and returns the buckets whose lease was lost."""
        arguments: Arguments = [hold.token, milliseconds(ttl), keys.bucket_lease_prefix(hold.box), *hold.buckets]
        with translated("extend leases", self._client):
            return frozenset(map(int, self._extend(args=arguments)))

    def release(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        """Frees these leases except those wanted again, which it returns: they stay, with the rest of their time."""
        asked = frozenset(buckets)
        if not asked:
            return frozenset()
        arguments: Arguments = [hold.token, keys.bucket_lease_prefix(hold.box), *asked]
        with translated("release leases", self._client):
            return frozenset(
                map(int, self._release(keys=[keys.wanted(hold.box), keys.in_work(hold.box)], args=arguments))
            )

    def leave(self, hold: Hold, buckets: Iterable[int]) -> None:
        """Lets the leases of these buckets expire by themselves, without their holder being taken for dead."""
        with translated("leave leases", self._client):
            self._leave(keys=[keys.in_work(hold.box)], args=[hold.token, *buckets])

    def give_way(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        """Leaves these buckets; returns those with which somebody else has finished, which stay."""
        arguments: Arguments = [hold.token, keys.bucket_lease_prefix(hold.box), *buckets]
        with translated("give way", self._client):
            return frozenset(
                map(int, self._give_way(keys=[keys.wanted(hold.box), keys.in_work(hold.box)], args=arguments))
            )
