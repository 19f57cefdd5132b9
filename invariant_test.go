package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store/memory"
)

// I1 under concurrency: 1,000 goroutines acquire, adjust, roll back and hold on two children of one parent while the
// clock is advanced by hand. The tokens kept never exceed what burst and clock allow, and the final total is exact.
func TestNeverOverAdmits(t *testing.T) {
	t.Parallel()
	const burst, perSecond, seconds = 3_000, 1_000, 8
	patient := func(c *weir.Config) { c.StoreTimeout = time.Minute } // even if the machine is busy
	b := setup(t, patient)
	b.child("parent", "")
	children := []string{"a", "b"}
	b.child("a", "parent")
	b.child("b", "parent")
	b.set("", "", weir.PerSecond("n", 1_000_000))
	b.set("parent", "", weir.PerSecond("n", perSecond).WithBurst(burst))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	peers := []*bundle{b, b.peer(patient)}

	var kept [2]atomic.Int64 // admitted and not returned, by child
	var refused atomic.Int64
	var wg sync.WaitGroup
	for g := range 1000 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(g)))
			child, lim := g%2, peers[g/2%2]
			for range 10 {
				n := 1 + r.Int64N(20)
				lease, err := lim.Acquire(b.ctx, ask(children[child], "api", weir.Tokens{"n": n}))
				if errors.Is(err, weir.ErrExceeded) {
					refused.Add(1)
					continue
				}
				must(t, err)
				switch r.IntN(5) {
				case 0:
					must(t, lease.Rollback(b.ctx))
					n = 0
				case 1:
					down := r.Int64N(n + 1)
					must(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"n": -down})))
					n -= down
				case 2:
					h := lease.Token(fmt.Sprint(g, "/", r.Uint64()), noon.Add(time.Hour))
					for _, x := range peers { // one of them is first
						l, err := x.LeaseFromToken(b.ctx, h)
						must(t, err)
						if err := l.Rollback(b.ctx); err != nil {
							wantErr(t, err, weir.ErrSettled)
						}
					}
					n = 0
				default:
					must(t, lease.Commit(b.ctx))
				}
				kept[child].Add(n)
			}
		})
	}
	wg.Go(func() {
		for range seconds {
			b.clock.advance(time.Second)
			time.Sleep(time.Millisecond) // real time: lets goroutines see different clock readings; not required for correctness
		}
	})
	wg.Wait()
	total := kept[0].Load() + kept[1].Load()
	if most := int64(burst + perSecond*seconds); total > most {
		t.Fatalf("kept %d, at most %d", total, most)
	}
	if refused.Load() == 0 {
		t.Error("nothing was refused: this shows nothing")
	}

	// The count equals the tokens kept; once refilled, the buckets hold one burst and not a token more.
	for i, child := range children {
		bucket, err := b.admin.Buckets.Get(b.ctx, child, "api")
		must(t, err)
		if n := bucket.Limits[0].Debited - bucket.Limits[0].Returned; n != kept[i].Load() {
			t.Errorf("%s: %d were counted, %d kept", child, n, kept[i].Load())
		}
	}
	bucket, err := b.admin.Buckets.Get(b.ctx, "parent", "api")
	must(t, err)
	if n := bucket.Limits[0].Debited - bucket.Limits[0].Returned; n != total {
		t.Errorf("parent: %d were counted, %d kept", n, total)
	}
	b.clock.advance(time.Hour)
	b.take("a", weir.Tokens{"n": burst})
	b.refused("b", weir.Tokens{"n": 1})
}

// account checks I1 from outside: between any two takes, the tokens taken less those returned never exceed the burst and
// what was issued in between. It uses the potential function of the proof, in floats with an allowance for rounding.
type account struct {
	rate, burst float64 // tokens per second
	level       float64 // spent so far, in seconds of the clock times rate
}

func (a *account) take(now time.Duration, n int64, forced bool) error {
	clock := now.Seconds() * a.rate
	a.level = max(a.level, clock) + float64(n)
	if over := a.level - clock - a.burst; !forced && over > 0.01 {
		return fmt.Errorf("%.3f tokens too many at %v", over, now)
	}
	return nil
}

// A long random life of one bucket: leases adjusted, rolled back, held and resumed from old values, lost answers, limits
// changed back and forth by two processes of which one may be stale, evictions, several requests at a time, and
// overrides. Every admitted token is one that I1 allows.
func TestNeverOverAdmitsWhateverHappens(t *testing.T) {
	t.Parallel()
	for range 8 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			life(t, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

func life(t *testing.T, r *rand.Rand) {
	t.Helper()
	c := &clock{now: noon}
	st := &fakeStore{Store: memory.New(&memory.Config{Now: c.Now, MaxBuckets: 64})}
	b := setupOn(t, st, c)
	limiters := []*bundle{b, b.peer()}
	limits := []weir.Limit{weir.PerMinute("n", 60), weir.PerMinute("n", 60).WithBurst(20), weir.PerMinute("n", 600).WithBurst(200)}
	b.set("", "", limits[2])
	// However stale a limiter is, it never sees more than the largest of the limits.
	acc := account{rate: 10, burst: 200}
	elapsed := time.Duration(0)
	type open struct {
		lease        *weir.Lease
		holds        []weir.LeaseToken
		taken, given int64
	}
	var leases []*open
	for step := range 400 {
		x := limiters[r.IntN(2)]
		switch op := r.IntN(12); op {
		case 0, 1, 2:
			n := 1 + r.Int64N(40)
			lease, err := x.Acquire(b.ctx, ask("e", "api", weir.Tokens{"n": n}))
			if err != nil {
				continue
			}
			leases = append(leases, &open{lease: lease, taken: n})
			if err := acc.take(elapsed, n, false); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		case 3:
			n, m := 1+r.Int64N(20), 1+r.Int64N(20)
			got, err := x.AcquireAll(b.ctx, []weir.Request{ask("e", "api", weir.Tokens{"n": n}), ask("e", "api", weir.Tokens{"n": m})})
			if err != nil {
				continue
			}
			leases = append(leases, &open{lease: got[0], taken: n}, &open{lease: got[1], taken: m})
			if err := acc.take(elapsed, n+m, false); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		case 4:
			d := time.Duration(r.Int64N(int64(4 * time.Second)))
			elapsed += d
			c.advance(d)
		case 5:
			b.set("", "", limits[r.IntN(3)]) // the other limiter is not notified
		case 6: // fill the store, to evict full buckets
			for range 70 {
				_, _ = x.Acquire(b.ctx, ask(fmt.Sprint("crowd", r.Int64()), "api", nil))
			}
		case 7:
			req := ask("e", "api", weir.Tokens{"n": 5})
			req.Limits = []weir.Limit{limits[r.IntN(3)]}
			_, _ = x.Acquire(b.ctx, req) // a separate state, not accounted here
		default:
			if len(leases) == 0 {
				continue
			}
			o := leases[r.IntN(len(leases))]
			l := o.lease
			if len(o.holds) > 0 && r.IntN(2) == 0 {
				resumed, err := x.LeaseFromToken(b.ctx, o.holds[r.IntN(len(o.holds))])
				must(t, err)
				l = resumed
			}
			before := counters(t, b)
			switch op {
			case 8:
				if h := l.Token(fmt.Sprint("lease", step), noon.Add(24*time.Hour)); h.ID != "" {
					o.holds = append(o.holds, h)
				}
			case 9:
				_, _ = l.Adjust(b.ctx, weir.Tokens{"n": r.Int64N(41) - 20})
				if h := l.Token("", time.Time{}); h.ID != "" {
					o.holds = append(o.holds, h)
				}
			case 10:
				_ = l.Rollback(b.ctx)
			case 11:
				_ = l.Commit(b.ctx)
			}
			after := counters(t, b)
			more, back := after[0]-before[0], after[1]-before[1]
			if o.taken, o.given = o.taken+more, o.given+back; o.given > o.taken {
				t.Fatalf("step %d: a lease of %d has given back %d", step, o.taken, o.given)
			}
			if more > 0 {
				_ = acc.take(elapsed, more, true)
			}
			acc.level -= float64(back)
		}
	}
}

// counters returns the totals debited from and returned to the bucket of "e", on its own limit.
func counters(t *testing.T, b *bundle) (sums [2]int64) {
	t.Helper()
	bucket, err := b.admin.Buckets.Get(context.WithoutCancel(b.ctx), "e", "api")
	if errors.Is(err, weir.ErrNotFound) {
		return sums
	}
	must(t, err)
	for _, l := range bucket.Limits {
		if !l.Override {
			sums[0] += l.Debited
			sums[1] += l.Returned
		}
	}
	return sums
}
