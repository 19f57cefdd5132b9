-- Usage, the end of a pass over all namespaces: KEYS says when the last one began. ARGV: when this one began. It goes before
-- the accounts do.
return redis.call('SET', KEYS[1], ARGV[1], 'PX', 2505600000) -- 29 days
