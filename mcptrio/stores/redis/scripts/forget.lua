-- Delete a session and all its streams, unless it has another home; tell those that follow a stream that it is over.
-- KEYS: session, names of its streams, its calls   ARGV: epoch, prefix of its streams, prefix of their channels
-- Returns 1; 0: fenced
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and epoch ~= ARGV[1] then return 0 end
for _, name in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  redis.call('DEL', ARGV[2] .. name)
  redis.call('PUBLISH', ARGV[3] .. name, '0 over ')
end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return 1
