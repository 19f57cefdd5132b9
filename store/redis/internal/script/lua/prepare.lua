learn(limits(ARGV[5], 1))
local first1, first2 = parse('>I4I4', ARGV[3])

-- create returns the head of a bucket, and if there is none, of a new one for the debit of a number.
local function create(raw, number) return head(raw, first1, (first2 + number) % T) end

-- prepare loads a bucket and gives it the limits of a debit. It returns an error letter or nil, the slots of the
-- debit's charges, and the bucket's limits.
local function prepare(b, raw, of, from, number)
	load(b, raw)
	local ds, idx = learn(limits(of.desc, 1)), {}
	local was1, was2 = b[2], b[3]
	local e1, e2 = parse('>I4I4', ARGV[4], from)
	local wrong = follow(b, ds, of.phase, e1, e2, first1, (first2 + number) % T)
	if b[2] ~= was1 or b[3] ~= was2 then
		left = left or {}
		local before = left[was1 .. ':' .. was2] -- from an earlier take of the same run
		left[b[2] .. ':' .. b[3]] = {raw, unpack(before or {})}
	end
	for j, d in ipairs(ds) do
		idx[j] = find(b, d.key)
	end
	return unanswered() or wrong, idx, flatten(b)
end
