package weirtest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/weirtest"
)

func one(entity string) weir.Request {
	return weir.Request{Entity: entity, Resource: "api", Tokens: weir.Tokens{"rpm": 1}}
}

func acquire(t *testing.T, l *weirtest.Limiter, req weir.Request) *weir.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func wantSpent(t *testing.T, l *weirtest.Limiter, want int64) {
	t.Helper()
	if got := l.Spent("alice", "api", "rpm"); got != want {
		t.Errorf("spent %d, want %d", got, want)
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 2))
	wantSpent(t, l, 0)
	began := l.Now()
	acquire(t, l, one("alice"))
	acquire(t, l, one("alice"))
	_, err := l.Acquire(t.Context(), one("alice"))
	if over, ok := errors.AsType[*weir.ExceededError](err); !ok || over.RetryAfter != 30*time.Second {
		t.Fatalf("got %v, want a refusal for exactly 30s", err)
	}
	l.Advance(30*time.Second - 1)
	if _, err := l.Acquire(t.Context(), one("alice")); !errors.Is(err, weir.ErrExceeded) {
		t.Errorf("got %v a nanosecond early", err)
	}
	l.Advance(1)
	lease := acquire(t, l, one("alice"))
	if got := l.Now().Sub(began); got != 30*time.Second {
		t.Errorf("the clock went on by %s", got)
	}
	wantSpent(t, l, 3)
	if err := lease.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.Advance(time.Hour)
	wantSpent(t, l, 2) // whatever was issued since
}

func TestSetLimits(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t)
	if _, err := l.Acquire(t.Context(), one("alice")); !errors.Is(err, weir.ErrNoLimits) {
		t.Errorf("got %v without limits", err)
	}
	for _, tt := range []struct {
		entity, resource string
		source           weir.Source
	}{
		{"", "", weir.SourceSystem},
		{"", "api", weir.SourceResource},
		{"alice", "", weir.SourceEntityDefault},
		{"alice", "api", weir.SourceEntity},
	} {
		l.SetLimits(tt.entity, tt.resource, weir.PerMinute("rpm", 10))
		if got := acquire(t, l, one("alice")).Decision().Statuses[0].Source; got != tt.source {
			t.Errorf("limits of %q on %q came from the %s", tt.entity, tt.resource, got)
		}
	}
}

func TestFail(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 100))
	lease := acquire(t, l, one("alice"))
	broken := errors.New("broken")
	if err := admin.New(l.Limiter).Limits.SetOnUnavailable(t.Context(), admin.Scope{Entity: "carol", Resource: "api"}, weir.OnUnavailableAllow); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Available(t.Context(), "carol", "api"); err != nil { // it is known from now on
		t.Fatal(err)
	}
	l.Fail(broken)
	for range 20 { // more than any breaker tolerates
		if _, err := l.Acquire(t.Context(), one("alice")); !errors.Is(err, weir.ErrUnavailable) || !errors.Is(err, broken) {
			t.Fatalf("got %v", err)
		}
	}
	if _, err := lease.Adjust(t.Context(), weir.Tokens{"rpm": 1}); !errors.Is(err, broken) {
		t.Errorf("adjusted: %v", err)
	}
	if d := acquire(t, l, one("carol")).Decision(); !d.Degraded {
		t.Error("not degraded")
	}
	req := one("alice")
	req.OnUnavailable = weir.OnUnavailableAllow
	if _, err := l.Acquire(t.Context(), req); !errors.Is(err, weir.ErrUnavailable) {
		t.Errorf("admitted because it wished so: %v", err)
	}
	wantSpent(t, l, 1)
	l.SetLimits("alice", "api", weir.PerMinute("rpm", 3))
	l.Fail(nil)
	if d := acquire(t, l, one("alice")).Decision(); d.Degraded || d.Statuses[0].Amount != 3 {
		t.Errorf("after it was healed: %+v", d)
	}
	wantSpent(t, l, 2)
}

// Store operations other than decisions fail too.
func TestFailAll(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 100))
	acquire(t, l, one("alice"))
	broken := errors.New("broken")
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"available": func() error { _, err := l.Available(ctx, "alice", "api"); return err },
		"entity":    func() error { _, err := admin.New(l.Limiter).Entities.Get(ctx, "alice"); return err },
		"create":    func() error { return admin.New(l.Limiter).Entities.Create(ctx, admin.Entity{ID: "bob"}) },
		"limits": func() error {
			return admin.New(l.Limiter).Limits.Set(ctx, admin.Scope{Entity: "x"}, weir.PerMinute("rpm", 9))
		},
		"list":    func() error { _, err := admin.New(l.Limiter).Entities.List(ctx, admin.EntityQuery{}); return err },
		"buckets": func() error { _, err := admin.New(l.Limiter).Buckets.List(ctx, admin.BucketQuery{}); return err },
		"bucket":  func() error { _, err := admin.New(l.Limiter).Buckets.Get(ctx, "alice", "api"); return err },
		"reset":   func() error { return admin.New(l.Limiter).Buckets.Reset(ctx, "alice", "api") },
		"usage":   func() error { _, err := admin.New(l.Limiter).Usage.Windows(ctx, admin.UsageQuery{}); return err },
		"top":     func() error { _, err := admin.New(l.Limiter).Usage.Top(ctx, admin.TopQuery{}); return err },
	} {
		l.Fail(broken)
		if err := call(); !errors.Is(err, broken) {
			t.Errorf("%s: got %v", name, err)
		}
		l.Fail(nil)
	}
	usage, err := admin.New(l.Limiter).Usage.Top(ctx, admin.TopQuery{From: l.Now(), To: l.Now().Add(time.Hour)})
	if err != nil || len(usage) != 1 || usage[0].Requests != 1 {
		t.Errorf("got usage %+v, %v", usage, err)
	}
}

func TestSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := weirtest.New(t, weir.PerMinute("rpm", 100))
		acquire(t, l, one("alice"))
		l.Slow(300 * time.Millisecond)
		began := time.Now()
		acquire(t, l, one("alice"))
		if took := time.Since(began); took != 300*time.Millisecond {
			t.Errorf("took %s", took)
		}
		l.Slow(time.Minute)
		began = time.Now()
		if _, err := l.Acquire(t.Context(), one("alice")); !errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("gave up after %s", took)
		}
		began = time.Now()
		wantSpent(t, l, 2)
		l.Slow(0)
		acquire(t, l, one("alice"))
		if took := time.Since(began); took != 0 {
			t.Errorf("took %s", took)
		}
	})
}

func TestRunClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := weirtest.New(t, weir.PerMinute("rpm", 1))
		time.Sleep(time.Hour)
		began := l.Now()
		l.RunClock()
		l.RunClock()
		acquire(t, l, one("alice"))
		if _, err := l.Wait(t.Context(), one("alice")); err != nil {
			t.Fatal(err)
		}
		l.Advance(time.Minute)
		acquire(t, l, one("alice"))
		if got := l.Now().Sub(began); got != 2*time.Minute {
			t.Errorf("the clock went on by %s", got)
		}
	})
}

// report is a testing.T that records the failure reported to it.
type report struct {
	testing.TB
	said []string
}

func (r *report) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

func (r *report) Errorf(format string, args ...any) { r.said = append(r.said, format) }

func TestMistakes(t *testing.T) {
	t.Parallel()
	for name, mistake := range map[string]func(*report){
		"advance": func(r *report) { weirtest.New(r).Advance(-1) },
		"limits":  func(r *report) { weirtest.New(r, weir.Limit{}) },
		"scope":   func(r *report) { weirtest.New(r).SetLimits("_", "", weir.PerMinute("rpm", 1)) },
		"id":      func(r *report) { weirtest.New(r).Spent("", "api", "rpm") },
		"spent": func(r *report) {
			l := weirtest.New(r, weir.PerMinute("rpm", 1))
			_, _ = l.Acquire(context.Background(), one("alice"))
			l.Spent("alice", "api", "rmp")
		},
	} {
		r := &report{TB: t}
		func() {
			defer func() {
				if v := recover(); v != nil && v != any(r) {
					panic(v)
				}
			}()
			mistake(r)
		}()
		if len(r.said) != 1 || !strings.HasPrefix(r.said[0], "weirtest: ") {
			t.Errorf("%s: said %q", name, r.said)
		}
	}
}
