package parts_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// metered counts the calls that decisions make.
type metered struct {
	store.Store
	mu                    sync.Mutex
	takes, settles, peeks int
	fails                 error // of the next take
}

func (m *metered) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	m.mu.Lock()
	m.takes++
	err := m.fails
	m.fails = nil
	m.mu.Unlock()
	out, failed := m.Store.Take(ctx, t)
	return out, errors.Join(err, failed)
}

func (m *metered) Settle(ctx context.Context, s store.Settle) (store.Outcome, error) {
	m.settles++
	return m.Store.Settle(ctx, s)
}

func (m *metered) Peek(ctx context.Context, bs ...store.Bucket) (store.Snapshot, error) {
	m.mu.Lock()
	m.peeks++
	m.mu.Unlock()
	return m.Store.Peek(ctx, bs...)
}

var hourly = &store.Limit{Name: "rph", Amount: 10_000, Period: time.Hour, Burst: 10_000} // a token lasts six minutes

func debit(namespace, entity string, tokens int64) store.Debit {
	return store.Debit{
		Bucket:  store.Bucket{Namespace: namespace, Entity: entity, Resource: "api"},
		Charges: []store.Charge{{Limit: hourly, Amount: tokens * 1000}},
	}
}

// liveIn returns how many buckets of a namespace are not full.
func liveIn(t *testing.T, st store.Store, namespace string) (n int) {
	t.Helper()
	for q := (store.BucketQuery{Namespace: namespace, Max: 1000}); ; {
		page, err := st.Buckets(t.Context(), q)
		must(t, err)
		for i := range page.States {
			for _, l := range page.States[i].Limits {
				p := clock.Params{Amount: l.Limit.Amount, Period: int64(l.Limit.Period), Burst: l.Limit.Burst}
				if p.Full(l.Level) > clock.Nanos(page.At) {
					n++
					break
				}
			}
		}
		if q.After = page.Next; q.After == "" {
			return n
		}
	}
}

// quotaOf returns a store with a quota, what counts its calls, and the store behind.
func quotaOf(rules parts.QuotaRules) (st store.Store, m *metered, behind store.Store) {
	m = &metered{Store: memory.New(nil)}
	q := &parts.Quota{}
	q.Use(rules)
	st, _ = parts.Bound(m, time.Second, nil, &parts.Parts{Trips: &parts.Trips{}, Ready: &parts.Ready{}, Quota: q})
	return st, m, m.Store
}

// A quota that is not reached costs a take no allocations.
//
//nolint:paralleltest // allocations are counted over the whole process
func TestQuotaAllocations(t *testing.T) {
	st, _, behind := quotaOf(parts.QuotaRules{Most: 100})
	two := debit("a", "alice", 1)
	two.Charges = append(two.Charges, store.Charge{Limit: &store.Limit{
		Name: "tph", Amount: 10_000, Period: time.Hour, Burst: 10_000,
	}})
	allocs := func(st store.Store) float64 {
		return testing.AllocsPerRun(100, func() {
			_, err := st.Take(t.Context(), store.Take{Debits: []store.Debit{two}})
			must(t, err)
		})
	}
	if with, without := allocs(st), allocs(behind); with > without {
		t.Errorf("%v allocations with a quota, %v without", with, without)
	}
}

// A namespace at its quota gets no new bucket, keeps those that it has, and does not concern others. Below the quota
// nothing is read; at the quota, only for buckets that the process has not used.
func TestQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		st, m, behind := quotaOf(parts.QuotaRules{Most: 100})
		calls := func(takes, settles, peeks int) {
			t.Helper()
			if m.takes != takes || m.settles != settles || m.peeks != peeks {
				t.Errorf("%d takes, %d settles, %d peeks, want %d, %d, %d", m.takes, m.settles, m.peeks, takes, settles, peeks)
			}
			m.takes, m.settles, m.peeks = 0, 0, 0
		}
		take := func(ds ...store.Debit) error {
			_, err := st.Take(ctx, store.Take{Debits: ds})
			return err
		}
		settle := func(entity string, tokens int64) error {
			_, err := st.Settle(ctx, store.Settle{Debits: []store.Debit{debit("a", entity, tokens)}})
			return err
		}
		refused := func(err error) {
			t.Helper()
			var quota *store.BucketQuotaError
			if !errors.As(err, &quota) || !errors.Is(err, store.ErrBucketQuota) || quota.Most != 100 {
				t.Errorf("got %v", err)
			}
		}
		for i := range 100 {
			must(t, take(debit("a", fmt.Sprint(i), 1)))
		}
		calls(100, 0, 0)
		for i := range 100 {
			must(t, take(debit("a", fmt.Sprint(i), 1)))
			must(t, take(debit("b", fmt.Sprint(i), 1)))
		}
		calls(200, 0, 0)

		refused(take(debit("a", "new", 1)))
		refused(take(debit("a", "new", 0)))
		refused(take(debit("a", "0", 1), debit("a", "new", 1)))
		refused(settle("new", 1))
		calls(0, 0, 4)
		must(t, settle("new", -1)) // creates nothing
		must(t, settle("0", 1))
		_, err := st.Take(ctx, store.Seal(store.Bucket{Namespace: "a", Entity: "0", Resource: "api"}))
		must(t, err)
		calls(1, 2, 0)

		_, err = behind.Take(ctx, store.Take{Debits: []store.Debit{debit("a", "elsewhere", 1)}})
		must(t, err)
		must(t, take(debit("a", "elsewhere", 1), debit("a", "1", 1)))
		must(t, take(debit("a", "elsewhere", 1)))
		calls(2, 0, 1)
		if n := liveIn(t, behind, "a"); n != 101 {
			t.Errorf("%d live buckets", n)
		}

		time.Sleep(time.Hour) // all are full, and still in the store
		for i := range 100 {
			must(t, take(debit("a", fmt.Sprint("later", i), 1)))
		}
		calls(100, 0, 0)
		refused(take(debit("a", "99", 1))) // a full bucket that the store has not forgotten would be a live one again
		calls(0, 0, 1)
	})
}

// A bucket with a limit of slots is live while some may be held, and not for ever.
func TestQuotaOfSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, _, behind := quotaOf(parts.QuotaRules{Most: 1})
		parallel := store.Slots("parallel", 1000, 16*time.Second)
		debits := func(entity string, amount int64, hold *store.Hold) []store.Debit {
			return []store.Debit{{
				Bucket:  store.Bucket{Namespace: "a", Entity: entity, Resource: "api"},
				Charges: []store.Charge{{Limit: parallel, Amount: amount, Hold: hold}},
			}}
		}
		take := func(st store.Store, entity string) (*store.Hold, error) {
			out, err := st.Take(t.Context(), store.Take{Debits: debits(entity, 1000, nil)})
			if err != nil {
				return nil, err
			}
			return out.Levels[0].Hold, nil
		}
		held, err := take(st, "alice")
		must(t, err)
		for range 3 {
			time.Sleep(16 * time.Second)
			out, err := st.Settle(t.Context(), store.Settle{Debits: debits("alice", 1000, held)})
			must(t, err)
			if held = out.Levels[0].Hold; held == nil {
				t.Fatal("the slot was not renewed")
			}
			if _, err := take(st, "bob"); !errors.Is(err, store.ErrBucketQuota) {
				t.Errorf("beside a bucket of which a slot is held: %v", err)
			}
		}
		time.Sleep(40 * time.Second)
		_, err = take(st, "bob")
		must(t, err)

		_, err = take(behind, "elsewhere")
		must(t, err)
		_, err = st.Settle(t.Context(), store.Settle{Debits: debits("elsewhere", 1000, nil)})
		must(t, err)
		held, err = take(behind, "free")
		must(t, err)
		_, err = behind.Settle(t.Context(), store.Settle{Debits: debits("free", -1000, held)})
		must(t, err)
		if _, err := take(st, "free"); !errors.Is(err, store.ErrBucketQuota) {
			t.Errorf("a bucket of which nothing is held: %v", err)
		}
	})
}

// A bucket with nothing but an empty balance is not live: nobody who has no credits takes the place of others.
func TestQuotaOfBalances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, _, _ := quotaOf(parts.QuotaRules{Most: 1})
		for i := range 3 {
			d := debit("a", fmt.Sprint("invented", i), 1)
			d.Charges[0].Limit = store.Balance("credits")
			if out, err := st.Take(t.Context(), store.Take{Debits: []store.Debit{d}}); err != nil || out.Allowed {
				t.Fatalf("without credits: %v, %v", out.Allowed, err)
			}
			time.Sleep(2 * time.Second) // full buckets are looked for once a second
		}
		_, err := st.Take(t.Context(), store.Take{Debits: []store.Debit{debit("a", "alice", 1)}})
		must(t, err)
	})
}

// What is set for a namespace applies up to the bound of the process, and from then on that it changes.
func TestQuotaOfNamespace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ bound, set, want int }{
		{0, 3, 3}, {5, 3, 3}, {3, 5, 3}, {3, 0, 3}, {0, 0, parts.DefaultBuckets},
	} {
		set := map[string]int{"a": c.set, "b": 1}
		st, _, _ := quotaOf(parts.QuotaRules{Most: c.bound, Of: func(_ context.Context, id string) (string, int) {
			return "the name of " + id, set[id]
		}})
		admitted := func(from int) (n int, err error) {
			for i := range 10 {
				_, failed := st.Take(t.Context(), store.Take{Debits: []store.Debit{debit("a", fmt.Sprint(from+i), 1)}})
				if failed == nil {
					n++
				} else {
					err = failed
				}
			}
			return n, err
		}
		var over *store.BucketQuotaError
		if n, err := admitted(0); n != min(10, c.want) || n < 10 && (!errors.As(err, &over) || over.Most != c.want) {
			t.Errorf("%+v: %d admitted, then %v", c, n, err)
		}
		if set["a"] = 4; c.bound == 5 {
			if n, _ := admitted(10); n != 1 {
				t.Errorf("%+v: %d admitted after the change to 4", c, n)
			}
		}
	}
}

// Invented names are looked up 1,000 times at once and 100 times a second at the quota, and reported once a minute.
// Buckets that are live count for neither.
func TestQuotaLookups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reports := 0
		st, m, behind := quotaOf(parts.QuotaRules{Most: 1, Of: func(_ context.Context, id string) (string, int) {
			return "the name of " + id, 0
		}, Reached: func(name string, most int) {
			if reports++; name != "the name of a" || most != 1 {
				t.Errorf("%s has %d", name, most)
			}
		}})
		take := func(st store.Store, entity string) error {
			_, err := st.Take(t.Context(), store.Take{Debits: []store.Debit{debit("a", entity, 1)}})
			return err
		}
		for i := range 2000 {
			must(t, take(behind, fmt.Sprint("elsewhere", i)))
		}
		must(t, take(st, "first"))
		for i := range 2000 {
			must(t, take(st, fmt.Sprint("elsewhere", i)))
		}
		m.peeks = 0
		for second, want := range []int{1000, 100, 100} {
			for i := range 2000 {
				if err := take(st, fmt.Sprint("invented", second, "-", i)); !errors.Is(err, store.ErrBucketQuota) {
					t.Fatal(err)
				}
			}
			if m.peeks != want || reports != 1 {
				t.Errorf("second %d: %d lookups, want %d; %d reports", second, m.peeks, want, reports)
			}
			m.peeks = 0
			time.Sleep(time.Second)
		}
		time.Sleep(57 * time.Second)
		_ = take(st, "invented")
		if reports != 2 {
			t.Errorf("%d reports after a minute", reports)
		}
	})
}

// What a take did whose answer was lost counts until it can have no effect any more; a refusal does not count.
func TestQuotaAfterErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, m, _ := quotaOf(parts.QuotaRules{Most: 1})
		take := func(entity string, tokens int64) error {
			_, err := st.Take(t.Context(), store.Take{Debits: []store.Debit{debit("a", entity, tokens)}})
			return err
		}
		must(t, take("refused", 11))
		time.Sleep(2 * time.Second)
		m.fails = store.ErrStaleLimits
		_ = take("stale", 0)
		time.Sleep(2 * time.Second)
		m.fails = errors.New("broken")
		if err := take("unknown", 1); err == nil {
			t.Fatal("the fake does not fail")
		}
		if err := take("new", 1); !errors.Is(err, store.ErrBucketQuota) {
			t.Errorf("got %v", err)
		}
		time.Sleep(59 * time.Minute)
		if err := take("new", 1); !errors.Is(err, store.ErrBucketQuota) {
			t.Errorf("got %v", err)
		}
		time.Sleep(15 * time.Minute)
		must(t, take("new", 1))
	})
}

// However many callers invent names at once, the quota is never exceeded.
func TestQuotaAtOnce(t *testing.T) {
	t.Parallel()
	st, _, behind := quotaOf(parts.QuotaRules{Most: 2000})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				_, err := st.Take(t.Context(), store.Take{Debits: []store.Debit{debit("a", fmt.Sprint(g, "-", i), 1)}})
				if err != nil && !errors.Is(err, store.ErrBucketQuota) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := liveIn(t, behind, "a"); n != 2000 {
		t.Errorf("%d live buckets, the quota is 2000", n)
	}
}

// endless is a store that keeps nothing: all buckets stay live.
type endless struct{ store.Store }

func (endless) Take(_ context.Context, t store.Take) (store.Outcome, error) {
	return store.Outcome{Allowed: true, At: time.Now(), Levels: []store.Level{{Limit: hourly, Level: math.MaxInt64 >> 8}}}, nil
}

func (endless) Peek(_ context.Context, bs ...store.Bucket) (store.Snapshot, error) {
	return store.Snapshot{At: time.Now(), States: make([]store.State, len(bs))}, nil
}

// A live bucket takes at most 40 bytes, and names that are refused none.
func TestQuotaMemory(t *testing.T) { //nolint:paralleltest // others would be measured, too
	const most = 500_000
	q := &parts.Quota{}
	q.Use(parts.QuotaRules{Most: most})
	st, _ := parts.Bound(endless{}, time.Second, nil, &parts.Parts{Trips: &parts.Trips{}, Ready: &parts.Ready{}, Quota: q})
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, refused := heap(), 0
	for i := range most + 200_000 {
		_, err := st.Take(t.Context(), store.Take{Debits: []store.Debit{debit("a", fmt.Sprint(i), 1)}})
		if errors.Is(err, store.ErrBucketQuota) {
			refused++
		}
	}
	if grown := heap() - before; refused != 200_000 || grown > 40*most {
		t.Errorf("%d were refused; %d bytes for each bucket", refused, grown/most)
	}
	runtime.KeepAlive(st)
}

// A namespace has as many IDs of settles remembered as it may have live buckets, until they expire. Its buckets, other
// namespaces, and charges for what was admitted without the store go on.
func TestQuotaOfIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 3000
		st, m, _ := quotaOf(parts.QuotaRules{Most: most})
		settle := func(id string, ds ...store.Debit) error {
			_, err := st.Settle(t.Context(), store.Settle{ID: id, Expires: time.Now().Add(time.Hour), Debits: ds})
			return err
		}
		for range 3 {
			from := m.settles
			for i := range most {
				must(t, settle(fmt.Sprint(from, "-", i), debit("a", "alice", -1)))
			}
			for i := range 2 {
				var quota *store.BucketQuotaError
				err := settle(fmt.Sprint(from, " too many ", i), debit("a", "alice", -1))
				if !errors.As(err, &quota) || quota.Most != most || !quota.IDs {
					t.Fatalf("got %v", err)
				}
			}
			if got := m.settles - from; got != most {
				t.Errorf("%d settles, want %d", got, most)
			}
			if err := settle(fmt.Sprint(from, "-", 1), debit("a", "alice", -1)); !errors.Is(err, store.ErrSettled) {
				t.Errorf("repeated: %v", err)
			}
			_, err := st.Take(t.Context(), store.Take{Debits: []store.Debit{debit("a", fmt.Sprint(from), 1)}})
			must(t, err)
			must(t, settle("", debit("a", "alice", -1)))
			must(t, settle(fmt.Sprint(outage.Owed, from), debit("a", "alice", 1)))
			must(t, settle(fmt.Sprint(from, "of b"), debit("b", "alice", -1)))
			must(t, settle(fmt.Sprint(from, "of nothing")))
			time.Sleep(time.Hour + 3*time.Second)
		}
	})
}
