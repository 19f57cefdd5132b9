-- Common start of all scripts. 64-bit numbers are pairs of words, a signed high one and an unsigned low one of 32 bits, both
-- exact in a double. (h1 - h2) * T + (l1 - l2) always has the exact sign of the difference, even if its value is rounded.
local T, B, HOUR = 4294967296, 16777216, 3.6e12
local call, floor, sub, rep, pack, parse = redis.call, math.floor, string.sub, string.rep, struct.pack, struct.unpack

-- The time since 2024-01-01T00:00:00Z: as whole hours and nanoseconds, and as a pair in nanoseconds.
local H, t, nh, nl

local function set(h, l)
	nh, nl = h, l
	H = floor((h * T + l) / HOUR)
	t = (h - H * 838) * T + (l - H * 817405952) -- an hour has 838 * T + 817405952 ns
	if t < 0 then
		H, t = H - 1, t + HOUR
	elseif t >= HOUR then
		H, t = H + 1, t - HOUR
	end
end

-- begin sets the time: the server's, unless a test passes another.
local function begin(now)
	if now ~= '' then
		return set(parse('>i4I4', now))
	end
	local r = call('TIME')
	local s = r[1] - 1704067200
	H = floor(s / 3600)
	t = (s - H * 3600) * 1e9 + r[2] * 1000
	local p = H * 817405952 + t
	local c = floor(p / T)
	nh, nl = H * 838 + c, p - c * T
end

-- latest moves the time forward so that a bucket is not judged at a time before its last write.
local function latest(h, l)
	if (h - nh) * T + (l - nl) > 0 then
		set(h, l)
	end
end

local function positive(h, l) return h * T + l > 0 end

-- why returns the reason why something cannot be read.
local function why(e) return type(e) == 'table' and e.err or 'WEIRFORMAT ' .. tostring(e) end

local function saturated(h, l)
	if h >= 2147483648 then
		return 2147483647, T - 1
	elseif h < -2147483648 then
		return -2147483648, 0
	end
	return h, l
end

local function plus(h, l, h2, l2)
	h, l = h + h2, l + l2
	if l >= T then
		h, l = h + 1, l - T
	elseif l < 0 then
		h, l = h - 1, l + T
	end
	return saturated(h, l)
end

-- exact returns floor(now * amount / period), computed in limbs of 24 bits.
local function exact(ah, al, ph, pl)
	local h, l, neg = nh, nl, nh < 0
	if neg then
		h, l = -h, -l
		if l < 0 then
			h, l = h - 1, l + T
		end
	end
	local x0, x1, x2 = l % B, floor(l / B) + h % 65536 * 256, floor(h / 65536)
	local y0, y1, y2 = al % B, floor(al / B) + ah % 65536 * 256, floor(ah / 65536)
	local v0, v1, v2 = pl % B, floor(pl / B) + ph % 65536 * 256, floor(ph / 65536)
	local u = {x0 * y0, x0 * y1 + x1 * y0, x0 * y2 + x1 * y1 + x2 * y0, x1 * y2 + x2 * y1, x2 * y2, 0}
	for i = 1, 5 do
		local c = floor(u[i] / B)
		u[i], u[i + 1] = u[i] - c * B, u[i + 1] + c
	end
	local period, q, r0, r1, r2 = ph * T + pl, {}, 0, 0, 0
	for i = 6, 1, -1 do
		local n = floor((((r2 * B + r1) * B + r0) * B + u[i]) / period) -- off by at most one
		local d0, d1, d2, d3 = u[i] - n * v0, r0 - n * v1, r1 - n * v2, r2
		local c = floor(d0 / B)
		d0, d1 = d0 - c * B, d1 + c
		c = floor(d1 / B)
		d1, d2 = d1 - c * B, d2 + c
		c = floor(d2 / B)
		d2, d3 = d2 - c * B, d3 + c
		local fix = 0
		if d3 < 0 then
			fix = 1
		elseif d3 > 0 or d2 > v2 or d2 == v2 and (d1 > v1 or d1 == v1 and d0 >= v0) then
			fix = -1
		end
		if fix ~= 0 then
			n, d0, d1, d2 = n - fix, d0 + fix * v0, d1 + fix * v1, d2 + fix * v2
			c = floor(d0 / B)
			d0, d1 = d0 - c * B, d1 + c
			c = floor(d1 / B)
			d1, d2 = d1 - c * B, (d2 + c) % B
		end
		q[i], r0, r1, r2 = n, d0, d1, d2
	end
	l, h = q[1] + q[2] % 256 * B, floor(q[2] / 256) + q[3] * 65536
	if q[4] + q[5] + q[6] > 0 then
		h = 2147483648
	end
	if not neg then
		return saturated(h, l)
	end
	if r0 + r1 + r2 > 0 then
		l = l + 1
	end
	return plus(-h, 0, 0, -l)
end

-- clock returns the reading of a limit's clock, from whole hours and the rest as a double. If the result is so near a
-- whole number that rounding could change it, it calls exact.
local function clock(ah, al, ph, pl, Ah, Al, fa, fr)
	local e = H * fa + t * fr
	local f = floor(e)
	local r, u = e - f, ((H < 0 and -H or H) * fa + t * fr + 1) * 2 ^ -49
	if r <= u or r >= 1 - u or H >= 2097152 or H <= -2097152 then
		return exact(ah, al, ph, pl)
	end
	local p = H * Al
	local c = floor(p / T)
	local l = p - c * T + f
	local c2 = floor(l / T)
	return saturated(H * Ah + c + c2, l - c2 * T)
end
