-- Usage, before a namespace is read: KEYS is the flag that its usage is kept. ARGV: the test time, the common part of
-- the namespace's keys, and how long windows are kept. The flag and the accounts expire if no reader has come for as
-- long as set below. It returns the time, and whether there are buckets and ended births.
begin(ARGV[1])
local base = ARGV[2]
call('SET', KEYS[1], ARGV[3], 'PX', 90000000) -- 25 hours
call('PEXPIRE', base .. 'ua', 2592000000) -- 30 days
call('PEXPIRE', base .. 'up', 2592000000)
local seconds = (nh * T + nl) / 1e9 + 1704067200
local hours, days, months = parse('>ddd', ARGV[3])
for letter, keep in pairs({h = hours, d = days, m = months}) do
	if keep > 0 then -- a window ends at most 31 days after its start
		call('ZREMRANGEBYSCORE', base .. 'ut' .. letter, '-inf', string.format('%.0f', floor(seconds - keep / 1000 - 2678400)))
	end
end
return pack('>i4I4', nh, nl) .. (call('EXISTS', base .. 'i') == 1 and '1' or '0') .. (call('EXISTS', base .. 'ul') == 1 and '1' or '0')
