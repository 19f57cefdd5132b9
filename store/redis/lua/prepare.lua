
-- prepare loads a bucket and gives it the limits of a debit. It returns what is wrong, where the slots of the debit's
-- charges are, and the bucket's limits.
local function prepare(b, raw, desc, as)
	load(b, raw)
	local ds, idx = limits(desc, 1), {}
	local wrong = follow(b, ds, as[1], as[2], as[3], as[4])
	for j, d in ipairs(ds) do
		idx[j] = find(b, d.key)
	end
	return wrong, idx, flatten(b)
end
