package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// slotLine is a process's connection to a store that others use, too.
type slotLine struct {
	store.Store // hides that a store in memory never waits

	mu       sync.Mutex
	frozen   bool           // no call is answered
	lost     func() bool    // whether the next call is made, but not answered; nil: none is
	late     func() bool    // whether the next take is answered after its deadline; nil: none is
	settles  []store.Settle // that were made
	renewals map[store.Bucket]int
	releases int
}

func (l *slotLine) loses(lost func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = lost
}

func (l *slotLine) freeze(frozen bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = frozen
}

func (l *slotLine) state() (frozen, lost, late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.frozen, l.lost != nil && l.lost(), l.late != nil && l.late()
}

func (l *slotLine) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	frozen, lost, late := l.state()
	if frozen {
		<-ctx.Done()
		return store.Outcome{}, ctx.Err()
	}
	out, err := l.Store.Take(ctx, t)
	if lost {
		<-ctx.Done()
		return store.Outcome{}, ctx.Err()
	}
	if late { // as drivers do
		<-ctx.Done()
		if back := store.GiveBack(t.Debits, out.Levels); len(back) > 0 {
			go func() {
				elapse(10 * time.Millisecond)
				_, _ = l.Store.Settle(context.WithoutCancel(ctx), store.Settle{Debits: back})
			}()
		}
		return store.Outcome{}, ctx.Err()
	}
	return out, err
}

func (l *slotLine) Settle(ctx context.Context, s store.Settle) (store.Outcome, error) {
	frozen, lost, _ := l.state()
	if frozen {
		<-ctx.Done()
		return store.Outcome{}, ctx.Err()
	}
	l.mu.Lock()
	l.settles = append(l.settles, s)
	for _, d := range s.Debits {
		for _, c := range d.Charges {
			switch {
			case c.Hold != nil && c.Amount > 0:
				if l.renewals == nil {
					l.renewals = make(map[store.Bucket]int)
				}
				l.renewals[d.Bucket]++
			case c.Hold != nil:
				l.releases++
			}
		}
	}
	l.mu.Unlock()
	out, err := l.Store.Settle(ctx, s)
	if lost {
		<-ctx.Done()
		return store.Outcome{}, ctx.Err()
	}
	return out, err
}

func (l *slotLine) Close() error { return nil } // others use the store

func (l *slotLine) renewed(entity string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for b, n := range l.renewals {
		if b.Entity == entity {
			return n
		}
	}
	return 0
}

// fleet returns limiters of several processes on one store, and their connections.
func fleet(t *testing.T, n int, mode weir.OnUnavailable, limits ...string) ([]*weir.Limiter, []*slotLine) {
	t.Helper()
	elapse(time.Until(time.Date(2026, 1, 1, 0, 0, 7, 0, time.UTC))) // after the epoch of the arithmetic
	st := memory.New(nil)
	var lims []*weir.Limiter
	var lines []*slotLine
	for range n {
		l := &slotLine{Store: st}
		lim, err := weir.New(weir.Config{
			Store: l, OnUnavailable: mode, DecideWithin: 200 * time.Millisecond, Instances: func() int { return n },
		})
		must(t, err)
		lims, lines = append(lims, lim), append(lines, l)
	}
	var ls []weir.Limit
	for _, text := range limits {
		ls = append(ls, parsed(t, text))
	}
	must(t, admin.New(lims[0]).Limits.Set(t.Context(), admin.Scope{}, ls...))
	return lims, lines
}

func closeAll(t *testing.T, lims []*weir.Limiter) {
	t.Helper()
	for _, lim := range lims {
		must(t, lim.Close())
	}
}

// elapse lets time pass in a bubble.
func elapse(d time.Duration) {
	time.Sleep(d) // virtual time: all callers are in bubbles of synctest
}

// TestSlotsCrash checks that the slots of a process that is gone come back, and not before its leases end.
func TestSlotsCrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const heal = 30 * time.Second
		lims, lines := fleet(t, 2, weir.OnUnavailableDeny, "parallel:4slots/30s")
		ctx := t.Context()
		var held []context.Context
		var leases []*weir.Lease
		for range 4 {
			lease, err := lims[0].Acquire(ctx, alice)
			must(t, err)
			held, leases = append(held, lease.Context()), append(leases, lease)
		}
		time.Sleep(100 * time.Second)
		lines[0].freeze(true)
		began := time.Now()
		for taken := 0; taken < 4; time.Sleep(100 * time.Millisecond) {
			lease, err := lims[1].Acquire(ctx, alice)
			if err == nil {
				held, leases = append(held, lease.Context()), append(leases, lease)
				taken++
			}
			valid := 0
			for _, c := range held {
				if c.Err() == nil {
					valid++
				} else if !errors.Is(context.Cause(c), weir.ErrSlotLost) {
					t.Fatal(context.Cause(c))
				}
			}
			if valid > 4 || time.Since(began) > 2*heal {
				t.Fatalf("%d valid, %d free after %v", valid, taken, time.Since(began))
			}
		}
		runtime.KeepAlive(leases)
		t.Logf("all free after %v", time.Since(began))
		closeAll(t, lims)
	})
}

// TestSlotsFrozen freezes the store for three heal times. No newcomer of a process is admitted beside its holders, and
// none of another one once the holders have had the time to call the store.
func TestSlotsFrozen(t *testing.T) {
	t.Parallel()
	for _, mode := range []weir.OnUnavailable{weir.OnUnavailableDeny, weir.OnUnavailableAllow, weir.OnUnavailableLocal} {
		for processes, wait := range map[int]time.Duration{1: 0, 2: 5 * time.Second} {
			t.Run(fmt.Sprintf("%s/%d", mode, processes), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { slotsFrozen(t, mode, processes, wait) })
			})
		}
	}
}

func slotsFrozen(t *testing.T, mode weir.OnUnavailable, processes int, wait time.Duration) {
	const n, heal = 6, 30 * time.Second
	lims, lines := fleet(t, processes, mode, fmt.Sprintf("parallel:%dslots/30s", n))
	ctx := t.Context()
	var held []*weir.Lease
	acquire := func(i int) {
		lease, err := lims[i%processes].Acquire(ctx, alice)
		if err == nil && (mode != weir.OnUnavailableAllow || !lease.Degraded()) {
			held = append(held, lease)
		}
	}
	valid := func() (valid int) {
		for _, le := range held {
			if le.Context().Err() == nil {
				valid++
			}
		}
		return valid
	}
	for i := range n {
		acquire(i)
	}
	for _, l := range lines {
		l.freeze(true)
	}
	for i := range 60 {
		elapse(3 * heal / 60)
		if acquire(i); valid() > n {
			t.Fatal("admitted beside the holders")
		}
	}
	want := n
	if mode == weir.OnUnavailableDeny {
		want = 0
	}
	if got := valid(); got != want || want > 0 && !held[0].Degraded() {
		t.Errorf("%d of %d go on, degraded: %t", got, n, held[0].Degraded())
	}
	for _, l := range lines {
		l.freeze(false)
	}
	elapse(wait)
	for i := range 100 {
		if acquire(i); valid() > n {
			t.Fatal("a newcomer was admitted beside the holders")
		}
		elapse(100 * time.Millisecond)
	}
	elapse(3 * heal)
	if got := valid(); got != n || held[0].Degraded() {
		t.Errorf("%d hold slots later, degraded: %t", got, held[0].Degraded())
	}
	for _, le := range held {
		must(t, le.Close(ctx))
	}
	full := alice
	full.Tokens = weir.Tokens{"parallel": n}
	_, err := lims[0].Acquire(ctx, full)
	must(t, err)
	closeAll(t, lims)
}

// TestSlotsLocalShare checks that a process admits its share of the slots, and those that it holds count.
func TestSlotsLocalShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lims, lines := fleet(t, 3, weir.OnUnavailableLocal, "parallel:11slots")
		ctx := t.Context()
		first, err := lims[0].Acquire(ctx, alice)
		must(t, err)
		lines[0].freeze(true)
		leases := []*weir.Lease{first}
		for range 2 {
			lease, err := lims[0].Acquire(ctx, alice)
			must(t, err)
			if !lease.Degraded() {
				t.Fatal("not degraded")
			}
			leases = append(leases, lease)
		}
		if over := refused(t, lims[0], alice); !over.Degraded || !over.Statuses[0].Estimated {
			t.Errorf("%+v", over)
		}
		must(t, leases[2].Close(ctx))
		again, err := lims[0].Acquire(ctx, alice)
		must(t, err)
		lines[0].freeze(false)
		time.Sleep(5 * time.Second)
		can, err := lims[1].Available(ctx, "alice", "api")
		must(t, err)
		if got := can.Statuses[0].Available; got != 11-3 {
			t.Errorf("%d are available after the holders have taken their slots", got)
		}
		for _, le := range []*weir.Lease{first, leases[1], again} {
			must(t, le.Close(ctx))
		}
		can, err = lims[1].Available(ctx, "alice", "api")
		must(t, err)
		if got := can.Statuses[0].Available; got != 11 {
			t.Errorf("%d are available at last", got)
		}
		closeAll(t, lims)
	})
}

// TestSlotsLocalShareLeft checks that slots of leases that leave the process, as over HTTP, count towards its share for two
// heal times.
func TestSlotsLocalShareLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lims, lines := fleet(t, 3, weir.OnUnavailableLocal, "parallel:11slots")
		warm, err := lims[0].Acquire(t.Context(), alice)
		must(t, err)
		must(t, warm.Close(t.Context()))
		lines[0].freeze(true)
		for range 2 {
			for i := range 3 {
				lease, err := lims[0].Acquire(t.Context(), alice)
				must(t, err)
				if lease.Token(fmt.Sprint(i), time.Now().Add(time.Hour)); !lease.Degraded() {
					t.Fatal("not degraded")
				}
			}
			time.Sleep(time.Minute - time.Second)
			refused(t, lims[0], alice)
			time.Sleep(2 * time.Second)
		}
		lines[0].freeze(false)
		time.Sleep(time.Minute)
		closeAll(t, lims)
	})
}

// TestSlotsLocalShareToken checks that slots that a lease has taken again after an outage are given back only once,
// whoever has its token.
func TestSlotsLocalShareToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lims, lines := fleet(t, 3, weir.OnUnavailableLocal, "parallel:11slots")
		ctx := t.Context()
		other, err := lims[0].Acquire(ctx, alice)
		must(t, err)
		lines[0].freeze(true)
		lease, err := lims[0].Acquire(ctx, alice)
		must(t, err)
		lines[0].freeze(false)
		time.Sleep(5 * time.Second)
		token := lease.Token("one", time.Now().Add(time.Hour))
		if !token.Local || token.Charges[0].Hold == nil {
			t.Fatalf("%+v", token)
		}
		for i, want := range []error{nil, weir.ErrSettled} {
			le, err := lims[1+i].LeaseFromToken(ctx, token)
			must(t, err)
			if err := le.Close(ctx); !errors.Is(err, want) {
				t.Errorf("close %d: %v, want %v", i, err, want)
			}
		}
		can, err := lims[1].Available(ctx, "alice", "api")
		must(t, err)
		if got := can.Statuses[0].Available; got != 10 {
			t.Errorf("%d are available while one is held", got)
		}
		must(t, other.Close(ctx))
		closeAll(t, lims)
	})
}

// TestSlotsLate answers 1 % of takes after the deadline: 100 requests a second, of which each holds a slot for 100 ms,
// so that 10 of 20 are in use.
func TestSlotsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lims, lines := fleet(t, 1, weir.OnUnavailableDeny, "parallel:20slots")
		r := rand.New(rand.NewPCG(1, 1))
		lines[0].late = func() bool { return r.IntN(100) == 0 }
		var mu sync.Mutex
		var calls, over, late int
		var wg sync.WaitGroup
		for range 12_000 {
			wg.Go(func() {
				lease, err := lims[0].Acquire(t.Context(), alice)
				mu.Lock()
				calls++
				switch {
				case errors.Is(err, weir.ErrExceeded):
					over++
				case err != nil:
					late++
				}
				mu.Unlock()
				if err == nil {
					time.Sleep(100 * time.Millisecond)
					_ = lease.Close(t.Context())
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		wg.Wait()
		time.Sleep(time.Second)
		t.Logf("%d calls, %d late, %d refused", calls, late, over)
		if over > calls/100 || late < calls/200 {
			t.Errorf("%d of %d were refused, %d late", over, calls, late)
		}
		closeAll(t, lims)
	})
}

// TestSlotsRandom is I7 and I8 with processes that crash, connections that freeze, and answers that are lost.
func TestSlotsRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { slotsRandom(t, rand.New(rand.NewPCG(seed, 2))) })
		})
	}
}

func slotsRandom(t *testing.T, r *rand.Rand) {
	const n, heal = 5, 16 * time.Second
	lims, lines := fleet(t, 3, weir.OnUnavailableDeny, fmt.Sprintf("parallel:%dslots/16s", n))
	ctx := t.Context()
	var held []*weir.Lease
	var admitted, lost int
	for _, l := range lines {
		own := rand.New(rand.NewPCG(r.Uint64(), 3))
		l.loses(func() bool { return own.IntN(20) == 0 })
	}
	for range 6000 {
		elapse(time.Duration(r.Int64N(int64(time.Second))))
		p := r.IntN(len(lims))
		switch k := r.IntN(100); {
		case k < 50:
			if lease, err := lims[p].Acquire(ctx, alice); err == nil {
				admitted++
				lease.Context()
				held = append(held, lease)
			}
		case k < 65 && len(held) > 0:
			i := r.IntN(len(held))
			_ = held[i].Close(ctx)
			held = append(held[:i], held[i+1:]...)
		case k < 67:
			lines[p].freeze(true)
		case k < 72:
			lines[p].freeze(false)
		}
		valid := held[:0]
		for _, le := range held {
			if le.Context().Err() == nil {
				valid = append(valid, le)
			} else {
				lost++
			}
		}
		if held = valid; len(held) > n {
			t.Fatalf("%d slots are valid", len(held))
		}
	}
	t.Logf("%d admitted, %d lost", admitted, lost)
	if admitted < 500 || lost < 3 { // of about 860 and 17
		t.Errorf("%d admitted, %d lost: too few to be worth anything", admitted, lost)
	}
	for _, l := range lines {
		l.loses(nil)
		l.freeze(false)
	}
	for _, le := range held {
		_ = le.Close(ctx)
	}
	elapse(2 * heal)
	full := alice
	full.Tokens = weir.Tokens{"parallel": n}
	lease, err := lims[0].Acquire(ctx, full)
	must(t, err)
	must(t, lease.Close(ctx))
	closeAll(t, lims)
}
