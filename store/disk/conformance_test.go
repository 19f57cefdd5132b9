package disk_test

import (
	"path/filepath"
	"sync"
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
	var cuts sync.Map // by store
	return storetest.Harness{
		Open: func(t testing.TB, clock *storetest.Clock) store.Store {
			t.Helper()
			s, err := disk.Open(filepath.Join(t.TempDir(), "weir-data"), &disk.Config{Mode: mode, Now: clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			s.NoSync()
			c := new(cut)
			s.Commits(c.commit)
			cuts.Store(s, c)
			return s
		},
		Caps: storetest.Caps{HandClock: true, AtomicTake: true, Quotas: true, Credits: true, Slots: true},
		Cut: func(_ testing.TB, s store.Store, n int, made bool) func() int {
			c, _ := cuts.Load(s)
			return c.(*cut).begin(n, made)
		},
	}
}

// cut makes one of the commits fail.
type cut struct {
	mu      sync.Mutex
	active  bool
	made    bool
	at, did int
}

func (c *cut) begin(n int, made bool) (end func() int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active, c.made, c.at, c.did = true, made, n, 0
	return func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.active = false
		return c.did
	}
}

func (c *cut) commit(commit func() error) error {
	c.mu.Lock()
	fails := c.active && c.did == c.at
	if c.active {
		c.did++
	}
	made := c.made
	c.mu.Unlock()
	if !fails {
		return commit()
	}
	if made {
		if err := commit(); err != nil {
			return err
		}
	}
	return full
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
