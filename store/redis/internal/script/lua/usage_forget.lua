-- Usage, forget: KEYS are the starts of one type of window. ARGV: the common part of the namespace's keys, the type's letter,
-- the subjects, the first start, and how many windows to examine. It returns the start to continue with, '' at the end.
local left = tonumber(ARGV[5])
local starts = call('ZRANGEBYSCORE', KEYS[1], ARGV[4], '+inf', 'LIMIT', 0, 64)
for _, start in ipairs(starts) do
	for i = 1, #ARGV[3] do
		local kind = ARGV[2] .. sub(ARGV[3], i, i) .. start
		local index = ARGV[1] .. 'ux' .. kind
		local found = call('ZRANGE', index, 0, left - 1)
		for _, member in ipairs(found) do
			call('UNLINK', ARGV[1] .. 'uw' .. kind .. ':' .. member)
			call('ZREM', index, member)
		end
		left = left - #found
		if left <= 0 then
			return start
		end
	end
end
return #starts == 64 and string.format('%.0f', starts[64] + 1) or ''
