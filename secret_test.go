package weir_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

func TestSigningKey(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	lim, ctx := limiterOn(t, st), t.Context()
	key, err := lim.SigningKey(ctx)
	must(t, err)
	if len(key) != 32 || bytes.Equal(key, make([]byte, 32)) {
		t.Errorf("got %x", key)
	}
	key[0]++ // changes the caller's copy
	again, err := lim.In("nowhere").SigningKey(ctx)
	must(t, err)
	other, err := limiterOn(t, st).SigningKey(ctx)
	must(t, err)
	if !bytes.Equal(again, other) || bytes.Equal(key, other) {
		t.Errorf("got %x, %x, %x", key, again, other)
	}
	foreign, err := memoryLimiter(t).SigningKey(ctx)
	must(t, err)
	if bytes.Equal(foreign, other) {
		t.Error("two stores have one key")
	}
	if got := len(events(t, lim, "secret:leases")); got != 1 {
		t.Errorf("%d events", got)
	}
}

// Concurrent first callers all get the same secret.
func TestConcurrentSigningKey(t *testing.T) {
	t.Parallel()
	ask := func(key *[]byte) op {
		return func(ctx context.Context, l *weir.Limiter) (err error) {
			*key, err = l.SigningKey(ctx)
			return err
		}
	}
	explore(3, func(swap func() bool) {
		var a, b []byte
		errs := race(t, memory.New(nil), [2]op{ask(&a), ask(&b)}, swap)
		if errs[0] != nil || errs[1] != nil || !bytes.Equal(a, b) {
			t.Errorf("got %x, %v; %x, %v", a, errs[0], b, errs[1])
		}
	})

	st := memory.New(nil)
	keys := make([][]byte, 16)
	var wg sync.WaitGroup
	for i := range keys {
		lim := limiterOn(t, st)
		wg.Go(func() {
			var err error
			if keys[i], err = lim.SigningKey(t.Context()); err != nil {
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

func TestForeignSigningKey(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"short": `{"key":"AAAA"}`, "not JSON": `x`, "empty": `{}`} {
		st := memory.New(nil)
		must(t, st.Commit(t.Context(), store.Write{Record: store.Record{
			Key: store.Key{Namespace: store.Registry, Kind: store.KindSecret, ID: "leases"}, Value: []byte(value),
		}}))
		_, err := limiterOn(t, st).SigningKey(t.Context())
		var se *weir.StoreError
		if !errors.As(err, &se) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}
