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

-- limbs returns a pair as limbs of 24 bits, of which only the highest is signed.
local function limbs(h, l) return l % B, floor(l / B) + h % 65536 * 256, floor(h / 65536) end

-- exact returns floor(now * amount / period) from an estimate h, l that is at most 2^32 off. The sign of d, what the product is
-- above estimate * period, is exact. After one correction, |d| is less than the period.
local function exact(ah, al, ph, pl, h, l)
	local x0, x1, x2 = limbs(nh, nl)
	local y0, y1, y2 = limbs(ah, al)
	local v0, v1, v2 = limbs(ph, pl)
	for corrected = 0, 1 do
		local q0, q1, q2 = limbs(h, l)
		local d0 = x0 * y0 - q0 * v0
		local d1 = x0 * y1 + x1 * y0 - q0 * v1 - q1 * v0 + floor(d0 / B)
		local d2 = x0 * y2 + x1 * y1 + x2 * y0 - q0 * v2 - q1 * v1 - q2 * v0 + floor(d1 / B)
		local d3 = x1 * y2 + x2 * y1 - q1 * v2 - q2 * v1 + floor(d2 / B)
		local d4 = x2 * y2 - q2 * v2 + floor(d3 / B)
		local d = (((d4 * B + d3 % B) * B + d2 % B) * B + d1 % B) * B + d0 % B
		local n = floor(d / (ph * T + pl) + 0.5)
		if n == 0 or corrected == 1 then
			return plus(h, l, 0, d < 0 and -1 or 0)
		end
		h, l = plus(h, l, floor(n / T), n % T)
	end
end

-- clock returns the reading of a limit's clock, from whole hours and the rest as a double. If the result is so near a
-- whole number that rounding could change it, exact corrects it.
local function clock(ah, al, ph, pl, Ah, Al, fa, fr)
	local e, p = H * fa + t * fr, H * Al
	local r, u, c = e % 1, ((H < 0 and -H or H) * fa + t * fr + 1) * 2 ^ -49, floor(p / T)
	local near = r <= u or r >= 1 - u or H >= 2097152 or H <= -2097152
	local l = p - c * T + (near and floor(e + 0.5) or e - r)
	local c2 = floor(l / T)
	local h, l = saturated(H * Ah + c + c2, l - c2 * T)
	if near then
		return exact(ah, al, ph, pl, h, l)
	end
	return h, l
end
