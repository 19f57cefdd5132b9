-- Take: a run of concurrent takes, each judged in its turn as if it had come alone; each bucket is read once and written
-- once. KEYS are the buckets of all debits. ARGV: the test time, the margin of expiry in ms, the id of the first birth,
-- the debits, further limits whose windows are known, and the limits that the debits name. A debit is its epoch, the length
-- of the common part of its key, amount and flags of each charge, and what follows: 0 a debit of the same take, 1 the end of the
-- take; then the number of the next debit's limits. The first debit has the first limits. Limits that begin or end are preceded
-- by a length of 0 and when they do. The answer to a take is A or R, the time, and the levels; or a letter for what is wrong,
-- after E with the reason. W is followed by the time, at which a quota is in another window than the caller sent, and limits
-- whose windows it did not send; K by the number of the debit and the name of a balance; P by the time, at which the limits of a
-- debit do not hold. The level of a limit of slots is followed by the end of the current cohort, and whether something was
-- taken; then by the birth of what is held.
--
-- Lists that every run fills are created with the length that one debit of one limit needs: they need not grow then.
local KEYS, ARGV, find, all, huge = KEYS, ARGV, string.find, ARGV[4], math.huge
begin(ARGV[1])
local H0, t0, h0, l0 = H, t, nh, nl
local plans = {nil}

-- plan parses limits. list holds for each its burst, its rate per nanosecond, and its clock at the time h, l; then false or, of
-- a limit that steps, itself: it has no rate, and wrong is set if the time is outside of its window. A limit of slots has its
-- heal time in place of a rate, and last which of those it is.
local function plan(k)
	local desc, p, n, list, held, wrong, phase = ARGV[5 + k], 1, 0, {nil, nil, nil, nil, nil, nil}, 0, nil, nil
	if sub(desc, 1, 2) == '\0\0' then
		phase, desc = {parse('>i4I4i4I4', desc, 3)}, sub(desc, 19)
	end
	while p <= #desc do
		local size, flags, bh, bl, Ah, Al, fa, fr, ah, al, ph, pl = parse(LIMIT, desc, p)
		local ch, cl, kind = 0, 0, false
		if flags > 3 then
			held, fr = held + 1, ph * T + pl
			kind = held
		elseif flags > 1 then
			kind = {parse(STEPS, desc, p)}
			fr, ch, cl = false, kind[5], kind[6]
			if not special().within(kind) then
				wrong = 'W' .. pack('>i4I4I4', nh, nl, 0)
			end
		else
			ch, cl = clock(ah, al, ph, pl, Ah, Al, fa, fr)
		end
		list[n + 1], list[n + 2], list[n + 3], list[n + 4], list[n + 5], list[n + 6] = bh, bl, fr, ch, cl, kind
		n, p = n + 6, p + size
	end
	n = n / 6
	local of = {k = k, desc = desc, count = n, list = list, h = nh, l = nl,
		words = n == 1 and '>BI4I4i4I4I4I4I4I4I2I2i4I4i4I4i4I4' or HEAD .. rep(SLOT, n)}
	if held > 0 then
		of.words, of.held = of.words .. rep('x', #desc) .. rep(SLOT, held), held
	end
	if phase or wrong then
		of.phase, of.wrong = phase, wrong
	end
	plans[k] = of
	return of
end

-- at holds buckets by key: words, limits, format of what a take changes unless the bucket must be written whole, value read,
-- key, where its first debit begins, remaining life, and whether the existing key may live longer. debits holds the debits of
-- one take: bucket, its words as the take would change them, limits, where it begins; in the unusual case the positions of the
-- slots and the bucket's limits; and when it is full. work holds the charges: before which word the bucket has the limit, its
-- level after the charge, whether that is too high, the heal time of slots and where the bucket has what is held, the amount,
-- and the flag.
local at, todo, answers = {}, {nil}, {nil, nil}
local debits, work = {nil, nil, nil, nil, nil, nil, nil}, {nil, nil, nil, nil, nil, nil, nil, nil, nil}
local i, k, p, n = 0, 1, 1, #KEYS
while i < n do
	local m, wrong, last = 0, nil, nil
	H, t, nh, nl = H0, t0, h0, l0
	repeat
		i = i + 1
		local key, of = KEYS[i], plans[k] or plan(k)
		local e, from = at[key], p
		last, k, p = parse('>BI2', all, p + 10 + 9 * of.count)
		if not e then
			local raw, desc, begins, m = redis.pcall('GET', key), of.desc, HEADSIZE + 1 + 24 * of.count, of.held
			e = {nil, nil, nil, raw, key, from, nil, nil}
			at[key] = e
			if raw and #raw == begins - 1 + #desc + 24 * (m or 0) and find(raw, desc, begins, true) == begins then
				local b = {parse(of.words, raw)}
				if m and b[1] == 3 and b[11] == of.count then
					e[1], e[2], b.held, b.quick = b, desc, m, true
				elseif (b[1] == 1 or b[1] == 2) and b[11] == of.count then
					e[1], e[2], e[3] = b, desc, b[11] == 1 and '>i4I4I4I4I4I4I2I2i4I4i4I4' or '>' .. sub(of.words, 7, -5)
				end
			end
		end
		local b, idx = e[1], false
		if not b or e[2] ~= of.desc or b[10] ~= of.count or b[11] ~= of.count then
			local ok
			idx = e[4]
			if b then
				idx = special().whole(b, e[2])
			end
			if type(idx) == 'table' then
				wrong = special().unread(idx)
			else
				ok, b = pcall(special().slow().create, idx, i)
				if not ok then
					wrong = special().unread(b)
				end
			end
			idx = idx or ''
		end
		debits[m + 1], debits[m + 2], debits[m + 3], debits[m + 4], debits[m + 5] = e, b, of, from, idx
		m = m + 7
		if not wrong and (b[4] - nh) * T + (b[5] - nl) > 0 then
			set(b[4], b[5])
		end
	until last ~= 0
	local allowed, w = true, 0
	for d = 1, m, 7 do
		local b, of, q, idx = debits[d + 1], debits[d + 2], debits[d + 3], debits[d + 4]
		if of.h ~= nh or of.l ~= nl then
			of = plan(of.k)
		end
		wrong = wrong or of.wrong
		if idx and not wrong then
			local ok, bad
			ok, bad, idx, debits[d + 5] = pcall(special().slow().prepare, b, idx, of, q, i - (m - d - 6) / 7)
			debits[d + 4], wrong = idx, not ok and special().unread(bad) or bad
			if wrong and find(wrong, '^K') then
				wrong = 'K' .. pack('>I2I2', #wrong + 1, (d - 1) / 7) .. sub(wrong, 2)
			end
		end
		if wrong then
			break
		end
		local list, full, o = of.list, 0, 11
		for j = 1, 6 * of.count, 6 do
			local bh, bl, fr, ch, cl, kind = list[j], list[j + 1], list[j + 2], list[j + 3], list[j + 4], list[j + 5]
			if idx then
				o = 6 * idx[(j + 5) / 6] + 5
			end
			local mh, ml, heal, x = b[o + 1], b[o + 2], kind and fr, nil
			if heal then
				x = idx and b.x[idx[(j + 5) / 6]] or 5 + 6 * (of.count + kind)
				mh, ml = special().held(b, o + 1, x + 1)
			end
			if (mh - ch) * T + (ml - cl) < 0 then
				mh, ml = ch, cl
			end
			local xh, xl, flag = parse('>I4I4B', all, q + 10)
			local off = false
			mh, ml = mh + xh, ml + xl
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
				melts = mh + ml > 0 and special().lasts(b, x + 1, heal) or 0
			elseif fr then
				melts = ((mh - ch) * T + (ml - cl)) / fr
			else
				melts = special().covered(kind, mh - ch, ml - cl)
			end
			if melts > full then
				full = melts
			end
			work[w + 1], work[w + 2], work[w + 3], work[w + 4], work[w + 5], work[w + 6] = o, mh, ml, off, heal, x
			work[w + 7], work[w + 8], work[w + 9] = xh, xl, flag
			w, o, q = w + 9, o + 6, q + 9
		end
		debits[d + 6] = full
	end
	if wrong then
		answers[#answers + 1] = wrong
	else
		local skew = ((nh - h0) * T + (nl - l0)) / 1e6
		answers[#answers + 1], w = pack('>Bi4I4', allowed and 65 or 82, nh, nl), 0
		for d = 1, m, 7 do
			local b, of, idx = debits[d + 1], debits[d + 2], debits[d + 4]
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
			for _ = 1, of.count do
				local o, off, heal, x = work[w + 1], work[w + 4], work[w + 5], work[w + 6]
				local xh, xl, flag, took = work[w + 7], work[w + 8], work[w + 9], 0
				if allowed then
					if xh + xl > 0 and not (off and flag == 2) then
						if heal then
							special().seize(b, o + 1, x + 1, heal, xh, xl)
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
				local mh, ml = b[o + 1], b[o + 2]
				if took == 1 then
					mh, ml = work[w + 2], work[w + 3]
				elseif heal then
					mh, ml = special().held(b, o + 1, x + 1)
				end
				answers[#answers + 1] = pack('>i4I4B', mh, ml, off and (flag == 2 or not allowed) and 1 or 0)
				if heal then
					answers[#answers + 1] = pack('>i4I4BI4I4B', b[x + 1], b[x + 2], took, 1, b[3], 0)
				end
				w = w + 9
			end
		end
	end
end
local margin, seconds, text = tonumber(ARGV[2]), nil, nil
for k = 1, #todo do
	local e = todo[k]
	local b, ttl = e[1], e[7] + margin
	if not e[3] and (e[8] or not b.quick or ttl == huge) then
		b.born = not e[4]
		special().write(e[5], b, e[2], ttl, e[8], parse('>I2', all, e[6] + 8))
	elseif ttl == huge then -- the key has no expiry
		call('SETRANGE', e[5], '9', pack(e[3], unpack(b, 4, 9 + 6 * b[11])))
	else -- the limits stay unchanged
		local s = ttl < 1e14 and floor(ttl / 1000) + 1 or 1e11
		if s ~= seconds then
			seconds, text = s, string.format('%d', s)
		end
		if e[3] then
			call('SETRANGE', e[5], '9', pack(e[3], unpack(b, 4, 9 + 6 * b[11])))
			call('EXPIRE', e[5], text)
		else
			call('SET', e[5], special().whole(b, e[2]), 'EX', text)
		end
	end
end
return table.concat(answers)
