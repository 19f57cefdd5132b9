package weir_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
)

// heldChain returns a bundle with a chain, and a held lease of 10 of 100 tokens.
func heldChain(t *testing.T) (*bundle, weir.LeaseToken) {
	t.Helper()
	b := setup(t)
	b.chain("child", "parent")
	b.set("", "", weir.PerHour("tpm", 100), weir.PerHour("rpm", 100))
	return b, b.take("child", weir.Tokens{"tpm": 10}).Token("lease-1", noon.Add(time.Minute))
}

func (b *bundle) wantChain(tpm int64) {
	b.t.Helper()
	b.wantLeft("child", weir.Tokens{"tpm": tpm, "rpm": 100})
	b.wantLeft("parent", weir.Tokens{"tpm": tpm, "rpm": 100})
}

func (b *bundle) resume(h weir.LeaseToken) *weir.Lease {
	b.t.Helper()
	lease, err := b.LeaseFromToken(b.ctx, h)
	must(b.t, err)
	return lease
}

func TestHeldJSON(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.chain("child", "parent")
	b.set("", "", weir.Limit{Name: "a b", Amount: 7, Period: 90 * time.Second, Burst: 9})
	lease := b.takeFor(weir.Request{
		Entity: "child", Resource: "api", Tokens: weir.Tokens{"a b": 2, "x": 1}, Limits: []weir.Limit{weir.PerDay("x", 5)},
	})
	h := lease.Token("id", noon.Add(time.Second))
	text, err := json.Marshal(h)
	must(t, err)
	var back weir.LeaseToken
	must(t, json.Unmarshal(text, &back))
	if diff := cmp.Diff(h, back); diff != "" {
		t.Fatal(diff)
	}
	if diff := cmp.Diff(h, lease.Token("", time.Time{})); diff != "" {
		t.Error(diff)
	}
	resumed := b.peer().resume(back)
	if diff := cmp.Diff(h, resumed.Token("", time.Time{})); diff != "" {
		t.Error(diff)
	}
	must(t, resumed.Rollback(b.ctx))
	b.wantLeft("parent", weir.Tokens{"a b": 9})
	override := weir.Request{Entity: "child", Resource: "api", Tokens: weir.Tokens{"x": 5}, Limits: []weir.Limit{weir.PerDay("x", 5)}}
	b.takeFor(override) // the override's token was returned as well
	b.refusedFor(override)
}

// A sequence number allows one change, in whichever process it is made.
func TestHeldOnce(t *testing.T) {
	t.Parallel()
	b, h := heldChain(t)
	other := b.peer()
	first, second, third := b.resume(h), other.resume(h), other.resume(h)
	must(t, errOf(first.Adjust(b.ctx, weir.Tokens{"tpm": 30})))
	b.wantChain(60)
	wantErr(t, errOf(second.Adjust(b.ctx, weir.Tokens{"tpm": 30})), weir.ErrSettled)
	wantErr(t, third.Rollback(b.ctx), weir.ErrSettled)
	b.wantChain(60)

	next := first.Token("", time.Time{})
	if next.Seq != 1 || next.ID != h.ID || next.Charges[0].Tokens != 40 {
		t.Errorf("after the adjustment %+v", next)
	}
	must(t, other.resume(next).Rollback(b.ctx))
	b.wantChain(100)
	wantErr(t, first.Rollback(b.ctx), weir.ErrSettled)
	wantErr(t, b.resume(next).Rollback(b.ctx), weir.ErrSettled)
	wantErr(t, b.resume(h).Rollback(b.ctx), weir.ErrSettled)
	b.wantChain(100)
}

// A lease that lost the race for its sequence number cannot return tokens under the next number either.
func TestHeldLoserIsOut(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(context.Context, *weir.Lease) error{
		"adjusts":    func(ctx context.Context, l *weir.Lease) error { return errOf(l.Adjust(ctx, weir.Tokens{"tpm": -1})) },
		"rolls back": func(ctx context.Context, l *weir.Lease) error { return l.Rollback(ctx) },
	} {
		b, h := heldChain(t)
		winner, loser := b.resume(h), b.peer().resume(h)
		must(t, errOf(winner.Adjust(b.ctx, weir.Tokens{"tpm": -5})))
		wantErr(t, change(b.ctx, loser), weir.ErrSettled)
		if lost := loser.Token("", time.Time{}); lost.ID != "" {
			t.Errorf("%s: the loser can still be held: %+v", name, lost)
		}
		wantErr(t, loser.Rollback(b.ctx), weir.ErrSettled)
		wantErr(t, errOf(loser.Adjust(b.ctx, weir.Tokens{"tpm": -1})), weir.ErrSettled)
		b.wantChain(95)
		must(t, winner.Rollback(b.ctx))
		b.wantChain(100)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

// After a lost answer, a caller that continues and a caller that starts over from the old value cannot both return the
// tokens.
func TestHeldLostAnswer(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection lost")
	for _, applied := range []bool{false, true} {
		b, h := heldChain(t)
		b.take("child", weir.Tokens{"tpm": 50}) // tokens to steal
		lease := b.resume(h)
		b.fake.does(func(f *fakeStore) {
			f.settle = func(ctx context.Context, s store.Settle) (store.Outcome, error) {
				if applied {
					if _, err := f.Store.Settle(ctx, s); err != nil {
						return store.Outcome{}, err
					}
				}
				return store.Outcome{}, lost
			}
		})
		wantErr(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"tpm": -6})), lost)
		b.fake.does(func(f *fakeStore) { f.settle = nil })
		// Both together return 10 at most, in either order.
		afterwards := lease.Token("", time.Time{})
		for _, l := range []*weir.Lease{lease, b.resume(h), b.resume(afterwards)} {
			if err := l.Rollback(b.ctx); err != nil && !errors.Is(err, weir.ErrSettled) {
				t.Fatal(err)
			}
		}
		want := int64(44) // 4 of the 10: whether the 6 were returned is unknown
		if applied {
			want = 46
		}
		b.wantChain(want)
	}
}

func TestHeldConcurrently(t *testing.T) {
	t.Parallel()
	b, h := heldChain(t)
	peers := []*bundle{b, b.peer(), b.peer()}
	var won atomic.Int64
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			lease, err := peers[i%3].LeaseFromToken(b.ctx, h)
			if err != nil {
				t.Error(err)
				return
			}
			change := lease.Rollback
			if i%2 == 0 {
				change = func(ctx context.Context) error { return errOf(lease.Adjust(ctx, weir.Tokens{"tpm": -10})) }
			}
			switch err := change(b.ctx); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, weir.ErrSettled):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("applied %d times", won.Load())
	}
	b.wantChain(100)
}

func TestHeldExpires(t *testing.T) {
	t.Parallel()
	b, h := heldChain(t)
	lease := b.resume(h)
	b.clock.advance(time.Minute)
	wantErr(t, b.resume(h).Rollback(b.ctx), weir.ErrExpired)
	wantErr(t, errOf(b.resume(h).Adjust(b.ctx, weir.Tokens{"tpm": 1})), weir.ErrExpired)
	wantErr(t, lease.Rollback(b.ctx), weir.ErrExpired)
	wantErr(t, lease.Rollback(b.ctx), weir.ErrExpired)
	b.wantChain(91) // 1 of the hourly 100 has been issued since, at one a minute
	must(t, b.resume(h).Commit(b.ctx))
}

// A refused adjustment does not use up a sequence number.
func TestHeldBadAdjust(t *testing.T) {
	t.Parallel()
	b, h := heldChain(t)
	lease := b.resume(h)
	wantConfigError(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"tpm": -11})), "tokens.tpm")
	wantConfigError(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"rps": 1})), "tokens.rps")
	must(t, errOf(lease.Adjust(b.ctx, nil)))
	if diff := cmp.Diff(h, lease.Token("", time.Time{})); diff != "" {
		t.Error(diff)
	}
	must(t, lease.Rollback(b.ctx))
	b.wantChain(100)
}

// A lease can be held under one ID only, and not after it has ended.
func TestHoldTwice(t *testing.T) {
	t.Parallel()
	b, _ := heldChain(t) // the tokens stay spent
	lease := b.take("child", weir.Tokens{"tpm": 10})
	a, c := lease.Token("a", noon.Add(time.Minute)), lease.Token("c", noon.Add(time.Hour))
	if diff := cmp.Diff(a, c); diff != "" {
		t.Error(diff)
	}
	must(t, b.resume(a).Rollback(b.ctx))
	wantErr(t, b.resume(c).Rollback(b.ctx), weir.ErrSettled)
	wantErr(t, lease.Rollback(b.ctx), weir.ErrSettled)
	again := b.resume(a).Token("d", noon.Add(time.Hour))
	wantErr(t, b.resume(again).Rollback(b.ctx), weir.ErrSettled)
	b.wantChain(90)

	for _, end := range []func(*weir.Lease) error{
		func(l *weir.Lease) error { return l.Rollback(b.ctx) }, func(l *weir.Lease) error { return l.Commit(b.ctx) },
	} {
		l := b.take("child", weir.Tokens{"tpm": 10})
		must(t, end(l))
		_, err := b.LeaseFromToken(b.ctx, l.Token("e", noon.Add(time.Hour)))
		wantConfigError(t, err, "lease")
	}
	b.wantChain(80)
}

func TestResumeBad(t *testing.T) {
	t.Parallel()
	b, h := heldChain(t)
	for name, spoil := range map[string]func(*weir.LeaseToken){
		"no id":                func(h *weir.LeaseToken) { h.ID = "" },
		"no expiry":            func(h *weir.LeaseToken) { h.Expires = time.Time{} },
		"another namespace":    func(h *weir.LeaseToken) { h.Namespace = "n1" },
		"negative seq":         func(h *weir.LeaseToken) { h.Seq = -1 },
		"negative amount":      func(h *weir.LeaseToken) { h.Charges[0].Tokens = -1 },
		"an amount that wraps": func(h *weir.LeaseToken) { h.Charges[0].Tokens = 18446744073709552 },
	} {
		bad := h
		bad.Charges = append([]weir.TokenCharge(nil), h.Charges...)
		spoil(&bad)
		_, err := b.LeaseFromToken(b.ctx, bad)
		if t.Run(name, func(t *testing.T) { t.Parallel(); wantConfigError(t, err, "lease") }); err == nil {
			break
		}
	}
	bad := h
	bad.Charges = []weir.TokenCharge{{Entity: "child", Limit: weir.Limit{Name: "tpm"}, Tokens: 1}}
	_, err := b.LeaseFromToken(b.ctx, bad)
	wantConfigError(t, err, "limit tpm: amount")
	b.wantChain(90)
}

// The limits may have changed since: the return goes to the current limits, and to no others.
func TestHeldAndChangedLimits(t *testing.T) {
	t.Parallel()
	b, h := heldChain(t)
	b.set("", "", weir.PerHour("tpm", 50)) // tpm lowered, rpm removed
	b.wantLeft("child", weir.Tokens{"tpm": 40})
	lease := b.resume(h)
	must(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"tpm": -4, "rpm": 3})))
	must(t, lease.Rollback(b.ctx))
	b.wantLeft("child", weir.Tokens{"tpm": 50})
	b.take("child", weir.Tokens{"tpm": 50})
	b.refused("child", weir.Tokens{"tpm": 1})
}

func TestHeldStrictAfterAnother(t *testing.T) {
	t.Parallel()
	for _, resumed := range []bool{false, true} {
		b := setup(t)
		strict := weir.PerMinute("tpm", 1000)
		strict.Strict = true
		b.set("", "", weir.PerMinute("rpm", 10), strict)
		b.set("", "", weir.PerMinute("rpm", 20), strict) // later limits, of another epoch
		lease := b.take("alice", weir.Tokens{"rpm": 1, "tpm": 500})
		if resumed {
			lease = b.resume(lease.Token("lease-1", noon.Add(time.Minute)))
		}
		must(t, lease.Rollback(b.ctx))
		b.wantLeft("alice", weir.Tokens{"rpm": 20, "tpm": 1000})
	}
}
