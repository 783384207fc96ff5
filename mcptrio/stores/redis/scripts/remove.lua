-- Delete a stream, unless its session has another home; tell those that follow it that it is over.
-- KEYS: session, names of its streams, stream   ARGV: epoch, name, channel
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and epoch ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[3])
redis.call('SREM', KEYS[2], ARGV[2])
redis.call('PUBLISH', ARGV[3], '0 over ')
return 1
