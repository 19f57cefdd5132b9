-- A bucket is a head, slots and limits: see docs/format/redis.md. Parsed, it is one list of words: 11 for the head and
-- 6 for each slot.
local HEAD, SLOT, HEADSIZE, LIMIT = '>BI4I4i4I4I4I4I4I4I2I2', 'i4I4i4I4i4I4', 37, '>I2BI4I4I4I4ddI4I4I4I4'

-- Values of buckets from before their counters started anew, by the ids under which the buckets continue.
local left

-- write stores a bucket for ttl ms. With more set, an existing key that would live longer keeps its expiry.
local function write(key, b, limits, ttl, more, base)
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
	local was = left and left[b[2] .. ':' .. b[3]]
	if was then -- as in Forget
		local head, member = sub(key, 1, base - 1), sub(key, base + 1)
		if call('EXISTS', head .. 'um') == 1 then
			for k = #was, 1, -1 do
				call('RPUSH', head .. 'ul', pack('>I2', #member) .. member .. was[k])
			end
		end
	end
	if b.born then
		-- Each birth checks a few random members of the index and removes those that have expired, so that the index
		-- never holds many more members than there are buckets.
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
