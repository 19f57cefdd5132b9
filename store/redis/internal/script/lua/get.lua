-- Get: KEYS is the hash of epochs. ARGV: the test time, the common part of the catalog's keys, the namespace, and for
-- each record its list and member.
begin(ARGV[1])
local out = {call('HGET', KEYS[1], ARGV[3]) or '0'}
for i = 4, #ARGV, 2 do
	local raw = call('HGET', ARGV[2] .. 'r:' .. ARGV[i], ARGV[i + 1])
	out[#out + 1] = live(raw) and raw or ''
end
return out
