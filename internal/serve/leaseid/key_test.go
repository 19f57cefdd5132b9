package leaseid_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"sync"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/leaseid"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

func limiterOn(t *testing.T, st store.Store) *weir.Limiter {
	t.Helper()
	lim, err := weir.New(weir.Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	return lim
}

func storedKey(t *testing.T, lim *weir.Limiter) []byte {
	t.Helper()
	key, err := leaseid.StoredKey(t.Context(), lim)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestStoredKey(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	lim := limiterOn(t, st)
	key := storedKey(t, lim)
	if len(key) != 32 || bytes.Equal(key, make([]byte, 32)) {
		t.Errorf("got %x", key)
	}
	key[0]++ // changes the caller's copy
	again, other := storedKey(t, lim.In("nowhere")), storedKey(t, limiterOn(t, st))
	if !bytes.Equal(again, other) || bytes.Equal(key, other) {
		t.Errorf("got %x, %x, %x", key, again, other)
	}
	if bytes.Equal(storedKey(t, limiterOn(t, memory.New(nil))), other) {
		t.Error("two stores have one key")
	}
	events, err := st.List(t.Context(), store.Query{
		Namespace: store.Registry, Kind: store.KindAudit, Sub: "secret:leases",
	})
	if err != nil || len(events.Records) != 1 {
		t.Errorf("%d events, %v", len(events.Records), err)
	}
}

// overtaken is a store on which another process makes a change right before this one's first commit.
type overtaken struct {
	store.Store
	first sync.Once
	other func()
}

func (s *overtaken) Commit(ctx context.Context, writes ...store.Write) error {
	s.first.Do(s.other)
	return s.Store.Commit(ctx, writes...)
}

// Concurrent first callers all get the same key.
func TestStoredKeyConcurrently(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	var first []byte
	late := &overtaken{Store: st, other: func() { first = storedKey(t, limiterOn(t, st)) }}
	if key := storedKey(t, limiterOn(t, late)); !bytes.Equal(key, first) {
		t.Errorf("got %x after %x", key, first)
	}

	st = memory.New(nil)
	keys := make([][]byte, 16)
	var wg sync.WaitGroup
	for i := range keys {
		lim := limiterOn(t, st)
		wg.Go(func() {
			var err error
			if keys[i], err = leaseid.StoredKey(t.Context(), lim); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, k := range keys {
		if !bytes.Equal(k, keys[0]) {
			t.Errorf("got %x and %x", k, keys[0])
		}
	}
}

func TestForeignStoredKey(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"short": `{"key":"AAAA"}`, "not JSON": `x`, "empty": `{}`} {
		st := memory.New(nil)
		if err := st.Commit(t.Context(), store.Write{Record: store.Record{
			Key: store.Key{Namespace: store.Registry, Kind: store.KindSecret, ID: "leases"}, Value: []byte(value),
		}}); err != nil {
			t.Fatal(err)
		}
		_, err := leaseid.StoredKey(t.Context(), limiterOn(t, st))
		if _, ok := errors.AsType[*weir.StoreError](err); !ok {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

// TestStoredKeyOfEarlierVersion: a key in the registry, where earlier versions put it, stays in use and where it is.
func TestStoredKeyOfEarlierVersion(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	old := store.Key{Namespace: store.Registry, Kind: store.KindSecret, ID: "leases"}
	want := bytes.Repeat([]byte{7}, 32)
	value := `{"key":"` + base64.StdEncoding.EncodeToString(want) + `"}`
	if err := st.Commit(t.Context(), store.Write{Record: store.Record{Key: old, Value: []byte(value)}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		key, err := leaseid.StoredKey(t.Context(), limiterOn(t, st))
		if err != nil || !bytes.Equal(key, want) {
			t.Errorf("got %x, %v, want %x", key, err, want)
		}
	}
}

// TestStoredKeyApart: a new key is not in the registry, which readers of the store may read.
func TestStoredKeyApart(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	if _, err := leaseid.StoredKey(t.Context(), limiterOn(t, st)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		namespace string
		want      int
	}{{store.Registry, 0}, {store.Secrets, 1}} {
		page, err := st.List(t.Context(), store.Query{Namespace: c.namespace, Kind: store.KindSecret})
		if err != nil || len(page.Records) != c.want {
			t.Errorf("%s: %d secrets, %v, want %d", c.namespace, len(page.Records), err, c.want)
		}
	}
}
