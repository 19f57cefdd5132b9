package admin_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
)

// onEachStore runs f over all stores, as two processes open them.
func onEachStore(t *testing.T, f func(t *testing.T, here, there store.Store)) {
	t.Helper()
	twice := func(t *testing.T, open func() (store.Store, error)) {
		t.Helper()
		var both [2]store.Store
		for i := range both {
			st, err := open()
			must(t, err)
			t.Cleanup(func() { _ = st.Close() })
			both[i] = st
		}
		f(t, both[0], both[1])
	}
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		st := memory.New(nil)
		f(t, st, st)
	})
	t.Run("disk", func(t *testing.T) {
		t.Parallel()
		st, err := disk.Open(filepath.Join(t.TempDir(), "weir-data"), nil)
		must(t, err)
		t.Cleanup(func() { _ = st.Close() })
		f(t, st, st)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		cfg := redis.Config{Address: "redis://" + redistest.Start(t).Addr}
		twice(t, func() (store.Store, error) { return redis.Open(t.Context(), cfg) })
	})
	t.Run("dynamodb", func(t *testing.T) {
		t.Parallel()
		fake := new(dynamotest.Fake)
		_, err := dynamodb.Create(t.Context(), unscanned{fake}, "weir", dynamodb.CreateConfig{})
		must(t, err)
		twice(t, func() (store.Store, error) {
			return dynamodb.New(dynamodb.Config{Client: fake, Table: "weir"})
		})
	})
}

// unscanned is a fake on which a table can be created: a scan of it finds nothing.
type unscanned struct{ *dynamotest.Fake }

func (unscanned) Scan(context.Context, *sdk.ScanInput, ...func(*sdk.Options)) (*sdk.ScanOutput, error) {
	return new(sdk.ScanOutput), nil
}

// An entity that was deleted, and created again, has not a token more, neither here nor in a process that has its limits
// cached.
func TestDeletedEntityElsewhere(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, here, there store.Store) {
		t.Helper()
		ctx := t.Context()
		lim := limiterOn(t, here)
		other, err := weir.New(weir.Config{Store: there, CacheTTL: time.Hour})
		must(t, err)
		create := func() {
			must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "e"}))
			must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "e"}, weir.PerDay("rpd", 8)))
		}
		spend := func(l *weir.Limiter, n int64) error {
			_, err := l.Acquire(ctx, weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{"rpd": n}})
			return err
		}
		create()
		must(t, spend(other, 6))
		must(t, admin.New(lim).Entities.Delete(ctx, "e", admin.DeleteOptions{}))
		must(t, spend(other, 1)) // within the limits that it has cached
		create()
		must(t, spend(lim, 1))
		for _, l := range []*weir.Limiter{lim, other} {
			if err := spend(l, 1); !errors.Is(err, weir.ErrExceeded) {
				t.Errorf("the ninth of eight: %v", err)
			}
		}
	})
}

// A process that still uses a namespace that was purged and created anew admits nothing more under the old id, for
// entities that had spent something. What it admits for others makes the namespace an orphan, which a purge clears.
func TestPurgedElsewhere(t *testing.T) {
	t.Parallel()
	onEachStore(t, purgedElsewhere)
}

func purgedElsewhere(t *testing.T, here, there store.Store) {
	t.Helper()
	ctx := t.Context()
	id := fillNamespace(t, here, "alpha", 2) // e0 and e1 have spent 1 of 8 an hour
	lim := limiterOn(t, here)
	other, err := weir.New(weir.Config{Store: there, Namespace: "alpha", CacheTTL: time.Hour})
	must(t, err)
	spend := func(entity string, n int64) error {
		_, err := other.Acquire(ctx, weir.Request{Entity: entity, Resource: "r", Tokens: weir.Tokens{"rph": n}})
		return err
	}
	must(t, spend("e0", 7))
	must(t, spend("e1", 2))
	if err := spend("e2", 100); !errors.Is(err, weir.ErrExceedsBurst) { // its limits are cached, but it has no bucket
		t.Fatal(err)
	}

	must(t, admin.New(lim).Namespaces.Delete(ctx, "alpha"))
	must(t, admin.New(lim).Namespaces.Purge(ctx, "alpha"))
	if got := holds(t, here, id); got != 0 {
		t.Errorf("%d are left", got)
	}
	again := fillNamespace(t, here, "alpha", 0)
	if err := spend("e0", 1); !errors.Is(err, weir.ErrNoLimits) && !errors.Is(err, weir.ErrExceeded) {
		t.Errorf("e0, which has spent all: %v", err) // a process may remember a refusal
	}
	if err := spend("e1", 1); !errors.Is(err, weir.ErrNoLimits) {
		t.Errorf("e1: %v", err)
	}
	if got := orphans(t, lim); got != nil {
		t.Errorf("orphans %v before anything was written", got)
	}
	must(t, spend("e2", 9))
	if got := orphans(t, lim); len(got) != 1 || got[0].ID != id || got[0].Name != "alpha" {
		t.Errorf("orphans %v after a bucket was written", got)
	}
	wantConfigError(t, admin.New(lim).Namespaces.Purge(ctx, again), "namespace")
	must(t, admin.New(lim).Namespaces.Purge(ctx, id))
	if err := spend("e2", 1); !errors.Is(err, weir.ErrNoLimits) {
		t.Errorf("e2: %v", err)
	}
	if got := orphans(t, lim); got != nil || holds(t, here, id) != 0 {
		t.Errorf("orphans %v after another purge", got)
	}
	if err := admin.New(lim).Namespaces.Purge(ctx, id); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("a purge of nothing: %v", err)
	}
}
