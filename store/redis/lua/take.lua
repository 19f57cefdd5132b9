-- Take: KEYS are the buckets. ARGV: the time of a test, the margin of expiry in ms, whether levels are wanted; for each
-- debit its limits, and its epoch, an id for a birth, the length of the key's base, and amount and flags of each charge.
-- What is usual is written out: that a bucket has the limits of the debit, in their order.
local KEYS, ARGV, find = KEYS, ARGV, string.find
begin(ARGV[1])
local n, h0, l0 = #KEYS, nh, nl
local bs, raws, allowed = {}, {}, true
for i = 1, n do
	local desc, dyn = ARGV[2 + 2 * i], ARGV[3 + 2 * i]
	local count = (#dyn - 18) / 9
	local raw, b, from = call('GET', KEYS[i]), nil, HEADSIZE + 1 + 24 * count
	if raw and #raw == from - 1 + #desc and find(raw, desc, from, true) == from then
		b = {parse(count == 1 and '>BI4I4i4I4I4I4I4I4I2I2i4I4i4I4i4I4' or HEAD .. rep(SLOT, count), raw)}
		if b[1] ~= 1 or b[10] ~= count or b[11] ~= count then
			b = nil
		end
	end
	local as = {parse(count == 1 and '>I4I4I4I4I2I4I4B' or '>I4I4I4I4I2' .. rep('I4I4B', count), dyn)}
	if not b then
		b = slow().head(raw, as[3], as[4])
		b.slow = true
	end
	b.as, b.count, raws[i], bs[i] = as, count, raw, b
	if (b[4] - nh) * T + (b[5] - nl) > 0 then
		set(b[4], b[5])
	end
end
for i = 1, n do
	local b, desc = bs[i], ARGV[2 + 2 * i]
	local as, idx = b.as, nil
	b.limits = desc
	if b.slow then
		local s, wrong = slow(), nil
		wrong, idx, b.limits = s.prepare(b, raws[i], desc, as)
		if wrong then
			return wrong
		end
	end
	-- Of each charge: where its slot is, the level after it, whether it does not fit.
	local w, p, full = {}, 1, 0
	for j = 1, b.count do
		local size, bh, bl, Ah, Al, fa, fr = parse('>I2xI4I4I4I4dd', desc, p)
		-- As in clock.
		local ch, cl
		local e = H * fa + t * fr
		local r, u = e % 1, (H * fa + t * fr + 1) * 2 ^ -49
		if H < 0 or H >= 1048576 or r <= u or r >= 1 - u then
			ch, cl = clock(parse('>I4I4I4I4I4I4dd', sub(desc, p + 35, p + 50) .. sub(desc, p + 11, p + 34)))
		else
			local c = H * Al
			cl = c % T
			ch = H * Ah + (c - cl) / T
			cl = cl + e - r
			c = cl % T
			ch, cl = ch + (cl - c) / T, c
			if ch >= 2147483648 then
				ch, cl = saturated(ch, cl)
			end
		end
		p = p + size
		local o = 6 * (idx and idx[j] or j) + 5
		local mh, ml = b[o + 1], b[o + 2]
		if (mh - ch) * T + (ml - cl) < 0 then
			mh, ml = ch, cl
		end
		local a = 3 * j + 3
		local xh, flag, off = as[a], as[a + 2], false
		mh, ml = mh + xh, ml + as[a + 1]
		if flag ~= 1 then
			off = (mh - ch - bh) * T + (ml - cl - bl) > 0 or (ch + bh - 2147483648) * T + (cl + bl) >= 0
			if off and flag == 0 then
				allowed = false
			end
		elseif (mh - 1306572467) * T + (ml - 2808348672) > 0 then -- 2^62 + 1e18
			return 'F'
		end
		if ml >= T then
			mh, ml = mh + 1, ml - T
		end
		local melts = ((mh - ch) * T + (ml - cl)) / fr
		if melts > full then
			full = melts
		end
		local q = 4 * j
		w[q - 3], w[q - 2], w[q - 1], w[q] = o, mh, ml, off
	end
	b.w, b.full = w, full
end
local margin, skew = tonumber(ARGV[2]), ((nh - h0) * T + (nl - l0)) / 1e6
for i = 1, n do
	local b = bs[i]
	if allowed or b.changed and not b.born then
		b[4], b[5] = nh, nl
		if allowed then
			local w, as = b.w, b.as
			for j = 1, b.count do
				local a = 3 * j + 3
				local xh, xl = as[a], as[a + 1]
				if xh + xl > 0 and not (as[a + 2] == 2 and w[4 * j]) then
					local o = w[4 * j - 3]
					b[o + 1], b[o + 2] = w[4 * j - 2], w[4 * j - 1]
					xh, xl = b[o + 3] + xh, b[o + 4] + xl
				if xl >= T then
					xh, xl = saturated(xh + 1, xl - T)
				end
				b[o + 3], b[o + 4] = xh, xl
				end
			end
			b[9] = b[9] + 1
			if b[9] == T then
				b[8], b[9] = b[8] + 1, 0
			end
		end
		write(KEYS[i], b, b.limits, b.full, b[11] > b.count, skew, margin, b.as[5])
	end
end
if ARGV[3] ~= '1' then
	return pack('>Bi4I4', allowed and 65 or 82, nh, nl)
end
if n == 1 and bs[1].count == 1 then
	local b = bs[1]
	local w, o = b.w, b.w[1]
	return pack('>Bi4I4i4I4B', allowed and 65 or 82, nh, nl, b[o + 1], b[o + 2], w[4] and (b.as[8] == 2 or not allowed) and 1 or 0)
end
local out, format = {allowed and 65 or 82, nh, nl}, '>Bi4I4'
local x = 3
for i = 1, n do
	local b = bs[i]
	local w = b.w
	for j = 1, b.count do
		local o = w[4 * j - 3]
		out[x + 1], out[x + 2] = b[o + 1], b[o + 2]
		out[x + 3] = w[4 * j] and (b.as[3 * j + 5] == 2 or not allowed) and 1 or 0
		x = x + 3
	end
	format = format .. rep('i4I4B', b.count)
end
return pack(format, unpack(out))
