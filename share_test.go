package weir_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// fixed is a source of shares that a test sets.
type fixed struct {
	share policy.Share
	stale func(epoch uint64)
}

func (f *fixed) Share(string) policy.Share { return f.share }

func (f *fixed) Stale(_ context.Context, epoch uint64) {
	if f.stale != nil {
		f.stale(epoch)
	}
}

func sharing(t *testing.T, f *fixed, limits ...weir.Limit) *weir.Limiter {
	t.Helper()
	lim := limiterWith(t, f, weir.Config{Store: memory.New(nil), OnUnavailable: weir.OnUnavailableAllow})
	must(t, admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, limits...))
	return lim
}

// admitted returns how many of the concurrent requests are admitted, for Allow in both its forms.
func admitted(t *testing.T, lim *weir.Limiter) (n int) {
	t.Helper()
	for range 200 {
		ok, err := lim.Allow(t.Context(), "alice", "api")
		must(t, err)
		if ok {
			n++
		}
	}
	return n
}

// A change of share hands out no fresh burst: what is outstanding is kept.
func TestShareChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fixed{share: policy.Share{Num: 1, Den: 2, Epoch: 1}}
		lim := sharing(t, f, weir.PerHour("rph", 100))
		defer lim.Close()
		set := func(num, den int64) {
			f.share.Num, f.share.Den, f.share.Epoch = num, den, f.share.Epoch+1
			policies(lim).SharesChanged()
		}
		for _, step := range []struct {
			num, den int64
			want     int
		}{{1, 2, 50}, {1, 4, 0}, {1, 2, 0}, {1, 5, 0}, {3, 4, 25}, {1, 1, 25}, {1, 2, 0}, {1, 1, 0}} {
			set(step.num, step.den)
			if n := admitted(t, lim); n != step.want {
				t.Errorf("with %d/%d, %d are admitted, want %d", step.num, step.den, n, step.want)
			}
		}
		set(1, 10)
		if n := admitted(t, lim); n != 0 {
			t.Errorf("%d are admitted by a bucket in debt", n)
		}
		time.Sleep(9 * time.Hour) // debt from larger shares is worked off at the rate of the share
		if n := admitted(t, lim); n != 0 {
			t.Errorf("%d are admitted after nine hours, of ten that it takes", n)
		}
		time.Sleep(time.Hour)
		if n := admitted(t, lim); n != 10 {
			t.Errorf("%d are admitted after ten hours", n)
		}
	})
}

// During a rollout in steps, an entity outside the percentage has the share of the former rate.
func TestShareOfFormerRate(t *testing.T) {
	t.Parallel()
	limit := weir.PerHour("rph", 40).WithEnforce(1)
	limit.Former = weir.PerHour("rph", 100).Rate()
	if limit.EnforcedFor("alice") {
		t.Fatal("alice is in the percentage")
	}
	if n := admitted(t, sharing(t, &fixed{share: policy.Share{Num: 1, Den: 4}}, limit)); n != 25 {
		t.Errorf("%d are admitted by a quarter of 100", n)
	}
}

func TestShareOfRequestsLimits(t *testing.T) {
	t.Parallel()
	lim := sharing(t, &fixed{share: policy.Share{Num: 1, Den: 4}}, weir.PerHour("rph", 100))
	_, err := lim.Acquire(t.Context(), weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{"x": 11}, Limits: []weir.Limit{weir.PerHour("x", 40)}})
	if burst, ok := errors.AsType[*weir.BurstError](err); !ok || burst.Burst != 10 {
		t.Errorf("a request of more than the share: %v", err)
	}
}

// A share of less than a token is in debt until it is full again.
func TestBalanceOfShareBelowOneToken(t *testing.T) {
	t.Parallel()
	lim := sharing(t, &fixed{share: policy.Share{Num: 1, Den: 200}}, weir.PerHour("rph", 100)) // 0.5 tokens an hour
	got, err := lim.Adjust(t.Context(), weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{"rph": 2}})
	must(t, err)
	if len(got) != 1 || got[0].Available != -2 || got[0].RetryAfter < 4*time.Hour-time.Minute {
		t.Errorf("got %+v, want 4h until 0.5 tokens are available", got)
	}
}

// The share of a request's own limits follows in steps: few enough that a share that moves all day, as with offered load,
// neither hands out a burst each time nor runs out of room.
func TestShareOfRequestsLimitsMoves(t *testing.T) {
	t.Parallel()
	f := &fixed{share: policy.Share{Num: 500, Den: 1000, Epoch: 1}}
	lim := sharing(t, f, weir.PerDay("rpd", 1000))
	total := 0
	for i := range int64(40) {
		f.share.Num, f.share.Epoch = 500-10*i, f.share.Epoch+1
		policies(lim).SharesChanged()
		for range 1000 {
			_, err := lim.Acquire(t.Context(), weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{"x": 1}, Limits: []weir.Limit{weir.PerDay("x", 1000)}})
			if errors.Is(err, weir.ErrExceeded) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			total++
		}
	}
	if total > 1000 {
		t.Errorf("%d are admitted of a share of 500 that shrinks", total)
	}
}

// Without a share nothing is admitted, whatever on_unavailable says; an outdated share counts as a store that does not
// answer.
func TestNoShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fixed{}
		lim := sharing(t, f, weir.PerHour("rph", 100))
		defer lim.Close()
		ask := func() (*weir.Lease, error) {
			return lim.Acquire(t.Context(), weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{"rph": 1}, OnUnavailable: weir.OnUnavailableAllow})
		}
		if _, err := ask(); !errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("without a share: %v", err)
		}
		if _, err := lim.Allow(t.Context(), "e", "r"); !errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("without a share, Allow: %v", err)
		}
		f.share = policy.Share{Num: 1, Den: 1, Until: time.Now().Add(3 * time.Second)}
		policies(lim).SharesChanged()
		if _, err := ask(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if le, err := ask(); err != nil || !le.Decision().Degraded {
			t.Errorf("with an old share: %v", err)
		}
		_, err := lim.Acquire(t.Context(), weir.Request{Entity: "e", Resource: "r", OnUnavailable: weir.OnUnavailableDeny})
		if !errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("with an old share, if it denies: %v", err)
		}
		f.share.Until = time.Now().Add(3 * time.Second) // the process finds out without a notification
		time.Sleep(200 * time.Millisecond)
		if le, err := ask(); err != nil || le.Decision().Degraded {
			t.Errorf("with a new one: %v", err)
		}
	})
}

// A store that never waits keeps no shares of the cell's share: once that has expired, local admits nothing.
func TestOldShareLocally(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fixed{share: policy.Share{Num: 1, Den: 1, Until: time.Now().Add(3 * time.Second)}}
		lim := sharing(t, f, weir.PerHour("rph", 100))
		defer lim.Close()
		time.Sleep(3 * time.Second)
		req := weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{"rph": 1}, OnUnavailable: weir.OnUnavailableLocal}
		if _, err := lim.Acquire(t.Context(), req); !errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("with an old share: %v", err)
		}
	})
}

// A process that is paused after reading its share, and resumes when other cells already use that share, admits nothing.
func TestShareStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fixed{share: policy.Share{Num: 1, Den: 2, Epoch: 1}}
		var stopped time.Duration
		st := &fakeStore{Store: memory.New(nil)}
		st.take = func(_ context.Context, t store.Take) (store.Outcome, error) {
			time.Sleep(stopped)
			return st.Store.Take(context.Background(), t) // even if the context has ended
		}
		lim := limiterWith(t, f, weir.Config{Store: st, DecideWithin: time.Second})
		must(t, admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerHour("rph", 100)))
		req := weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{"rph": 1}}
		for name, ask := range map[string]func() error{
			"Acquire":    func() error { _, err := lim.Acquire(t.Context(), req); return err },
			"AcquireAll": func() error { _, err := lim.AcquireAll(t.Context(), []weir.Request{req, req}); return err },
			"Allow":      func() error { _, err := lim.Allow(t.Context(), "e", "r"); return err },
		} {
			f.share.Until = time.Now().Add(4 * time.Second)
			policies(lim).SharesChanged()
			stopped = 900 * time.Millisecond
			if err := ask(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			stopped = 10 * time.Second
			if err := ask(); !errors.Is(err, weir.ErrUnavailable) {
				t.Errorf("%s, ten seconds after it looked at a share for four: %v", name, err)
			}
		}
	})
}

// If a bucket was debited under a new share, it refuses a process with the old one, and the process fetches the new share.
func TestShareStale(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	two := []*fixed{{share: policy.Share{Num: 1, Den: 1, Epoch: 1}}, {share: policy.Share{Num: 1, Den: 1, Epoch: 1}}}
	var lims []*weir.Limiter
	for _, f := range two {
		lims = append(lims, limiterWith(t, f, weir.Config{Store: st}))
	}
	must(t, admin.New(lims[0]).Limits.Set(t.Context(), admin.Scope{}, weir.PerHour("rph", 10)))
	spend := func(i int) error {
		_, err := lims[i].Acquire(t.Context(), weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{"rph": 1}})
		return err
	}
	for i := range lims {
		must(t, spend(i))
	}
	two[0].share = policy.Share{Num: 1, Den: 5, Epoch: 2}
	policies(lims[0]).SharesChanged()
	if err := spend(0); !errors.Is(err, weir.ErrExceeded) {
		t.Fatalf("two of two are spent: %v", err)
	}
	asked := 0
	two[1].stale = func(epoch uint64) {
		asked++
		if epoch != 1 {
			t.Errorf("epoch %d", epoch)
		}
		two[1].share = two[0].share
	}
	if err := spend(1); !errors.Is(err, weir.ErrExceeded) || asked != 1 {
		t.Errorf("the old share still admits: %v, asked %d times", err, asked)
	}
	// Without a newer share it does not admit either.
	two[0].share = policy.Share{Num: 1, Den: 10, Epoch: 3}
	policies(lims[0]).SharesChanged()
	_ = spend(0)
	two[1].stale = nil
	if err := spend(1); !errors.Is(err, weir.ErrUnavailable) {
		t.Errorf("the old share: %v", err)
	}
}
