-- within reports whether a limit that steps has its reading for the time.
local function within(d)
	return (nh - d[7]) * T + (nl - d[8]) >= 0 and (d[9] - nh) * T + (d[10] - nl) >= 0
end

-- covered returns in how many ns the clock of such a limit covers what a level is above it; for more than one window, an
-- upper bound. A balance is full at 0, and otherwise never.
local function covered(d, h, l)
	if d[11] * T + d[12] == 0 then
		return h == 1073741824 and l == 0 and 0 or math.huge -- the level 0, where the clock reads -2^62
	elseif h * T + l <= 0 then
		return 0
	end
	local more = (h - d[11]) * T + (l - d[12])
	local windows = more > 0 and math.ceil(more / (d[11] * T + d[12])) + (more > 2 ^ 51 and 1 or 0) or 0 -- 1 for rounding
	return (d[9] - nh) * T + (d[10] - nl) + 1 + windows * (d[13] * T + d[14])
end

-- Values of buckets from before their counters started anew, by the ids under which the buckets continue.
local left

-- whole returns a bucket's value.
local function whole(b, limits)
	local n, m = b[11], 6 * (b.held or 0)
	local text = pack(n == 1 and '>BI4I4i4I4I4I4I4I4I2I2i4I4i4I4i4I4' or HEAD .. rep(SLOT, n), unpack(b, 1, 11 + 6 * n)) .. limits
	return m == 0 and text or text .. pack('>' .. rep(SLOT, b.held), unpack(b, 12 + 6 * n, 11 + 6 * n + m))
end

-- unread returns a take's answer if a bucket cannot be read.
local function unread(e)
	local text = why(e)
	return 'E' .. pack('>I2', #text) .. text
end

-- write stores a bucket for ttl ms. With more set, an existing key that would live longer keeps its expiry. With an infinite
-- ttl, or if it has no expiry and more is set, it never expires.
local function write(key, b, limits, ttl, more, base)
	if more and not b.born then
		local was = call('PTTL', key)
		if was == -1 then
			ttl = math.huge
		elseif was > ttl then
			ttl = was
		end
	end
	local text = whole(b, limits)
	if ttl == math.huge then
		call('SET', key, text)
	else
		ttl = math.min(ttl, 1e14)
		call('SET', key, text, 'PX', ttl - ttl % 1 + 1)
	end
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
