-- Usage, lease: KEYS is the current reader. ARGV: the reader that wants the lease, and for how many ms; 0 gives it up.
local who = redis.call('GET', KEYS[1])
if who and who ~= ARGV[1] then
	return 0
end
if ARGV[2] == '0' then
	redis.call('DEL', KEYS[1])
else
	redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 1
