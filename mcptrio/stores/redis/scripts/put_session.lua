-- Set the record of a session and prolong its life and that of its unfinished streams, unless it has another home.
-- KEYS: session, names of its streams   ARGV: epoch, record, lifetime in ms, prefix of its streams
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and epoch ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'record', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
for _, name in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  local newest = redis.call('XREVRANGE', ARGV[4] .. name, '+', '-', 'COUNT', 1)[1]
  if newest and #newest[2] == 2 then redis.call('PEXPIRE', ARGV[4] .. name, ARGV[3]) end
end
return 1
