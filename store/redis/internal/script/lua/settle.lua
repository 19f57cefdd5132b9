-- Settle: a run of settles, each made as if it had come alone. KEYS are the buckets of each settle, and its marker if there is
-- one. ARGV: the test time, the margin of expiry in ms, further limits whose windows are known, the settles, and the limits that
-- their debits name. A settle is the number of its debits, 32768 more and when its marker ends if it has one, and its debits: the
-- number of their limits, epoch, birth id, length of the common part of the key, and charges: amount, rule, a bound, and a birth.
-- Rules: 1 is debited so that the limit is no further in debt than the bound; or gives back what the limit has not issued since its
-- clock read the bound; 2 gives back nothing;
-- 3 gives back what the limit is in debt; 4 gives back or renews slots that end at the bound, if the birth is that of what is held;
-- 8 more creates the limit, which a return otherwise does not. The answer to a settle is W as that of a take; T and why a bucket
-- cannot be read; another letter for what is wrong; Q, the time, and of each charge the level and, if something was taken or
-- renewed of a limit of slots, the end of that, or 0; or A and the time, the buckets, and for each bucket what rule 1 left out of each
-- debited charge, and the end of what was taken or renewed of each limit of slots, or 0.
local KEYS, ARGV, all = KEYS, ARGV, ARGV[4]
begin(ARGV[1])
local H0, t0, h0, l0, margin = H, t, nh, nl, tonumber(ARGV[2])

-- kinds are kinds of buckets: those with the same limits. Most buckets of a run are of the last one.
local kinds, kind = {}, {text = '', from = 0, size = -1}

-- kindOf returns the kind of a bucket: its limits, where they begin, the length and form of its value, and where the slot and what
-- is held of each of its limits is among its words.
local function kindOf(raw)
	if #raw == kind.size and sub(raw, kind.from, kind.to) == kind.text then
		return kind
	end
	local n, m = parse('>I2', raw, HEADSIZE - 1), 0
	local p, known, held = HEADSIZE + 1 + 24 * n, {}, {}
	for k = 1, n do
		local size, flags = parse('>I2B', raw, p)
		local d = sub(raw, p, p + size - 1)
		known[d], p = 6 * k + 6, p + size
		if flags > 3 then
			held[d], m = 12 + 6 * (n + m), m + 1
		end
	end
	local from = HEADSIZE + 1 + 24 * n
	local text = sub(raw, from, p - 1)
	kind = kinds[text] or {text = text, from = from, to = p - 1, size = p - 1 + 24 * m, known = known, held = held, m = m, plans = {},
		form = HEAD .. rep(SLOT, n) .. rep('x', #text) .. rep(SLOT, m)}
	kinds[text] = kind
	return kind
end

-- planOf returns a list of what quick needs of each limit of a debit in buckets of a kind: its slot, what is held, its heal
-- time, and as a rate; and the form of the charges. It returns false if quick cannot settle them.
local function planOf(of, desc)
	local q, plan, n, twice = 1, {}, 0, {}
	while q <= #desc do
		local size, flags, _, _, Ah, Al, fa, fr, ah, al, ph, pl = parse(LIMIT, desc, q)
		local d = sub(desc, q, q + size - 1)
		local o = of.known[d]
		if not o or flags == 2 or flags == 3 or twice[o] then
			return false
		end
		n, q, twice[o] = n + 1, q + size, true
		plan[n] = {o, of.held[d] or false, ph * T + pl, {ah, al, ph, pl, Ah, Al, fa, fr}}
	end
	plan.form = '>' .. rep('i4I4Bi4I4I4I4', n)
	return plan
end

-- at holds buckets by key, as words, as long as they are settled quickly; order those that were. b.of is the kind, and b.ttl for
-- how long the bucket has to live at least, in ms.
local at, order, forms = {}, {}, {}

-- read returns a bucket, or nil if there is none, or it is not to be settled quickly.
local function read(key)
	local b = at[key]
	if b then
		return b
	end
	local raw = call('GET', key)
	local of = raw and kindOf(raw)
	if of and #raw == of.size then
		b = {parse(of.form, raw)}
		if b[1] >= 1 and b[1] <= 3 and (b[1] == 3) == (of.m > 0) then
			b.of, b.held, b.key, at[key] = of, of.m, key, b
			return b
		end
	end
end

-- keep writes the buckets that were settled quickly.
local function keep()
	for _, b in ipairs(order) do
		write(b.key, b, b.of.text, b.ttl, true, b.base)
	end
	at, order = {}, {}
end

-- allows reports whether quick can make charges: none steps, is strict or takes slots without a hold, none overflows. It notes
-- the clocks and levels of forced ones.
local function allows(b, plan, as)
	for i, p in ipairs(plan) do
		local j, o, forced = 7 * i - 6, p[1], positive(as[7 * i - 6], as[7 * i - 5])
		if as[j + 2] ~= 4 then
			if as[j + 2] ~= 0 or forced and p[2] then
				return false
			elseif forced then
				local mh, ml, ch, cl = b[o], b[o + 1], clock(unpack(p[4]))
				if (mh - ch) * T + (ml - cl) < 0 then
					mh, ml = ch, cl
				end
				if (mh + as[j] - 1306572467) * T + (ml + as[j + 1] - 2808348672) > 0 then
					return false
				end
				as[j + 3], as[j + 4], as[j + 5], as[j + 6] = ch, cl, mh, ml
			end
		end
	end
	return true
end

-- quick applies charges to a bucket that has all of their limits as the caller sent them. It returns the levels that they leave.
local function quick(b, plan, as, more)
	local out, n = {}, 0
	b.ttl = math.max(b.ttl or 0, more)
	for i, p in ipairs(plan) do
		local j, o, y, full, eh, el = 7 * i - 6, p[1], p[2], 0, nil, nil
		local h, l = as[j], as[j + 1]
		local forced = positive(h, l)
		if as[j + 2] == 4 then
			eh, el = byHold(b, b, o, y, o + 4, p[3], h, l, as[j + 3], as[j + 4], as[j + 5], as[j + 6])
		elseif forced then
			b[o], b[o + 1] = plus(as[j + 5], as[j + 6], h, l)
			full = ((b[o] - as[j + 3]) * T + (b[o + 1] - as[j + 4])) / p[4][8]
			b[o + 2], b[o + 3] = plus(b[o + 2], b[o + 3], h, l)
		elseif not y and h < 0 then
			b[o], b[o + 1] = plus(b[o], b[o + 1], h, l)
			b[o + 4], b[o + 5] = plus(b[o + 4], b[o + 5], -h, -l)
		end
		if y then
			out[n + 1], out[n + 2] = held(b, o, y)
		else
			out[n + 1], out[n + 2] = b[o], b[o + 1]
		end
		n = n + 2
		if forced then
			if y then
				out[n + 1], out[n + 2], n = eh, el, n + 2
				full = (b[y] - nh) * T + (b[y + 1] - nl) + S
			end
			b.ttl = math.max(b.ttl, full / 1e6 + more)
		end
	end
	b[4], b[5] = nh, nl
	local form = forms[n] or '>' .. rep('i4I4', n / 2)
	forms[n] = form
	return pack(form, unpack(out))
end

-- settleQuick makes a settle if quick can make all of it, and otherwise changes nothing.
local function settleQuick(i, n, debits)
	local bs, plans, as = {}, {}, {}
	for k = 1, n do
		local b = read(KEYS[i + k])
		if not b then
			return
		end
		bs[k] = b
		latest(b[4], b[5])
	end
	for k, b in ipairs(bs) do
		local desc = debits[k][1]
		local plan = b.of.plans[desc]
		if plan == nil then
			plan = planOf(b.of, desc)
			b.of.plans[desc] = plan
		end
		plans[k], as[k] = plan, plan and {parse(plan.form, all, debits[k][2] + 18)}
		if not plan or not allows(b, plan, as[k]) then
			return
		end
	end
	local out, more = 'Q' .. pack('>i4I4', nh, nl), ((nh - h0) * T + (nl - l0)) / 1e6 + margin
	for k, b in ipairs(bs) do
		out = out .. quick(b, plans[k], as[k], more)
		if not b.base then
			order[#order + 1], b.base = b, parse('>I2', all, debits[k][2] + 16)
		end
	end
	return {out}
end

-- settle makes the settle of n buckets behind KEYS[i]. oh, ol is when its marker ends, if it has one.
local function settle(i, n, debits, oh, ol)
	local raws, parts, marker, left = {}, {}, KEYS[i + n + 1], nil
	for k = 1, n do
		raws[k] = call('GET', KEYS[i + k])
		if raws[k] then
			latest(parse('>i4I4', raws[k], 10))
		end
	end
	if oh then
		left = (oh - nh) * T + (ol - nl)
		if left <= 0 then
			return {'X'}
		elseif call('EXISTS', marker) == 1 then
			return {'E'}
		end
	end
	if n > 0 then
		parts = slow().adjust(raws, n, debits)
	end
	if type(parts) == 'string' then
		return {parts}
	end
	local out, skew = {'A' .. pack('>i4I4', nh, nl)}, ((nh - h0) * T + (nl - l0)) / 1e6
	for k = 1, n do
		local b = parts[k]
		out[k + 1], out[k + n + 1] = '', b and b.left or ''
		if b then
			b[4], b[5] = nh, nl
			out[k + 1] = write(KEYS[i + k], b, b.text, b.full / 1e6 + skew + margin, true, b.c[5])
		end
	end
	if oh then
		call('SET', marker, '', 'PX', string.format('%.0f', floor(math.min(left / 1e6 + skew, 1e14) + margin)))
	end
	return out
end

local answers, counts, i, p = {}, {}, 0, 1
while p <= #all do
	local n, debits, ok, out, oh, ol = parse('>I2', all, p), {}
	p = p + 2
	if n >= 32768 then
		n, oh, ol, p = n - 32768, parse('>i4I4', all, p)
	end
	for k = 1, n do
		local desc = ARGV[4 + parse('>I2', all, p)]
		local count = counts[desc]
		if not count then
			local q = 1
			count = 0
			while q <= #desc do
				q, count = q + parse('>I2', desc, q), count + 1
			end
			counts[desc] = count
		end
		debits[k], p = {desc, p + 2, count}, p + 20 + 25 * count
	end
	H, t, nh, nl = H0, t0, h0, l0
	if not oh and n > 0 then
		ok, out = pcall(settleQuick, i, n, debits)
	end
	if not ok or not out then
		keep()
		H, t, nh, nl = H0, t0, h0, l0
		ok, out = pcall(settle, i, n, debits, oh, ol)
	end
	if not ok then
		out = {'T' .. why(out)}
	end
	for _, text in ipairs(out) do
		answers[#answers + 1] = text
	end
	i = i + n + (oh and 1 or 0)
end
keep()
return answers
