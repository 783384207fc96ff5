-- Remove the workers whose lease has expired, and announce it.
-- KEYS: workers   ARGV: channel, newest expiry of a lease that may be removed   Returns the workers that were removed
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HGETALL', KEYS[1])
local dead = {}
for i = 1, #found, 2 do
  local expires = tonumber(string.match(found[i + 1], '^%d+'))
  if expires <= now and expires <= tonumber(ARGV[2]) then
    redis.call('HDEL', KEYS[1], found[i])
    redis.call('PUBLISH', ARGV[1], 'dead ' .. found[i])
    dead[#dead + 1] = found[i]
  end
end
return dead
