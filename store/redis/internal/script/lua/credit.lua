-- Credit: KEYS are a bucket, and the hash of the amounts that were credited to the balance, by id. ARGV: the test time, the
-- balance, the id, the amount, the id of a birth, and the length of the common part of the bucket's key. The answer is A or,
-- if it was credited before, B, the time, and the level; or a letter for what is wrong, after D with the amount before.
begin(ARGV[1])
local d, id, ah, al = limits(ARGV[2], 1)[1], ARGV[3], parse('>i4I4', ARGV[4])
local raw, was = call('GET', KEYS[1]), call('HGET', KEYS[2], id)
if was and was ~= ARGV[4] then
	return 'D' .. was
end
local b = head(raw, parse('>I4I4', ARGV[5]))
latest(b[4], b[5])
load(b, raw)
local k = find(b, d.key)
if k and not balance(b.slots[k][1]) then
	return was and 'B' .. pack('>i4I4i4I4', nh, nl, 0, 0) or 'K'
end
local s = b.slots[k or 0] or fresh(d)
if not was then
	s[2], s[3] = plus(s[2], s[3], -ah, -al)
	if (s[2] + 232830643) * T + (s[3] + 2808348672) < 0 then -- -1e18
		return 'F'
	end
	b.slots[k or #b.slots + 1] = s
	b[4], b[5] = nh, nl
	local list = flatten(b)
	write(KEYS[1], b, list, math.huge, false, tonumber(ARGV[6]))
	call('HSET', KEYS[2], id, ARGV[4])
end
return (was and 'B' or 'A') .. pack('>i4I4i4I4', nh, nl, s[2], s[3])
