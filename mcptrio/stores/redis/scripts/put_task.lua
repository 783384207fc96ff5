-- Set the record of a task.   KEYS: task   ARGV: record, lifetime in ms
redis.call('HSET', KEYS[1], 'record', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
