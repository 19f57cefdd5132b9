package redis

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/batch"
	"github.com/weirlimits/weir/store"
)

// clocks returns the readings of limits' clocks at given times. ARGV alternates between a time and a limit. Each clock is
// computed twice: the way takes are decided, then exactly.
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

// Clocks computes clocks on the server.
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

// Kept returns how long the server still keeps a bucket's key.
func (s *Store) Kept(t testing.TB, b store.Bucket) time.Duration {
	t.Helper()
	c := *s.client.Load()
	ms, err := c.Do(t.Context(), c.B().Pttl().Key(s.Key(b)).Build()).AsInt64()
	if err != nil || ms < 0 {
		t.Fatalf("the life of %v: %d ms, error %v", b, ms, err)
	}
	return time.Duration(ms) * time.Millisecond
}

// Index returns the key of a namespace's index.
func (s *Store) Index(namespace string) string { return s.keys.index(namespace) }

// Where names the server.
func (s *Store) Where() string { return s.where() }

// Expire removes a bucket as if it had expired.
func (s *Store) Expire(ctx context.Context, b store.Bucket) error {
	c := *s.client.Load()
	return c.Do(ctx, c.B().Del().Key(s.Key(b)).Build()).Error()
}

// Pause returns how long a reader waits after a pass.
func (l *Ledger) Pause(every, took time.Duration, now time.Time) time.Duration {
	return l.pause(every, took, now)
}

// Together makes takes in one run of the script.
func (s *Store) Together(takes []store.Take) ([]store.Outcome, []error) {
	var aboard []*waiter
	for i := range takes {
		r := new(waiter)
		for j := range takes[i].Debits {
			p, err := s.at(&takes[i].Debits[j])
			if err != nil {
				panic(err)
			}
			r.add(p, &takes[i].Debits[j])
		}
		aboard = append(aboard, r)
	}
	w := &writer{server: &s.server}
	w.queue = batch.NewQueue(&s.group, w, func(int, int) bool { return false })
	w.queue.Lock()
	for _, r := range aboard {
		w.queue.Add(r)
	}
	w.queue.Unlock()
	w.Write(struct{}{}, aboard)
	outs, errs := make([]store.Outcome, len(takes)), make([]error, len(takes))
	for i, r := range aboard {
		if errs[i] = r.err; r.err == nil {
			outs[i], errs[i] = s.outcome(&takes[i], r.raw)
		}
	}
	return outs, errs
}

// Queue returns how many runs are under way for a namespace, and how many takes wait.
func (s *Store) Queue(namespace string) (runs, waiting int) {
	q := s.queue(namespace)
	q.Lock()
	defer q.Unlock()
	return q.Busy()
}

// Sweep removes the accounts of buckets that are gone.
func (s *Store) Sweep(ctx context.Context, namespace string) error {
	return s.Ledger(store.Retention{}).removeGone(ctx, namespace)
}

// Alone reports whether the takes of a run that got this answer are retried one by one.
func Alone(said string) bool { return alone(replyError(said)) }
