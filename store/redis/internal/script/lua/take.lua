-- Take: a run of concurrent takes, each judged in its turn as if it had come alone; each bucket is read once and written
-- once. KEYS are the buckets of all debits. ARGV: the test time, the margin of expiry in ms, the id of the first birth,
-- the debits, further limits whose windows are known, and the limits that the debits name. A debit is its epoch, the length
-- of the common part of its key, amount and flags of each charge, and what follows: 0 a debit of the same take, 1 the end of the
-- take; then the number of the next debit's limits. The first debit has the first limits. Limits that begin or end are preceded
-- by a length of 0 and when they do. The answer to
-- a take is A or R, the time, and the levels; or a letter for what is wrong, after E with the reason. W is followed by the
-- time, at which a quota is in another window than the caller sent, and limits whose windows it did not send; K by the
-- number of the debit and the name of a balance; P by the time, at which the limits of a debit do not hold. The level of a limit
-- of slots is followed by the end of the current cohort, and whether something was taken; then by the birth of what is held.
local KEYS, ARGV, find, all = KEYS, ARGV, string.find, ARGV[4]
begin(ARGV[1])
local H0, t0, h0, l0 = H, t, nh, nl
local id1, id2 = parse('>I4I4', ARGV[3])
local plans = {}

-- plan parses limits. list holds for each its burst, its rate per nanosecond, and its clock at the time h, l. A limit that
-- steps is in steps, by its place in list; wrong is set if the time is outside of its window. The heal time of a limit of slots
-- is in heals, and x has before which word begins what is held of it, in a bucket with these limits.
local function plan(k)
	local desc, p, n, list, steps, wrong, phase, heals, held = ARGV[5 + k], 1, 0, {}, {}, nil, nil, {}, {}
	if sub(desc, 1, 2) == '\0\0' then
		phase, desc = {parse('>i4I4i4I4', desc, 3)}, sub(desc, 19)
	end
	while p <= #desc do
		local size, flags, bh, bl, Ah, Al, fa, fr, ah, al, ph, pl = parse(LIMIT, desc, p)
		local ch, cl
		if flags > 3 then
			held[#held + 1], heals[n + 1], ch, cl = n + 1, ph * T + pl, 0, 0
		elseif flags > 1 then
			local d = {parse(STEPS, desc, p)}
			steps[n + 1], fr, ch, cl = d, false, d[5], d[6]
			if not within(d) then
				wrong = 'W' .. pack('>i4I4I4', nh, nl, 0)
			end
		else
			ch, cl = clock(ah, al, ph, pl, Ah, Al, fa, fr)
		end
		list[n + 1], list[n + 2], list[n + 3], list[n + 4], list[n + 5] = bh, bl, fr, ch, cl
		n, p = n + 5, p + size
	end
	n = n / 5
	local of = {k = k, desc = desc, count = n, list = list, steps = steps, wrong = wrong, phase = phase, h = nh, l = nl,
		from = HEADSIZE + 1 + 24 * n, last = 4 + 3 * n, heals = heals, held = #held, x = {},
		form = n == 1 and '>I4I4I2I4I4BBI2' or '>I4I4I2' .. rep('I4I4B', n) .. 'BI2',
		words = n == 1 and '>BI4I4i4I4I4I4I4I4I2I2i4I4i4I4i4I4' or HEAD .. rep(SLOT, n)}
	if #held > 0 then
		of.words = of.words .. rep('x', #desc) .. rep(SLOT, #held)
		for m, j in ipairs(held) do
			of.x[j] = 5 + 6 * (n + m)
		end
	end
	plans[k] = of
	return of
end

-- unread returns a take's answer if a bucket cannot be read.
local function unread(e)
	local text = why(e)
	return 'E' .. pack('>I2', #text) .. text
end

-- packed returns n words of an answer, of which head * 3 are its head. Lua cannot unpack many more than 7,000 at once.
local out, forms = {}, {}
local function packed(n, head)
	local form = forms[n - head]
	if not form then
		form = (head == 1 and '>Bi4I4' or '>') .. rep('i4I4B', n / 3 - head)
		forms[n - head] = form
	end
	return pack(form, unpack(out, 1, n))
end

-- at holds buckets by key: words, limits, format unless the bucket must be written whole, value read, key, length of
-- the key's common part, remaining life, and whether the existing key may live longer. debits holds the debits of one
-- take: bucket, its words as the take would change them, limits, charges; in the unusual case the positions of the
-- slots and the bucket's limits; and when it is full.
local at, todo, debits, work, answers = {}, {}, {}, {}, {}
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
			if raw and #raw == from - 1 + #desc + 24 * of.held and find(raw, desc, from, true) == from then
				local b = {parse(of.words, raw)}
				if of.held > 0 and b[1] == 3 and b[11] == of.count then
					e[1], e[2], b.held, b.quick = b, desc, of.held, true
				elseif (b[1] == 1 or b[1] == 2) and b[11] == of.count then
					e[1], e[2], e[3] = b, desc, of.words
				end
			end
		end
		local b, idx = e[1], false
		if not b or e[2] ~= of.desc or b[10] ~= of.count or b[11] ~= of.count then
			local ok
			idx = e[4]
			if b then
				idx = whole(b, e[2])
			end
			if type(idx) == 'table' then
				wrong = unread(idx)
			else
				ok, b = pcall(slow().head, idx, id1, (id2 + i) % T)
				if not ok then
					wrong = unread(b)
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
		if of.h ~= nh or of.l ~= nl then
			of = plan(of.k)
		end
		wrong = wrong or of.wrong
		if idx and not wrong then
			local ok, bad
			ok, bad, idx, debits[d + 5] = pcall(slow().prepare, b, idx, of, a[1], a[2], id1, (id2 + i - (m - d - 6) / 7) % T)
			debits[d + 4], wrong = idx, not ok and unread(bad) or bad
			if wrong and find(wrong, '^K') then
				wrong = 'K' .. pack('>I2I2', #wrong + 1, (d - 1) / 7) .. sub(wrong, 2)
			end
		end
		if wrong then
			break
		end
		local list, full, o, q = of.list, 0, 11, 4
		for j = 1, 5 * of.count, 5 do
			local bh, bl, fr, ch, cl = list[j], list[j + 1], list[j + 2], list[j + 3], list[j + 4]
			if idx then
				o = 6 * idx[(j + 4) / 5] + 5
			end
			local mh, ml, heal, x = b[o + 1], b[o + 2], of.heals[j], nil
			if heal then
				x = idx and b.x[idx[(j + 4) / 5]] or of.x[j]
				mh, ml = held(b, o + 1, x + 1)
			end
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
			local melts
			if heal then
				local eh, el = grid(heal)
				melts = math.max((eh - nh) * T + (el - nl), (b[x + 1] - nh) * T + (b[x + 2] - nl)) + S
				melts = mh + ml > 0 and melts or 0
			elseif fr then
				melts = ((mh - ch) * T + (ml - cl)) / fr
			else
				melts = covered(of.steps[j], mh - ch, ml - cl)
			end
			if melts > full then
				full = melts
			end
			work[w + 1], work[w + 2], work[w + 3], work[w + 4], work[w + 5], work[w + 6] = o, mh, ml, off, heal, x
			w, o, q = w + 6, o + 6, q + 3
		end
		debits[d + 6] = full
	end
	if wrong then
		answers[#answers + 1] = wrong
	else
		local skew, levels, head = ((nh - h0) * T + (nl - l0)) / 1e6, 3, 1
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
				local o, off, flag, heal, x, took = work[w + 1], work[w + 4], a[q + 2], work[w + 5], work[w + 6], 0
				if allowed then
					local xh, xl = a[q], a[q + 1]
					if xh + xl > 0 and not (off and flag == 2) then
						if heal then
							seize(b, o + 1, x + 1, heal, xh, xl)
							took = 1
						else
							b[o + 1], b[o + 2] = work[w + 2], work[w + 3]
						end
						xh, xl = b[o + 3] + xh, b[o + 4] + xl
						if xl >= T then
							xh, xl = xh + 1, xl - T
						end
						b[o + 3], b[o + 4] = saturated(xh, xl)
					end
				end
				out[levels + 1], out[levels + 2] = b[o + 1], b[o + 2]
				out[levels + 3] = off and (flag == 2 or not allowed) and 1 or 0
				if heal then
					if took == 1 then
						out[levels + 1], out[levels + 2] = work[w + 2], work[w + 3]
					else
						out[levels + 1], out[levels + 2] = held(b, o + 1, x + 1)
					end
					out[levels + 4], out[levels + 5], out[levels + 6] = b[x + 1], b[x + 2], took
					out[levels + 7], out[levels + 8], out[levels + 9] = 1, b[3], 0
					levels = levels + 6
				end
				w, levels = w + 6, levels + 3
			end
			if levels > 6000 then
				answers[#answers + 1] = packed(levels, head)
				levels, head = 0, 0
			end
		end
		answers[#answers + 1] = packed(levels, head)
	end
end
local margin, seconds = tonumber(ARGV[2]), {}
for _, e in ipairs(todo) do
	local b, ttl = e[1], e[7] + margin
	if not e[3] and (e[8] or not b.quick or ttl == math.huge) then
		b.born = not e[4]
		write(e[5], b, e[2], ttl, e[8], e[6])
	elseif ttl == math.huge then -- the key has no expiry
		call('SETRANGE', e[5], '0', pack(e[3], unpack(b, 1, 11 + 6 * b[11])))
	else -- the limits stay unchanged
		local s = ttl < 1e14 and floor(ttl / 1000) + 1 or 1e11
		local text = seconds[s]
		if not text then
			text = string.format('%.0f', s)
			seconds[s] = text
		end
		if e[3] then
			call('SETRANGE', e[5], '0', pack(e[3], unpack(b, 1, 11 + 6 * b[11])))
			call('EXPIRE', e[5], text)
		else
			call('SET', e[5], whole(b, e[2]), 'EX', text)
		end
	end
end
return #answers == 1 and answers[1] or table.concat(answers)
