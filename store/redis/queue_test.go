package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
	"github.com/weirlimits/weir/store/storetest"
)

// Takes that share a run get the same decisions, and leave their buckets in the same state, as if made one after another:
// even if some are refused, bring other limits, or are errors.
func TestTogether(t *testing.T) {
	t.Parallel()
	s, fake := shared(t), storetest.NewClock(clock.Time(1<<58))
	cfg := redis.Config{Address: "redis://" + s.Addr, Now: fake.Now, CallTimeout: time.Minute, Prefix: prefix()}
	ours := open(t, cfg)
	cfg.Prefix = prefix()
	model := open(t, cfg)
	checks := 0
	rapid.Check(t, func(rt *rapid.T) {
		checks++
		g := &group{T: rt, namespace: fmt.Sprint("n", checks)}
		for _, st := range []*redis.Store{ours, model} {
			s.do(t, "SET", st.Key(g.bucket("damaged")), strings.Repeat("\x01", 40))
			s.do(t, "SADD", st.Key(g.bucket("set")), "x")
		}
		for range g.entities() {
			g.limits = append(g.limits, g.draw())
		}
		g.epochs = make([]uint64, len(g.limits))
		for range rapid.IntRange(1, 4).Draw(rt, "runs") {
			fake.Set(clock.Time(1<<58 + rapid.Int64Range(-1e12, 1e12).Draw(rt, "now"))) // may also go back
			takes := make([]store.Take, rapid.IntRange(1, 10).Draw(rt, "takes"))
			for i := range takes {
				takes[i] = g.take()
			}
			got, errs := ours.Together(takes)
			for i, take := range takes {
				want, werr := model.Take(t.Context(), take)
				g.same(i, &take, got[i], want, errs[i], werr)
				g.remember(&take, got[i], want)
			}
			settles, same := g.settles()
			got, errs = ours.SettleTogether(settles)
			for i := range settles {
				want, werr := model.Settle(t.Context(), same[i])
				g.same(i, &store.Take{Debits: settles[i].Debits}, got[i], want, errs[i], werr)
			}
			g.compare(ours, model)
		}
	})
}

// group draws takes of a few buckets.
type group struct {
	*rapid.T
	namespace string
	limits    [][]*store.Limit
	epochs    []uint64
	holds     []held
}

// remember remembers what a take has taken of limits of slots in both stores.
func (g *group) remember(take *store.Take, got, want store.Outcome) {
	for _, d := range take.Debits {
		for range d.Charges {
			if !got.Allowed {
				return
			}
			if l := got.Levels[0]; l.Hold != nil {
				g.holds = append(g.holds, held{d.Bucket, l.Limit.Name, l.Hold, want.Levels[0].Hold})
			}
			got.Levels, want.Levels = got.Levels[1:], want.Levels[1:]
		}
	}
}

// settles draws settles of what was taken, for both stores.
func (g *group) settles() (ours, model []store.Settle) {
	for range rapid.IntRange(1, 10).Draw(g.T, "settles") {
		var a, b store.Settle
		if rapid.IntRange(0, 4).Draw(g.T, "once") == 0 {
			a.ID, a.Expires = rapid.SampledFrom([]string{"x", "y", "z"}).Draw(g.T, "id")+g.namespace, clock.Time(1<<60)
			b.ID, b.Expires = a.ID, a.Expires
		}
		for _, d := range g.take().Debits {
			d.Charges = slices.DeleteFunc(d.Charges, func(c store.Charge) bool { return c.Limit.Override })
			e := d
			e.Charges = nil
			for i := range d.Charges {
				c := &d.Charges[i]
				c.Force, c.Shadow, c.Amount = false, false, rapid.Int64Range(-1500, 500).Draw(g.T, "settled")
				also := *c
				for _, h := range g.holds {
					if h.bucket == d.Bucket && h.name == c.Limit.Name && c.Limit.IsSlots() && rapid.Bool().Draw(g.T, "by hold") {
						c.Hold, also.Hold = h.ours, h.model
					}
				}
				e.Charges = append(e.Charges, also)
			}
			a.Debits, b.Debits = append(a.Debits, d), append(b.Debits, e)
		}
		ours, model = append(ours, a), append(model, b)
	}
	return ours, model
}

func (*group) entities() []string { return []string{"a", "b", "c", "damaged", "set"} }

func (g *group) bucket(entity string) store.Bucket {
	return store.Bucket{Namespace: g.namespace, Entity: entity, Resource: "r"}
}

// draw draws limits that hold a few of the takes' amounts.
func (g *group) draw() (ls []*store.Limit) {
	for _, name := range []string{"rpm", "tpm", "x"}[:rapid.IntRange(1, 3).Draw(g.T, "limits")] {
		burst := rapid.Int64Range(1, 5000).Draw(g.T, "burst")
		if rapid.IntRange(0, 3).Draw(g.T, "kind") == 0 {
			ls = append(ls, store.Slots(name, burst, heal))
			continue
		}
		ls = append(ls, &store.Limit{Name: name, Amount: rapid.Int64Range(1, 5000).Draw(g.T, "amount"), Period: time.Minute, Burst: burst})
	}
	return ls
}

func (g *group) take() store.Take {
	var take store.Take
	most := rapid.SampledFrom([]int{3, 3, 3, 3, 3, 5}).Draw(g.T, "most")
	for i, e := range g.entities()[:most] {
		if rapid.IntRange(0, 2).Draw(g.T, "in") == 0 && (i < most-1 || len(take.Debits) > 0) {
			continue
		}
		if rapid.IntRange(0, 7).Draw(g.T, "changed") == 0 {
			g.limits[i] = g.draw()
			g.epochs[i] += uint64(rapid.IntRange(0, 1).Draw(g.T, "newer"))
		}
		d := store.Debit{Bucket: g.bucket(e), Epoch: g.epochs[i]}
		if g.epochs[i] > 0 && rapid.IntRange(0, 9).Draw(g.T, "stale") == 0 {
			d.Epoch--
		}
		for _, l := range g.limits[i] {
			d.Charges = append(d.Charges, g.charge(l))
		}
		if over := rapid.IntRange(0, 19).Draw(g.T, "overrides"); over < 3 {
			from := rapid.IntRange(0, 1).Draw(g.T, "from") // of both, there are too many
			for k := range []int{1, 3, 16}[over] {
				d.Charges = append(d.Charges, g.charge(&store.Limit{Name: fmt.Sprint("o", 20*from+k), Override: true, Amount: 1000, Period: time.Hour, Burst: 3000}))
			}
		}
		take.Debits = append(take.Debits, d)
	}
	return take
}

func (g *group) charge(l *store.Limit) store.Charge {
	c := store.Charge{Limit: l, Amount: rapid.Int64Range(0, 1500).Draw(g.T, "amount")}
	switch rapid.IntRange(0, 9).Draw(g.T, "flag") {
	case 0:
		c.Force = true
	case 1:
		c.Shadow = true
	case 2:
		c.Force, c.Amount = true, 1<<62+1e18 // overflows
	}
	return c
}

func (g *group) same(i int, take *store.Take, got, want store.Outcome, err, werr error) {
	for _, known := range []error{store.ErrStaleLimits, store.ErrTooManyOverrides, store.ErrOverflow, store.ErrSettled} {
		if errors.Is(err, known) != errors.Is(werr, known) {
			g.Fatalf("take %d %+v: error %v, want %v", i, take, err, werr)
		}
	}
	if (err == nil) != (werr == nil) {
		g.Fatalf("take %d %+v: error %v, want %v", i, take, err, werr)
	}
	if got.Allowed != want.Allowed || !got.At.Equal(want.At) || len(got.Levels) != len(want.Levels) {
		g.Fatalf("take %d %+v: %+v, want %+v", i, take, got, want)
	}
	for j, l := range got.Levels {
		w := want.Levels[j]
		if a, b := l.Hold, w.Hold; (a == nil) != (b == nil) || a != nil && (!a.End.Equal(b.End) || a.Valid != b.Valid) {
			g.Fatalf("take %d %+v: level %d has the hold %+v, want %+v", i, take, j, a, b)
		}
		if *l.Limit != *w.Limit || l.Level != w.Level || l.Refused != w.Refused || l.Left != w.Left {
			g.Fatalf("take %d %+v: level %d is %+v of %+v, want %+v of %+v", i, take, j, l, *l.Limit, w, *w.Limit)
		}
	}
}

func (g *group) compare(ours, model *redis.Store) {
	for _, e := range []string{"a", "b", "c"} {
		got, err := ours.Peek(g.Context(), g.bucket(e))
		want, werr := model.Peek(g.Context(), g.bucket(e))
		if err != nil || werr != nil {
			g.Fatal(err, werr)
		}
		a, b := got.States[0], want.States[0]
		if (a.ID == 0) != (b.ID == 0) || !a.At.Equal(b.At) || a.Epoch != b.Epoch || a.Takes != b.Takes || len(a.Limits) != len(b.Limits) {
			g.Fatalf("bucket %+v, want %+v", a, b)
		}
		for i, l := range a.Limits {
			if w := b.Limits[i]; *l.Limit != *w.Limit || l.Level != w.Level || l.Debited != w.Debited || l.Returned != w.Returned {
				g.Fatalf("bucket %s: %+v of %+v, want %+v of %+v", e, l, *l.Limit, w, *w.Limit)
			}
		}
	}
	a, err := ours.Buckets(g.Context(), store.BucketQuery{Namespace: g.namespace})
	b, werr := model.Buckets(g.Context(), store.BucketQuery{Namespace: g.namespace})
	if err != nil || werr != nil || len(a.States) != len(b.States) {
		g.Fatalf("%d buckets are listed, want %d: %v, %v", len(a.States), len(b.States), err, werr)
	}
}

// If the account may not access the keys of some takes, the others of the run are still decided.
func TestTogetherDenied(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.do(t, "ACL", "SETUSER", "bob", "on", ">pw", "+@all", "&*", "~weir:{_}:*", "~weir:{n}:*")
	st := open(t, redis.Config{Address: "redis://bob:pw@" + s.Addr, CallTimeout: time.Minute})
	mine, other := one("alice", still(10), 1), one("alice", still(10), 1)
	other.Bucket.Namespace = "m"
	takes := []store.Take{{Debits: []store.Debit{mine}}, {Debits: []store.Debit{other}}, {Debits: []store.Debit{mine}}}
	outs, errs := st.Together(takes)
	if !outs[0].Allowed || !outs[2].Allowed || errs[0] != nil || errs[2] != nil || errs[1] == nil {
		t.Errorf("%+v, %v: want the second refused alone", outs, errs)
	}
	if snap, err := st.Peek(t.Context(), mine.Bucket); err != nil || snap.States[0].Takes != 2 {
		t.Errorf("%+v, %v: want 2 takes", snap, err)
	}
}

// callers makes takes of one bucket, each with its own context.
type callers struct {
	wg      sync.WaitGroup
	cancels []context.CancelFunc
	allowed atomic.Int64
	left    atomic.Int64
	other   atomic.Pointer[error]
}

func (c *callers) ask(t *testing.T, st *redis.Store, n int) {
	t.Helper()
	for range n {
		ctx, cancel := context.WithCancel(t.Context())
		c.cancels = append(c.cancels, cancel)
		c.wg.Go(func() {
			out, err := st.Take(ctx, store.Take{Debits: []store.Debit{one("alice", still(1000), 1)}})
			switch {
			case out.Allowed && err == nil:
				c.allowed.Add(1)
			case errors.Is(err, context.Canceled):
				c.left.Add(1)
			default:
				c.other.Store(&err)
			}
		})
	}
}

func (c *callers) cancel(from, to int) {
	for _, f := range c.cancels[from:to] {
		f()
	}
}

func queue(t *testing.T, st *redis.Store, runs, waiting int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d runs are under way, and %d wait", runs, waiting), func() bool {
		r, w := st.Queue("n")
		return r == runs && w == waiting
	})
}

// A caller that leaves while waiting is not debited. A caller that leaves during a run is, and the takes that wait
// for the run get their answers.
func TestCallersLeave(t *testing.T) {
	t.Parallel()
	if stopped == cont {
		t.Skip("processes cannot be stopped here")
	}
	s := start(t)
	st := open(t, redis.Config{Address: "redis://" + s.Addr, CallTimeout: time.Minute, Connections: 1})
	if _, err := take(t, st, one("alice", still(1000), 0)); err != nil { // connects
		t.Fatal(err)
	}
	if err := s.Signal(stopped); err != nil {
		t.Fatal(err)
	}
	var c callers
	c.ask(t, st, 16)
	queue(t, st, 16, 0)
	c.ask(t, st, 24)
	queue(t, st, 16, 24)
	c.cancel(16, 20)
	queue(t, st, 16, 20)
	c.cancel(0, 16)
	eventually(t, "all callers of the runs have left", func() bool { return c.left.Load() == 20 })
	queue(t, st, 16, 20) // the runs go on
	if err := s.Signal(cont); err != nil {
		t.Fatal(err)
	}
	c.wg.Wait()
	if err := c.other.Load(); err != nil {
		t.Fatal(*err)
	}
	if n := c.allowed.Load(); n != 20 {
		t.Errorf("%d were allowed, want 20", n)
	}
	queue(t, st, 0, 0)
	snap, err := st.Peek(t.Context(), one("alice", still(1000), 1).Bucket)
	if err != nil || snap.States[0].Takes != 1+36 || snap.States[0].Limits[0].Debited != 36_000 {
		t.Errorf("%+v, %v: want 36 takes: all but those who left the queue", snap, err)
	}
}

// The time waited in the queue counts towards the call's timeout.
func TestQueueInTime(t *testing.T) {
	t.Parallel()
	if stopped == cont {
		t.Skip("processes cannot be stopped here")
	}
	s := start(t)
	st := open(t, redis.Config{Address: "redis://" + s.Addr, CallTimeout: time.Second})
	if err := s.Signal(stopped); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			_, err := take(t, st, one("alice", still(10), 1))
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer in time") {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
	}
	wg.Wait()
	if err := s.Signal(cont); err != nil {
		t.Fatal(err)
	}
	queue(t, st, 0, 0)
	eventually(t, "it answers again", func() bool { _, err := take(t, st, one("bob", still(10), 1)); return err == nil })
}

// Callers that share runs lose and gain nothing if the server forgets its scripts in between or the store closes.
func TestTogetherForgotten(t *testing.T) {
	t.Parallel()
	s := start(t)
	st := open(t, redis.Config{Address: "redis://" + s.Addr, CallTimeout: time.Minute})
	var c callers
	for range 5 {
		c.ask(t, st, 60)
		s.do(t, "SCRIPT", "FLUSH")
	}
	c.wg.Wait()
	if err := c.other.Load(); err != nil {
		t.Fatal(*err)
	}
	snap, err := st.Peek(t.Context(), one("alice", still(1000), 1).Bucket)
	if err != nil || c.allowed.Load() != 300 || snap.States[0].Takes != 300 {
		t.Fatalf("%d allowed, %+v, %v: want 300", c.allowed.Load(), snap, err)
	}
	c.ask(t, st, 100)
	_ = st.Close()
	c.wg.Wait()
	if err := c.other.Load(); err != nil && !errors.Is(*err, store.ErrClosed) {
		t.Error(*err)
	}
}
