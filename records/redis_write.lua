-- Changes a record, and drops those that were not used for longest while their bucket counts too much.
-- Returns 1, or 0 if the record is not what it has to be.
-- KEYS: values, uses. ARGV: member, operation, limit, besides, value, old value.
local values, uses = KEYS[1], KEYS[2]
local member, operation, limit, besides = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

-- Returns what the bucket counts without a record.
local function drop(m)
	local bytes = besides + 2 * #m + redis.call('HSTRLEN', values, m)
	redis.call('ZREM', uses, m)
	if redis.call('HDEL', values, m) == 0 then
		return tonumber(redis.call('HGET', values, 'bytes') or 0)
	end
	return redis.call('HINCRBY', values, 'bytes', -bytes)
end

if operation == 'add' and redis.call('HEXISTS', values, member) == 1 then
	return 0
end
if operation == 'swap' and redis.call('HGET', values, member) ~= ARGV[6] then
	return 0
end
drop(member)

local now = redis.call('TIME')
redis.call('HSET', values, member, ARGV[5])
redis.call('ZADD', uses, now[1] * 1000000 + now[2], member)
local total = redis.call('HINCRBY', values, 'bytes', besides + 2 * #member + #ARGV[5])
while total > limit do
	local oldest = redis.call('ZRANGE', uses, 0, 0)[1]
	if not oldest then -- the server has evicted what says which they are
		redis.call('DEL', values)
		break
	end
	total = drop(oldest)
end
return 1
