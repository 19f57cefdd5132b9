-- A bucket is a head, slots and limits: see docs/format/redis.md. Parsed it is one list of words, 11 of the head and 6 of
-- each slot.
local HEAD, SLOT, HEADSIZE = '>BI4I4i4I4I4I4I4I4I2I2', 'i4I4i4I4i4I4', 37

-- write puts a bucket. full says in how many nanoseconds it is full; what was there may have had longer to go. skew is by
-- how many milliseconds its time is ahead.
local function write(key, b, limits, full, more, skew, margin, base)
	local ttl = full / 1e6 + skew + margin
	if more and not b.born then
		local was = call('PTTL', key)
		if was > ttl then
			ttl = was
		end
	end
	if ttl > 1e14 then
		ttl = 1e14
	end
	local n = b[11]
	local text = pack(n == 1 and '>BI4I4i4I4I4I4I4I4I2I2i4I4i4I4i4I4' or HEAD .. rep(SLOT, n), unpack(b, 1, 11 + 6 * n)) .. limits
	call('SET', key, text, 'PX', ttl - ttl % 1 + 1)
	if b.born then
		-- As buckets are born a few of the index are looked at, wherever, and go if they have expired: so it never holds
		-- many more than there are.
		local index, head = sub(key, 1, base - 1) .. 'i', sub(key, 1, base)
		call('ZADD', index, 0, sub(key, base + 1))
		for _, member in ipairs(call('ZRANDMEMBER', index, 3)) do
			if call('EXISTS', head .. member) == 0 then
				call('ZREM', index, member)
			end
		end
	end
	return text
end
