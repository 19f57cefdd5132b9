-- Buckets: KEYS is the index. ARGV: the test time, the common part of the buckets' keys, the range (after, before), how
-- many are wanted, and the resource. It examines some members and returns where it stopped. Expired ones leave the index.
begin(ARGV[1])
local out, after, want = {'', ''}, ARGV[3], tonumber(ARGV[5])
local found = call('ZRANGEBYLEX', KEYS[1], after, ARGV[4], 'LIMIT', 0, 1000)
for i, member in ipairs(found) do
	local resource = ARGV[6]
	if resource == '' or sub(member, -#resource - 1) == '\0' .. resource then
		local raw = call('GET', ARGV[2] .. member)
		if not raw then
			call('ZREM', KEYS[1], member)
		else
			local b = head(raw)
			latest(b[4], b[5])
			out[#out + 1] = member
			out[#out + 1] = raw
		end
	end
	if #out / 2 - 1 >= want or i == 1000 then
		out[2] = member
		break
	end
end
out[1] = pack('>i4I4', nh, nl)
return out
