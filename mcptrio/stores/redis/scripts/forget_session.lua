-- Delete a session and all its streams, unless it has another home.
-- KEYS: session, names of its streams   ARGV: epoch, prefix of its streams
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and epoch ~= ARGV[1] then return 0 end
for _, name in ipairs(redis.call('SMEMBERS', KEYS[2])) do redis.call('DEL', ARGV[2] .. name) end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
