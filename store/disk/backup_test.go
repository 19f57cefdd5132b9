package disk_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/disk"
)

// A store on a copy has what the original had when it was copied, limits, tokens and usage, while the original goes on.
func TestBackup(t *testing.T) {
	t.Parallel()
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	open := func(path string) (*disk.Store, *weir.Limiter) {
		st, err := disk.Open(path, &disk.Config{Mode: disk.Always})
		if err != nil {
			t.Fatal(err)
		}
		lim, err := weir.New(weir.Config{Store: st})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lim.Close() })
		return st, lim
	}
	spend := func(lim *weir.Limiter, n int64) error {
		_, err := lim.Acquire(t.Context(), weir.Request{Entity: "a", Resource: "b", Tokens: weir.Tokens{"rpd": n}})
		return err
	}
	st, lim := open(dir)
	if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerDay("rpd", 10)); err != nil {
		t.Fatal(err)
	}
	for n := range 2 { // the second copy replaces the first
		if err := spend(lim, 3); err != nil {
			t.Fatal(n, err)
		}
		if err := st.Backup(t.Context(), to); err != nil {
			t.Fatal(n, err)
		}
	}
	if err := spend(lim, 4); err != nil {
		t.Fatal("the original:", err)
	}
	_, copied := open(to)
	if u, err := admin.New(copied).Usage.Sum(t.Context(), admin.UsageQuery{}); err != nil || u.Total.Requests != 2 {
		t.Errorf("usage: %+v, %v", u.Total, err)
	}
	if err := spend(copied, 5); err == nil {
		t.Error("the copy has forgotten what was spent")
	}
	if err := spend(copied, 4); err != nil {
		t.Error("the copy:", err)
	}
	if err := st.Backup(t.Context(), dir); err == nil {
		t.Error("a store was copied onto itself")
	}
	if parts, _ := filepath.Glob(filepath.Join(to, "*.part")); len(parts) > 0 {
		t.Error("left behind:", parts)
	}
	if _, err := os.Stat(filepath.Join(to, disk.UsageFile)); err != nil {
		t.Error(err)
	}
}
