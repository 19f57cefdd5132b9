package open_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/open"
)

func TestStore(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "new")
	for url, want := range map[string]func(store.Store) bool{
		"memory:":                      func(s store.Store) bool { _, ok := s.(*memory.Store); return ok },
		"memory:?max_buckets=10":       func(s store.Store) bool { _, ok := s.(*memory.Store); return ok },
		"disk:" + folder + "?mode=off": func(s store.Store) bool { _, ok := s.(*disk.Store); return ok },
	} {
		st, err := open.Store(t.Context(), url)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if !want(st) {
			t.Errorf("%s: %T", url, st)
		}
		if err := st.Close(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := os.Stat(folder); err != nil {
		t.Error(err)
	}
}

func TestStoreMistakes(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"./data":                      "write disk:./data",
		"mysql://x":                   "unknown scheme",
		"disk:":                       "names no folder",
		"disk:x?mode=fast":            "mode",
		"memory:?size=1":              "unknown option",
		"dynamodb://":                 "names no table",
		"dynamodb://t?max-shards=3":   "max-shards",
		"redis://:secret@x:1:2/three": "redis",
	} {
		st, err := open.Store(t.Context(), url)
		if st != nil || !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, error %v", url, st, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("shows a password: %v", err)
		}
	}
	// Nobody listens there: the store is nil, and not a nil pointer.
	if st, err := open.Store(t.Context(), "redis://127.0.0.1:1"); st != nil || err == nil || errors.Is(err, store.ErrInvalid) {
		t.Errorf("no server: %v, error %v", st, err)
	}
}
