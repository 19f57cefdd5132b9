-- Usage, book: KEYS is the flag that the namespace's usage is kept. ARGV: the test time, the common part of the
-- namespace's keys, and the numbers of accounts, windows and ended births; for each account its hash, field, old and
-- new value; for each window its type and subject, start, end in seconds, name, number of figures, and each figure with
-- its change; then the ended births. All or nothing, provided the accounts are still as they were read. After the first
-- write nothing may fail.
begin(ARGV[1])
local base, keep, p = ARGV[2], call('GET', KEYS[1]), 6
if not keep then
	return 'N'
end
local now = (nh * T + nl) / 1e6 + 1704067200000
local hours, days, months = parse('>ddd', keep)
keep = {h = hours, d = days, m = months}
for i = 1, tonumber(ARGV[3]) do
	if (call('HGET', base .. ARGV[p], ARGV[p + 1]) or '') ~= ARGV[p + 2] then
		return 'C'
	end
	p = p + 4
end
local try = redis.pcall
for i = 1, tonumber(ARGV[4]) do
	local kind, start, over, member, n = ARGV[p], ARGV[p + 1], ARGV[p + 2], ARGV[p + 3], tonumber(ARGV[p + 4])
	local letter, key, fresh = sub(kind, 1, 1), base .. 'uw' .. kind .. start .. ':' .. member, false
	local ttl = keep[letter] > 0 and over * 1000 + keep[letter] - now
	p = p + 5
	if not ttl or ttl > 0 then
		for f = p, p + 2 * n - 2, 2 do
			local r = try('HINCRBY', key, ARGV[f], ARGV[f + 1])
			if type(r) == 'table' then
				try('HSET', key, ARGV[f], '9223372036854775807') -- it stays at the maximum
			end
			fresh = fresh or r == tonumber(ARGV[f + 1])
		end
		if fresh then
			local index = base .. 'ux' .. kind .. start
			try('ZADD', base .. 'ut' .. letter, start, start)
			try('ZADD', index, 0, member)
			if ttl then
				ttl = string.format('%.0f', floor(math.min(ttl, 1e14)) + 1)
				try('PEXPIRE', key, ttl)
				try('PEXPIRE', index, ttl)
			end
		end
	end
	p = p + 2 * n
end
for i = p, p + ARGV[5] - 1 do
	try('LREM', base .. 'ul', 1, ARGV[i])
end
for i = 6, 5 + 4 * ARGV[3], 4 do
	try('HSET', base .. ARGV[i], ARGV[i + 1], ARGV[i + 3])
end
return 'A'
