package dynamodb_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// TestGuardGivesLittle checks that what writers that cannot see one another give away stays within a tenth of the burst,
// however many they are and however little they take, and within ten times the guard where that is more.
func TestGuardGivesLittle(t *testing.T) {
	t.Parallel()
	unraced(t)
	for _, guard := range []float64{0.01, 0.001, 0.03} {
		for _, amount := range []int64{1, 1000} {
			st := newStage(t)
			rps, alice := per("rps", 1000, time.Second, 1000), bkt("alice")
			p := clock.Params{Amount: rps.Amount, Period: int64(rps.Period), Burst: rps.Burst}
			const writers = 60
			var stores []*dynamodb.Store
			for range writers {
				stores = append(stores, st.open(func(c *dynamodb.Config) { c.Guard = guard }))
			}
			level := int64(0) // as it would be without a guard
			take := func(s *dynamodb.Store) {
				st.want(s, true, charge(alice, rps, amount))
				level = clock.Spend(level, st.reading(rps), amount)
			}
			for range 3 { // each process learns that there are others, and how much they use
				for _, s := range stores {
					st.clock.Advance(9 * time.Millisecond)
					take(s)
				}
			}
			for _, s := range stores { // all at once
				take(s)
			}
			given := st.outstanding(alice, "rps") - clock.Outstanding(level, p.Clock(clock.Nanos(st.clock.Now())))
			t.Logf("guard %g, takes of %d: %d millitokens given away", guard, amount, given)
			if most := max(rps.Burst/10, int64(10*guard*float64(rps.Burst))); given == 0 || given > most {
				t.Errorf("guard %g, takes of %d: %d millitokens given away, at most %d", guard, amount, given, most)
			}
		}
	}
}

// TestGuardNever checks that a bucket that no other process writes to gives nothing away, nor does one whose store has no
// guard.
func TestGuardNever(t *testing.T) {
	t.Parallel()
	unraced(t)
	for _, tt := range []struct {
		name    string
		writers int
		change  func(*dynamodb.Config)
	}{{"alone", 1, func(*dynamodb.Config) {}}, {"told not to", 20, noGuard}} {
		st := newStage(t)
		rps, alice := per("rps", 1000, time.Second, 1000), bkt("alice")
		var stores []*dynamodb.Store
		for range tt.writers {
			stores = append(stores, st.open(tt.change))
		}
		level := int64(0)
		for i := range 200 {
			st.clock.Advance(time.Duration(i%7) * time.Millisecond)
			st.want(stores[i%tt.writers], true, of(alice, rps, 3))
			level = clock.Spend(level, st.reading(rps), 3000)
		}
		if got := st.outstanding(alice, "rps"); got != clock.Outstanding(level, st.reading(rps)) {
			t.Errorf("%s: %d outstanding, want %d", tt.name, got, clock.Outstanding(level, st.reading(rps)))
		}
	}
}

// TestGuardOfCredits checks that a process that credits a bucket, and is the only one to write to it, gives nothing away.
func TestGuardOfCredits(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s, alice := st.open(), bkt("alice")
	rps := per("rps", 1000, time.Second, 1000)
	level := int64(0)
	for i := range 100 {
		st.credit(s, alice, 10, strconv.Itoa(i))
		if i%3 == 0 {
			st.credit(s, alice, 10, strconv.Itoa(i)) // again, which changes nothing
		}
		st.clock.Advance(time.Duration(i%5) * 3 * time.Millisecond)
		st.want(s, true, charge(alice, rps, 7))
		level = clock.Spend(level, st.reading(rps), 7)
		if got, want := st.outstanding(alice, "rps"), clock.Outstanding(level, st.reading(rps)); got != want {
			t.Fatalf("after %d credits: %d millitokens outstanding, want %d", i+1, got, want)
		}
	}
}

// TestGuardSecondTry checks that the second attempt covers what passes while it is under way, even on buckets that are
// too small for a guard on the first.
func TestGuardSecondTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		st.slow(5 * time.Millisecond / 2)
		before := st.writes()
		lasts := 4 * time.Second
		if raced.On {
			lasts = time.Second
		}
		admitted, refused, share := st.crowd(0.8, lasts, per("rps", 400, time.Second, 40), func(c *dynamodb.Config) { c.Guard = 0.0001 })
		ratio := float64(st.writes()-before-int(refused)) / float64(admitted)
		t.Logf("%.3f calls per admission, %d refused, admitted / allowed %.4f", ratio, refused, share)
		if ratio > 2.5 || share > 1 {
			t.Errorf("%.3f calls per admission, admitted / allowed %.4f", ratio, share)
		}
	})
}

// TestTriesGoOn checks that a write that keeps colliding with others, though it would fit, is repeated with pauses, and
// not given up until its time is up.
func TestTriesGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s := st.open(st.flow())
		rps, alice := per("rps", 1000, time.Second, 1000), bkt("alice")
		st.want(s, true, of(alice, rps, 1))
		fits := st.item(alice)
		left := 40
		st.fake.Before = func(op string, _ any) error {
			if left--; left < 0 || op != "UpdateItem" || left == 1<<30-5000 {
				return nil
			}
			return &types.ConditionalCheckFailedException{Item: fits}
		}
		begun := time.Now()
		st.want(s, true, of(alice, rps, 1))
		if took := time.Since(begun); took < 40*time.Millisecond || took > time.Second {
			t.Errorf("40 tries took %v", took)
		}
		left = 1 << 30
		begun = time.Now()
		out, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{of(alice, rps, 1)}})
		if err == nil || out.Allowed || time.Since(begun) > 3*time.Second {
			t.Errorf("%+v, %v after %v", out, err, time.Since(begun))
		}
		if n := 1<<30 - left; n > 1000 { // and stop at 5,000
			t.Errorf("%d tries in two seconds", n)
		}
		left = 0
	})
}

// TestOverloadAsksOnce checks that a take that does not fit when its write arrives is refused, and does not compete for
// the next few tokens.
func TestOverloadAsksOnce(t *testing.T) {
	t.Parallel()
	unraced(t)
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		st.slow(5 * time.Millisecond / 2)
		before := st.writes()
		admitted, refused, share := st.crowd(1.5, 2*time.Second, per("rps", 1000, time.Second, 300))
		ratio := float64(st.writes()-before) / float64(admitted+refused)
		t.Logf("%.3f calls per answer, %d admitted, %d refused, admitted / allowed %.4f", ratio, admitted, refused, share)
		if ratio > 1.3 || refused == 0 || share > 1 || share < 0.97 {
			t.Errorf("%.3f calls per answer, admitted / allowed %.4f", ratio, share)
		}
	})
}

// TestOverloadAnswers checks that a crowd that asks for three times the limit is answered, by one process and by three
// that share it.
func TestOverloadAnswers(t *testing.T) {
	t.Parallel()
	lasts := 4 * time.Second
	if raced.On {
		lasts = time.Second
	}
	for _, processes := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			st := newStage(t)
			var mu sync.Mutex
			dice := rand.New(rand.NewPCG(2, 2))
			st.fake.Before = func(string, any) error {
				mu.Lock()
				nap := time.Duration(math.Exp(math.Log(2.5e6) + 0.47*dice.NormFloat64()))
				mu.Unlock()
				time.Sleep(nap) // real time: none, all who call it are in a bubble
				return nil
			}
			st.fake.After = func(string, any, any) error { return st.fake.Before("", nil) }
			flow, l := st.flow(), per("rps", 500, time.Second, 500)
			var yes, no, late atomic.Int64
			var group sync.WaitGroup
			begun := time.Now()
			for p := range processes {
				s := st.open(flow, func(c *dynamodb.Config) { c.MaxShards = 1 })
				rng := rand.New(rand.NewPCG(uint64(p), 7))
				group.Go(func() {
					for next := begun; ; {
						next = next.Add(time.Duration(rng.ExpFloat64() * float64(time.Second) * float64(processes) / 1500))
						if next.Sub(begun) >= lasts {
							return
						}
						time.Sleep(time.Until(next)) // real time: none, all who call it are in a bubble
						group.Go(func() {
							ctx, cancel := context.WithTimeout(st.Context(), time.Second)
							defer cancel()
							switch out, err := s.Take(ctx, store.Take{Debits: []store.Debit{of(bkt("alice"), l, 1)}}); {
							case errors.Is(err, context.DeadlineExceeded):
								late.Add(1)
							case err != nil:
								st.Error(err)
							case out.Allowed:
								yes.Add(1)
							default:
								no.Add(1)
							}
						})
					}
				})
			}
			group.Wait()
			if share := float64(yes.Load()) / (500 + 500*lasts.Seconds()); share < 0.95 || int(late.Load()) > (processes-1)*150 {
				t.Errorf("%.3f of what is allowed was admitted, and %d were not answered in a second", share, late.Load())
			}
			if most := 500 + 500*time.Since(begun).Seconds(); float64(yes.Load()) > most {
				t.Errorf("%d admitted, at most %.0f", yes.Load(), most)
			}
			t.Logf("%d processes: %d admitted, %d refused, %d not answered in a second", processes, yes.Load(), no.Load(), late.Load())
		})
	}
}
