package redis

import (
	"context"

	"github.com/weirlimits/weir/store"
)

// clocks answers the readings of limits' clocks at times. ARGV: a time and a limit, by turns; first by the way that takes
// are decided, then exactly.
var clocksScript = newScript(writes, luaCommon, luaWrite, luaBucket, `
local out = {}
for i = 1, #ARGV, 2 do
	set(parse('>i4I4', ARGV[i]))
	local d = limits(ARGV[i + 1], 1)[1]
	local h, l = reading(d)
	local eh, el = exact(d[9], d[10], d[11], d[12])
	out[#out + 1] = pack('>i4I4i4I4', h, l, eh, el)
end
return out`)

// Reading is a limit's clock at a time, as the scripts compute it.
type Reading struct {
	Limit       *store.Limit
	Now         int64
	Fast, Exact int64
}

// Clocks has the server compute clocks.
func (s *Store) Clocks(ctx context.Context, rs []Reading) error {
	args := make([]string, 0, 2*len(rs))
	for _, r := range rs {
		limit, err := appendLimit(nil, r.Limit)
		if err != nil {
			return err
		}
		args = append(args, string(pair(nil, r.Now)), string(limit))
	}
	got, err := s.run(ctx, clocksScript, nil, args).AsStrSlice()
	for i := range got {
		rs[i].Fast, rs[i].Exact = read64(got[i]), read64(got[i][8:])
	}
	return err
}

// Key returns the key of a bucket.
func (s *Store) Key(b store.Bucket) string {
	key, _ := s.keys.bucket(b)
	return key
}

// Index returns the key of a namespace's index.
func (s *Store) Index(namespace string) string { return s.keys.index(namespace) }

// Where names the server.
func (s *Store) Where() string { return s.where() }

// Expire makes a bucket go as if its time were up.
func (s *Store) Expire(ctx context.Context, b store.Bucket) error {
	c := *s.client.Load()
	return c.Do(ctx, c.B().Del().Key(s.Key(b)).Build()).Error()
}
