package torture_test

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/lab/torture"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

var inMemory = torture.Traits{Atomic: true, OwnClock: true}

func config(t *testing.T, change func(store.Store) store.Store) torture.Config {
	t.Helper()
	return torture.Config{
		Open: func(now func() time.Time) (store.Store, error) {
			return change(memory.New(&memory.Config{Now: now})), nil
		},
		Traits: inMemory, Namespace: "torture-test", Callers: 4, Seed: 3, Dir: t.TempDir(), Faults: torture.AllFaults, Rounds: 12,
	}
}

func sound(s store.Store) store.Store { return s }

// A sound store passes.
func TestSound(t *testing.T) {
	t.Parallel()
	rep, err := torture.Run(t.Context(), config(t, sound))
	if err != nil {
		t.Fatal(err)
	}
	if !rep.OK {
		t.Errorf("%+v\n%v", rep.Checks, rep.Excerpt)
	}
}
