"""The scripts of the job queue. Each runs in Redis as one step.

``KEYS`` are the list of jobs, the hash of the marks of queued buckets, the set of buckets that are wanted again, and the
hash of the buckets in work with their holders' tokens. A "!" behind a token means that somebody who worked on the bucket
without a lease has finished since.
"""

_CHECK = """
-- Fails where a key is of a wrong type, before anything is changed.
local function check(queue, queued, wanted)
  redis.call('LLEN', queue)
  redis.call('HLEN', queued)
  redis.call('SCARD', wanted)
end
"""

# The mark of a bucket is the very element that was queued, so that a doubtful one can be looked up in the list. It is
# doubted once older than `stale_after`: a worker may have died between its BRPOP and the script that follows, or the
# list was evicted. As the job may also be between these two just now, a mark whose element is not in the list is only
# replaced by a suspicion ("?"); if nobody has cleared that either after as long again, the bucket is free.
_SIFT = (
    _CHECK
    + """
local function pushed_at(element)
  return tonumber(string.match(element, '^%d+:(%d+)'))
end

local function still_queued(queue, mark, element, stale_after)
  local suspected = string.sub(mark, 1, 1) == '?'
  local since = pushed_at(suspected and string.sub(mark, 2) or mark)
  if since and math.abs(pushed_at(element) - since) < stale_after then return true, mark end
  if suspected then return false, mark end
  if redis.call('LPOS', queue, mark) then return true, mark end
  return true, '?' .. element
end

-- The elements whose buckets are neither queued nor in work, and those buckets. Buckets in work are wanted again.
local function sift(queue, queued, wanted, lease_prefix, stale_after, elements)
  check(queue, queued, wanted)
  local buckets, leases = {}, {}
  for i, element in ipairs(elements) do
    buckets[i] = string.match(element, '^%d+')
    leases[i] = lease_prefix .. buckets[i] .. ':lock'
  end
  local holders = redis.call('MGET', unpack(leases))
  local marks = redis.call('HMGET', queued, unpack(buckets))
  local free, free_buckets, doubted, again, seen = {}, {}, {}, {}, {}
  for i, bucket in ipairs(buckets) do
    if not seen[bucket] then
      seen[bucket] = true
      if holders[i] then
        again[#again + 1] = bucket
      else
        local there, mark = false, false
        if marks[i] then there, mark = still_queued(queue, marks[i], elements[i], stale_after) end
        if not there then
          free[#free + 1] = elements[i]
          free_buckets[#free_buckets + 1] = bucket
        elseif mark ~= marks[i] then
          doubted[#doubted + 1] = bucket
          doubted[#doubted + 1] = mark
        end
      end
    end
  end
  if #again > 0 then redis.call('SADD', wanted, unpack(again)) end
  if #doubted > 0 then redis.call('HSET', queued, unpack(doubted)) end
  return free, free_buckets
end
"""
)

_QUEUE = """
local function enqueue(queue, queued, wanted, lease_prefix, stale_after, elements)
  if #elements == 0 then return 0 end
  local jobs, buckets = sift(queue, queued, wanted, lease_prefix, stale_after, elements)
  local marks = {}
  for i, bucket in ipairs(buckets) do
    marks[#marks + 1] = bucket
    marks[#marks + 1] = jobs[i]
  end
  if #jobs > 0 then
    redis.call('HSET', queued, unpack(marks))
    redis.call('LPUSH', queue, unpack(jobs))
  end
  return #jobs
end
"""

PUSH = (
    _SIFT
    + _QUEUE
    + """
local lease_prefix, stale_after = ARGV[1], tonumber(ARGV[2])
local elements = {}
for i = 3, #ARGV do elements[i - 2] = ARGV[i] end
return enqueue(KEYS[1], KEYS[2], KEYS[3], lease_prefix, stale_after, elements)
"""
)

POP = """
for _, queue in ipairs(KEYS) do
  local element = redis.call('RPOP', queue)
  if element then return {queue, element} end
end
return nil
"""

_LEASE = """
-- Whether the lease is had. What is no string is no lease, and gives way.
local function lease_is_had(lease, token, ttl)
  if redis.call('SET', lease, token, 'NX', 'PX', ttl) then return true end
  local kind = redis.call('TYPE', lease).ok
  if kind == 'string' then return false end
  redis.call('SET', lease, token, 'PX', ttl)
  return true, 'the key ' .. lease .. ', a ' .. kind
end

-- Notes that the token's holder works on these buckets; returns those whose last holder died with them.
local function begin_work(in_work, wanted, token, leased)
  local orphaned, holders = {}, {}
  redis.call('SREM', wanted, unpack(leased))
  -- Whoever let go of a bucket has taken itself out: who is still there died.
  for i, holder in ipairs(redis.call('HMGET', in_work, unpack(leased))) do
    if holder then orphaned[#orphaned + 1] = leased[i] end
    holders[#holders + 1] = leased[i]
    holders[#holders + 1] = token
  end
  redis.call('HSET', in_work, unpack(holders))
  return orphaned
end
"""

_LEFT = """
-- Frees the leases that were left to expire; returns the elements of these buckets, and those in work with their holders.
local function free_left(in_work, lease_prefix, elements)
  local left, busy = {}, {}
  for _, element in ipairs(elements) do
    local bucket = string.match(element, '^%d+')
    local lease = lease_prefix .. bucket .. ':lock'
    if redis.call('EXISTS', lease) == 1 then
      local holder = redis.call('HGET', in_work, bucket)
      if holder then
        busy[bucket] = holder
      else
        redis.call('DEL', lease)
        left[#left + 1] = element
      end
    end
  end
  return left, busy
end
"""

# What is taken for a job here must be one for Job.decode too: a lease is taken for each.
TAKE = (
    _CHECK
    + _LEASE
    + """
local queue, queued, wanted, in_work = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
check(queue, queued, wanted)
redis.call('HLEN', in_work)
local element, token, ttl, lease_prefix = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local share, enough_ids, most_pops = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local buckets, largest = tonumber(ARGV[8]), tonumber(ARGV[9])

local too_long = string.rep('%d', 20)
local function parse(element)
  if #element > largest then return nil end
  local bucket, at, ids, rest = string.match(element, '^(%d+):(%d+):([%d,]+)(.*)$')
  if not bucket or (rest ~= '' and string.sub(rest, 1, 1) ~= ':') then return nil end
  if string.find(bucket, too_long) or string.find(at, too_long) or string.find(ids, too_long) then return nil end
  if string.find(',' .. ids .. ',', ',0*,') or string.find(rest, '[\\128-\\255]') then return nil end
  if tonumber(bucket) >= buckets then return nil end
  local _, commas = string.gsub(ids, ',', ',')
  return string.match(bucket, '^0*(%d+)$'), commas + 1
end

local jobs_wanted = math.ceil((redis.call('LLEN', queue) + 1) / share)
local taken, corrupt, popped, leased, busy, orphaned, ids_taken = {}, {}, {}, {}, {}, {}, 0
for pops = 1, most_pops do
  local bucket, ids = parse(element)
  if bucket then
    local lease = lease_prefix .. bucket .. ':lock'
    popped[#popped + 1] = bucket
    local had, foreign = lease_is_had(lease, token, ttl)
    if foreign then corrupt[#corrupt + 1] = foreign end
    if had then
      leased[#leased + 1] = bucket
      taken[#taken + 1] = element
      ids_taken = ids_taken + ids
    elseif redis.call('GET', lease) ~= token then
      busy[#busy + 1] = bucket
    end
  else
    corrupt[#corrupt + 1] = string.sub(element, 1, 200)
  end
  if #taken >= jobs_wanted or ids_taken >= enough_ids or pops == most_pops then break end
  element = redis.call('RPOP', queue)
  if not element then break end
end
if #popped > 0 then redis.call('HDEL', queued, unpack(popped)) end
if #leased > 0 then orphaned = begin_work(in_work, wanted, token, leased) end
if #busy > 0 then redis.call('SADD', wanted, unpack(busy)) end
return {taken, corrupt, orphaned}
"""
)

ALL = 1
"""The answer of ``SEIZE`` where all that was asked for is had and there is nothing else to tell: read sooner than three lists."""
SEIZE = (
    _SIFT
    + _LEASE
    + _LEFT
    + """
local queued, wanted, in_work = KEYS[2], KEYS[3], KEYS[4]
local token, ttl, lease_prefix, stale_after = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local elements = {}
for i = 6, #ARGV do elements[#elements + 1] = ARGV[i] end
redis.call('HLEN', in_work)
if ARGV[5] == '1' then free_left(in_work, lease_prefix, elements) end
local jobs, buckets = sift(KEYS[1], queued, wanted, lease_prefix, stale_after, elements)
local foreign = {}
if #buckets == 0 then return {jobs, foreign, {}} end
for _, bucket in ipairs(buckets) do
  local _, strange = lease_is_had(lease_prefix .. bucket .. ':lock', token, ttl)
  if strange then foreign[#foreign + 1] = strange end
end
redis.call('HDEL', queued, unpack(buckets))
local orphaned = begin_work(in_work, wanted, token, buckets)
if #jobs == #elements and #foreign == 0 and #orphaned == 0 then return ALL end
return {jobs, foreign, orphaned}
""".replace("ALL", str(ALL))
)

# Returns whether the jobs are queued.
HAND_BACK = (
    _SIFT
    + _QUEUE
    + """
local token, lease_prefix, stale_after = ARGV[1], ARGV[2], tonumber(ARGV[3])
local longest, when_long, held = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local too_long = when_long ~= 'queue' and redis.call('LLEN', KEYS[1]) > longest
if too_long and when_long == 'keep' then return 0 end
for i = 7, 6 + held do
  local lease = lease_prefix .. ARGV[i] .. ':lock'
  if redis.pcall('GET', lease) == token then
    redis.call('DEL', lease)
    redis.pcall('HDEL', KEYS[4], ARGV[i])
  end
end
if too_long then return 0 end
local elements = {}
for i = 7 + held, #ARGV do elements[#elements + 1] = ARGV[i] end
enqueue(KEYS[1], KEYS[2], KEYS[3], lease_prefix, stale_after, elements)
return 1
"""
)

FINISH = (
    _SIFT
    + _QUEUE
    + _LEFT
    + """
local queue, queued, wanted, in_work = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lease_prefix, stale_after = ARGV[1], tonumber(ARGV[2])
local elements = {}
for i = 3, #ARGV do elements[i - 2] = ARGV[i] end
check(queue, queued, wanted)
local left, busy = free_left(in_work, lease_prefix, elements)
for bucket, holder in pairs(busy) do
  redis.call('SADD', wanted, bucket)
  redis.call('HSET', in_work, bucket, string.match(holder, '^[^!]*') .. '!')
end
return enqueue(queue, queued, wanted, lease_prefix, stale_after, left)
"""
)
