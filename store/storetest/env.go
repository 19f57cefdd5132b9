package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// tok is one token in the store interface's unit, millitokens.
const tok = 1000

// noon is the default start time of a test, deliberately not a round number in any unit.
var noon = time.Date(2026, time.March, 1, 12, 34, 56, 789_012_345, time.UTC)

// tb is what an env needs of a test. Both *testing.T and *rapid.T implement it.
type tb interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Context() context.Context
}

// env is an open store and its clock, with helpers for tests.
type env struct {
	tb

	outer testing.TB // for files and clean-up
	h     Harness
	clock *Clock
	store store.Store
}

// open opens a fresh store at a given time. Failures go to t; outer closes the store.
func open(t tb, outer testing.TB, h Harness, at time.Time) *env {
	outer.Helper()
	clock := NewClock(at)
	s := h.Open(outer, clock)
	outer.Cleanup(func() {
		if err := s.Close(); err != nil {
			outer.Errorf("close: %v", err)
		}
	})
	return &env{tb: t, outer: outer, h: h, clock: clock, store: s}
}

// peer returns another client of the same data.
func (e *env) peer() *env {
	e.Helper()
	s := e.h.Peer(e.outer, e.store, e.clock)
	e.outer.Cleanup(func() {
		if err := s.Close(); err != nil {
			e.outer.Errorf("close peer: %v", err)
		}
	})
	p := *e
	p.store = s
	return &p
}

func (e *env) quiesce() {
	e.Helper()
	if e.h.Quiesce != nil {
		e.h.Quiesce(e.outer, e.store)
	}
}

// some returns how often to repeat: n times, or a tenth of that over a network.
func (e *env) some(n int) int {
	if e.h.Caps.Remote {
		return max(1, n/10)
	}
	return n
}

func bkt(entity, resource string) store.Bucket {
	return store.Bucket{Namespace: "n", Entity: entity, Resource: resource}
}

func per(name string, tokens int64, period time.Duration) *store.Limit {
	return &store.Limit{Name: name, Amount: tokens * tok, Period: period, Burst: tokens * tok}
}

func perMinute(name string, tokens int64) *store.Limit { return per(name, tokens, time.Minute) }

// still returns a limit whose clock does not advance during a test, so that its levels are exact on any clock.
func still(name string, tokens int64) *store.Limit {
	return &store.Limit{Name: name, Amount: 1, Period: 366 * 24 * time.Hour, Burst: tokens * tok}
}

func charge(l *store.Limit, tokens int64) store.Charge {
	return store.Charge{Limit: l, Amount: tokens * tok}
}

func force(l *store.Limit, tokens int64) store.Charge {
	return store.Charge{Limit: l, Amount: tokens * tok, Force: true}
}

func debit(b store.Bucket, charges ...store.Charge) store.Debit {
	return store.Debit{Bucket: b, Charges: charges, Epoch: 1}
}

func at(epoch uint64, d store.Debit) store.Debit {
	d.Epoch = epoch
	return d
}

func (e *env) take(debits ...store.Debit) store.Outcome {
	e.Helper()
	out, err := e.store.Take(e.Context(), store.Take{Debits: debits})
	if err != nil {
		e.Fatalf("take: %v", err)
	}
	return out
}

func (e *env) allow(debits ...store.Debit) store.Outcome {
	e.Helper()
	out := e.take(debits...)
	if !out.Allowed {
		e.Fatalf("refused, want allowed: %s", show(out))
	}
	return out
}

func (e *env) refuse(debits ...store.Debit) store.Outcome {
	e.Helper()
	out := e.take(debits...)
	if out.Allowed {
		e.Fatalf("allowed, want refused: %s", show(out))
	}
	return out
}

func (e *env) takeFails(want error, debits ...store.Debit) {
	e.Helper()
	out, err := e.store.Take(e.Context(), store.Take{Debits: debits})
	if !errors.Is(err, want) {
		e.Fatalf("take: error %v, want %v (allowed %t)", err, want, out.Allowed)
	}
}

func (e *env) settle(debits ...store.Debit) store.Outcome {
	e.Helper()
	out, err := e.store.Settle(e.Context(), store.Settle{Debits: debits})
	if err != nil {
		e.Fatalf("settle: %v", err)
	}
	return out
}

func (e *env) settleFails(want error, s store.Settle) {
	e.Helper()
	if _, err := e.store.Settle(e.Context(), s); !errors.Is(err, want) {
		e.Fatalf("settle: error %v, want %v", err, want)
	}
}

func (e *env) forget(buckets ...store.Bucket) {
	e.Helper()
	if err := e.store.Forget(e.Context(), buckets...); err != nil {
		e.Fatalf("forget: %v", err)
	}
}

func (e *env) peek(buckets ...store.Bucket) store.Snapshot {
	e.Helper()
	e.quiesce()
	snap, err := e.store.Peek(e.Context(), buckets...)
	if err != nil {
		e.Fatalf("peek: %v", err)
	}
	if len(snap.States) != len(buckets) {
		e.Fatalf("peek: %d states of %d buckets", len(snap.States), len(buckets))
	}
	for i, s := range snap.States {
		if s.Bucket != buckets[i] {
			e.Fatalf("peek: state %d is of %v, want %v", i, s.Bucket, buckets[i])
		}
		if s.ID == 0 && len(s.Limits) > 0 {
			e.Fatalf("peek: %v does not exist, yet has limits", s.Bucket)
		}
	}
	return snap
}

// state returns one bucket's state and the store's time.
func (e *env) state(b store.Bucket) (store.State, time.Time) {
	e.Helper()
	snap := e.peek(b)
	return snap.States[0], snap.At
}

// meter returns a limit's state in a bucket; nil if the bucket does not have the limit.
func (e *env) meter(b store.Bucket, l *store.Limit) *store.LimitState {
	e.Helper()
	st, _ := e.state(b)
	return reckon.Find(st, l)
}

// available returns what may be debited of a limit, according to the bucket's own parameters.
func (e *env) available(b store.Bucket, l *store.Limit) int64 {
	e.Helper()
	st, now := e.state(b)
	if m := reckon.Find(st, l); m != nil {
		return reckon.Room(m.Limit, m.Level, now)
	}
	return l.Burst
}

// wantTokens checks how many tokens may be debited of a limit.
func (e *env) wantTokens(b store.Bucket, l *store.Limit, tokens int64) {
	e.Helper()
	e.wantRoom(b, l, tokens*tok)
}

func (e *env) wantRoom(b store.Bucket, l *store.Limit, millitokens int64) {
	e.Helper()
	if got := e.available(b, l); got != millitokens {
		e.Fatalf("%v %s: available %d millitokens, want %d", b, l.Name, got, millitokens)
	}
}

// each runs f in n goroutines at once and waits. f must not call anything that ends the test, such as Fatalf.
func (e *env) each(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

// takeQuietly is take for goroutines.
func (e *env) takeQuietly(debits ...store.Debit) store.Outcome {
	out, err := e.store.Take(e.Context(), store.Take{Debits: debits})
	if err != nil {
		e.Errorf("take: %v", err)
	}
	return out
}

// settleQuietly is settle for goroutines.
func (e *env) settleQuietly(debits ...store.Debit) store.Outcome {
	out, err := e.store.Settle(e.Context(), store.Settle{Debits: debits})
	if err != nil {
		e.Errorf("settle: %v", err)
	}
	return out
}

// now returns the store's time.
func (e *env) now() time.Time {
	e.Helper()
	snap, err := e.store.Peek(e.Context())
	if err != nil {
		e.Fatalf("peek: %v", err)
	}
	return snap.At
}
