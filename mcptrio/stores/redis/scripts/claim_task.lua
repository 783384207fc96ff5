-- Become the home of a task whose home is dead; take it out of the tasks of its last home, where it is found otherwise.
-- KEYS: task, workers, tasks of the worker, workers that have tasks   ARGV: id, worker, prefix of the tasks of workers
-- Returns nothing if there is nothing to claim, else epoch, record, note, lifetime in ms
local found = redis.call('HMGET', KEYS[1], 'home', 'record', 'note')
local home = found[1]
if home and home ~= '' and redis.call('HEXISTS', KEYS[2], home) == 1 then return false end
if redis.call('HEXISTS', KEYS[2], ARGV[2]) == 0 then return false end
-- Also for a task that has expired or is over, though its home did not live to remove it.
for _, worker in ipairs(redis.call('SMEMBERS', KEYS[4])) do
  if redis.call('HEXISTS', KEYS[2], worker) == 0 and redis.call('SREM', ARGV[3] .. worker, ARGV[1]) == 1 then
    if redis.call('EXISTS', ARGV[3] .. worker) == 0 then redis.call('SREM', KEYS[4], worker) end
  end
end
if not home or home == '' then return false end
local epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('HSET', KEYS[1], 'home', ARGV[2])
redis.call('SADD', KEYS[3], ARGV[1])
redis.call('SADD', KEYS[4], ARGV[2])
return {epoch, found[2], found[3] or '', redis.call('PTTL', KEYS[1])}
