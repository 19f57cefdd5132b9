-- Settle: KEYS are the buckets, and the marker if there is one. ARGV: the test time, the margin of expiry in ms, the end of
-- the marker or ''; for each debit its limits, then its epoch, birth id, length of the common part of its key, and charges.
begin(ARGV[1])
local margin, ends, h0, l0 = tonumber(ARGV[2]), ARGV[3], nh, nl
local n = #KEYS - (ends ~= '' and 1 or 0)
local raws, bs, marker = {}, {}, KEYS[n + 1]
for i = 1, n do
	local c = {parse('>I4I4I4I4I2', ARGV[3 + 2 * i])}
	raws[i] = call('GET', KEYS[i])
	bs[i] = head(raws[i], c[3], c[4])
	bs[i].c = c
	latest(bs[i][4], bs[i][5])
end
local left
if marker then
	local h, l = parse('>i4I4', ends)
	left = (h - nh) * T + (l - nl)
	if left <= 0 then
		return {'X'}
	end
	if call('EXISTS', marker) == 1 then
		return {'E'}
	end
end
for i = 1, n do
	local b, desc, dyn = bs[i], ARGV[2 + 2 * i], ARGV[3 + 2 * i]
	local count = (#dyn - 18) / 9
	local as = {parse('>' .. rep('i4I4B', count), dyn, 19)}
	local forced = false
	for j = 1, count do
		forced = forced or as[3 * j - 2] * T + as[3 * j - 1] > 0
	end
	if raws[i] or forced then
		load(b, raws[i])
		for j, d in ipairs(limits(desc, 1)) do
			local h, l, k = as[3 * j - 2], as[3 * j - 1], find(b, d.key)
			local more = h * T + l > 0
			if not k and more then
				k = #b.slots + 1
				b.slots[k] = fresh(d)
			end
			local s = b.slots[k or 0]
			if s and more then
				local ch, cl = reading(s[1])
				if (s[2] - ch) * T + (s[3] - cl) < 0 then
					s[2], s[3] = ch, cl
				end
				if (s[2] + h - 1306572467) * T + (s[3] + l - 2808348672) > 0 then
					return {'F'}
				end
				s[2], s[3] = plus(s[2], s[3], h, l)
				s[4], s[5] = plus(s[4], s[5], h, l)
			elseif s and h < 0 then
				s[2], s[3] = plus(s[2], s[3], h, l)
				s[6], s[7] = plus(s[6], s[7], -h, -l)
			end
		end
	end
end
local out, skew = {'A' .. pack('>i4I4', nh, nl)}, ((nh - h0) * T + (nl - l0)) / 1e6
for i = 1, n do
	local b = bs[i]
	out[i + 1] = ''
	if b.slots then
		local full = 0
		for _, s in ipairs(b.slots) do
			local ch, cl = reading(s[1])
			local m = ((s[2] - ch) * T + (s[3] - cl)) / s[1][8]
			if m > full then
				full = m
			end
		end
		b[4], b[5] = nh, nl
		local ds = flatten(b)
		out[i + 1] = write(KEYS[i], b, ds, full / 1e6 + skew + margin, true, b.c[5])
	end
end
if marker then
	call('SET', marker, '', 'PX', string.format('%.0f', floor(math.min(left / 1e6 + skew, 1e14) + margin)))
end
return out
