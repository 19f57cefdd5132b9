package share_test

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/outage/share"
	"github.com/weirlimits/weir/store"
)

func quota(t *testing.T, tokens int64, window string) *store.Limit {
	t.Helper()
	l := &store.Limit{Name: "usd", Amount: tokens * 1000, Burst: tokens * 1000}
	if err := l.Window.UnmarshalText([]byte(window)); err != nil {
		t.Fatal(err)
	}
	return l
}

// shown returns the store's answer to a take, after which so much of a limit is spent.
func shown(l *store.Limit, spent int64, at time.Time) *store.Outcome {
	level := clock.Spend(l.Params().Fresh(clock.Nanos(at)), l.Params().Clock(clock.Nanos(at)), spent*1000)
	return &store.Outcome{Allowed: true, At: at, Levels: []store.Level{{Limit: l, Level: level}}}
}

// Of a quota that the process has not seen, others may have spent all: its share is empty until the next window, and then
// the processes have one window together.
func TestQuotaUnseen(t *testing.T) {
	t.Parallel()
	for name, began := range map[string]time.Time{"running": {}, "begun without the store": noon} {
		s, l := share.New(1000), quota(t, 40, "hour@UTC")
		s.Begin(began)
		if take(t, s, 4, noon, debit("alice", l, 1)) || take(t, s, 4, noon.Add(time.Hour-1), debit("alice", l, 1)) {
			t.Errorf("%s: admitted in a window of which nothing is known", name)
		}
		if !take(t, s, 4, noon, debit("alice", l, 0)) {
			t.Errorf("%s: nothing was refused", name)
		}
		next := noon.Add(time.Hour)
		if take(t, s, 4, next, debit("alice", l, 11)) {
			t.Errorf("%s: more than the share", name)
		}
		if !take(t, s, 4, next, debit("alice", l, 10)) || take(t, s, 4, next, debit("alice", l, 1)) {
			t.Errorf("%s: a quarter of the next window is not the share", name)
		}
	}
}

func TestQuotaSeen(t *testing.T) {
	t.Parallel()
	s, l := share.New(1000), quota(t, 40, "month@Europe/Berlin")
	d := []store.Debit{debit("alice", l, 1)}
	s.Warm(d, &store.Outcome{Allowed: true, At: noon}, 4, noon) // an answer without levels shows nothing
	if take(t, s, 4, noon, debit("alice", l, 1)) {
		t.Error("admitted, although nothing is known")
	}
	s.Warm(d, shown(l, 20, noon), 4, noon)
	if !take(t, s, 4, noon, debit("alice", l, 5)) || take(t, s, 4, noon, debit("alice", l, 1)) {
		t.Error("not half of a quarter")
	}
	out, _ := s.Take([]store.Debit{debit("alice", l, 1)}, 4, noon)
	lv := out.Levels[0]
	april := time.Date(2026, time.March, 31, 22, 0, 0, 0, time.UTC)
	if wait, ok := lv.Limit.Params().RetryAfter(lv.Level, clock.Nanos(noon), 1000); !ok || wait != april.Sub(noon) {
		t.Errorf("retry after %v, %t", wait, ok)
	}
}

// A balance is in the store alone: nothing is admitted without it, whatever was seen of it.
func TestBalanceShare(t *testing.T) {
	t.Parallel()
	s, l := share.New(1000), store.Balance("credits")
	d := []store.Debit{debit("alice", l, 1)}
	for _, n := range []int{1, 4} {
		if take(t, s, n, noon, d...) {
			t.Error("admitted, although nothing is known")
		}
		out := &store.Outcome{Allowed: true, At: noon, Levels: []store.Level{{Limit: l, Level: -1_000_000}}}
		s.Warm(d, out, n, noon)
		s.Settle([]store.Debit{debit("alice", l, -500)}, n, noon, noon)
		if take(t, s, n, noon, d...) {
			t.Error("admitted, although the store has the balance")
		}
		if !take(t, s, n, noon, debit("alice", l, 0)) {
			t.Error("nothing was refused")
		}
	}
	rate := limit("credits", 100, time.Minute)
	take(t, s, 1, noon, debit("alice", rate, 0))
	if take(t, s, 1, noon, debit("alice", l, 1)) {
		t.Error("a rate that became a balance has credits")
	}
	forced := debit("bob", l, 7)
	forced.Charges[0].Force = true
	take(t, s, 1, noon, forced)
	if got := s.Bill(forced.Bucket, l, 1, noon.Add(1000*time.Hour), 7000); got != 7000 {
		t.Errorf("%d of 7000 are billed", got)
	}
}

// What a lease of limits that have ended changes does not bring them back, and neither does the bill.
func TestEndedLimit(t *testing.T) {
	t.Parallel()
	s := share.New(1000)
	ended, l := quota(t, 400, "month@UTC"), quota(t, 40, "month@UTC")
	s.Warm([]store.Debit{debit("alice", ended, 0)}, shown(ended, 20, noon), 4, noon) // 5 of 100
	of := func(amount int64) store.Debit { return debit("alice", ended, amount) }
	if !take(t, s, 4, noon, of(1)) || !take(t, s, 4, noon, debit("alice", l, 1)) { // 7 of 10
		t.Fatal("refused")
	}
	forced := of(1)
	changed := s.Settle([]store.Debit{forced}, 4, noon, noon)
	if got := changed[0].Charges[0]; got.Limit != l || got.Amount != 1000 {
		t.Errorf("%+v is owed", got)
	}
	if got := s.Bill(forced.Bucket, ended, 4, noon, 3000); got != 3000 {
		t.Errorf("%d of 3000 are billed", got)
	}
	if take(t, s, 4, noon, debit("alice", l, 3)) || !take(t, s, 4, noon, debit("alice", l, 2)) {
		t.Error("a share of 10 of which 8 are spent has not 2")
	}
}
