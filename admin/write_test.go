package admin_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/leaseid"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// hooked is a store whose calls pass through hooks, which may be nil.
type hooked struct {
	store.Store
	before func(ctx context.Context, op string) error // its error replaces the call
	after  func(op string) error                      // its error replaces the answer
}

var _ store.Store = (*hooked)(nil)

// failAt makes call number at return err: after it was made if applied, else in its place. Stop removes the hook and
// reports whether fewer calls were made.
func (h *hooked) failAt(at int, applied bool, err error) (stop func() (finished bool)) {
	calls := 0
	fail := func() error {
		if calls++; calls == at {
			return err
		}
		return nil
	}
	if applied {
		h.after = func(string) error { return fail() }
	} else {
		h.before = func(context.Context, string) error { return fail() }
	}
	return func() bool {
		h.before, h.after = nil, nil
		return calls < at
	}
}

func pass[T any](ctx context.Context, h *hooked, op string, call func() (T, error)) (T, error) {
	var none T
	if h.before != nil {
		if err := h.before(ctx, op); err != nil {
			return none, err
		}
	}
	got, err := call()
	if h.after != nil && err == nil {
		if err := h.after(op); err != nil {
			return none, err
		}
	}
	return got, err
}

func (h *hooked) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	return pass(ctx, h, "get", func() (store.Got, error) { return h.Store.Get(ctx, keys...) })
}

func (h *hooked) Commit(ctx context.Context, writes ...store.Write) error {
	_, err := pass(ctx, h, "commit", func() (int, error) { return 0, h.Store.Commit(ctx, writes...) })
	return err
}

func (h *hooked) List(ctx context.Context, q store.Query) (store.Page, error) {
	return pass(ctx, h, "list", func() (store.Page, error) { return h.Store.List(ctx, q) })
}

func (h *hooked) Buckets(ctx context.Context, q store.BucketQuery) (store.BucketPage, error) {
	return pass(ctx, h, "buckets", func() (store.BucketPage, error) { return h.Store.Buckets(ctx, q) })
}

func (h *hooked) Forget(ctx context.Context, buckets ...store.Bucket) error {
	_, err := pass(ctx, h, "forget", func() (int, error) { return 0, h.Store.Forget(ctx, buckets...) })
	return err
}

func (h *hooked) Credit(ctx context.Context, c store.Credit) (store.Credited, error) {
	return pass(ctx, h, "credit", func() (store.Credited, error) { return h.Store.Credit(ctx, c) })
}

func (h *hooked) Peek(ctx context.Context, buckets ...store.Bucket) (store.Snapshot, error) {
	return pass(ctx, h, "peek", func() (store.Snapshot, error) { return h.Store.Peek(ctx, buckets...) })
}

// limiterOn returns a limiter over a store.
func limiterOn(tb testing.TB, st store.Store) *weir.Limiter {
	tb.Helper()
	lim, err := weir.New(weir.Config{Store: st})
	must(tb, err)
	return lim
}

// memoryLimiter returns a limiter over an empty store in memory.
func memoryLimiter(tb testing.TB) *weir.Limiter {
	tb.Helper()
	return limiterOn(tb, memory.New(nil))
}

// errOf returns the error of a call that returns something else, too.
func errOf[T any](_ T, err error) error { return err }

// must fails the test at once if a setup step fails.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// wantConfigError checks that err is a caller's mistake about field.
func wantConfigError(tb testing.TB, err error, field string) {
	tb.Helper()
	var ce *weir.ConfigError
	if !errors.As(err, &ce) {
		tb.Errorf("got error %v, want a ConfigError about %s", err, field)
		return
	}
	if ce.Field != field {
		tb.Errorf("got an error about field %q (%v), want %q", ce.Field, err, field)
	}
}

// badIDs are invalid IDs, by defect.
var badIDs = map[string]string{
	"empty":           "",
	"257 bytes":       strings.Repeat("x", 257),
	"control":         "a\x00b",
	"newline":         "a\n",
	"c1 control":      "a\u0085b",
	"invalid UTF-8":   "a\xff",
	"the default":     "_default_",
	"the registry":    "_",
	"a reserved name": "wcu",
}

// oddIDs are unusual but valid.
var oddIDs = []string{
	"openai/gpt-4o", "a#b", "a%23b", "<script>", "a b", "ключ", "日本", `"quoted"\`, "_default", "*", "🙂", "..", "a:b",
	strings.Repeat("y", 256), "default",
}

// changes are all the ways to change a catalog, each on a limiter that prepare has filled.
var changes = map[string]func(context.Context, *weir.Limiter) error{
	"create entity": func(ctx context.Context, l *weir.Limiter) error {
		return admin.New(l).Entities.Create(ctx, admin.Entity{ID: "new", Parent: "child"})
	},
	"update entity": func(ctx context.Context, l *weir.Limiter) error {
		_, err := admin.New(l).Entities.Update(ctx, "child", admin.EntityUpdate{Parent: new("other")})
		return err
	},
	"delete entity": func(ctx context.Context, l *weir.Limiter) error {
		return admin.New(l).Entities.Delete(ctx, "parent", admin.DeleteOptions{Children: true})
	},
	"set limits": func(ctx context.Context, l *weir.Limiter) error {
		return admin.New(l).Limits.Set(ctx, admin.Scope{Resource: "r"}, weir.PerMinute("rpm", 2))
	},
	"delete limits": func(ctx context.Context, l *weir.Limiter) error {
		return admin.New(l).Limits.Delete(ctx, admin.Scope{Resource: "r"})
	},
	"set on_unavailable": func(ctx context.Context, l *weir.Limiter) error {
		return admin.New(l).Limits.SetOnUnavailable(ctx, admin.Scope{}, weir.OnUnavailableAllow)
	},
	"create namespace": func(ctx context.Context, l *weir.Limiter) error {
		_, err := admin.New(l).Namespaces.Create(ctx, "new")
		return err
	},
	"delete namespace": func(ctx context.Context, l *weir.Limiter) error { return admin.New(l).Namespaces.Delete(ctx, "live") },
	"recover namespace": func(ctx context.Context, l *weir.Limiter) error {
		_, err := admin.New(l).Namespaces.Recover(ctx, "dead")
		return err
	},
	"purge namespace":    func(ctx context.Context, l *weir.Limiter) error { return admin.New(l).Namespaces.Purge(ctx, "dead") },
	"reset bucket":       func(ctx context.Context, l *weir.Limiter) error { return admin.New(l).Buckets.Reset(ctx, "child", "r") },
	"make a signing key": func(ctx context.Context, l *weir.Limiter) error { _, err := leaseid.StoredKey(ctx, l); return err },
	"set default limits": func(ctx context.Context, l *weir.Limiter) error {
		return admin.New(l).Limits.Set(ctx, admin.Scope{Entity: "child"}, weir.PerDay("rpd", 9))
	},
	"set system's limits": func(ctx context.Context, l *weir.Limiter) error {
		return admin.New(l).Limits.Set(ctx, admin.Scope{}, weir.PerDay("rpd", 9))
	},
}

// prepare fills a store so that each of the changes can be made.
func prepare(tb testing.TB, st store.Store) {
	tb.Helper()
	ctx, l := tb.Context(), limiterOn(tb, st)
	must(tb, admin.New(l).Entities.Create(ctx, admin.Entity{ID: "parent"}))
	must(tb, admin.New(l).Entities.Create(ctx, admin.Entity{ID: "other"}))
	must(tb, admin.New(l).Entities.Create(ctx, admin.Entity{ID: "child", Parent: "parent"}))
	must(tb, admin.New(l).Limits.Set(ctx, admin.Scope{Resource: "r"}, weir.PerMinute("rpm", 1)))
	must(tb, admin.New(l).Limits.Set(ctx, admin.Scope{Entity: "child", Resource: "r"}, weir.PerMinute("rpm", 1)))
	_, err := l.Allow(ctx, "child", "r")
	must(tb, err)
	for _, name := range []string{"live", "dead"} {
		_, err := admin.New(l).Namespaces.Create(ctx, name)
		must(tb, err)
		must(tb, admin.New(l.In(name)).Limits.Set(ctx, admin.Scope{}, weir.PerMinute("rpm", 1)))
	}
	must(tb, admin.New(l).Namespaces.Delete(ctx, "dead"))
}

// An error at any store call is returned unchanged, and the same change succeeds once the failure is over, or had already
// succeeded.
func TestTroubleAtEveryCall(t *testing.T) {
	t.Parallel()
	for name, change := range changes {
		for _, applied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, applied %v", name, applied), func(t *testing.T) {
				t.Parallel()
				for at := 1; ; at++ {
					trouble := &store.Error{Op: "test", Err: errors.New("disk on fire")}
					h := &hooked{Store: memory.New(nil)}
					prepare(t, h)
					calls := 0
					inject := func() error {
						if calls++; calls == at {
							return trouble
						}
						return nil
					}
					if applied {
						h.after = func(string) error { return inject() }
					} else {
						h.before = func(context.Context, string) error { return inject() }
					}
					err := change(t.Context(), limiterOn(t, h))
					if calls < at {
						must(t, err)
						return
					}
					if !errors.Is(err, trouble) {
						t.Fatalf("call %d: got error %v, want the store's", at, err)
					}
					h.before, h.after = nil, nil
					err = change(t.Context(), limiterOn(t, h))
					if err != nil && !(applied && (errors.Is(err, weir.ErrExists) || errors.Is(err, weir.ErrNotFound))) {
						t.Fatalf("again after trouble at call %d: %v", at, err)
					}
				}
			})
		}
	}
}

// Every change is committed together with its audit events.
func TestNoChangeWithoutEvent(t *testing.T) {
	t.Parallel()
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := memory.New(nil)
			prepare(t, st)
			var last []store.Write
			spy := &commitSpy{Store: st, commit: func(ws []store.Write) { last = ws }}
			must(t, change(t.Context(), limiterOn(t, spy)))
			for _, w := range last {
				if w.Record.Key.Kind == store.KindAudit {
					return
				}
			}
			t.Errorf("the last commit has no event: %v", last)
		})
	}
}

type commitSpy struct {
	store.Store
	commit func([]store.Write)
}

func (s *commitSpy) Commit(ctx context.Context, writes ...store.Write) error {
	s.commit(writes)
	return s.Store.Commit(ctx, writes...)
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	set := func(t *testing.T, l *weir.Limiter) error {
		t.Helper()
		return admin.New(l).Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute("rpm", 1))
	}
	conflict := &store.ConflictError{Have: 2, Want: 1}
	t.Run("again and again", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			h := &hooked{Store: memory.New(nil), before: func(_ context.Context, op string) error {
				if op == "commit" {
					calls++
					return conflict
				}
				return nil
			}}
			if err := set(t, limiterOn(t, h)); !errors.Is(err, weir.ErrConflict) || !strings.Contains(err.Error(), "system") {
				t.Errorf("got error %v, want ErrConflict about the system", err)
			}
			if calls < 3 {
				t.Errorf("tried %d times", calls)
			}
		})
	})
	t.Run("once", func(t *testing.T) {
		t.Parallel()
		calls := 0
		h := &hooked{Store: memory.New(nil), before: func(_ context.Context, op string) error {
			if op == "commit" {
				if calls++; calls == 1 {
					return conflict
				}
			}
			return nil
		}}
		must(t, set(t, limiterOn(t, h)))
	})
	t.Run("the context ends", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		h := &hooked{Store: memory.New(nil), before: func(_ context.Context, op string) error {
			if op == "commit" {
				cancel()
				return conflict
			}
			return nil
		}}
		err := admin.New(limiterOn(t, h)).Limits.SetOnUnavailable(ctx, admin.Scope{}, weir.OnUnavailableAllow)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want the context's", err)
		}
	})
}

// Each store call gets its own timeout, and is reported to the observer.
func TestCallsAreBoundedAndObserved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hooked{Store: memory.New(nil), before: func(ctx context.Context, op string) error {
			if op == "commit" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}
		var ops []string
		lim, err := weir.New(weir.Config{Store: h, StoreTimeout: 3 * time.Second, Observer: &weir.Observer{
			Called: func(_ context.Context, e weir.CalledEvent) {
				ops = append(ops, fmt.Sprint(e.Op, " ", e.Took, " ", e.Err != nil))
			},
		}})
		must(t, err)
		err = admin.New(lim).Limits.SetOnUnavailable(t.Context(), admin.Scope{}, weir.OnUnavailableAllow)
		if se, ok := errors.AsType[*weir.StoreError](err); !ok || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(se.Hint, "StoreTimeout") {
			t.Errorf("got error %v, want a StoreError with a hint", err)
		}
		if got := fmt.Sprint(ops); got != "[get 0s false get 0s false get 0s false commit 3s true]" {
			t.Errorf("observed %s", got)
		}
	})
}

// A commit whose answer was lost may have happened: the cached value is forgotten anyway.
func TestLostAnswerEvicts(t *testing.T) {
	t.Parallel()
	h := &hooked{Store: memory.New(nil)}
	lim, ctx := limiterOn(t, h), t.Context()
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerHour("rph", 1)))
	allowed(t, lim, "e", "r", true, false)
	var lost atomic.Bool
	h.after = func(op string) error {
		if op == "commit" && lost.CompareAndSwap(false, true) {
			return errors.New("lost")
		}
		return nil
	}
	if err := admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerHour("rph", 3)); err == nil {
		t.Fatal("no error")
	}
	allowed(t, lim, "e", "r", true, true, false)
}

// allowed asks for a token repeatedly and checks the answers.
func allowed(tb testing.TB, lim *weir.Limiter, entity, resource string, want ...bool) {
	tb.Helper()
	for i, w := range want {
		got, err := lim.Allow(tb.Context(), entity, resource)
		if err != nil {
			tb.Fatalf("Allow %d of %s on %s: %v", i+1, entity, resource, err)
		}
		if got != w {
			tb.Fatalf("Allow %d of %s on %s: %v, want %v", i+1, entity, resource, got, w)
		}
	}
}
