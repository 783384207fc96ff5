-- Set a mark if it is free, or of a worker that is dead; return its value otherwise.
-- KEYS: mark, workers   ARGV: value, lifetime in ms, prefix of values that name a worker or empty
local found = redis.call('GET', KEYS[1])
local prefix = ARGV[3]
if found and prefix ~= '' and string.sub(found, 1, #prefix) == prefix then
  if redis.call('HEXISTS', KEYS[2], string.sub(found, #prefix + 1)) == 0 then found = false end
end
if found then return found end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
