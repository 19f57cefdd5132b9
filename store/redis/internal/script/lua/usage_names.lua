-- Usage, namespaces: KEYS are the set of those with usage, the time at which the last pass over all began, and the set
-- of those where counting has yet to begin. ARGV: the test time, and the namespaces to add; without any, nothing is
-- written. It returns when the last pass began, then each namespace and whether its counting has yet to begin.
begin(ARGV[1])
local last = call('GET', KEYS[2])
for i = 2, #ARGV do
	call('SADD', KEYS[1], ARGV[i])
end
local all, out = call('SMEMBERS', KEYS[1]), {}
if not last and #ARGV > 1 then
	last = pack('>i4I4', nh, nl)
	call('SET', KEYS[2], last, 'PX', 2505600000) -- 29 days
	for _, name in ipairs(all) do
		call('SADD', KEYS[3], name)
	end
end
for i, name in ipairs(all) do
	out[2 * i], out[2 * i + 1] = name, call('SISMEMBER', KEYS[3], name) == 1 and '1' or '0'
end
out[1] = last or ''
return out
