-- A limit is {length, override, burst, per hour, its fraction, per nanosecond, amount, period}, as in LIMIT. A slot is
-- {limit, level, debited, returned}, its numbers again as pairs.
local function limits(text, p)
	local list = {}
	while p <= #text do
		local d = {parse(LIMIT, text, p)}
		d.raw = sub(text, p, p + d[1] - 1)
		d.key = d[2] == 1 and 'o' .. d.raw or 'n' .. sub(d.raw, 52)
		p = p + d[1]
		list[#list + 1] = d
	end
	return list
end

local function reading(d) return clock(d[9], d[10], d[11], d[12], d[5], d[6], d[7], d[8]) end

-- head parses a bucket's head, or creates one at the current time if the bucket does not exist.
local function head(raw, id1, id2)
	if not raw then
		return {1, id1, id2, nh, nl, 0, 0, 0, 0, 0, 0, born = true}
	end
	local b = {parse(HEAD, raw)}
	if b[1] ~= 1 then
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
	local ds = limits(raw, HEADSIZE + 1 + 24 * n)
	local s = {parse('>' .. rep(SLOT, n), raw, HEADSIZE + 1)}
	for k = 1, n do
		local o = 6 * k - 6
		b.slots[k] = {ds[k], s[o + 1], s[o + 2], s[o + 3], s[o + 4], s[o + 5], s[o + 6]}
	end
end

local function find(b, key)
	for k = 1, #b.slots do
		if b.slots[k][1].key == key then
			return k
		end
	end
end

local function fresh(d)
	local h, l = reading(d)
	return {d, h, l, 0, 0, 0, 0}
end

-- replace puts a debit's own limits in force. Removed limits stay behind them, with what they owe.
local function replace(b, ds)
	local slots, used = {}, {}
	for _, d in ipairs(ds) do
		if d[2] == 0 then
			local k = find(b, d.key)
			local s = fresh(d)
			if k then
				used[k] = true
				local was = b.slots[k]
				local h, l = was[2], was[3]
				if was[1].raw ~= d.raw then
					local ch, cl = reading(was[1])
					local oh, ol = 0, 0
					if (h - ch) * T + (l - cl) > 0 then
						oh, ol = h - ch, l - cl
					end
					h, l = plus(s[2], s[3], oh, ol)
				end
				s = {d, h, l, was[4], was[5], was[6], was[7]}
			end
			slots[#slots + 1] = s
		end
	end
	b[10] = #slots
	for k, s in ipairs(b.slots) do
		if not used[k] then
			slots[#slots + 1] = s
		end
	end
	b.slots = slots
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
			local ch, cl = reading(s[1])
			if not wanted[s[1].key] and (s[2] - ch) * T + (s[3] - cl) <= 0 then
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
		b[2], b[3], b[8], b[9] = id1, id2, 0, 0
		for _, s in ipairs(kept) do
			s[4], s[5], s[6], s[7] = 0, 0, 0, 0
		end
	end
	return true
end

-- follow gives a bucket the limits of a debit, if they are newer, and its overrides. It returns an error letter or nil.
local function follow(b, ds, e1, e2, id1, id2)
	local own, over, same = 0, 0, true
	for _, d in ipairs(ds) do
		local k = find(b, d.key)
		if d[2] == 1 then
			over = over + (k and 0 or 1)
		else
			own = own + 1
			same = same and k and k <= b[10] and b.slots[k][1].raw == d.raw
		end
	end
	if own > 0 and not (same and own == b[10]) then
		if b[10] > 0 and (e1 < b[6] or e1 == b[6] and e2 < b[7]) then
			return 'S'
		end
		replace(b, ds)
		b[6], b[7], b.changed = e1, e2, true
	end
	if over > 0 then
		b.changed = true
		if not override(b, ds, id1, id2) then
			return 'O'
		end
	end
end

-- flatten appends a loaded bucket's slots to its head, word by word, and returns its limits.
local function flatten(b)
	local ds = {}
	for k, slot in ipairs(b.slots) do
		ds[k] = slot[1].raw
		for w = 2, 7 do
			b[6 * k + 4 + w] = slot[w]
		end
	end
	b[11] = #ds
	return table.concat(ds)
end
