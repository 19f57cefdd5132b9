-- Usage, read: KEYS is the index. ARGV: the common part of the namespace's keys, where to begin, how many buckets to
-- examine, and how many changed ones are enough. It returns where it stopped, and the name, value and account of each
-- bucket whose counters differ from those booked.
local base, found, enough = ARGV[1], call('ZRANGEBYLEX', KEYS[1], ARGV[2], '+', 'LIMIT', 0, ARGV[3]), 1 + 3 * ARGV[4]
local out = {''}
for i, member in ipairs(found) do
	local raw = redis.pcall('GET', base .. 'b' .. member)
	if type(raw) == 'table' then
		if sub(raw.err, 1, 9) ~= 'WRONGTYPE' then
			return raw
		end
		raw = '' -- not a bucket
	end
	if not raw then
		call('ZREM', KEYS[1], member)
	else
		local account = call('HGET', base .. 'ua', member) or ''
		local n = #raw >= HEADSIZE and HEADSIZE + 24 * parse('>I2', raw, HEADSIZE - 1) or #raw
		if #account < 6 + n or parse('>I2', account, 5) ~= n or sub(account, 7, 6 + n) ~= sub(raw, 1, n) then
			out[#out + 1] = member
			out[#out + 1] = raw
			out[#out + 1] = account
		end
	end
	if #out >= enough or i == tonumber(ARGV[3]) then
		out[1] = member
		break
	end
end
return out
