package torture_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/lab/torture"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

var inMemory = torture.Traits{Atomic: true, OwnClock: true}

func config(t *testing.T, change func(store.Store) store.Store) torture.Config {
	t.Helper()
	return torture.Config{
		Open: func(now func() time.Time, _ bool) (store.Store, error) {
			return change(memory.New(&memory.Config{Now: now})), nil
		},
		Traits: inMemory, Namespace: "torture-test", Callers: 4, Seed: 3, Dir: t.TempDir(), Faults: torture.AllFaults, Rounds: 12,
	}
}

func sound(s store.Store) store.Store { return s }

// A sound store passes, and each promise is checked: that of the neighbour while the store is not called for others.
func TestSound(t *testing.T) {
	t.Parallel()
	rep, err := torture.Run(t.Context(), config(t, sound))
	if err != nil {
		t.Fatal(err)
	}
	if !rep.OK {
		t.Errorf("%+v\n%v", rep.Checks, rep.Excerpt)
	}
	for _, c := range rep.Checks {
		if c.Cases == 0 {
			t.Errorf("%s was never looked at", c.Name)
		}
	}
}

// interrupted is a store that is interrupted during its first commit, which is applied.
type interrupted struct {
	store.Store

	interrupt context.CancelFunc
}

func (s *interrupted) Commit(ctx context.Context, writes ...store.Write) error {
	err := s.Store.Commit(ctx, writes...)
	if s.interrupt(); ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (*interrupted) Close() error { return nil }

// TestInterrupted checks that namespaces are purged, even if they were being created when ctx ended.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := torture.Run(ctx, config(t, func(store.Store) store.Store { return &interrupted{st, cancel} })); err != nil {
		t.Error(err)
	}
	lim, err := weir.New(weir.Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	left, err := admin.New(lim).Namespaces.List(t.Context(), admin.NamespaceQuery{Deleted: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range left.Items {
		if ns.Name != weir.DefaultNamespace {
			t.Errorf("left behind: %v", ns)
		}
	}
}
