-- Open: KEYS is the key of the layout's version. ARGV: the version that this version of weir writes.
return redis.call('GET', KEYS[1]) or redis.call('SET', KEYS[1], ARGV[1]) and ARGV[1]
