-- Prolong the lease of a worker, or let it join.
-- KEYS: secret, generation, workers
-- ARGV: worker, lease in ms, description, secret and generation that the worker knows, 1 to join
-- Returns live and the expiry of the lease in ms; dead: it was declared dead; emptied: the server has lost everything;
-- stranger: it has another secret
local secret = redis.call('GET', KEYS[1])
if secret and secret ~= ARGV[4] then return {'stranger'} end
if not secret or redis.call('GET', KEYS[2]) ~= ARGV[5] then return {'emptied'} end
if ARGV[6] ~= '1' and redis.call('HEXISTS', KEYS[3], ARGV[1]) == 0 then return {'dead'} end
local time = redis.call('TIME')
local expires = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]
redis.call('HSET', KEYS[3], ARGV[1], string.format('%.0f ', expires) .. ARGV[3])
return {'live', expires}
