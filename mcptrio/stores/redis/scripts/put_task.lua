-- Set or remove the record of a task, unless it has another home.
-- KEYS: task, tasks of the worker, workers that have tasks
-- ARGV: id, record, lifetime in ms or 0 to remove it, epoch or empty, worker, 1 if it runs there, note
-- Returns 1; 0: fenced
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and ARGV[4] ~= '' and epoch ~= ARGV[4] then return 0 end
if ARGV[6] == '1' and ARGV[3] ~= '0' then
  redis.call('HSET', KEYS[1], 'record', ARGV[2], 'epoch', ARGV[4], 'home', ARGV[5], 'note', ARGV[7])
  redis.call('SADD', KEYS[2], ARGV[1])
  redis.call('SADD', KEYS[3], ARGV[5])
else
  if ARGV[3] == '0' then
    redis.call('DEL', KEYS[1])
  else
    redis.call('HSET', KEYS[1], 'record', ARGV[2])
    redis.call('HDEL', KEYS[1], 'home', 'note')
  end
  redis.call('SREM', KEYS[2], ARGV[1])
  if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('SREM', KEYS[3], ARGV[5]) end
end
if ARGV[3] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return 1
