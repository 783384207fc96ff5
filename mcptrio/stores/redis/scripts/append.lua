-- Append events to a stream, unless its session has another home (R1, R2), and publish the new ones. A repeated append
-- has no effect. A stream that ends without an event gets the entry N-1, where N is the number of its newest event.
-- KEYS: session, names of its streams, stream, calls of the session, generation
-- ARGV: epoch, name, floor, 1 to trim, start, 1 if new, 1 if ended, lifetime and lifetime after the end in ms, channel,
--       1 if the session may be unknown, record of the call or empty, largest event to publish, generation of the
--       server that the worker knows, events...
-- Returns the number of the newest stored event; -1: fenced; -2: the server has lost everything; less than `start`:
-- stored events were lost, nothing written
local FIRST = 15
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch then
  if epoch ~= ARGV[1] then return -1 end
elseif ARGV[11] ~= '1' then
  return redis.call('GET', KEYS[5]) == ARGV[14] and -1 or -2
end
local floor, start, ended, largest = tonumber(ARGV[3]), tonumber(ARGV[5]), ARGV[7] == '1', tonumber(ARGV[13])
if ARGV[6] == '1' then redis.call('DEL', KEYS[3]) end
local newest = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)[1]
local stored = newest and tonumber(string.match(newest[1], '^%d+')) or 0
if math.max(stored, floor) < start then return redis.call('GET', KEYS[5]) == ARGV[14] and stored or -2 end
local last = start + #ARGV - FIRST + 1
local closed = newest and newest[2][#newest[2] - 1] == 'l'
for i = FIRST, #ARGV do
  local seq = start + i - FIRST + 1
  if seq > stored then
    local id, kind = string.format('%.0f', seq), 'event '
    if ended and i == #ARGV then
      redis.call('XADD', KEYS[3], id .. '-0', 'd', ARGV[i], 'l', '1')
      kind, closed = 'last ', true
    else
      redis.call('XADD', KEYS[3], id .. '-0', 'd', ARGV[i])
      closed = false
    end
    if #ARGV[i] > largest then
      redis.call('PUBLISH', ARGV[10], id .. ' ' .. 'large-' .. kind)
    else
      redis.call('PUBLISH', ARGV[10], id .. ' ' .. kind .. ARGV[i])
    end
  end
end
if ended and not closed then
  local id = string.format('%.0f', math.max(last, stored))
  redis.call('XADD', KEYS[3], id .. '-1', 'l', '1')
  redis.call('PUBLISH', ARGV[10], id .. ' end ')
end
if ARGV[4] == '1' then redis.call('XTRIM', KEYS[3], 'MINID', string.format('%.0f-1', floor)) end
redis.call('SADD', KEYS[2], ARGV[2])
if ended then
  redis.call('HDEL', KEYS[4], ARGV[2])
elseif ARGV[12] ~= '' then
  redis.call('HSET', KEYS[4], ARGV[2], ARGV[12])
  redis.call('PEXPIRE', KEYS[4], ARGV[8])
end
redis.call('PEXPIRE', KEYS[1], ARGV[8])
redis.call('PEXPIRE', KEYS[2], ARGV[8])
redis.call('PEXPIRE', KEYS[3], ended and ARGV[9] or ARGV[8])
return last
