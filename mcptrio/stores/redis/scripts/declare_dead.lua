-- Remove one worker before its lease expires, and announce it.
-- KEYS: workers   ARGV: channel, worker   Returns 1 if it was there
if redis.call('HDEL', KEYS[1], ARGV[2]) == 0 then return 0 end
redis.call('PUBLISH', ARGV[1], 'dead ' .. ARGV[2])
return 1
