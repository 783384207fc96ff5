-- Set a mark if it is free; return its value if it is not.   KEYS: mark   ARGV: value, lifetime in ms
local found = redis.call('GET', KEYS[1])
if found then return found end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
