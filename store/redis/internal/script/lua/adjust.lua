-- Adjust: any settle, however long it takes. See quick in settle.lua.
learn(limits(ARGV[3], 1))

-- owable returns how much of a debit brings a limit at most so far into debt, and notes in b.left what it leaves out.
local function owable(b, d, lh, ll, ch, cl, h, l, mh, ml)
	local rh, rl = plus(d[3], d[4], ch - lh, cl - ll)
	rh, rl = plus(rh, rl, mh, ml)
	if rh < 0 then
		rh, rl = 0, 0
	end
	local xh, xl = plus(h, l, -rh, -rl)
	if not positive(xh, xl) then
		xh, xl, rh, rl = 0, 0, h, l
	end
	b.left = (b.left or '') .. pack('>i4I4', xh, xl)
	return rh, rl
end

-- ends notes in b.left when something ends that was taken or renewed, or 0.
local function ends(b, h, l) b.left = (b.left or '') .. pack('>i4I4', h, l) end

-- returned returns how much of a return, which is negative, is given back.
local function returned(b, k, d, h, l, rule, mh, ml)
	local c, s = b.c, b.slots[k]
	if (s[1].steps or d.steps) and s[1].id ~= d.id then
		return 0, 0 -- only a rate takes back what was debited on other parameters
	elseif rule == 0 then
		return h, l
	end
	local ch, cl = reading(s[1])
	if rule == 3 then
		local dh, dl = plus(s[2], s[3], -ch, -cl)
		dh, dl = plus(dh, dl, -s[1][3], -s[1][4])
		if not positive(dh, dl) then
			return 0, 0
		elseif positive(plus(dh, dl, h, l)) then
			return h, l
		end
		return plus(0, 0, -dh, -dl)
	elseif rule == 2 or s[1].id ~= d.id or d[2] == 0 and (k > b[10] or b[6] > c[1] or b[6] == c[1] and b[7] > c[2]) then
		return 0, 0
	end
	local dh, dl = plus(ch, cl, -mh, -ml)
	if positive(dh, dl) then
		h, l = plus(h, l, dh, dl)
	end
	if h >= 0 then
		return 0, 0
	end
	return h, l
end

-- adjust applies a settle of the buckets whose values are in raws, with the given debits. It returns what to write of each, or a
-- letter.
local function adjust(raws, n, debits)
	local parts = {}
	unknown = ''
	for i = 1, n do
		local desc, at, count = unpack(debits[i])
		local c = {parse('>I4I4I4I4I2', ARGV[4], at)}
		local b = head(raws[i], c[3], c[4])
		b.c = c
		local as = {parse('>' .. rep('i4I4Bi4I4I4I4', count), ARGV[4], at + 18)}
		local forced = false
		for j = 1, 7 * count, 7 do
			forced = forced or as[j + 2] ~= 4 and positive(as[j], as[j + 1]) or as[j + 2] >= 8
		end
		if raws[i] or forced then
			load(b, raws[i])
			for j, d in ipairs(learn(limits(desc, 1))) do
				j = 7 * j - 6
				local h, l, rule, k = as[j], as[j + 1], as[j + 2], find(b, d.key)
				local more = positive(h, l)
				if not k and (more and rule ~= 4 or rule >= 8) then
					k = #b.slots + 1
					b.slots[k] = fresh(d)
				end
				local s = b.slots[k or 0]
				if rule == 4 then
					local eh, el = 0, 0
					if s then
						eh, el = byHold(b, s, 2, 8, 6, s[1].heal, h, l, unpack(as, j + 3, j + 6))
					end
					if more then
						ends(b, eh, el)
					end
				elseif s and more then
					local ch, cl = reading(s[1])
					local lh, ll = s[2], s[3]
					if d.heal then
						lh, ll = held(s, 2, 8)
					elseif (lh - ch) * T + (ll - cl) < 0 then
						lh, ll = ch, cl
					end
					if rule == 1 then
						h, l = owable(b, s[1], lh, ll, ch, cl, h, l, as[j + 3], as[j + 4])
					end
					if (lh + h - 1306572467) * T + (ll + l - 2808348672) > 0 then
						return unanswered() or 'F'
					end
					if not d.heal then
						s[2], s[3] = plus(lh, ll, h, l)
					elseif positive(h, l) then
						seize(s, 2, 8, s[1].heal, h, l)
						ends(b, s[8], s[9])
					else
						ends(b, 0, 0)
					end
					s[4], s[5] = plus(s[4], s[5], h, l)
				elseif s and not d.heal and h < 0 then
					h, l = returned(b, k or #b.slots, d, h, l, rule % 8, as[j + 3], as[j + 4])
					s[2], s[3] = plus(s[2], s[3], h, l)
					s[6], s[7] = plus(s[6], s[7], -h, -l)
				end
			end
			parts[i] = b
		end
	end
	for i, b in pairs(parts) do
		b.full = 0
		for _, s in ipairs(b.slots) do
			local ch, cl = reading(s[1])
			local m
			if s[1].heal then
				m = full(s) and 0 or (s[8] - nh) * T + (s[9] - nl) + S
			elseif s[1].steps then
				m = covered(s[1], s[2] - ch, s[3] - cl)
			else
				m = ((s[2] - ch) * T + (s[3] - cl)) / s[1][8]
			end
			if m > b.full then
				b.full = m
			end
		end
		b.text = flatten(b)
	end
	return unanswered() or parts
end
