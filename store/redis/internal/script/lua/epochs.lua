-- Epochs: KEYS is the hash of epochs. ARGV: namespaces. The epoch is 0 if nothing was committed.
local n = {}
for i = 1, #ARGV do
	n[i] = redis.call('HGET', KEYS[1], ARGV[i]) or '0'
end
return n
