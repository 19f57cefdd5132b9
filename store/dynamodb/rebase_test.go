package dynamodb_test

import (
	"errors"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

func at(epoch uint64, d store.Debit) store.Debit { d.Epoch = epoch; return d }

// TestRebaseConcurrent checks that what others debit while limits change is not lost, and does not prevent the change.
func TestRebaseConcurrent(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s, other := st.open(noGuard), st.open(noGuard)
	before, after, alice := per("rpm", 10, time.Minute, 10), per("rpm", 60, time.Minute, 60), bkt("alice")
	st.want(other, true, at(1, of(alice, before, 2)))
	st.want(s, true, at(1, of(alice, before, 1)))
	calls := 0
	st.fake.Before = func(op string, _ any) error {
		if calls++; calls == 1 && op == "UpdateItem" { // just before the change
			st.want(other, true, at(1, of(alice, before, 5)))
		}
		return nil
	}
	st.want(s, true, at(2, of(alice, after, 20)))
	if calls != 3 { // the other process's debit, the change, our debit
		t.Errorf("%d calls", calls)
	}
	if n := st.outstanding(alice, "rpm"); n != 28_000 {
		t.Errorf("%d outstanding", n)
	}
	if _, err := other.Take(t.Context(), store.Take{Debits: []store.Debit{at(1, of(alice, before, 1))}}); !errors.Is(err, store.ErrStaleLimits) {
		t.Error(err)
	}
	st.want(other, true, at(2, of(alice, after, 1)))
}

// TestRebaseOnce checks that of two processes with the same epoch and different limits, one wins permanently.
func TestRebaseOnce(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	a, b := st.open(noGuard, noMemory), st.open(noGuard, noMemory)
	alice := bkt("alice")
	one, two := at(1, of(alice, per("rpm", 10, time.Hour, 10), 1)), at(1, of(alice, per("rpm", 20, time.Hour, 20), 1))
	stale := map[string]int{}
	for range 4 {
		if _, err := a.Take(t.Context(), store.Take{Debits: []store.Debit{one}}); errors.Is(err, store.ErrStaleLimits) {
			stale["one"]++
		} else if err != nil {
			t.Error(err)
		}
		if _, err := b.Take(t.Context(), store.Take{Debits: []store.Debit{two}}); errors.Is(err, store.ErrStaleLimits) {
			stale["two"]++
		} else if err != nil {
			t.Error(err)
		}
	}
	if len(stale) != 1 || stale["one"]+stale["two"] < 3 {
		t.Errorf("stale: %v", stale)
	}
}

// TestOverrideNoRebase checks that overrides leave the bucket's own limits unchanged, and that equal overrides are one
// limit for all callers.
func TestOverrideNoRebase(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open(noGuard)
	rpm, alice := per("rpm", 10, time.Hour, 10), bkt("alice")
	other := per("rpm", 3, time.Hour, 3)
	other.Override = true
	st.want(s, true, at(1, of(alice, rpm, 9)))
	updates := 0
	st.fake.Before = func(_ string, in any) error {
		if _, ok := in.(*sdk.UpdateItemInput); ok {
			updates++
		}
		return nil
	}
	st.want(s, true, at(9, of(alice, other, 2)))
	st.want(s, false, at(9, of(alice, other, 2)))
	st.want(s, true, at(1, of(alice, rpm, 1)))
	st.want(s, false, at(1, of(alice, rpm, 1)))
	if n := st.outstanding(alice, "rpm"); n != 10_000 || updates > 4 {
		t.Errorf("%d outstanding, %d updates", n, updates)
	}
}

// TestRebaseFullForAll checks that a limit that a change adds to a bucket is full, even for a process whose clock is
// behind that of the process that made the change.
func TestRebaseFullForAll(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	behind := func(c *dynamodb.Config) { c.Now = func() time.Time { return st.clock.Now().Add(-time.Second) } }
	a, b := st.open(noGuard, noMemory), st.open(noGuard, noMemory, behind)
	rpm, tpm, alice := per("rpm", 10, time.Second, 10), per("tpm", 10, time.Hour, 10), bkt("alice")
	force := store.Settle{Debits: []store.Debit{of(alice, tpm, 1)}}
	if _, err := a.Settle(t.Context(), force); err != nil {
		t.Fatal(err)
	}
	both := func(tokens int64) store.Debit {
		d := of(alice, rpm, tokens)
		d.Charges = append(d.Charges, store.Charge{Limit: tpm})
		return d
	}
	st.want(a, false, both(11)) // it makes the bucket follow, and debits nothing
	st.want(b, true, both(10))
}
