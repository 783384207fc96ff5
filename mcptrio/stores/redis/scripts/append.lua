-- Append events to a stream, unless its session has another home (R1, R2). A repeated append has no effect.
-- KEYS: session, names of its streams, stream
-- ARGV: epoch, name, floor, 1 to trim, start, 1 if new, 1 if ended, lifetime and lifetime after the end in ms, events...
-- Returns the number of the newest stored event; -1: fenced; less than `start`: stored events were lost, nothing written
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and epoch ~= ARGV[1] then return -1 end
local floor, start, ended = tonumber(ARGV[3]), tonumber(ARGV[5]), ARGV[7] == '1'
if ARGV[6] == '1' then redis.call('DEL', KEYS[3]) end
local newest = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)[1]
local stored = newest and tonumber(string.match(newest[1], '^%d+')) or 0
if math.max(stored, floor) < start then return stored end
for i = 10, #ARGV do
  local seq = start + i - 9
  if seq > stored then
    local id = string.format('%.0f-0', seq)
    if ended and i == #ARGV then
      redis.call('XADD', KEYS[3], id, 'd', ARGV[i], 'l', '1')
    else
      redis.call('XADD', KEYS[3], id, 'd', ARGV[i])
    end
  end
end
if ARGV[4] == '1' then redis.call('XTRIM', KEYS[3], 'MINID', string.format('%.0f-0', floor + 1)) end
redis.call('SADD', KEYS[2], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[8])
redis.call('PEXPIRE', KEYS[2], ARGV[8])
redis.call('PEXPIRE', KEYS[3], ended and ARGV[9] or ARGV[8])
return start + #ARGV - 9
