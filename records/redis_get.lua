-- Returns the value of a record, or nil, and notes its use.
-- KEYS: values, uses. ARGV: member.
local value = redis.call('HGET', KEYS[1], ARGV[1])
if value then
	local now = redis.call('TIME')
	redis.call('ZADD', KEYS[2], now[1] * 1000000 + now[2], ARGV[1])
end
return value
