-- Forget: KEYS are the buckets. ARGV: the test time; for each, the length of the common part of its key, and the id of another
-- birth. If usage is kept, what the buckets have counted is left for its reader to book. Balances that are not 0 stay, as do
-- slots that are held, with the expiry that the bucket has.
begin(ARGV[1])
for i, key in ipairs(KEYS) do
	local base = tonumber(ARGV[2 * i])
	local prefix, member, raw = sub(key, 1, base - 1), sub(key, base + 1), call('GET', key)
	if raw and call('EXISTS', prefix .. 'um') == 1 then
		call('RPUSH', prefix .. 'ul', pack('>I2', #member) .. member .. raw)
	end
	local stay, b, version = {}, nil, raw and sub(raw, 1, 1)
	if version == '\2' or version == '\3' then
		b = head(raw)
		load(b, raw)
		for _, s in ipairs(b.slots) do
			if holds(s) then
				stay[#stay + 1] = s
			end
		end
	end
	if #stay > 0 then
		if (nh - b[4]) * T + (nl - b[5]) > 0 then
			b[4], b[5] = nh, nl
		end
		b.slots, b[10] = stay, 0
		restart(b, stay, parse('>I4I4', ARGV[2 * i + 1]))
		local list = flatten(b)
		write(key, b, list, 0, true, base)
	else
		call('DEL', key)
		call('ZREM', prefix .. 'i', member)
	end
end
return 1
