-- A limit is {length, override, burst, per hour, its fraction, per nanosecond, amount, period}, as in LIMIT; or as in STEPS,
-- with d.steps set. What d.id holds is the same in all windows. A limit of slots is like a rate of 0 in its heal time, which
-- d.heal holds. A slot is {limit, level, debited, returned}, its numbers again as pairs; of a limit of slots, the level is that
-- of the current cohort, and what else is held follows.

-- limits parses limits, at most n if given, and returns where they end.
local function limits(text, p, n)
	local list = {}
	while p <= #text and #list ~= n do
		local d, name = {parse(LIMIT, text, p)}, 52
		d.raw = sub(text, p, p + d[1] - 1)
		d.id = d.raw
		if d[2] > 3 then
			d.heal = d[11] * T + d[12]
		elseif d[2] > 1 then
			d = {raw = d.raw, id = sub(d.raw, 1, 11) .. sub(d.raw, 52), steps = true, parse(STEPS, text, p)}
			name = 53 + d[15]
		end
		d[2] = d[2] % 2
		d.key = d[2] == 1 and 'o' .. d.id or (d.heal and 's' or 'n') .. sub(d.raw, name)
		p = p + d[1]
		list[#list + 1] = d
	end
	return list, p
end

-- known are the limits that step, as the caller sent them, by id. unknown are those of buckets whose windows at the time
-- it did not send: if there are any, it must call again with their windows, and nothing may be written.
local known, unknown, learned = {}, '', {}

-- learn adds to what is known.
local function learn(ds)
	for _, d in ipairs(ds) do
		if d.steps and not learned[d.raw] then
			known[d.id], learned[d.raw] = {d, unpack(known[d.id] or {})}, true
		end
	end
	return ds
end

-- unanswered returns the answer that the caller must call again, if so.
local function unanswered()
	if unknown ~= '' then
		local raws = unknown
		unknown = ''
		return 'W' .. pack('>i4I4I4', nh, nl, #raws) .. raws
	end
end

local function reading(d)
	if d.heal then
		return 0, 0
	elseif not d.steps then
		return clock(d[9], d[10], d[11], d[12], d[5], d[6], d[7], d[8])
	end
	if not within(d) then
		local was = d.raw
		for _, k in ipairs(known[d.id] or {}) do
			if within(k) then
				d.raw, d[5], d[6], d[7], d[8], d[9], d[10] = k.raw, unpack(k, 5, 10)
			end
		end
		unknown = d.raw == was and unknown .. was or unknown
	end
	return d[5], d[6]
end

-- head parses a bucket's head, or creates one at the current time if the bucket does not exist.
local function head(raw, id1, id2)
	if not raw then
		return {1, id1, id2, nh, nl, 0, 0, 0, 0, 0, 0, born = true}
	end
	local b = {parse(HEAD, raw)}
	if b[1] < 1 or b[1] > 3 then
		error({err = 'WEIRFORMAT'})
	end
	return b
end

-- load adds a bucket's slots to its head.
local function load(b, raw)
	b.slots = {}
	if b.born then
		return
	end
	local n = b[11]
	local ds, p = limits(raw, HEADSIZE + 1 + 24 * n, n)
	local s = {parse('>' .. rep(SLOT, n), raw, HEADSIZE + 1)}
	for k = 1, n do
		local o = 6 * k - 6
		local slot = {ds[k], s[o + 1], s[o + 2], s[o + 3], s[o + 4], s[o + 5], s[o + 6]}
		if ds[k].heal then
			slot[8], slot[9], slot[10], slot[11], slot[12], slot[13], p = parse('>' .. SLOT, raw, p)
		end
		b.slots[k] = slot
	end
end

local function find(b, key)
	for k = 1, #b.slots do
		if b.slots[k][1].key == key then
			return k
		end
	end
end

local function balance(d) return d.steps and d[11] + d[12] == 0 end

-- full reports whether a slot carries no information.
local function full(s)
	if s[1].heal then
		local h, l = held(s, 2, 8)
		return h + l == 0
	end
	local h, l = reading(s[1])
	return (s[2] - h) * T + (s[3] - l) <= 0 or balance(s[1]) and s[2] + s[3] == 0
end

-- holds reports whether a slot is a balance that is not 0, or of slots that are held.
local function holds(s)
	return balance(s[1]) and s[2] * T + s[3] ~= 0 or s[1].heal and not full(s)
end

local function fresh(d)
	local h, l = reading(d)
	if balance(d) then
		h, l = 0, 0
	end
	return {d, h, l, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
end

-- restart starts a bucket's counters anew under another id. While it has slots, whose holders know the lower half, only the
-- upper half is another.
local function restart(b, slots, id1, id2)
	if b[1] == 3 then
		id1, id2 = (id1 + id2) % T, b[3]
	end
	b[2], b[3], b[8], b[9] = id1, id2, 0, 0
	for _, s in ipairs(slots) do
		s[4], s[5], s[6], s[7] = 0, 0, 0, 0
	end
end

-- rebase returns a slot's level under other limits of the same name, as clock.Rebase does.
local function rebase(s, d)
	local was = s[1]
	local ch, cl = reading(was)
	local h, l = 0, 0
	if (s[2] - ch) * T + (s[3] - cl) > 0 then
		h, l = plus(s[2], s[3], -ch, -cl)
	end
	if was.steps or d.steps then
		local dh, dl = plus(h, l, -was[3], -was[4])
		if dh < 0 then
			dh, dl = 0, 0
		end
		h, l = plus(h, l, -dh, -dl)
		if balance(d) or (h - d[3]) * T + (l - d[4]) > 0 then
			h, l = d[3], d[4]
		end
		h, l = plus(h, l, dh, dl)
	end
	ch, cl = reading(d)
	return plus(ch, cl, h, l)
end

-- replace puts a debit's own limits in force. Removed limits stay behind them, with what they owe. If there are more
-- than 64, full ones are removed; then, if they have counted something, all counters start anew. It returns L if more than
-- 64 still owe, and K with the name if a balance that is not 0 would become another kind of limit. A seal (see store.Seal) keeps any number of them, because no other limits follow it.
local function replace(b, ds, id1, id2)
	local slots, used = {}, {}
	for _, d in ipairs(ds) do
		if d[2] == 0 then
			local k = find(b, d.key)
			local s = fresh(d)
			if k then
				used[k] = true
				local was = b.slots[k]
				local h, l = was[2], was[3]
				if not d.heal and holds(was) and not balance(d) then
					return 'K' .. sub(d.key, 2)
				elseif not d.heal and was[1].id ~= d.id then
					h, l = rebase(was, d)
				end
				s = {d, h, l, unpack(was, 4, 13)}
			end
			slots[#slots + 1] = s
		end
	end
	local former, counted, seals = 0, false, slots[1][1].key == 'n_default_'
	for k, s in ipairs(b.slots) do
		if not used[k] and s[1][2] == 0 then
			former = former + 1
		end
	end
	for k, s in ipairs(b.slots) do
		if former > 64 and not seals and not used[k] and s[1][2] == 0 and full(s) then
			used[k], former = true, former - 1
			counted = counted or s[4] + s[5] + s[6] + s[7] ~= 0
		end
	end
	if former > 64 and not seals then
		return 'L'
	end
	b[10] = #slots
	for k, s in ipairs(b.slots) do
		if not used[k] then
			slots[#slots + 1] = s
		end
	end
	b.slots = slots
	if counted then
		restart(b, slots, id1, id2)
	end
end

-- override adds slots for overriding limits. Full ones that the debit does not name are removed; if they have counted
-- something, all counters start anew under another id. It returns false if there are too many.
local function override(b, ds, id1, id2)
	local wanted, kept, used, counted = {}, {}, 0, false
	for _, d in ipairs(ds) do
		wanted[d.key] = d
	end
	for _, s in ipairs(b.slots) do
		local keep = true
		if s[1][2] == 1 then
			if not wanted[s[1].key] and full(s) then
				keep = false
				counted = counted or s[4] + s[5] + s[6] + s[7] ~= 0
			else
				used = used + 1
			end
		end
		if keep then
			kept[#kept + 1] = s
		end
	end
	for _, d in ipairs(ds) do
		if d[2] == 1 and not find(b, d.key) then
			used = used + 1
			kept[#kept + 1] = fresh(d)
		end
	end
	if used > 16 then
		return false
	end
	b.slots = kept
	if counted then
		restart(b, kept, id1, id2)
	end
	return true
end

-- follow gives a bucket the limits of a debit, if they are newer and hold at the time, and its overrides. It returns an
-- error letter or nil.
local function follow(b, ds, phase, e1, e2, id1, id2)
	local own, over, same = 0, 0, true
	for _, d in ipairs(ds) do
		local k = find(b, d.key)
		local equal = k and b.slots[k][1].id == d.id
		if equal then
			b.slots[k][1] = d
		end
		if d[2] == 1 then
			over = over + (k and 0 or 1)
		else
			own = own + 1
			same = same and equal and k <= b[10]
		end
	end
	if own > 0 and not (same and own == b[10]) then
		if phase and ((phase[1] - nh) * T + (phase[2] - nl) > 0 or b[10] > 0 and (phase[3] - nh) * T + (phase[4] - nl) <= 0) then
			return 'P' .. pack('>i4I4', nh, nl)
		end
		if b[10] > 0 and (e1 < b[6] or e1 == b[6] and e2 < b[7]) then
			return 'S'
		end
		local wrong = replace(b, ds, id1, id2)
		if wrong then
			return wrong
		end
		b[6], b[7], b.changed = e1, e2, true
	end
	if over > 0 then
		b.changed = true
		if not override(b, ds, id1, id2) then
			return 'O'
		end
	end
end

-- flatten appends a loaded bucket's slots to its head, word by word, and returns its limits. b.held is how many are of slots,
-- and b.x has before which word begins what is held of a slot.
local function flatten(b)
	local ds, x = {}, 11 + 6 * #b.slots
	b[1], b.held, b.x = 1, 0, {}
	for k, slot in ipairs(b.slots) do
		local d = slot[1]
		ds[k] = d.raw
		for w = 2, 7 do
			b[6 * k + 4 + w] = slot[w]
		end
		if d.heal then
			for w = 8, 13 do
				b[x + w - 7] = slot[w]
			end
			b.x[k], b.held, x = x, b.held + 1, x + 6
		end
		if d.heal or d.steps then -- earlier versions of weir do not read it
			b[1] = (d.heal or b[1] == 3) and 3 or 2
		end
	end
	b[11] = #ds
	return table.concat(ds)
end
