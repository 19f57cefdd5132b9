-- Forget: KEYS are the buckets. ARGV: the length of their keys' base, of each.
for i, key in ipairs(KEYS) do
	local base = tonumber(ARGV[i])
	call('DEL', key)
	call('ZREM', sub(key, 1, base - 1) .. 'i', sub(key, base + 1))
end
return 1
