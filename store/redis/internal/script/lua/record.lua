-- Layout of a record: see docs/format/redis.md.
local RECORD = '>I4I4Bi4I4I2' -- version, whether it expires, expiry, length of the parent

-- live returns a record's parsed head, or nil if there is none or it has expired.
local function live(raw)
	if not raw then
		return nil
	end
	local r = {parse(RECORD, raw)}
	if r[3] == 1 and (r[4] - nh) * T + (r[5] - nl) <= 0 then
		return nil
	end
	return r
end

-- indexes calls ZADD or ZREM on every index that lists a record.
local function indexes(how, base, list, member, parent)
	local function each(key)
		if how == 'ZADD' then
			call('ZADD', key, 0, member)
		else
			call('ZREM', key, member)
		end
	end
	each(base .. 'x:' .. list)
	if parent ~= '' then
		each(base .. 'p:' .. list .. ':' .. parent)
	end
	local s = sub(member, string.find(member, '\0', 1, true) + 1)
	if s ~= '' then
		each(base .. 's:' .. list .. ':' .. s)
	end
end

local function drop(base, list, member, raw)
	local r = {parse(RECORD, raw)}
	indexes('ZREM', base, list, member, sub(raw, r[7], r[7] + r[6] - 1))
	call('HDEL', base .. 'r:' .. list, member)
	call('ZREM', base .. 't', list .. '\0' .. member)
end
