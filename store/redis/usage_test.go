package redis_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
	"github.com/weirlimits/weir/store/storetest"
)

// metered is a store with a reader that does a pass after every change.
type metered struct {
	*redis.Store

	ledger *redis.Ledger
}

func (m *metered) pass(ctx context.Context, err error) error {
	if err == nil {
		_, err = m.ledger.Pass(ctx)
	}
	return err
}

// Take takes, then does a pass.
func (m *metered) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	out, err := m.Store.Take(ctx, t)
	return out, m.pass(ctx, err)
}

// Settle settles, then does a pass.
func (m *metered) Settle(ctx context.Context, t store.Settle) (store.Outcome, error) {
	out, err := m.Store.Settle(ctx, t)
	return out, m.pass(ctx, err)
}

// known makes namespaces known to the catalog and starts keeping usage.
func known(t testing.TB, s *redis.Store, l *redis.Ledger, namespaces ...string) {
	t.Helper()
	for _, ns := range namespaces {
		k := store.Key{Namespace: store.Registry, Kind: store.KindNamespaceID, ID: ns}
		if err := s.Commit(t.Context(), store.Write{Record: store.Record{Key: k, Value: []byte("{}")}}); err != nil {
			t.Fatal(err)
		}
	}
	pass(t, l)
}

func pass(t testing.TB, l *redis.Ledger) redis.Passed {
	t.Helper()
	p, err := l.Pass(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range p.Bad {
		t.Errorf("not booked: %v", bad)
	}
	return p
}

func usageHarness(address string) storetest.Harness {
	h := harness(address)
	open := h.Open
	h.Peer = nil
	h.Caps.LateUsage = false
	h.Open = func(t testing.TB, clock *storetest.Clock) store.Store {
		t.Helper()
		s := open(t, clock).(*redis.Store)
		m := &metered{s, s.Ledger(store.Retention{Hourly: -1, Daily: -1})}
		known(t, s, m.ledger, "n", "n2")
		return m
	}
	return h
}

func TestUsage(t *testing.T) {
	t.Parallel()
	storetest.RunUsage(t, usageHarness("redis://"+shared(t).Addr))
}

// books is a store with its own clock and usage enabled.
type books struct {
	*testing.T

	s     *redis.Store
	l     *redis.Ledger
	clock *storetest.Clock
	cfg   redis.Config
}

var evening = time.Date(2026, time.March, 31, 22, 47, 0, 0, time.UTC)

func bookkeeping(t *testing.T, addr string, r store.Retention) *books {
	t.Helper()
	b := &books{T: t, clock: storetest.NewClock(evening)}
	b.cfg = redis.Config{Address: "redis://" + addr, Prefix: prefix(), Connections: 1, CallTimeout: time.Minute, Now: b.clock.Now}
	b.s = open(t, b.cfg)
	b.l = b.s.Ledger(r)
	known(t, b.s, b.l, "n")
	return b
}

// take debits tokens of a limit and fails the test if they are refused.
func (b *books) take(entity string, l *store.Limit, tokens int64) {
	b.Helper()
	if ok, err := take(b, b.s, one(entity, l, tokens)); !ok || err != nil {
		b.Fatalf("allowed %t, error %v", ok, err)
	}
}

// consumed returns the consumption of rpm by window start.
func (b *books) consumed(of store.UsageOf, id string, w store.Window) map[string]int64 {
	b.Helper()
	got := make(map[string]int64)
	q := store.UsageQuery{Namespace: "n", Of: of, ID: id, Window: w, From: evening.AddDate(-1, 0, 0), To: evening.AddDate(1, 0, 0), Max: 7}
	for {
		page, err := b.s.Usage(b.Context(), q)
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range page.Records {
			for _, c := range r.Counts {
				if c.Limit == "rpm" && c.Consumed() != 0 {
					got[r.Start.Format("01-02 15")] += c.Consumed() / 1000
				}
			}
		}
		if q.After = page.Next; q.After == "" {
			return got
		}
	}
}

func (b *books) want(of store.UsageOf, id string, w store.Window, want map[string]int64) {
	b.Helper()
	got := b.consumed(of, id, w)
	for k := range want {
		if got[k] != want[k] {
			b.Errorf("%c %q %s: %v, want %v", of, id, w, got, want)
			return
		}
	}
	if len(got) != len(want) {
		b.Errorf("%c %q %s: %v, want %v", of, id, w, got, want)
	}
}

// A bucket's debits are booked in the hour of its last write, whenever it is read; and completely, however it ends.
func TestUsageWindowOfAReading(t *testing.T) {
	t.Parallel()
	b := bookkeeping(t, shared(t).Addr, store.Retention{})
	l := still(100)
	b.take("alice", l, 3)
	b.clock.Advance(time.Hour) // 23:47
	pass(t, b.l)
	b.take("alice", l, 4)
	b.clock.Advance(time.Hour) // 00:47, in April
	b.take("alice", l, 5)
	pass(t, b.l)
	for range 2 { // neither birth is read before it ends
		b.take("alice", l, 1)
		if err := b.s.Forget(t.Context(), one("alice", l, 0).Bucket); err != nil {
			t.Fatal(err)
		}
	}
	pass(t, b.l)
	b.want(store.OfBucket, "alice", store.Hourly, map[string]int64{"03-31 22": 3, "04-01 00": 11})
	b.want(store.OfNamespace, "", store.Monthly, map[string]int64{"03-01 00": 3, "04-01 00": 11})
	b.want(store.OfStore, "", store.Daily, map[string]int64{"03-31 00": 3, "04-01 00": 11})
}

// A change in the same instant as the last change read is also seen: time stands still while a server's clock that went
// back catches up.
func TestUsageInstant(t *testing.T) {
	t.Parallel()
	b := bookkeeping(t, shared(t).Addr, store.Retention{})
	d := one("alice", still(100), 5)
	b.take("alice", d.Charges[0].Limit, 5)
	pass(t, b.l)
	d.Charges[0].Amount = -2000
	if _, err := b.s.Settle(t.Context(), store.Settle{Debits: []store.Debit{d}}); err != nil {
		t.Fatal(err)
	}
	if p := pass(t, b.l); p.Booked != 1 {
		t.Errorf("booked %d accounts, want the one that changed", p.Booked)
	}
	b.want(store.OfBucket, "alice", store.Monthly, map[string]int64{"03-01 00": 3})
	if p := pass(t, b.l); p.Booked != 0 {
		t.Errorf("booked %d accounts, and nothing is new", p.Booked)
	}
}

// all returns the consumption of each limit over all months.
func (b *books) all(of store.UsageOf) map[string]int64 {
	b.Helper()
	got := make(map[string]int64)
	page, err := b.s.Usage(b.Context(), store.UsageQuery{Namespace: "n", Of: of, Window: store.Monthly, From: evening.AddDate(-50, 0, 0), To: evening.AddDate(50, 0, 0), Max: 1000})
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range page.Records {
		for _, c := range r.Counts {
			if c.Consumed() != 0 {
				got[c.Limit] += c.Consumed() / 1000
			}
		}
	}
	return got
}

// A bucket whose overrides are swept continues under a new birth. What it had counted is booked, even if no reader had
// read it, and even if several takes with other overrides arrive at once.
func TestUsageOverridesSwept(t *testing.T) {
	t.Parallel()
	b := bookkeeping(t, shared(t).Addr, store.Retention{})
	own := still(1000)
	births := make(map[uint64]bool)
	for i := range int64(10) {
		var wg sync.WaitGroup
		for j := range int64(8) {
			over := &store.Limit{Name: "once", Amount: 60_000 + 8*i + j, Period: time.Minute, Burst: 60_000, Override: true}
			d := one("alice", own, 1)
			d.Charges = append(d.Charges, store.Charge{Limit: over, Amount: 1000})
			wg.Go(func() {
				if out, err := b.s.Take(t.Context(), store.Take{Debits: []store.Debit{d}}); !out.Allowed || err != nil {
					t.Errorf("allowed %t, error %v", out.Allowed, err)
				}
			})
		}
		wg.Wait()
		b.clock.Advance(5 * time.Second) // they are full again
		snap, err := b.s.Peek(t.Context(), one("alice", own, 0).Bucket)
		if err != nil {
			t.Fatal(err)
		}
		births[snap.States[0].ID] = true
	}
	if len(births) < 3 {
		t.Errorf("%d births: nothing was put to the test", len(births))
	}
	pass(t, b.l)
	if got := b.all(store.OfBucket); got["rpm"] != 80 || got["once"] != 80 {
		t.Errorf("booked %v, want 80 of both", got)
	}
}

// Windows of more hours than one script handles are all listed, in order, and all are deleted except those of the whole
// store.
func TestUsageForgotten(t *testing.T) {
	t.Parallel()
	b := bookkeeping(t, shared(t).Addr, store.Retention{})
	const hours = 70
	for range hours {
		b.take("alice", still(1000), 1)
		b.take("bob", still(1000), 1)
		pass(t, b.l)
		b.clock.Advance(time.Hour)
	}
	if got := b.consumed(store.OfBucket, "alice", store.Hourly); len(got) != hours {
		t.Errorf("%d hours of %d", len(got), hours)
	}
	top, err := meter.Top(t.Context(), b.s.Usage, store.UsageQuery{
		Namespace: "n", Of: store.OfBucket, Window: store.Hourly, From: evening.AddDate(0, 0, -1), To: evening.AddDate(0, 1, 0),
	}, "rpm", nil)
	if err != nil || len(top) != 2 || top[0].Counts[1].Consumed() != hours*1000 {
		t.Errorf("top %+v, error %v", top, err)
	}
	if err := b.s.ForgetUsage(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	for of, want := range map[store.UsageOf]int{store.OfBucket: 0, store.OfResource: 0, store.OfNamespace: 0, store.OfStore: hours} {
		if got := b.consumed(of, "", store.Hourly); len(got) != want {
			t.Errorf("%c: %d hours are left, want %d", of, len(got), want)
		}
	}
	pass(t, b.l)
	b.want(store.OfNamespace, "", store.Monthly, nil) // nothing is counted again
}

// Windows are deleted when they expire, and accounts when their buckets are gone, and not before.
func TestUsageExpires(t *testing.T) {
	t.Parallel()
	b := bookkeeping(t, shared(t).Addr, store.Retention{Hourly: time.Hour, Daily: 48 * time.Hour})
	b.take("alice", still(100), 5)
	pass(t, b.l)
	pass(t, b.l) // this pass finds accounts
	ms := func(key string) time.Duration {
		d, err := time.ParseDuration(shared(t).do(t, "PTTL", b.cfg.Prefix+":{n}:"+key) + "ms")
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	slack := 10 * time.Minute // for a busy machine
	member := "alice\x00api"
	for key, want := range map[string]time.Duration{
		"uwhb1774994400:" + member: 2*time.Hour - 47*time.Minute, "uxhb1774994400": 2*time.Hour - 47*time.Minute,
		"uwdb1774915200:" + member: 49*time.Hour + 13*time.Minute, "ua": 30 * 24 * time.Hour,
	} {
		if got := ms(key); got > want+time.Second || got < want-slack {
			t.Errorf("%s lives for %v, want %v", key, got, want)
		}
	}
	if got := shared(t).do(t, "PTTL", b.cfg.Prefix+":{n}:uwmb1772323200:"+member); got != "-1" {
		t.Errorf("a month lives for %s", got)
	}
	accounts := func() string { return shared(t).do(t, "HLEN", b.cfg.Prefix+":{n}:ua") }
	b.clock.Advance(8 * time.Hour)
	sweep := func() {
		b.l = b.s.Ledger(store.Retention{})
		pass(t, b.l)
	}
	if sweep(); accounts() != "1" {
		t.Error("the account of a bucket that is there was removed")
	}
	if err := b.s.Expire(t.Context(), one("alice", nil, 0).Bucket); err != nil {
		t.Fatal(err)
	}
	if sweep(); accounts() != "0" {
		t.Error("the account of a bucket that is gone is kept")
	}
}

// A pass so late that buckets may have gone unread says so.
func TestUsageApart(t *testing.T) {
	t.Parallel()
	b := bookkeeping(t, shared(t).Addr, store.Retention{})
	b.clock.Advance(59 * time.Minute)
	if p := pass(t, b.l); p.Apart != 0 {
		t.Errorf("apart by %v", p.Apart)
	}
	b.clock.Advance(90 * time.Minute)
	if p := pass(t, b.l); p.Apart != 30*time.Minute {
		t.Errorf("apart by %v, want half an hour", p.Apart)
	}
}
