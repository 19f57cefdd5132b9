-- Commit: KEYS is the hash of epochs. ARGV: the test time, the common part of the catalog's keys; for each write its
-- list, namespace, member, head (expected version, operation, and the expiry as in a record), parent and value. Changes
-- are published: the namespace, its epoch, and the lists and members, each preceded by its length.
begin(ARGV[1])
local base, raised, told = ARGV[2], {}, {}
local writes = (#ARGV - 2) / 6
for i = 0, writes - 1 do
	local list, member = ARGV[6 * i + 3], ARGV[6 * i + 5]
	local want1, want2, what = parse('>I4I4B', ARGV[6 * i + 6])
	local r = live(call('HGET', base .. 'r:' .. list, member))
	local have1, have2 = r and r[1] or 0, r and r[2] or 0
	if have1 ~= want1 or have2 ~= want2 or what == 1 and not r then
		return {'C', i, pack('>I4I4', have1, have2)}
	end
end
for i = 0, writes - 1 do
	local a = 6 * i
	local list, ns, member, parent = ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], ARGV[a + 7]
	local v1, v2, what, has, eh, el = parse('>I4I4BBi4I4', ARGV[a + 6])
	if what ~= 2 then
		local old = call('HGET', base .. 'r:' .. list, member)
		if old then
			drop(base, list, member, old)
		end
		if what == 0 then
			v1, v2 = plus(v1, v2, 0, 1)
			call('HSET', base .. 'r:' .. list, member, pack(RECORD, v1, v2, has, eh, el, #parent) .. parent .. ARGV[a + 8])
			indexes('ZADD', base, list, member, parent)
			if has == 1 then
				call('ZADD', base .. 't', string.format('%.0f', floor((eh * T + el) / 1e6)), list .. '\0' .. member)
			end
		end
		if not raised[ns] then
			raised[ns] = string.format('%.0f', call('HINCRBY', KEYS[1], ns, 1))
			told[ns] = ''
		end
		if sub(list, -6) ~= ':audit' and sub(list, -11) ~= ':audit-head' then
			told[ns] = told[ns] .. pack('>I4', #list) .. list .. pack('>I4', #member) .. member
		end
	end
end
for ns, epoch in pairs(raised) do -- pcall: the account may lack access to the channel
	redis.pcall('PUBLISH', base .. 'c', pack('>I4', #ns) .. ns .. pack('>I4', #epoch) .. epoch .. told[ns])
end
local due = call('ZRANGEBYSCORE', base .. 't', '-inf', string.format('%.0f', floor((nh * T + nl) / 1e6)), 'LIMIT', 0, 8)
for _, entry in ipairs(due) do
	local at = string.find(entry, '\0', 1, true)
	local list, member = sub(entry, 1, at - 1), sub(entry, at + 1)
	local raw = call('HGET', base .. 'r:' .. list, member)
	if raw and not live(raw) then
		drop(base, list, member, raw)
	end
end
return {'A'}
