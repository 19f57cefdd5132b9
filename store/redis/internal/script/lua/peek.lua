-- Peek: KEYS are the buckets. ARGV: the test time.
begin(ARGV[1])
local out = {''}
for i, key in ipairs(KEYS) do
	local raw = call('GET', key)
	if raw then
		local b = head(raw)
		latest(b[4], b[5])
	end
	out[i + 1] = raw or ''
end
out[1] = pack('>i4I4', nh, nl)
return out
