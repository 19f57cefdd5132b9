package inmem_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/inmem"
)

var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// clock is a clock advanced by hand.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// rig is a table, its clock, and the buckets that it has retired.
type rig struct {
	*testing.T
	*inmem.Table

	clock *fakeClock

	mu      sync.Mutex
	retired map[string][]store.State // by entity
}

func setup(t *testing.T, most int) *rig {
	t.Helper()
	r := &rig{T: t, clock: &fakeClock{now: noon}, retired: map[string][]store.State{}}
	r.Table = inmem.New(inmem.Config{Now: r.clock.Now, MaxBuckets: most, Retired: func(s store.State) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.retired[s.Bucket.Entity] = append(r.retired[s.Bucket.Entity], s)
	}})
	return r
}

func named(entity string) store.Bucket {
	return store.Bucket{Namespace: "n", Entity: entity, Resource: "api"}
}

func perMinute(tokens int64) *store.Limit {
	return &store.Limit{Name: "rpm", Amount: tokens * 1000, Period: time.Minute, Burst: tokens * 1000}
}

func debit(b store.Bucket, l *store.Limit, tokens int64) store.Debit {
	return store.Debit{Bucket: b, Epoch: 1, Charges: []store.Charge{{Limit: l, Amount: tokens * 1000}}}
}

func (r *rig) take(ds ...store.Debit) bool {
	r.Helper()
	out, _, err := r.Take(store.Take{Debits: ds})
	if err != nil {
		r.Fatal(err)
	}
	return out.Allowed
}

func (r *rig) state(b store.Bucket) store.State { return r.Peek([]store.Bucket{b}).States[0] }

// TestEviction checks that full buckets are evicted as others are created, after handing over their counters, and that
// debts stay.
func TestEviction(t *testing.T) {
	t.Parallel()
	r := setup(t, 1<<20)
	l := perMinute(60)
	debtor := debit(named("debtor"), l, 6000)
	debtor.Charges[0].Force = true
	r.take(debtor)
	const n = 5_000
	for i := range n {
		r.take(debit(named(fmt.Sprint("early-", i)), l, 3))
	}
	r.clock.Advance(3 * time.Minute)
	for i := range 4 * n {
		r.take(debit(named(fmt.Sprint("late-", i)), l, 60))
	}
	seen := 0
	for i := range n {
		key := fmt.Sprint("early-", i)
		switch st := r.state(named(key)); {
		case st.ID != 0 && len(r.retired[key]) > 0:
			t.Fatalf("%s was retired and lives", key)
		case st.ID != 0:
			seen++
		case len(r.retired[key]) != 1 || r.retired[key][0].Limits[0].Debited != 3000 || r.retired[key][0].ID == 0:
			t.Fatalf("%s has gone, retired %+v", key, r.retired[key])
		}
	}
	if seen > n/10 {
		t.Errorf("%d of %d full buckets are still there", seen, n)
	}
	if r.state(named("debtor")).ID == 0 || r.take(debit(named("debtor"), l, 0)) {
		t.Error("a debt was forgotten")
	}
	for i := range 4 * n {
		if r.take(debit(named(fmt.Sprint("late-", i)), l, 1)) {
			t.Fatalf("bucket %d was forgotten while in use", i)
		}
	}
}

// TestMaxBuckets checks that no more buckets can be in use than allowed until one has filled up.
func TestMaxBuckets(t *testing.T) {
	t.Parallel()
	r := setup(t, 100)
	l := perMinute(60)
	for i := range 100 {
		r.take(debit(named(fmt.Sprint(i)), l, 1+int64(i)/2))
	}
	if _, _, err := r.Take(store.Take{Debits: []store.Debit{debit(named("one more"), l, 1)}}); !errors.Is(err, store.ErrTooManyBuckets) {
		t.Fatalf("error %v", err)
	}
	if !r.take(debit(named("7"), l, 1)) {
		t.Fatal("a bucket that is there was refused")
	}
	r.clock.Advance(10 * time.Second) // ten tokens: twenty are full, number 7 among them
	born := 0
	for ; born < 50; born++ {
		_, _, err := r.Take(store.Take{Debits: []store.Debit{debit(named(fmt.Sprint("more-", born)), l, 60)}})
		if errors.Is(err, store.ErrTooManyBuckets) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if born != 20 || r.Len() != 100 {
		t.Fatalf("%d born where 20 were full; there are %d", born, r.Len())
	}
}

// TestFloor checks that after a full bucket was evicted, nothing is judged at an earlier time.
func TestFloor(t *testing.T) {
	t.Parallel()
	r := setup(t, 10)
	l := perMinute(60)
	for i := range 10 {
		r.take(debit(named(fmt.Sprint(i)), l, 60))
	}
	r.clock.Advance(time.Hour)
	r.take(debit(named("late"), l, 1)) // makes room
	r.clock.Advance(-time.Hour)
	if at := r.Peek(nil).At; at.Before(noon.Add(time.Hour)) {
		t.Fatalf("the time is %v", at)
	}
}

// TestSettledIDs checks that an expired id stays expired once it is removed, whatever the clock reads then.
func TestSettledIDs(t *testing.T) {
	t.Parallel()
	r := setup(t, 10)
	settle := func(id string, expires time.Duration) error {
		_, _, err := r.Settle(store.Settle{ID: id, Expires: noon.Add(expires)})
		return err
	}
	if err := settle("early", time.Minute); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(time.Hour)
	for i := range 30_000 { // which removes expired ids along the way
		if err := settle(fmt.Sprint(i), 2*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	r.clock.Advance(-time.Hour)
	if err := settle("early", time.Minute); !errors.Is(err, store.ErrExpired) {
		t.Fatal("settled twice, or never removed:", err)
	}
	if err := settle("later", time.Hour+time.Nanosecond); err != nil {
		t.Fatal(err)
	}
}

// TestBytes checks that a bucket of one limit takes no more memory than promised.
func TestBytes(t *testing.T) { //nolint:paralleltest // counts what the process has allocated
	const n = 100_000
	l := perMinute(60)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("entity-%09d", i)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	tab := inmem.New(inmem.Config{MaxBuckets: n})
	for _, k := range keys {
		if _, _, err := tab.Take(store.Take{Debits: []store.Debit{debit(named(k), l, 60)}}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	key := len(inmem.Key(named(keys[0])))
	each := int(after.HeapAlloc-before.HeapAlloc)/n - (key+7)/8*8
	t.Logf("%d bytes a bucket beside its key of %d", each, key)
	if each > 128 {
		t.Errorf("%d bytes a bucket beside its key", each)
	}
	runtime.KeepAlive(tab)
}

// TestBusy checks that takes of several buckets in any order, settles, forgetting, listing and evicting do not conflict.
func TestBusy(t *testing.T) {
	t.Parallel()
	r := setup(t, 300)
	l := perMinute(6000)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				var ds []store.Debit
				for k := range 5 {
					n := (g*7 + i*(k+1)*13 + k) % 40
					ds = append(ds, debit(named(fmt.Sprint(n)), l, 1))
				}
				if _, _, err := r.Take(store.Take{Debits: ds}); err != nil && !errors.Is(err, store.ErrDuplicateBucket) {
					t.Error(err)
				}
				switch i % 16 {
				case 0:
					r.Forget([]store.Bucket{ds[0].Bucket, ds[1].Bucket})
				case 1:
					r.clock.Advance(time.Second)
					_, _, _ = r.Take(store.Take{Debits: []store.Debit{debit(named(fmt.Sprint("born-", g, i)), l, 1)}})
				case 2:
					if _, err := r.Buckets(store.BucketQuery{Namespace: "n"}); err != nil {
						t.Error(err)
					}
				case 3:
					ds[0].Charges[0].Amount *= -1
					if _, _, err := r.Settle(store.Settle{Debits: ds[:1]}); err != nil {
						t.Error(err)
					}
				case 4:
					r.Each(func(*inmem.Bucket, store.Bucket) bool { return true })
				}
			}
		})
	}
	wg.Wait()
}

// TestTakeOneOfForgotten checks that TakeOne decides nothing on a bucket that is gone.
func TestTakeOneOfForgotten(t *testing.T) {
	t.Parallel()
	r := setup(t, 300)
	d := debit(named("alice"), perMinute(60), 30)
	if r.Find(d.Bucket) != nil {
		t.Error("a bucket that does not exist was found")
	}
	r.take(d)
	first := r.Find(d.Bucket)
	if allowed, ok := r.TakeOne(first, &d.Charges[0]); !allowed || !ok {
		t.Errorf("allowed %t, ok %t: want the other half of the burst", allowed, ok)
	}
	if allowed, ok := r.TakeOne(first, &d.Charges[0]); allowed || !ok {
		t.Errorf("allowed %t, ok %t: want a refusal", allowed, ok)
	}
	r.Forget([]store.Bucket{d.Bucket})
	if _, ok := r.TakeOne(first, &d.Charges[0]); ok {
		t.Error("decided on a bucket that was forgotten")
	}
	if !r.take(d) {
		t.Error("a forgotten bucket is not full")
	}
	if second := r.Find(d.Bucket); second == nil || second == first {
		t.Errorf("found %p, before %p", second, first)
	}
}

// TestLoad checks that a loaded bucket equals its record, or is absent if it is full by now.
func TestLoad(t *testing.T) {
	t.Parallel()
	r := setup(t, 300)
	now := clock.Nanos(noon)
	l := perMinute(60)
	p := clock.Params{Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst}
	rec := &inmem.Record{ID: 7, At: now - 5, Epoch: 3, Own: 1, Limits: []store.LimitState{
		{Limit: l, Level: p.Clock(now) + 1000, Debited: 5000, Returned: 2000},
		{Limit: &store.Limit{Name: "gone", Amount: 1, Period: time.Hour, Burst: 5}, Level: -3, Debited: 1},
	}}
	for _, reborn := range []bool{false, true} {
		key := inmem.Key(named(fmt.Sprint(reborn)))
		if ok, err := r.Load(key, rec, reborn); !ok || err != nil {
			t.Fatal(ok, err)
		}
		st := r.state(inmem.ParseKey(key))
		if !reborn && (st.ID != 7 || st.Limits[0].Debited != 5000) || reborn && (st.ID <= uint64(now) || st.Limits[0].Debited != 0) {
			t.Errorf("reborn %t: %+v", reborn, st)
		}
		if st.Epoch != 3 || len(st.Limits) != 2 || st.Limits[0].Level != rec.Limits[0].Level {
			t.Errorf("reborn %t: %+v", reborn, st)
		}
		if !r.take(debit(st.Bucket, l, 59)) || r.take(debit(st.Bucket, l, 1)) {
			t.Errorf("reborn %t: want 59 of 60 tokens", reborn)
		}
	}
	r.clock.Advance(time.Second)
	if ok, err := r.Load(inmem.Key(named("full")), rec, false); ok || err != nil {
		t.Fatal(ok, err)
	}
	if r.state(named("full")).ID != 0 || r.Len() != 2 {
		t.Error("a full bucket was loaded")
	}
	rec.Limits[1].Limit.Amount = 0
	if _, err := r.Load(inmem.Key(named("bad")), rec, false); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("error %v", err)
	}
}

// A bucket that changes a nanosecond before the epoch, where the single span of a table without a meter ends.
func TestUnmeteredBeforeEpoch(t *testing.T) {
	t.Parallel()
	r := setup(t, 10)
	r.clock.now = time.Date(2024, time.January, 1, 0, 0, 0, -1, time.UTC).Add(-time.Minute)
	for range 2 {
		if !r.take(debit(named("early"), perMinute(60), 1)) {
			t.Fatal("refused")
		}
		r.clock.Advance(time.Minute)
	}
}
