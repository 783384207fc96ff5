-- Try every command that the store and its scripts use; return those that the user may not run.
-- That the server cannot store anything at present is reported by the first command that does.
-- KEYS: four keys that are not used otherwise   ARGV: a channel
local commands = {
  {'TIME'}, {'PUBLISH', ARGV[1], ''},
  {'SET', KEYS[1], '1'}, {'GET', KEYS[1]}, {'MGET', KEYS[1]}, {'EXISTS', KEYS[1]},
  {'PEXPIRE', KEYS[1], '1000'}, {'PTTL', KEYS[1]},
  {'HSET', KEYS[2], 'a', '1'}, {'HGET', KEYS[2], 'a'}, {'HMGET', KEYS[2], 'a'}, {'HGETALL', KEYS[2]},
  {'HEXISTS', KEYS[2], 'a'}, {'HINCRBY', KEYS[2], 'a', '1'}, {'HDEL', KEYS[2], 'a'},
  {'SADD', KEYS[3], 'a'}, {'SMEMBERS', KEYS[3]}, {'SREM', KEYS[3], 'a'},
  {'XADD', KEYS[4], '*', 'a', '1'}, {'XRANGE', KEYS[4], '-', '+'}, {'XREVRANGE', KEYS[4], '+', '-'},
  {'XTRIM', KEYS[4], 'MAXLEN', '0'},
  {'DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4]},
}
local function stores_nothing(err)
  for _, code in ipairs({'OOM', 'MISCONF', 'NOREPLICAS', 'READONLY'}) do
    if string.find(err, code) then return true end
  end
end
local refused = {}
for _, command in ipairs(commands) do
  local reply = redis.pcall(unpack(command))
  if type(reply) == 'table' and reply.err and not stores_nothing(reply.err) then
    refused[#refused + 1] = string.lower(command[1])
  end
end
-- Without the right to run DEL they would stay.
for _, key in ipairs(KEYS) do redis.pcall('PEXPIRE', key, '1000') end
return refused
