-- Forget: KEYS are the buckets. ARGV: for each, the length of the common part of its key. If usage is kept, what the
-- buckets have counted is left for its reader to book.
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
