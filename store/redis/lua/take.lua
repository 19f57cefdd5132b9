-- Take: a run of concurrent takes, each judged in its turn as if it had come alone; each bucket is read once and written
-- once. KEYS are the buckets of all debits. ARGV: the test time, the margin of expiry in ms, the id of the first birth,
-- the debits, and the limits that they name. A debit is its epoch, the length of the common part of its key, amount and
-- flags of each charge, and what follows: 0 a debit of the same take, 1 the end of the
-- take; then the number of the next debit's limits. The first debit has the first limits. The answer to
-- a take is A or R, the time, and the levels; or a letter for what is wrong, after E with the reason.
local KEYS, ARGV, find, all = KEYS, ARGV, string.find, ARGV[4]
begin(ARGV[1])
local H0, t0, h0, l0 = H, t, nh, nl
local id1, id2 = parse('>I4I4', ARGV[3])
local plans = {}

-- plan parses limits. list holds for each its burst, its rate per nanosecond, and its clock at the time h, l.
local function plan(k)
	local desc, p, n, list = ARGV[4 + k], 1, 0, {}
	while p <= #desc do
		local size, _, bh, bl, Ah, Al, fa, fr, ah, al, ph, pl = parse(LIMIT, desc, p)
		local ch, cl = clock(ah, al, ph, pl, Ah, Al, fa, fr)
		list[n + 1], list[n + 2], list[n + 3], list[n + 4], list[n + 5] = bh, bl, fr, ch, cl
		n, p = n + 5, p + size
	end
	n = n / 5
	local of = {k = k, desc = desc, count = n, list = list, from = HEADSIZE + 1 + 24 * n, last = 4 + 3 * n, h = nh, l = nl,
		form = n == 1 and '>I4I4I2I4I4BBI2' or '>I4I4I2' .. rep('I4I4B', n) .. 'BI2',
		words = n == 1 and '>BI4I4i4I4I4I4I4I4I2I2i4I4i4I4i4I4' or HEAD .. rep(SLOT, n)}
	plans[k] = of
	return of
end

-- why returns a take's answer if a bucket cannot be read.
local function why(e)
	local text = type(e) == 'table' and e.err or 'WEIRFORMAT ' .. tostring(e)
	return 'E' .. pack('>I2', #text) .. text
end

-- at holds buckets by key: words, limits, format unless the bucket must be written whole, value read, key, length of
-- the key's common part, remaining life, and whether the existing key may live longer. debits holds the debits of one
-- take: bucket, its words as the take would change them, limits, charges; in the unusual case the positions of the
-- slots and the bucket's limits; and when it is full.
local at, todo, debits, work, out, forms, answers = {}, {}, {}, {}, {}, {}, {}
local i, k, p, n = 0, 1, 1, #KEYS
while i < n do
	local m, wrong, last = 0, nil, nil
	H, t, nh, nl = H0, t0, h0, l0
	repeat
		i = i + 1
		local key, of = KEYS[i], plans[k] or plan(k)
		local x, e = of.last, at[key]
		local a = {parse(of.form, all, p)}
		last, k, p = a[x], a[x + 1], a[x + 2]
		if not e then
			local raw, desc, from = redis.pcall('GET', key), of.desc, of.from
			e = {nil, nil, nil, raw, key, a[3], nil, nil}
			at[key] = e
			if raw and #raw == from - 1 + #desc and find(raw, desc, from, true) == from then
				local b = {parse(of.words, raw)}
				if b[1] == 1 and b[11] == of.count then
					e[1], e[2], e[3] = b, desc, of.words
				end
			end
		end
		local b, idx = e[1], false
		if not b or e[2] ~= of.desc or b[10] ~= of.count or b[11] ~= of.count then
			local ok
			idx = e[4]
			if b then
				idx = pack(HEAD .. rep(SLOT, b[11]), unpack(b, 1, 11 + 6 * b[11])) .. e[2]
			end
			if type(idx) == 'table' then
				wrong = why(idx)
			else
				ok, b = pcall(slow().head, idx, id1, (id2 + i) % T)
				if not ok then
					wrong = why(b)
				end
			end
			idx = idx or ''
		end
		debits[m + 1], debits[m + 2], debits[m + 3], debits[m + 4], debits[m + 5] = e, b, of, a, idx
		m = m + 7
		if not wrong and (b[4] - nh) * T + (b[5] - nl) > 0 then
			set(b[4], b[5])
		end
	until last ~= 0
	local allowed, w = true, 0
	for d = 1, m, 7 do
		local b, of, a, idx = debits[d + 1], debits[d + 2], debits[d + 3], debits[d + 4]
		if idx and not wrong then
			local ok, bad
			ok, bad, idx, debits[d + 5] = pcall(slow().prepare, b, idx, of.desc, a[1], a[2], id1, (id2 + i - (m - d - 6) / 7) % T)
			debits[d + 4], wrong = idx, not ok and why(bad) or bad
		end
		if wrong then
			break
		end
		if of.h ~= nh or of.l ~= nl then
			of = plan(of.k)
		end
		local list, full, o, q = of.list, 0, 11, 4
		for j = 1, 5 * of.count, 5 do
			local bh, bl, fr, ch, cl = list[j], list[j + 1], list[j + 2], list[j + 3], list[j + 4]
			if idx then
				o = 6 * idx[(j + 4) / 5] + 5
			end
			local mh, ml = b[o + 1], b[o + 2]
			if (mh - ch) * T + (ml - cl) < 0 then
				mh, ml = ch, cl
			end
			local flag, off = a[q + 2], false
			mh, ml = mh + a[q], ml + a[q + 1]
			if flag ~= 1 then
				off = (mh - ch - bh) * T + (ml - cl - bl) > 0 or (ch + bh - 2147483648) * T + (cl + bl) >= 0
				if off and flag == 0 then
					allowed = false
				end
			elseif (mh - 1306572467) * T + (ml - 2808348672) > 0 then -- 2^62 + 1e18
				wrong = 'F'
				break
			end
			if ml >= T then
				mh, ml = mh + 1, ml - T
			end
			local melts = ((mh - ch) * T + (ml - cl)) / fr
			if melts > full then
				full = melts
			end
			work[w + 1], work[w + 2], work[w + 3], work[w + 4] = o, mh, ml, off
			w, o, q = w + 4, o + 6, q + 3
		end
		debits[d + 6] = full
	end
	if wrong then
		answers[#answers + 1] = wrong
	else
		local skew, levels = ((nh - h0) * T + (nl - l0)) / 1e6, 3
		out[1], out[2], out[3], w = allowed and 65 or 82, nh, nl, 0
		for d = 1, m, 7 do
			local b, of, a, idx = debits[d + 1], debits[d + 2], debits[d + 3], debits[d + 4]
			if allowed or idx and b.changed and not b.born then
				local e, ttl, more = debits[d], debits[d + 6] / 1e6 + skew, b[11] > of.count
				if idx then
					e[1], e[2], e[3] = b, debits[d + 5], nil
				end
				if not e[7] then
					todo[#todo + 1] = e
				elseif more and e[7] > ttl then
					ttl = e[7]
				end
				e[7], e[8] = ttl, more
				b[4], b[5] = nh, nl
			end
			if allowed then
				b[9] = b[9] + 1
				if b[9] == T then
					b[8], b[9] = b[8] + 1, 0
				end
			end
			for q = 4, of.last - 1, 3 do
				local o, off, flag = work[w + 1], work[w + 4], a[q + 2]
				if allowed then
					local xh, xl = a[q], a[q + 1]
					if xh + xl > 0 and not (off and flag == 2) then
						b[o + 1], b[o + 2] = work[w + 2], work[w + 3]
						xh, xl = b[o + 3] + xh, b[o + 4] + xl
						if xl >= T then
							xh, xl = xh + 1, xl - T
						end
						b[o + 3], b[o + 4] = saturated(xh, xl)
					end
				end
				out[levels + 1], out[levels + 2] = b[o + 1], b[o + 2]
				out[levels + 3] = off and (flag == 2 or not allowed) and 1 or 0
				w, levels = w + 4, levels + 3
			end
		end
		local form = forms[levels]
		if not form then
			form = '>Bi4I4' .. rep('i4I4B', levels / 3 - 1)
			forms[levels] = form
		end
		answers[#answers + 1] = pack(form, unpack(out, 1, levels))
	end
end
local margin, seconds = tonumber(ARGV[2]), {}
for _, e in ipairs(todo) do
	local b, ttl = e[1], e[7] + margin
	if not e[3] then
		b.born = not e[4]
		write(e[5], b, e[2], ttl, e[8], e[6])
	else -- the limits stay unchanged
		local s = ttl < 1e14 and floor(ttl / 1000) + 1 or 1e11
		local text = seconds[s]
		if not text then
			text = string.format('%.0f', s)
			seconds[s] = text
		end
		call('SETRANGE', e[5], '0', pack(e[3], unpack(b, 1, 11 + 6 * b[11])))
		call('EXPIRE', e[5], text)
	end
end
return #answers == 1 and answers[1] or table.concat(answers)
