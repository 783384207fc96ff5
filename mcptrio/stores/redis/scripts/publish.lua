-- Count a publication, keep it for subscribers that are not connected, and publish it.
-- KEYS: version and last message of the topic   ARGV: channel, message, lifetime in ms
local before = redis.call('GET', KEYS[1])
local version = (before and tonumber(string.match(before, '^%d+')) or 0) + 1
local text = string.format('%.0f ', version) .. ARGV[2]
redis.call('SET', KEYS[1], text, 'PX', ARGV[3])
redis.call('PUBLISH', ARGV[1], text)
return version
