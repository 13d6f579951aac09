-- One call of a session begins ("take") or has ended ("settle"). The session is a hash: calls, tokens, cost, and a
-- lease for each call that runs, which lapses by itself where its gateway dies.
-- KEYS[1]: the session. ARGV: what, lease, tokens, cost, lease_ms (take) or calls (settle), idle_ms, closed ("" leaves it).
-- Answers a take by "calls tokens cost running_calls running_tokens running_cost closed", without the call itself.
-- Where the key holds what no gateway has written it is left as it is, and the answer is "unreadable".
local what, lease = ARGV[1], 'lease:' .. ARGV[2]
local tokens, cost, idle_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[6])
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local found = redis.call('TYPE', KEYS[1]).ok
if found ~= 'hash' and found ~= 'none' then return 'unreadable' end
local kept = {calls = 0, tokens = 0, cost = 0, closed = ''}
local running = {0, 0, 0}
local last_ms = 0
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local field, value = fields[i], fields[i + 1]
  if field == 'closed' then
    kept.closed = value
  elseif kept[field] then
    if not string.match(value, '^%d+$') or #value > 15 then return 'unreadable' end
    kept[field] = tonumber(value)
  elseif field ~= lease then
    local held_tokens, held_cost, until_ms = string.match(value, '^(%d+) (%d+) (%d+)$')
    until_ms = tonumber(until_ms)
    if not until_ms then return 'unreadable' end
    if until_ms <= now_ms then
      redis.call('HDEL', KEYS[1], field)
    else
      last_ms = math.max(last_ms, until_ms)
      running[1] = running[1] + 1
      running[2] = running[2] + tonumber(held_tokens)
      running[3] = running[3] + tonumber(held_cost)
    end
  end
end

if what == 'take' then
  local until_ms = now_ms + tonumber(ARGV[5])
  last_ms = math.max(last_ms, until_ms)
  redis.call('HSET', KEYS[1], lease, string.format('%.0f %.0f %.0f', tokens, cost, until_ms))
else
  redis.call('HDEL', KEYS[1], lease)
  if kept.calls + ARGV[5] == 0 and running[1] == 0 and kept.closed .. ARGV[7] == '' then
    -- Every call was refused elsewhere: a client that makes up sessions leaves nothing behind.
    redis.call('DEL', KEYS[1])
    return ''
  end
  redis.call('HINCRBY', KEYS[1], 'calls', ARGV[5])
  redis.call('HINCRBY', KEYS[1], 'tokens', ARGV[3])
  redis.call('HINCRBY', KEYS[1], 'cost', ARGV[4])
  if ARGV[7] ~= '' then
    redis.call('HSET', KEYS[1], 'closed', ARGV[7])
  end
end
-- A call that runs uses the session.
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(idle_ms, last_ms - now_ms, 1)))
return string.format('%.0f %.0f %.0f %.0f %.0f %.0f %s',
  kept.calls, kept.tokens, kept.cost, running[1], running[2], running[3], kept.closed)
