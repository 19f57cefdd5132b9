-- Usage, list: KEYS are the starts of one type of window. ARGV: the common part of the namespace's keys, type and
-- subject, first and last start, where to begin in the first start, the range of names in all, how many are wanted, and
-- the second name. It returns where it stopped, and for each window its start, name and figures.
local base, kind, from, lo, hi, want, second = ARGV[1], ARGV[2], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9]
local out, looked = {'', ''}, 0
local starts = call('ZRANGEBYSCORE', KEYS[1], ARGV[3], ARGV[4], 'LIMIT', 0, 64)
for _, start in ipairs(starts) do
	local index = base .. 'ux' .. kind .. start
	if start ~= ARGV[3] or from == '' then
		from = lo
	end
	repeat
		local found = call('ZRANGEBYLEX', index, from, hi, 'LIMIT', 0, 100)
		for _, member in ipairs(found) do
			if second == '' or sub(member, -#second - 1) == '\0' .. second then
				local figures = call('HGETALL', base .. 'uw' .. kind .. start .. ':' .. member)
				if #figures > 0 then
					out[#out + 1] = start
					out[#out + 1] = member
					out[#out + 1] = figures
				end
			end
			looked = looked + 1
			if #out >= 2 + 3 * want or looked >= 200 then
				out[1], out[2] = start, '(' .. member
				return out
			end
		end
		from = #found > 0 and '(' .. found[#found]
	until #found < 100
end
if #starts == 64 then
	out[1] = string.format('%.0f', starts[64] + 1)
end
return out
