-- Usage, end of a pass over all namespaces: KEYS is the time at which the last one began. ARGV: when this one began.
-- The key expires before the accounts do.
return redis.call('SET', KEYS[1], ARGV[1], 'PX', 2505600000) -- 29 days
