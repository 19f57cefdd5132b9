-- Usage, accounts: KEYS is a hash of accounts. ARGV: their fields.
local out = redis.call('HMGET', KEYS[1], unpack(ARGV))
for i = 1, #ARGV do
	out[i] = out[i] or ''
end
return out
