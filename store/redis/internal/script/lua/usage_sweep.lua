-- Usage, accounts of buckets and processes that are gone: KEYS is a hash of accounts. ARGV: the test time, the prefix
-- of bucket keys or '', where to continue, and for how many minutes accounts are kept. It returns where it stopped.
begin(ARGV[1])
if ARGV[2] ~= '' and call('EXISTS', sub(ARGV[2], 1, -2) .. 'ul') == 1 then
	return '0' -- without the account, ended births would be booked again from the start
end
local before = floor((nh * T + nl) / 6e10) + 28401120 - ARGV[4]
local got = call('HSCAN', KEYS[1], ARGV[3], 'COUNT', 100)
for i = 1, #got[2], 2 do
	local member, account = got[2][i], got[2][i + 1]
	if #account >= 4 and parse('>I4', account) < before and (ARGV[2] == '' or call('EXISTS', ARGV[2] .. member) == 0) then
		call('HDEL', KEYS[1], member)
	end
end
return got[1]
