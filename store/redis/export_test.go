package redis

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/batch"
	"github.com/weirlimits/weir/internal/clock/slots"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis/internal/layout"
	"github.com/weirlimits/weir/store/redis/internal/script"
	"github.com/weirlimits/weir/store/redis/internal/settings"
)

// clocks returns the readings of limits' clocks at given times. ARGV alternates between a time and a limit. Each clock is
// computed twice: the way takes are decided, then exactly, from an estimate that is up to 4 off.
var clocksScript = script.OnBuckets(`
local out = {}
for i = 1, #ARGV, 2 do
	set(parse('>i4I4', ARGV[i]))
	local d = limits(ARGV[i + 1], 1)[1]
	local h, l = reading(d)
	local eh, el = h, l
	if not d.steps then
		eh, el = exact(d[9], d[10], d[11], d[12], plus(h, l, 0, i % 9 - 4))
	end
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
		args = append(args, string(layout.Pair(nil, r.Now)), string(layout.AppendLimit(nil, r.Limit, r.Now)))
	}
	got, err := call(ctx, &s.server, clocksScript, nil, args, asStrings)
	for i := range got {
		rs[i].Fast, rs[i].Exact = layout.Read64(got[i]), layout.Read64(got[i][8:])
	}
	return err
}

// Skew is how far the server's clock may be from true time.
const Skew = layout.Skew

// SlotsOp is an operation on slots of a lease that end at End.
type SlotsOp struct {
	What         string // take, renew or release
	Now, K, Heal int64
	End          int64
	Held         slots.Held
}

// SlotsResult is what an operation leaves.
type SlotsResult struct {
	Held slots.Held
	Ok   bool
}

var slotsScript = script.OnBuckets(`
local out = {}
for i = 1, #ARGV, 2 do
	local a = {parse('>' .. rep('i4I4', 8), ARGV[i + 1])}
	set(a[1], a[2])
	local w, heal, h, l, ok = {unpack(a, 9, 16)}, a[5] * T + a[6], a[3], a[4], true
	if ARGV[i] == 'take' then
		seize(w, 1, 3, heal, h, l)
	elseif ARGV[i] == 'renew' then
		ok = renew(w, 1, 3, heal, h, l, a[7], a[8])
	else
		release(w, 1, 3, h, l, a[7], a[8])
	end
	out[#out + 1] = pack('>' .. rep('i4I4', 4) .. 'B', w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], ok and 1 or 0)
end
return out`)

// Slots makes operations on slots on the server.
func (s *Store) Slots(ctx context.Context, ops []SlotsOp) ([]SlotsResult, error) {
	args := make([]string, 0, 2*len(ops))
	for _, o := range ops {
		var raw []byte
		for _, n := range []int64{o.Now, o.K, o.Heal, o.End, o.Held.Cur, o.Held.End, o.Held.Prev, o.Held.PrevEnd} {
			raw = layout.Pair(raw, n)
		}
		args = append(args, o.What, string(raw))
	}
	got, err := call(ctx, &s.server, slotsScript, nil, args, asStrings)
	all := make([]SlotsResult, len(got))
	for i, raw := range got {
		all[i] = SlotsResult{slots.Held{
			Cur: layout.Read64(raw), End: layout.Read64(raw[8:]), Prev: layout.Read64(raw[16:]), PrevEnd: layout.Read64(raw[24:]),
		}, raw[32] == 1}
	}
	return all, err
}

// LookEvery makes a store look at the server's settings that often.
func (c Config) LookEvery(d time.Duration) Config {
	c.lookEvery = d
	return c
}

// Expect makes the store expect that the server's clock is ahead of the process's.
func (s *Store) Expect(ahead int64) { s.hand.ahead.Store(ahead) }

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
	if ms == -1 {
		return math.MaxInt64
	}
	if err != nil || ms < 0 {
		t.Fatalf("the life of %v: %d ms, error %v", b, ms, err)
	}
	return time.Duration(ms) * time.Millisecond
}

// Harm makes a bucket's key one of another type, or a value that is not weir's, in turn.
func (s *Store) Harm(t testing.TB, b store.Bucket, other bool) {
	t.Helper()
	c, key := *s.client.Load(), s.Key(b)
	err := c.Do(t.Context(), c.B().Del().Key(key).Build()).Error()
	if err == nil && other {
		err = c.Do(t.Context(), c.B().Rpush().Key(key).Element("x").Build()).Error()
	} else if err == nil {
		err = c.Do(t.Context(), c.B().Set().Key(key).Value("x").Build()).Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Index returns the key of a namespace's index.
func (s *Store) Index(namespace string) string { return s.keys.index(namespace) }

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
			p, err := s.at(&takes[i].Debits[j], &moment{now: s.hand.time()})
			if err != nil {
				panic(err)
			}
			r.add(p, &takes[i].Debits[j])
		}
		aboard = append(aboard, r)
	}
	w := &writer{server: &s.server, late: s.giveBack}
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

// SettleTogether makes settles in one run of the script.
func (s *Store) SettleTogether(settles []store.Settle) ([]store.Outcome, []error) {
	w := &settler{server: &s.server}
	w.queue = batch.NewQueue(&s.group, w, func(int, int) bool { return false })
	var aboard []*settling
	w.queue.Lock()
	for i := range settles {
		r, err := s.settling(&settles[i], &moment{now: s.hand.time()})
		if err != nil {
			panic(err)
		}
		w.queue.Add(r)
		aboard = append(aboard, r)
	}
	w.queue.Unlock()
	w.Write(struct{}{}, aboard)
	outs, errs := make([]store.Outcome, len(settles)), make([]error, len(settles))
	for i, r := range aboard {
		if errs[i] = r.err; r.err == nil {
			outs[i], errs[i] = s.settled(&settles[i], r.got)
		}
	}
	return outs, errs
}

// Queue returns how many runs are under way for a namespace, and how many takes wait.
func (s *Store) Queue(namespace string) (runs, waiting int) {
	q := s.lanes(namespace).takes
	q.Lock()
	defer q.Unlock()
	return q.Busy()
}

// Sweep removes the accounts of buckets that are gone.
func (s *Store) Sweep(ctx context.Context, namespace string) error {
	return s.Ledger(store.Retention{}).removeGone(ctx, namespace)
}

// Alone reports whether the takes of a run that got this answer are retried one by one.
func Alone(said string) bool { return alone(settings.ReplyError(said)) }

// Prefix returns what the names of the store's keys begin with.
func (s *Store) Prefix() string { return s.keys.prefix }
