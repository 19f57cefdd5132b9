package dynamodb_test

import (
	"testing"
	"testing/synctest"
	"time"

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
