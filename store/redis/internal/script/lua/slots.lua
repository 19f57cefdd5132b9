-- Limits of slots: see package slots. What is held of one is in a list of words: the current slots at o and o + 1, and from x
-- on their end, the previous slots, and the end of those. A bucket is never judged before its last write, so that no end is
-- further ahead than a clock of the server has been.
local S = 2e9 -- ns: see layout.Skew

-- count returns how many slots are held: current and previous ones.
local function count(w, o, x)
	local ch, cl, ph, pl = w[o], w[o + 1], w[x + 2], w[x + 3]
	if (w[x] - nh) * T + (w[x + 1] - nl) <= -S then
		ch, cl = 0, 0
	end
	if (w[x + 4] - nh) * T + (w[x + 5] - nl) <= -S then
		ph, pl = 0, 0
	end
	return ch, cl, ph, pl
end

local function held(w, o, x)
	local ch, cl, ph, pl = count(w, o, x)
	return plus(ch, cl, ph, pl)
end

-- grid returns the end of what is taken now. No product exceeds 1600 hours, which is exact.
local gridHeal, gridH, gridL, gridEndH, gridEndL -- the last call, and its result
local function grid(heal)
	if heal == gridHeal and nl == gridL and nh == gridH then
		return gridEndH, gridEndL
	end
	local mod, hour = math.fmod, math.fmod(HOUR, heal)
	local many = floor(H / 1600)
	local r = mod(mod(mod(many * hour, heal) * 1600, heal) + mod((H - many * 1600) * hour, heal) + t - S, heal)
	if r < 0 then
		r = r + heal
	end
	r = 2 * heal - S - r
	local c = floor(r / T)
	gridHeal, gridH, gridL = heal, nh, nl
	gridEndH, gridEndL = plus(nh, nl, c, r - c * T)
	return gridEndH, gridEndL
end

-- lasts returns for how many ns what is held lasts at most, once something is taken now.
local function lasts(w, x, heal)
	local eh, el = grid(heal)
	return math.max((eh - nh) * T + (el - nl), (w[x] - nh) * T + (w[x + 1] - nl)) + S
end

-- shift makes the cohort current that is taken from now.
local function shift(w, o, x, heal)
	local ch, cl, ph, pl = count(w, o, x)
	local eh, el = grid(heal)
	if (eh - w[x]) * T + (el - w[x + 1]) > 0 then
		ph, pl = plus(ch, cl, ph, pl)
		w[x + 4], w[x + 5], w[x], w[x + 1], ch, cl = w[x], w[x + 1], eh, el, 0, 0
	end
	w[o], w[o + 1], w[x + 2], w[x + 3] = ch, cl, ph, pl
end

-- seize takes slots, whether they are free or not.
local function seize(w, o, x, heal, h, l)
	local eh, el = grid(heal)
	if eh ~= w[x] or el ~= w[x + 1] or w[x + 2] + w[x + 3] > 0 then -- otherwise there is only the current cohort
		shift(w, o, x, heal)
	end
	w[o], w[o + 1] = plus(w[o], w[o + 1], h, l)
end

-- gone reports whether the cohort of an end may have been dead by another clock.
local function gone(w, x, eh, el)
	return (eh - nh) * T + (el - nl) <= S or (eh - w[x]) * T + (el - w[x + 1]) > 0
end

-- previous takes up to so many slots out of the previous cohort, if the end is not the current one. It returns how many.
local function previous(w, x, h, l, eh, el)
	if eh == w[x] and el == w[x + 1] then
		return 0, 0
	elseif (h - w[x + 2]) * T + (l - w[x + 3]) > 0 then
		h, l = w[x + 2], w[x + 3]
	end
	w[x + 2], w[x + 3] = plus(w[x + 2], w[x + 3], -h, -l)
	return h, l
end

-- renew returns false if the slots do not count any more.
local function renew(w, o, x, heal, h, l, eh, el)
	if gone(w, x, eh, el) then
		return false
	end
	shift(w, o, x, heal)
	h, l = previous(w, x, h, l, eh, el)
	w[o], w[o + 1] = plus(w[o], w[o + 1], h, l)
	return true
end

-- release returns how many fewer are held.
local function release(w, o, x, h, l, eh, el)
	if gone(w, x, eh, el) then
		return 0, 0
	end
	w[o], w[o + 1], w[x + 2], w[x + 3] = count(w, o, x)
	local ph, pl = previous(w, x, h, l, eh, el)
	if ph + pl > 0 then
		h, l = plus(h, l, -ph, -pl)
	end
	if (h - w[o]) * T + (l - w[o + 1]) > 0 then
		h, l = w[o], w[o + 1]
	end
	w[o], w[o + 1] = plus(w[o], w[o + 1], -h, -l)
	return plus(h, l, ph, pl)
end

-- byHold renews slots of a birth that end at eh, el, or gives them back, which is counted at r. It returns when renewed ones end,
-- or 0.
local function byHold(b, w, o, x, r, heal, h, l, eh, el, birth1, birth2)
	local known = birth1 == 1 and birth2 == b[3]
	if positive(h, l) then
		if known and renew(w, o, x, heal, h, l, eh, el) then
			return w[x], w[x + 1]
		end
	elseif known then
		h, l = plus(0, 0, -h, -l)
		h, l = release(w, o, x, h, l, eh, el)
		w[r], w[r + 1] = plus(w[r], w[r + 1], h, l)
	end
	return 0, 0
end
