-- Forget: KEYS are the buckets. ARGV: the length of their keys' base, of each. What they have counted is left to who books
-- usage, if anybody does.
for i, key in ipairs(KEYS) do
	local base = tonumber(ARGV[i])
	local head, member, raw = sub(key, 1, base - 1), sub(key, base + 1), call('GET', key)
	if raw and call('EXISTS', head .. 'um') == 1 then
		call('RPUSH', head .. 'ul', pack('>I2', #member) .. member .. raw)
	end
	call('DEL', key)
	call('ZREM', head .. 'i', member)
end
return 1
