package disk_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/storetest"
)

func TestMain(m *testing.M) {
	childMain()
	usageChild()
	goleak.VerifyTestMain(m)
}

func harness(mode disk.Mode) storetest.Harness {
	return storetest.Harness{
		Open: func(t testing.TB, clock *storetest.Clock) store.Store {
			t.Helper()
			s, err := disk.Open(filepath.Join(t.TempDir(), "weir-data"), &disk.Config{Mode: mode, Now: clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			s.NoSync()
			return s
		},
		Caps: storetest.Caps{HandClock: true, AtomicTake: true},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, mode := range disk.Modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, harness(mode))
		})
	}
}
