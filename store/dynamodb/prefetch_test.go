package dynamodb_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

func ahead(share float64) func(*dynamodb.Config) {
	return func(c *dynamodb.Config) { c.Prefetch = dynamodb.Prefetch{Share: share, For: time.Second} }
}

// surplus makes a store debit ahead: of 10 a second, it holds part of what is outstanding.
func (st *stage) surplus(s *dynamodb.Store, b store.Bucket, l *store.Limit) (used int64) {
	st.Helper()
	for used < 8 {
		if st.outstanding(b, l.Name) > 1000*used {
			return used
		}
		st.want(s, true, of(b, l, 1))
		used++
		st.clock.Advance(time.Millisecond)
	}
	st.Fatal("it debited nothing ahead")
	return 0
}

// TestPrefetchMelts checks that the part of a surplus that the clock has passed is not handed out. It would be refilled
// as well, and two bursts could follow each other.
func TestPrefetchMelts(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s, other := st.open(noGuard, ahead(1)), st.open(noGuard)
	rps, alice := per("rps", 10, time.Second, 10), bkt("alice")
	st.surplus(s, alice, rps)
	held := st.outstanding(alice, "rps")
	if held < 9000 {
		t.Fatalf("%d outstanding", held)
	}
	st.clock.Advance(900 * time.Millisecond)
	left := st.outstanding(alice, "rps") // at most this much of it has not melted
	var got int64
	for range 20 {
		if st.take(other, of(alice, rps, 1)).Allowed {
			got++
		}
	}
	for range 20 {
		if st.take(s, of(alice, rps, 1)).Allowed {
			got++
		}
	}
	if got > 10 {
		t.Errorf("%d admitted at one time, %d were left", got, left)
	}
}

// TestPrefetchBound checks that processes that debit ahead admit beyond a limit only what other processes returned within
// the last For: between any two takes, and by the takers' times.
func TestPrefetchBound(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	type event struct {
		at                        time.Time
		clock, admitted, returned int64
	}
	hits, beyond := 0, int64(0)
	for seed := range uint64(80) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			st, begun := newStage(t), time.Now()
			stores := []*dynamodb.Store{st.open(noGuard, st.flow(), ahead(1)), st.open(noGuard, st.flow(), ahead(1)), st.open(noGuard, st.flow())}
			alice, rps := bkt("alice"), per("rps", 10+r.Int64N(200), time.Second, 10+r.Int64N(100))
			var events []event
			var held []int64 // what may be returned
			for range 120 {
				time.Sleep(time.Duration(r.Int64N(int64(40 * time.Millisecond))))
				s := stores[r.IntN(3)]
				ev := event{at: time.Now(), clock: readingAt(rps, noon.Add(time.Since(begun)))}
				if len(held) > 0 && r.IntN(5) == 0 {
					ev.returned, held = held[0], held[1:]
					st.settle(s, charge(alice, rps, -ev.returned))
				} else {
					amount := 1 + r.Int64N(rps.Burst/4)
					before := st.writes()
					if !st.take(s, charge(alice, rps, amount)).Allowed {
						continue
					}
					if ev.admitted = amount; st.writes() == before {
						hits++
					}
					held = append(held, amount)
				}
				events = append(events, ev)
			}
			for j, last := range events {
				if last.admitted == 0 {
					continue
				}
				var late, sum int64 // returned within the last second; admitted and not returned
				for _, ev := range events[:j] {
					if last.at.Sub(ev.at) < time.Second {
						late += ev.returned
					}
				}
				for i := j; i >= 0; i-- {
					ev := events[i]
					sum += ev.admitted - ev.returned
					over := sum - rps.Burst - (last.clock - ev.clock)
					if ev.admitted == 0 {
						continue
					}
					if beyond = max(beyond, over); over > late {
						t.Fatalf("seed %d: %d beyond the limit from %d to %d, but %d returned lately", seed, over, i, j, late)
					}
				}
			}
			for _, s := range stores {
				st.must(s.Close())
			}
		})
	}
	t.Logf("%d served from memory, at most %d beyond the limit", hits, beyond)
	if hits == 0 {
		t.Error("nothing was served from what was debited ahead")
	}
}

// TestPrefetchServes checks that a surplus serves takes without a call, up to its amount, and is returned if it is not
// used.
func TestPrefetchServes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s := st.open(noGuard, st.flow(), ahead(0.5))
		rps, alice := per("rps", 1000, time.Hour, 1000), bkt("alice")
		const takes = 300
		calls := st.spent(func() {
			for range takes {
				time.Sleep(2 * time.Millisecond)
				st.want(s, true, of(alice, rps, 1))
			}
		})
		if calls > takes/10 {
			t.Errorf("%d calls", calls)
		}
		time.Sleep(3 * time.Second)
		st.clock.Advance(3*time.Second + takes*2*time.Millisecond)
		issued := st.reading(rps) - readingAt(rps, noon)
		if n := st.outstanding(alice, "rps"); n < takes*1000-issued-1 || n > takes*1000 {
			t.Errorf("%d outstanding in the end, %d issued", n, issued)
		}
		d, _ := st.number(alice, "D_rps")
		r, _ := st.number(alice, "R_rps")
		if whole(t, d)-whole(t, r) != takes*1000 {
			t.Errorf("debited %s, returned %s", d, r)
		}
	})
}

// TestPrefetchClose checks that a store that is closed returns its surpluses.
func TestPrefetchClose(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open(noGuard, ahead(1))
	rps, alice := per("rps", 10, time.Second, 10), bkt("alice")
	used := st.surplus(s, alice, rps)
	s.Close()
	d, _ := st.number(alice, "D_rps")
	r, _ := st.number(alice, "R_rps")
	if whole(t, d)-whole(t, r) != 1000*used || r == "" {
		t.Errorf("debited %s, returned %s, used %d", d, r, used)
	}
}

// TestPrefetchShare checks that no more is debited ahead than the configured share of what is available.
func TestPrefetchShare(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open(noGuard, ahead(0.25))
	rps, alice := per("rps", 10, time.Hour, 100), bkt("alice")
	used := st.surplus(s, alice, rps)
	extra := st.outstanding(alice, "rps") - 1000*used
	if most := (100_000 - 1000*used) / 4; extra <= 0 || extra > most {
		t.Errorf("%d debited ahead, at most %d", extra, most)
	}
}

// TestPrefetchOff checks that without prefetch, nothing is debited that was not asked for.
func TestPrefetchOff(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open()
	rps, alice := per("rps", 10, time.Hour, 100), bkt("alice")
	for range 5 {
		st.clock.Advance(time.Millisecond)
		st.want(s, true, of(alice, rps, 1))
	}
	if n := st.outstanding(alice, "rps"); n < 4999 || n > 5000 {
		t.Errorf("%d outstanding", n)
	}
}
