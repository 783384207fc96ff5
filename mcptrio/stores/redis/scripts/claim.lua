-- Become the home of a session, unless a live worker is. A worker that is its home already keeps the epoch (R9).
-- KEYS: session, names of its streams, its calls, workers, generation
-- ARGV: worker, 1 if it has a lease or 2 to look only, newest format of records that it reads, lifetime in ms, prefix of the session's
--       streams, a worker that has denied to be the home, and the epoch for which it did, newest expiry of a lease that
--       counts as expired, generation that the worker knows, 1 to respect leases that are missing
-- Returns none | emptied: the server has lost everything, so the session may be stored again soon | at, worker, description, epoch | free (to a look) | newer (format) | dead (the claiming worker)
--         | mine, epoch, record, owner, previous home, calls, milliseconds that were left of its life
local found = redis.call('HMGET', KEYS[1], 'home', 'epoch', 'record', 'owner', 'pinned', 'format')
local home, epoch = found[1] or '', found[2]
if not epoch then return {redis.call('GET', KEYS[5]) == ARGV[9] and 'none' or 'emptied'} end
if ARGV[2] == '1' and redis.call('HEXISTS', KEYS[4], ARGV[1]) == 0 then return {'dead'} end
if home ~= ARGV[1] then
  if home ~= '' and not (home == ARGV[6] and epoch == ARGV[7]) then
    local worker = redis.call('HGET', KEYS[4], home)
    local time = redis.call('TIME')
    local expires = worker and tonumber(string.match(worker, '^%d+'))
    local live = worker and (expires > time[1] * 1000 + math.floor(time[2] / 1000) or expires > tonumber(ARGV[8]))
    if live or (not worker and ARGV[10] == '1') then
      return {'at', home, worker and string.match(worker, '^%d+ (.*)$') or '', epoch}
    end
  end
  if ARGV[2] == '2' then return {'free'} end
  if found[5] == '1' then
    for _, name in ipairs(redis.call('SMEMBERS', KEYS[2])) do redis.call('DEL', ARGV[5] .. name) end
    redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
    return {'none'}
  end
  if tonumber(found[6] or '0') > tonumber(ARGV[3]) then return {'newer'} end
  epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  redis.call('HSET', KEYS[1], 'home', ARGV[1])
end
local left = redis.call('PTTL', KEYS[1])
for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[4]) end
return {'mine', tonumber(epoch), found[3] or '', found[4] or '', home, redis.call('HGETALL', KEYS[3]), left}
