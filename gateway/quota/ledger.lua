-- What one tenant may still take, counted by all gateways together. The arithmetic is that of policy/bucket.py: whole
-- numbers, levels in 1/60,000 of a token, time in milliseconds of this Redis. Every operation takes all or nothing.
--
-- KEYS: the tenant's state (a hash), its leases and what gateways told by when that lapses (a sorted set).
-- ARGV: in one text, parted by spaces, an operation and then what it takes:
--   reserve  TERMS  id tokens requests sequences lease_ms
--   settle   id tokens requests      what was used; only the first counts, an id that is not known changes nothing
--   cancel   id                      a reserve of which no answer came: undone, or refused if it comes after this
--   rejoin   TERMS  (see there)
-- TERMS: revision tpm rpm parallel budget day_start day_end following_day_end; a limit of -1 is none.
-- Answers `status now born` and, for tokens and for requests each, `limit level forgiven forgiven_under`; then `parallel
-- running budget taken day_start day_end`. Status 1: granted or done; 0: not. Of a tenant without a state: nothing.
-- Where a key holds what no gateway has written, `unreadable` and why: it is left as it is, and stops nobody else.

local MINUTE = 60000
-- A newer revision that no gateway has named for so long no longer stands against older ones: some gateways may be
-- ahead of the others for good, and a control plane may have been set back to a backup.
local REVISION_FORGOTTEN_MS = 5000
local CANCELLED_KEPT_MS = 60000
local MERGE_MS = 10000
local CLOCK_WAITED_FOR_MS = 5000
local GATEWAY_KEPT_MS = 86400000
local LAPSES_A_CALL = 1000
local LONGEST_KEPT_MS = 31 * 86400000
-- No number that was counted here comes near; a sum of two still has an end.
local LARGEST_HELD = 1e18

local FIELDS = {
  'at', 'born', 'revision', 'revision_at', 'merging', 'keep', 'generation',
  'running', 'parallel', 'budget', 'day', 'day_start', 'day_end', 'taken', 'taken_before',
  't_limit', 't_level', 't_forgiven', 't_under', 't_generation',
  'r_limit', 'r_level', 'r_forgiven', 'r_under', 'r_generation',
}
local BUCKETS = { 't_', 'r_' }

local key, leases = KEYS[1], KEYS[2]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local s = {}
local words = {}
for word in string.gmatch(ARGV[1], '%S+') do words[#words + 1] = word end

local unreadable

local function is_type(name, type)
  local found = redis.call('TYPE', name).ok
  if found ~= type and found ~= 'none' then unreadable = 'a ' .. found .. ' stands where a ' .. type .. ' should' end
end

local function to_number(text)
  local number = tonumber(text)
  if number and number >= -LARGEST_HELD and number <= LARGEST_HELD then return number end
  return nil
end

local function read()
  is_type(key, 'hash')
  is_type(leases, 'zset')
  if unreadable then return false end
  local values = redis.call('HMGET', key, unpack(FIELDS))
  local is_there = values[2]
  for i, field in ipairs(FIELDS) do
    s[field] = to_number(values[i])
    if is_there and not s[field] then unreadable = 'its field ' .. field .. ' is no number' end
  end
  return is_there
end

local function begin()
  for _, field in ipairs(FIELDS) do s[field] = 0 end
  s.at, s.born, s.revision = now, clock[1] * 1000000 + clock[2], -1
  s.t_limit, s.r_limit, s.parallel, s.budget = -1, -1, -1, -1
end

-- What does not fit into a bucket makes good for what was forgiven; the rest is lost.
local function raise(bucket, by)
  local level = s[bucket .. 'level'] + by
  local held = math.min(s[bucket .. 'limit'] * MINUTE, level)
  s[bucket .. 'level'] = held
  s[bucket .. 'forgiven'] = math.max(0, s[bucket .. 'forgiven'] - (level - held))
end

-- What a lease holds; nil where there is none, and where it cannot be read.
local function part_of(id)
  local held = redis.call('HGET', key, 'l:' .. id)
  if not held then return nil end
  local part = {}
  for number in string.gmatch(held, '%S+') do part[#part + 1] = to_number(number) end
  if #part == 6 then return part end
  unreadable = 'a lease in it is not six numbers'
  return nil
end

-- Of a lease that can be read, or is not there.
local function finish(id, tokens, requests)
  -- Of the two keys a full Redis may have evicted one alone.
  local part = part_of(id)
  redis.call('ZREM', leases, id)
  if not part then return false end
  redis.call('HDEL', key, 'l:' .. id)
  s.running = s.running - part[3]
  if part[4] ~= 0 and part[4] == s.t_generation and s.t_limit >= 0 then raise('t_', (part[1] - tokens) * MINUTE) end
  if part[5] ~= 0 and part[5] == s.r_generation and s.r_limit >= 0 then raise('r_', (part[2] - requests) * MINUTE) end
  if part[6] ~= 0 and part[6] == s.day then s.taken = s.taken + tokens - part[1] end
  return true
end

-- A clock that stands still or steps back gives nothing and takes nothing. One that was ahead by more than a little,
-- before it was set right or another Redis took over, must not keep buckets empty until it is that late.
local function advance()
  if s.at - now > CLOCK_WAITED_FOR_MS then
    s.at, s.revision_at, s.merging = now, math.min(s.revision_at, now), math.min(s.merging, now)
  end
  now = math.max(now, s.at)
  local elapsed = now - s.at
  s.at = now
  for _, bucket in ipairs(BUCKETS) do
    local limit = s[bucket .. 'limit']
    if limit >= 0 then
      raise(bucket, elapsed * limit)
      local fades = elapsed * math.max(0, s[bucket .. 'under'] - limit)
      s[bucket .. 'forgiven'] = math.max(0, s[bucket .. 'forgiven'] - fades)
    end
  end
  local lapsed = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, LAPSES_A_CALL)
  for _, id in ipairs(lapsed) do part_of(id) end
  -- One that is ended must be counted too: all of them, or none.
  if unreadable then return end
  for _, id in ipairs(lapsed) do
    finish(id, 0, 0)
    redis.call('HDEL', key, 'g:' .. id)
  end
end

-- As Bucket.set_limit: the used part is kept, and a change makes no debt.
local function set_limit(bucket, limit)
  local before = s[bucket .. 'limit']
  if limit == before then return end
  s[bucket .. 'limit'] = limit
  if limit < 0 then return end
  if before < 0 then
    s.generation = s.generation + 1
    s[bucket .. 'generation'] = s.generation
    s[bucket .. 'level'], s[bucket .. 'forgiven'], s[bucket .. 'under'] = limit * MINUTE, 0, limit
    return
  end
  local level, forgiven, change = s[bucket .. 'level'], s[bucket .. 'forgiven'], (limit - before) * MINUTE
  if forgiven == 0 then s[bucket .. 'under'] = before end
  if change < 0 then
    local lowered = math.max(level + change, math.min(level, 0))
    forgiven = forgiven + lowered - (level + change)
    level = lowered
  else
    local again = math.min(forgiven, change)
    level = level + change - again
    forgiven = forgiven - again
  end
  s[bucket .. 'level'], s[bucket .. 'forgiven'] = level, forgiven
end

-- The limits of the newest revision that is in use hold, whichever gateway names it first.
local function take_terms(first)
  local terms = {}
  for i = 0, 7 do terms[i + 1] = tonumber(words[first + i]) end
  local is_newest = terms[1] >= s.revision or now - s.revision_at > REVISION_FORGOTTEN_MS
  if is_newest then
    s.revision, s.revision_at = terms[1], now
    set_limit('t_', terms[2])
    set_limit('r_', terms[3])
    s.parallel, s.budget = terms[4], terms[5]
  end
  -- A day is counted from the first budget on, and also while none is set.
  if s.day == 0 and s.budget < 0 then return end
  if s.day == 0 or now >= s.day_end then
    s.day, s.taken, s.taken_before = s.day + 1, 0, 0
    if now < terms[7] then
      s.day_start, s.day_end = terms[6], terms[7]
    else
      s.day_start, s.day_end = terms[7], terms[8]
    end
  elseif is_newest and terms[6] <= now and now < terms[7] then
    -- Another time zone gives the day other ends, and nothing back.
    s.day_start, s.day_end = terms[6], terms[7]
  end
end

local function hold(id, tokens, requests, sequences, day, lease_ms)
  local t = s.t_limit >= 0 and s.t_generation or 0
  local r = s.r_limit >= 0 and s.r_generation or 0
  local held = string.format('%.0f %.0f %.0f %.0f %.0f %.0f', tokens, requests, sequences, t, r, day)
  redis.call('HSET', key, 'l:' .. id, held)
  redis.call('ZADD', leases, string.format('%.0f', now + lease_ms), id)
  s.running = s.running + sequences
  s.keep = math.max(s.keep, now + lease_ms)
end

local function fits(bucket, amount)
  return s[bucket .. 'limit'] < 0 or amount * MINUTE <= s[bucket .. 'level'] and amount <= s[bucket .. 'limit']
end

local function reserve(id, tokens, requests, sequences, lease_ms)
  -- Asking again for a live id is granted again, and takes nothing.
  if redis.call('HEXISTS', key, 'l:' .. id) == 1 then return 1 end
  if s.budget >= 0 and s.taken + tokens > s.budget then return 0 end
  if s.parallel >= 0 and s.running + sequences > s.parallel then return 0 end
  if not (fits('t_', tokens) and fits('r_', requests)) then return 0 end
  if s.t_limit >= 0 then s.t_level = s.t_level - tokens * MINUTE end
  if s.r_limit >= 0 then s.r_level = s.r_level - requests * MINUTE end
  if s.day ~= 0 then s.taken = s.taken + tokens end
  hold(id, tokens, requests, sequences, s.day, lease_ms)
  return 1
end

local function cancel(id)
  if not finish(id, 0, 0) then
    redis.call('HSET', key, 'l:' .. id, '0 0 0 0 0 0')
    redis.call('ZADD', leases, string.format('%.0f', now + CANCELLED_KEPT_MS), id)
    s.keep = math.max(s.keep, now + CANCELLED_KEPT_MS)
  end
  return 1
end

-- What a gateway did alone while it did not reach this Redis, which may have lost its data meanwhile.
--
-- Alone, every gateway goes on with its part of what it last saw here. If nobody wrote here since this one was lost,
-- all were: the first that comes back brings its part, and each of the others, within MERGE_MS, adds its own, without
-- what came into it since the first began: that was refilled here. Else the others went on together, and what this one
-- used is taken off. Asking again after an answer was lost counts once.
--
-- After TERMS: gateway, lost_at; level and limit of its buckets of tokens and of requests (`-`: none); what it has taken
-- alone of tokens, requests and the day since it began, the same as of its last answered rejoin, day_end, taken of the
-- day as it last saw it, the `born` that it knew; then for each of its leases: id tokens requests sequences lease_ms
-- alone (1: not granted here) day_end.
local function rejoin(first, missing, written_at)
  local gateway, lost_at = words[first], tonumber(words[first + 1])
  local level = { t_ = tonumber(words[first + 2]), r_ = tonumber(words[first + 4]) }
  local share = { t_ = tonumber(words[first + 3]), r_ = tonumber(words[first + 5]) }
  local alone = { t_ = tonumber(words[first + 6]), r_ = tonumber(words[first + 7]), day = tonumber(words[first + 8]) }
  local told = { t_ = tonumber(words[first + 9]), r_ = tonumber(words[first + 10]), day = tonumber(words[first + 11]) }
  local day_end, taken_seen, born_seen =
    tonumber(words[first + 12]), tonumber(words[first + 13]), tonumber(words[first + 14])
  local again, before = false, {}
  for number in string.gmatch(redis.call('HGET', key, 'g:' .. gateway) or '', '%S+') do
    before[#before + 1] = to_number(number)
  end
  if #before == 5 and before[1] == lost_at then
    again = true
    told.t_, told.r_ = before[2], before[3]
    if before[5] == day_end then told.day = before[4] end
  end
  local merges = false
  if not again then
    if missing or written_at <= lost_at then
      s.merging, merges = now, true
      for _, bucket in ipairs(BUCKETS) do
        if level[bucket] and s[bucket .. 'limit'] >= 0 then
          s[bucket .. 'level'] = math.min(s[bucket .. 'level'], level[bucket])
        end
      end
    elseif lost_at <= s.merging and now - s.merging <= MERGE_MS then
      merges = true
      for _, bucket in ipairs(BUCKETS) do
        if level[bucket] and s[bucket .. 'limit'] >= 0 then
          raise(bucket, level[bucket] - (now - s.merging) * share[bucket])
        end
      end
    end
  end
  if not merges then
    for _, bucket in ipairs(BUCKETS) do
      if s[bucket .. 'limit'] >= 0 then raise(bucket, (told[bucket] - alone[bucket]) * MINUTE) end
    end
  end
  if s.day ~= 0 and day_end == s.day_end then
    if born_seen ~= s.born and taken_seen > s.taken_before then
      s.taken, s.taken_before = s.taken + taken_seen - s.taken_before, taken_seen
    end
    s.taken = s.taken + alone.day - told.day
  end
  for i = first + 15, #words, 7 do
    local id, tokens, requests = words[i], tonumber(words[i + 1]), tonumber(words[i + 2])
    if redis.call('HEXISTS', key, 'l:' .. id) == 0 then
      local day = tonumber(words[i + 6]) == s.day_end and s.day or 0
      hold(id, tokens, requests, tonumber(words[i + 3]), day, tonumber(words[i + 4]))
      if not merges and words[i + 5] == '0' then
        if s.t_limit >= 0 then raise('t_', -tokens * MINUTE) end
        if s.r_limit >= 0 then raise('r_', -requests * MINUTE) end
      end
    end
  end
  local record = string.format('%.0f %.0f %.0f %.0f %.0f', lost_at, alone.t_, alone.r_, alone.day, day_end)
  redis.call('HSET', key, 'g:' .. gateway, record)
  redis.call('ZADD', leases, string.format('%.0f', now + GATEWAY_KEPT_MS), gateway)
  return 1
end

-- An idle tenant leaves nothing: the state goes once it says nothing that a new one would not.
local function save()
  local keep = math.max(s.keep, now + MINUTE)
  for _, bucket in ipairs(BUCKETS) do
    local limit = s[bucket .. 'limit']
    if limit > 0 then keep = math.max(keep, now + math.ceil((limit * MINUTE - s[bucket .. 'level']) / limit)) end
  end
  if s.day ~= 0 then keep = math.max(keep, s.day_end) end
  keep = string.format('%.0f', math.min(keep, now + LONGEST_KEPT_MS))
  local values = {}
  for i, field in ipairs(FIELDS) do
    values[2 * i - 1], values[2 * i] = field, string.format('%.0f', s[field])
  end
  redis.call('HSET', key, unpack(values))
  redis.call('PEXPIREAT', key, keep)
  redis.call('PEXPIREAT', leases, keep)
end

local operation = words[1]
local missing = not read()
local is_about_a_lease = operation == 'settle' or operation == 'cancel'
if is_about_a_lease and not unreadable then part_of(words[2]) end
if unreadable then return 'unreadable ' .. unreadable end
if missing then
  if operation == 'settle' then return '' end
  begin()
end
-- Where all there is was left by a reserve that was given up, nothing is known either.
missing = s.revision < 0
local written_at = s.at
advance()
if unreadable then return 'unreadable ' .. unreadable end
local status
if is_about_a_lease then
  if operation == 'settle' then
    status = finish(words[2], tonumber(words[3]), tonumber(words[4])) and 1 or 0
  else
    status = cancel(words[2])
  end
else
  take_terms(2)
  if operation == 'reserve' then
    local sizes = { tonumber(words[11]), tonumber(words[12]), tonumber(words[13]), tonumber(words[14]) }
    status = reserve(words[10], unpack(sizes))
  else
    status = rejoin(10, missing, written_at)
  end
end
save()
return string.format(
  '%.0f' .. string.rep(' %.0f', 16),
  status, now, s.born,
  s.t_limit, s.t_level, s.t_forgiven, s.t_under, s.r_limit, s.r_level, s.r_forgiven, s.r_under,
  s.parallel, s.running, s.budget, s.taken, s.day_start, s.day_end
)
