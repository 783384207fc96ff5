-- Give up a session: set its record and leave it without a home. All its events must be stored.
-- KEYS: session, names of its streams, its calls   ARGV: worker, epoch, record, lifetime in ms, format of the record
-- Returns 1; 0: fenced
local found = redis.call('HMGET', KEYS[1], 'epoch', 'home')
if found[1] ~= ARGV[2] or (found[2] or '') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'home', '', 'record', ARGV[3], 'format', ARGV[5])
for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[4]) end
return 1
