package weir_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
)

// TestSlotsHeldUntil checks for how long slots are renewed.
func TestSlotsHeldUntil(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		take  func(t *testing.T, lim *weir.Limiter)
		lasts time.Duration
	}{
		"the request's context ends": {func(t *testing.T, lim *weir.Limiter) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			lease, err := lim.Acquire(ctx, alice)
			must(t, err)
			t.Cleanup(func() { runtime.KeepAlive(lease); cancel() })
		}, 10 * time.Minute},
		"MaxHold": {func(t *testing.T, lim *weir.Limiter) {
			t.Helper()
			lease, err := lim.Acquire(t.Context(), alice)
			must(t, err)
			own := lease.Context()
			t.Cleanup(func() {
				if runtime.KeepAlive(lease); !errors.Is(context.Cause(own), weir.ErrSlotLost) {
					t.Error(context.Cause(own))
				}
			})
		}, time.Hour},
		"the lease is garbage": {func(t *testing.T, lim *weir.Limiter) {
			t.Helper()
			_, err := lim.Acquire(t.Context(), alice)
			must(t, err)
			elapse(time.Minute) // renewed once
			runtime.GC()
			runtime.GC()
		}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lims, _ := fleet(t, 1, weir.OnUnavailableDeny, "parallel:1slots/30s")
				began := time.Now()
				tt.take(t, lims[0])
				for time.Since(began) < tt.lasts {
					refused(t, lims[0], alice)
					elapse(time.Second)
				}
				elapse(time.Minute)
				_, err := lims[0].Acquire(t.Context(), alice)
				must(t, err)
				closeAll(t, lims)
			})
		})
	}
}

// TestSlotsWait checks that Wait goes on with a slot that this process gives back at once, and that another one gives
// back within a second.
func TestSlotsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lims, _ := fleet(t, 2, weir.OnUnavailableDeny, "parallel:1slots")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for i, most := range []time.Duration{0, time.Second} {
			lease, err := lims[i].Acquire(ctx, alice)
			must(t, err)
			var released time.Time
			go func() {
				time.Sleep(7 * time.Minute)
				released = time.Now()
				_ = lease.Close(ctx)
			}()
			next, err := lims[0].Wait(ctx, alice)
			must(t, err)
			if took := time.Since(released); took > most {
				t.Errorf("waited %v after the slot of process %d was given back", took, i)
			}
			must(t, next.Close(ctx))
		}
		closeAll(t, lims)
	})
}

// TestSlotsWaitBusy checks that 64 callers of Wait keep 8 slots busy.
func TestSlotsWaitBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lims, _ := fleet(t, 1, weir.OnUnavailableDeny, "parallel:8slots")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var mu sync.Mutex
		var busy time.Duration
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for {
					lease, err := lims[0].Wait(ctx, alice)
					if err != nil {
						return
					}
					work := rand.N(200 * time.Millisecond)
					time.Sleep(work)
					_ = lease.Close(ctx)
					mu.Lock()
					busy += work
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if share := float64(busy) / float64(8*time.Minute); share < 0.97 {
			t.Errorf("busy for %.1f %% of the time", 100*share)
		}
		closeAll(t, lims)
	})
}

// TestSlotsToken checks that a lease with a token is renewed and given back by whoever has the token, in any process.
func TestSlotsToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lims, lines := fleet(t, 3, weir.OnUnavailableDeny, "parallel:1slots/30s")
		ctx := t.Context()
		lease, err := lims[0].Acquire(ctx, alice)
		must(t, err)
		token := lease.Token("one", time.Now().Add(time.Hour))
		for range 20 {
			time.Sleep(20 * time.Second)
			refused(t, lims[2], alice)
			le, err := lims[1].LeaseFromToken(ctx, token)
			must(t, err)
			until, err := le.Renew(ctx)
			must(t, err)
			if d := time.Until(until); d < 30*time.Second || d > time.Minute {
				t.Errorf("renewed for %v", d)
			}
			token = le.Token("", time.Time{})
		}
		if n := lines[0].renewed("alice"); n > 0 {
			t.Errorf("the process renewed the slot of somebody else %d times", n)
		}
		le, err := lims[2].LeaseFromToken(ctx, token)
		must(t, err)
		must(t, le.Close(ctx))
		again, err := lims[1].LeaseFromToken(ctx, token)
		must(t, err)
		if err := again.Close(ctx); !errors.Is(err, weir.ErrSettled) {
			t.Errorf("given back twice: %v", err)
		}
		next, err := lims[0].Acquire(ctx, alice)
		must(t, err)
		token = next.Token("two", time.Now().Add(time.Hour))
		time.Sleep(2 * time.Minute)
		le, err = lims[1].LeaseFromToken(ctx, token)
		must(t, err)
		if _, err := le.Renew(ctx); !errors.Is(err, weir.ErrSlotLost) {
			t.Errorf("renewed too late: %v", err)
		}
		closeAll(t, lims)
	})
}

// TestSlotsLeave checks that a lease that gets a token is not renewed here any more, and that its context ends, also if
// others look at the lease at once.
func TestSlotsLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lims, lines := fleet(t, 1, weir.OnUnavailableDeny, "parallel:1slots")
		lease, err := lims[0].Acquire(t.Context(), alice)
		must(t, err)
		held := lease.Context()
		go func() {
			for held.Err() == nil {
				lease.Context()
				lease.Degraded()
			}
		}()
		if tok := lease.Token("id", time.Now().Add(time.Hour)); tok.ID == "" || len(tok.Charges) == 0 {
			t.Fatalf("%+v", tok)
		}
		if <-held.Done(); !errors.Is(context.Cause(held), context.Canceled) || lease.Context().Err() == nil {
			t.Errorf("the context ended by %v, later it has %v", context.Cause(held), lease.Context().Err())
		}
		time.Sleep(10 * time.Minute)
		if n := lines[0].renewed("alice"); n > 0 {
			t.Errorf("renewed %d times", n)
		}
	})
}
