-- Usage, ended births: KEYS is their list. ARGV: how many.
return redis.call('LRANGE', KEYS[1], 0, ARGV[1] - 1)
