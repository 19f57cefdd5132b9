package memory_test

import (
	"testing"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/storetest"
)

func harness() storetest.Harness {
	return storetest.Harness{
		Open: func(_ testing.TB, c *storetest.Clock) store.Store { return memory.New(&memory.Config{Now: c.Now}) },
		Caps: storetest.Caps{HandClock: true, AtomicTake: true, Quotas: true, Credits: true, Slots: true},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness())
}

func TestTorture(t *testing.T) {
	t.Parallel()
	storetest.Torture(t, harness(), 0)
}
