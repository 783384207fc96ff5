-- Set the record of a session at its home, and prolong its life and that of its unfinished streams.
-- KEYS: session, names of its streams, its calls, generation
-- ARGV: worker, epoch, record, owner, format of the record, 1 if pinned, lifetime in ms, prefix of its streams,
--       1 to create it or to replace a lower epoch, generation of the server that the worker knows
-- Returns 1; 0: fenced; -2: the server has lost everything
local found = redis.call('HMGET', KEYS[1], 'epoch', 'home')
local mine = found[1] == ARGV[2] and (found[2] or '') == ARGV[1]
if not mine then
  if redis.call('GET', KEYS[4]) ~= ARGV[10] then return -2 end
  if ARGV[9] ~= '1' or (found[1] and tonumber(found[1]) >= tonumber(ARGV[2])) then return 0 end
end
redis.call('HSET', KEYS[1], 'home', ARGV[1], 'epoch', ARGV[2], 'record', ARGV[3], 'owner', ARGV[4], 'format', ARGV[5],
  'pinned', ARGV[6])
for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[7]) end
for _, name in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  local newest = redis.call('XREVRANGE', ARGV[8] .. name, '+', '-', 'COUNT', 1)[1]
  if newest and newest[2][#newest[2] - 1] ~= 'l' then redis.call('PEXPIRE', ARGV[8] .. name, ARGV[7]) end
end
return 1
