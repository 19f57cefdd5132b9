-- List: KEYS is an index. ARGV: the test time, the hash of the records, the range (from, to), whether to go backwards,
-- how many are wanted, the second id, the parent, and the number of bytes that are enough.
begin(ARGV[1])
local from, to, want, second, parent, enough = ARGV[3], ARGV[4], tonumber(ARGV[6]), ARGV[7], ARGV[8], tonumber(ARGV[9])
local how = ARGV[5] == '1' and 'ZREVRANGEBYLEX' or 'ZRANGEBYLEX'
local out, bytes = {'0'}, 0
repeat
	local found = call(how, KEYS[1], from, to, 'LIMIT', 0, 256)
	for _, member in ipairs(found) do
		if second == '' or sub(member, -#second - 1) == '\0' .. second then
			local raw = call('HGET', ARGV[2], member)
			local r = live(raw)
			if r and (parent == '' or sub(raw, r[7], r[7] + r[6] - 1) == parent) then
				if #out >= 2 * want or bytes > enough then
					out[1] = '1'
					return out
				end
				bytes = bytes + #raw
				out[#out + 1] = member
				out[#out + 1] = raw
			end
		end
	end
	from = #found > 0 and '(' .. found[#found]
until #found < 256
return out
