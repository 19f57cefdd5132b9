package weir_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
)

func TestAdjust(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.chain("child", "parent")
	b.set("", "", weir.PerMinute("rpm", 10), weir.PerMinute("tpm", 1000))
	left := func(child, parent weir.Tokens) {
		t.Helper()
		b.wantLeft("child", child)
		b.wantLeft("parent", parent)
	}
	lease := b.take("child", weir.Tokens{"rpm": 1, "tpm": 100})
	steps := []struct {
		name  string
		delta weir.Tokens
		field string // of the error, if any
		want  weir.Tokens
	}{
		{"nothing", nil, "", weir.Tokens{"rpm": 9, "tpm": 900}},
		{"up", weir.Tokens{"tpm": 50}, "", weir.Tokens{"rpm": 9, "tpm": 850}},
		{"down", weir.Tokens{"tpm": -150}, "", weir.Tokens{"rpm": 9, "tpm": 1000}},
		{"more than is held", weir.Tokens{"tpm": -1}, "tokens.tpm", weir.Tokens{"rpm": 9, "tpm": 1000}},
		{"into debt", weir.Tokens{"tpm": 1500}, "", weir.Tokens{"rpm": 9, "tpm": -500}},
		{"up and down", weir.Tokens{"tpm": -1400, "rpm": 4}, "", weir.Tokens{"rpm": 5, "tpm": 900}},
		{"one of them too much", weir.Tokens{"tpm": 7, "rpm": -6}, "tokens.rpm", weir.Tokens{"rpm": 5, "tpm": 900}},
		{"unknown", weir.Tokens{"tpm": 1, "rps": 1}, "tokens.rps", weir.Tokens{"rpm": 5, "tpm": 900}},
		{"most negative", weir.Tokens{"tpm": math.MinInt64}, "tokens.tpm", weir.Tokens{"rpm": 5, "tpm": 900}},
		{"most positive", weir.Tokens{"tpm": math.MaxInt64}, "tokens.tpm", weir.Tokens{"rpm": 5, "tpm": 900}},
		{"wraps to something small", weir.Tokens{"tpm": 18446744073709552}, "tokens.tpm", weir.Tokens{"rpm": 5, "tpm": 900}},
	}
	for _, s := range steps {
		bs, err := lease.Adjust(b.ctx, s.delta)
		if s.field == "" && err != nil {
			t.Fatalf("%s: %v", s.name, err)
		} else if s.field != "" {
			wantConfigError(t, err, s.field)
		}
		left(s.want, s.want)
		n := 0
		for _, l := range bs {
			want := s.want[l.Limit]
			if _, named := s.delta[l.Limit]; !named || l.Available != want || l.Resource != "api" ||
				l.Entity != []string{"child", "parent"}[n*2/len(bs)] || (l.RetryAfter > 0) != (want < 1) {
				t.Errorf("got balance %+v, want %d", l, want)
			}
			n++
		}
		if err == nil && n != 2*len(s.delta) {
			t.Errorf("got %d balances of %d limits", n, 2*len(s.delta))
		}
		if t.Failed() {
			t.Fatal(s.name)
		}
	}
	must(t, lease.Rollback(b.ctx))
	left(weir.Tokens{"rpm": 10, "tpm": 1000}, weir.Tokens{"rpm": 10, "tpm": 1000})
}

// A limit that the request did not name can be adjusted, repeatedly. (The ancestor once charged it the first time only.)
func TestAdjustUnnamedLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 10), weir.PerMinute("tpm", 1000))
	for i := range int64(3) {
		lease := b.take("alice", weir.Tokens{"rpm": 1})
		must(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"tpm": 300})))
		must(t, lease.Commit(b.ctx))
		b.wantLeft("alice", weir.Tokens{"rpm": 9 - i, "tpm": 700 - 300*i})
	}
}

// An adjustment takes at most what a limit may be in debt, whatever it asks for, and says what it did not take.
func TestAdjustMaxDebt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.chain("alice", "org")
	b.set("", "", weir.PerMinute("rpm", 10), weir.PerMinute("tpm", 1000))
	tight := weir.PerMinute("tpm", 1000)
	tight.MaxDebt = 500
	b.set("org", "", weir.PerMinute("rpm", 10), tight)
	lease := b.take("alice", weir.Tokens{"rpm": 1, "tpm": 100})
	got, err := lease.Adjust(b.ctx, weir.Tokens{"rpm": 2, "tpm": 1_000_000_000_000_000})
	var over *weir.DebtError
	if !errors.As(err, &over) || !errors.Is(err, weir.ErrMaxDebt) {
		t.Fatalf("got %v", err)
	}
	if want := (weir.DebtError{
		Entity: "org", Resource: "api", Limit: "tpm", MaxDebt: 500, Left: 1_000_000_000_000_000 - 1400,
	}); *over != want {
		t.Errorf("got %+v, want %+v", *over, want)
	}
	var left []int64
	for _, l := range got {
		left = append(left, l.Available)
	}
	if want := []int64{7, -10_000, 7, -500}; !slices.Equal(left, want) { // by default ten times the burst
		t.Errorf("got %v, want %v", left, want)
	}
	b.wantLeft("alice", weir.Tokens{"rpm": 7, "tpm": -10_000})
	b.wantLeft("org", weir.Tokens{"rpm": 7, "tpm": -500})
	_, err = lease.Adjust(b.ctx, weir.Tokens{"tpm": 1}) // and no further
	wantErr(t, err, weir.ErrMaxDebt)
	b.wantLeft("org", weir.Tokens{"rpm": 7, "tpm": -500})
	must(t, lease.Rollback(b.ctx)) // gives back what was taken
	b.wantLeft("alice", weir.Tokens{"rpm": 10, "tpm": 1000})
	b.wantLeft("org", weir.Tokens{"rpm": 10, "tpm": 1000})
	_, err = b.Adjust(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"tpm": weir.MaxTokens}})
	wantErr(t, err, weir.ErrMaxDebt)
	b.wantLeft("org", weir.Tokens{"rpm": 10, "tpm": -500})
}

// The lease of a token, in another process, is bound by the same.
func TestAdjustMaxDebtByToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tight := weir.PerMinute("tpm", 1000)
	tight.MaxDebt = 500
	b.set("", "", tight)
	held := b.take("alice", weir.Tokens{"tpm": 100}).Token("a", b.clock.Now().Add(time.Hour))
	lease := b.peer().resume(held)
	_, err := lease.Adjust(b.ctx, weir.Tokens{"tpm": 5000})
	wantErr(t, err, weir.ErrMaxDebt)
	b.wantLeft("alice", weir.Tokens{"tpm": -500})
	must(t, lease.Rollback(b.ctx))
	b.wantLeft("alice", weir.Tokens{"tpm": 1000})
}

// Leases that are held and returned late bank tokens: each token given back counts as unspent from then on. With a
// strict limit, what leases keep never exceeds the burst and what is issued, however many were held.
func TestBankedLeases(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		strict, token bool
		want          int64
	}{
		"full":                  {false, false, 310},
		"strict":                {true, false, 10},
		"strict, by its tokens": {true, true, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			l := weir.PerSecond("rps", 10)
			l.Strict = tt.strict
			b.set("", "", l)
			var held []*weir.Lease
			for range 30 {
				held = append(held, b.take("alice", weir.Tokens{"rps": 10}))
				b.clock.advance(time.Second)
			}
			kept := int64(0)
			keep := func() bool {
				_, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rps": 1}})
				if err == nil {
					kept++
				}
				return err == nil
			}
			for i, lease := range held {
				for keep() {
				}
				if tt.token {
					lease = b.resume(lease.Token(strconv.Itoa(i), b.clock.Now().Add(time.Hour)))
				}
				must(t, lease.Rollback(b.ctx))
			}
			for keep() {
			}
			if kept != tt.want {
				t.Errorf("%d tokens were kept at once, want %d", kept, tt.want)
			}
		})
	}
}

func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 10))
	committed, rolledBack := b.take("alice", weir.Tokens{"rpm": 2}), b.take("alice", weir.Tokens{"rpm": 3})
	must(t, committed.Commit(b.ctx))
	must(t, committed.Commit(b.ctx))
	must(t, rolledBack.Rollback(b.ctx))
	b.wantLeft("alice", weir.Tokens{"rpm": 8})
	for range 2 {
		wantErr(t, committed.Rollback(b.ctx), weir.ErrCommitted)
		wantErr(t, errOf(committed.Adjust(b.ctx, weir.Tokens{"rpm": -1})), weir.ErrCommitted)
		wantErr(t, rolledBack.Rollback(b.ctx), weir.ErrRolledBack)
		wantErr(t, rolledBack.Commit(b.ctx), weir.ErrRolledBack)
		wantErr(t, errOf(rolledBack.Adjust(b.ctx, weir.Tokens{"rpm": 1})), weir.ErrRolledBack)
	}
	b.wantLeft("alice", weir.Tokens{"rpm": 8})
	if d := rolledBack.Decision(); !d.Allowed || d.Statuses[0].Requested != 3 || d.Statuses[0].Available != 5 {
		t.Errorf("decision after the end %+v", d)
	}
}

func TestRollbackOnceConcurrently(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.chain("child", "parent")
	b.set("", "", weir.PerHour("rpm", 100))
	b.take("child", weir.Tokens{"rpm": 50})
	lease := b.take("child", weir.Tokens{"rpm": 10})
	var done atomic.Int64
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			switch err := lease.Rollback(b.ctx); {
			case err == nil:
				done.Add(1)
			case !errors.Is(err, weir.ErrRolledBack):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if done.Load() != 1 {
		t.Errorf("rolled back %d times", done.Load())
	}
	b.wantLeft("child", weir.Tokens{"rpm": 50})
	b.wantLeft("parent", weir.Tokens{"rpm": 50})
}

// Used tokens must be counted, and unused ones returned, even if the caller has gone.
func TestEndedContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 10))
	ctx, cancel := context.WithCancel(b.ctx)
	lease := b.take("alice", weir.Tokens{"rpm": 4})
	cancel()
	must(t, errOf(lease.Adjust(ctx, weir.Tokens{"rpm": 2})))
	b.wantLeft("alice", weir.Tokens{"rpm": 4})
	must(t, lease.Rollback(ctx))
	b.wantLeft("alice", weir.Tokens{"rpm": 10})
}

func TestDo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 10))
	req := weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpm": 3}}
	failed := errors.New("failed")
	do := func(f func(*weir.Lease) error) error {
		return b.Do(b.ctx, req, func(_ context.Context, l *weir.Lease) error { return f(l) })
	}
	must(t, do(func(l *weir.Lease) error { return errOf(l.Adjust(b.ctx, weir.Tokens{"rpm": 1})) }))
	b.wantLeft("alice", weir.Tokens{"rpm": 6})
	wantErr(t, do(func(*weir.Lease) error { return failed }), failed)
	b.wantLeft("alice", weir.Tokens{"rpm": 6})
	func() {
		defer func() {
			if r := recover(); r != "boom" {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = do(func(*weir.Lease) error { panic("boom") })
	}()
	b.wantLeft("alice", weir.Tokens{"rpm": 6})
	// What f itself did is kept.
	must(t, do(func(l *weir.Lease) error { return l.Rollback(b.ctx) }))
	b.wantLeft("alice", weir.Tokens{"rpm": 6})
	wantErr(t, do(func(l *weir.Lease) error { return errors.Join(l.Commit(b.ctx), failed) }), failed)
	b.wantLeft("alice", weir.Tokens{"rpm": 3})
	must(t, do(func(*weir.Lease) error { return nil }))
	err := do(func(*weir.Lease) error { t.Error("ran although it was refused"); return nil })
	wantErr(t, err, weir.ErrExceeded)
}

// An amount with an unknown fate is counted against the caller: it may be spent, and is never returned twice.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection lost")
	for _, applied := range []bool{false, true} {
		b := setup(t)
		b.set("", "", weir.PerMinute("rpm", 100))
		lose := func(f *fakeStore) {
			f.settle = func(ctx context.Context, s store.Settle) (store.Outcome, error) {
				if applied {
					if _, err := f.Store.Settle(ctx, s); err != nil {
						return store.Outcome{}, err
					}
				}
				return store.Outcome{}, lost
			}
		}
		answer := func(f *fakeStore) { f.settle = nil }

		up := b.take("up", weir.Tokens{"rpm": 50})
		b.fake.does(lose)
		wantErr(t, errOf(up.Adjust(b.ctx, weir.Tokens{"rpm": 20})), lost)
		b.fake.does(answer)
		must(t, up.Rollback(b.ctx)) // returns 50: the other 20 may never have been taken
		want := int64(100)
		if applied {
			want = 80
		}
		b.wantLeft("up", weir.Tokens{"rpm": want})

		down := b.take("down", weir.Tokens{"rpm": 50})
		b.fake.does(lose)
		wantErr(t, errOf(down.Adjust(b.ctx, weir.Tokens{"rpm": -20})), lost)
		b.fake.does(answer)
		wantConfigError(t, errOf(down.Adjust(b.ctx, weir.Tokens{"rpm": -31})), "tokens.rpm")
		must(t, down.Rollback(b.ctx)) // returns 30: the other 20 may have been returned already
		want = 80
		if applied {
			want = 100
		}
		b.wantLeft("down", weir.Tokens{"rpm": want})

		gone := b.take("gone", weir.Tokens{"rpm": 50})
		b.fake.does(lose)
		wantErr(t, gone.Rollback(b.ctx), lost)
		b.fake.does(answer)
		wantErr(t, gone.Rollback(b.ctx), weir.ErrRolledBack)
		want = 50
		if applied {
			want = 100
		}
		b.wantLeft("gone", weir.Tokens{"rpm": want})
	}
}
