package dynamodb_test

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

const day = 24 * time.Hour

// lives returns how long a bucket's item lives from now on.
func (st *stage) lives(b store.Bucket) time.Duration {
	st.Helper()
	ttl, ok := st.number(b, "ttl")
	if !ok {
		st.Fatal("no ttl")
	}
	return time.Unix(whole(st, ttl), 0).Sub(st.clock.Now())
}

// TestTTL checks that an item lives until its slowest limit is full, and a day longer, whatever is charged, and that its
// ttl is not rewritten for every debit.
func TestTTL(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open(noGuard)
	fast, slow, alice := per("fast", 10, time.Minute, 10), per("slow", 10, 100*day, 10), bkt("alice")
	d := of(alice, fast, 1)
	d.Charges = append(d.Charges, store.Charge{Limit: slow})
	var was string
	tick := 100 * day / 10_000 // of a millitoken: the bucket is full when the clock ticks last
	for i := range 20 {
		st.want(s, true, d)
		if lives := st.lives(alice); lives <= 101*day-tick || lives > 102*day+2*time.Second {
			t.Fatalf("lives for %v", lives)
		}
		now, _ := st.number(alice, "ttl")
		if i > 0 && i < 10 && now != was {
			t.Error("changed within a day")
		}
		was = now
		st.clock.Advance(2 * time.Hour)
	}
}

// TestTTLDebt checks that a debt lives until it is paid.
func TestTTLDebt(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open(noGuard)
	daily, alice := per("daily", 10, day, 10), bkt("alice")
	st.want(s, true, of(alice, daily, 1))
	st.settle(s, of(alice, daily, 299)) // for 29 days
	st.settle(s, of(alice, daily, 100)) // and 10 more
	st.clock.Advance(38 * day)
	st.fake.Sweep(st.clock.Now())
	if st.item(alice) == nil {
		t.Fatal("the debt is forgotten")
	}
	st.want(st.open(), false, of(alice, daily, 0))
	st.clock.Advance(5 * day)
	if st.fake.Sweep(st.clock.Now()) != 1 {
		t.Error("it is never forgotten")
	}
	st.want(st.open(), true, of(alice, daily, 10))
}

// TestTTLStaleWriter checks that a writer that has not seen the debt does not shorten its life.
func TestTTLStaleWriter(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s, stale := st.open(noGuard), st.open(noGuard)
	daily, hourly, alice := per("daily", 10, day, 10), per("hourly", 10, time.Hour, 10), bkt("alice")
	both := of(alice, daily, 1)
	both.Charges = append(both.Charges, store.Charge{Limit: hourly, Amount: 1000})
	st.want(stale, true, both)
	st.want(s, true, both)
	st.clock.Advance(3 * day)
	st.settle(s, of(alice, daily, 300))
	before, _ := st.number(alice, "ttl")
	st.settle(stale, of(alice, hourly, 1))
	st.settle(stale, of(alice, hourly, -1))
	if now, _ := st.number(alice, "ttl"); whole(t, now) < whole(t, before) {
		t.Errorf("from %s to %s", before, now)
	}
	st.clock.Advance(20 * day)
	st.fake.Sweep(st.clock.Now())
	st.want(st.open(), false, both)
}

// TestRetention checks that items may be kept longer than necessary.
func TestRetention(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open(func(c *dynamodb.Config) { c.Retention = 90 * day })
	alice := bkt("alice")
	st.want(s, true, of(alice, per("rps", 10, time.Second, 10), 1))
	if lives := st.lives(alice); lives < 91*day || lives > 92*day+2*time.Second {
		t.Errorf("lives for %v", lives)
	}
}
