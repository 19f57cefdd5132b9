package configflow_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/fleet/configflow"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

var mirroredKeys = []store.Key{
	{Namespace: "default", Kind: store.KindSystem},
	{Namespace: "default", Kind: store.KindResourceLimits, ID: "api"},
	{Namespace: "default", Kind: store.KindEntity, ID: "alice"},
	aliceLimits,
	{Namespace: store.Registry, Kind: store.KindNamespace, ID: "tenant"},
	{Namespace: "t1", Kind: store.KindSystem},
}

// content returns a value whose number only grows.
func content(key store.Key, n int) []byte {
	switch key.Kind {
	case store.KindEntity:
		return fmt.Appendf(nil, `{"name":"%d"}`, n)
	case store.KindNamespace:
		return fmt.Appendf(nil, `{"id":"t1","n":%d}`, n)
	default:
	}
	return fmt.Appendf(nil, `{"limits":[{"name":"rpm","amount":%d,"period":"min"}]}`, n)
}

const badContent = `{"limits":[{"name":"rpm","amount":0,"period":"min"}]}`

// source is a store with a log of its changes, like a stream.
type source struct {
	store.Store

	t      interface{ Fatal(...any) }
	n      int
	events []configflow.Event
}

func (s *source) write(ctx context.Context, key store.Key, value []byte) {
	got, err := s.Get(ctx, key)
	if err != nil {
		s.t.Fatal(err)
	}
	w := store.Write{Record: store.Record{Key: key, Version: got.Records[0].Version, Value: value}, Delete: value == nil}
	if value == nil && got.Records[0].Version == 0 {
		return
	}
	if err := s.Commit(ctx, w); err != nil {
		s.t.Fatal(err)
	}
	s.n++
	s.events = append(s.events, configflow.Event{Key: key, Version: fmt.Sprintf("%021d", s.n)})
}

func valueOf(ctx context.Context, st store.Store, key store.Key) string {
	got, err := st.Get(ctx, key)
	if err != nil {
		return err.Error()
	}
	return string(got.Records[0].Value)
}

// Whether events are lost, duplicated or reordered, no record of the cell ever goes back. After a comparison each record
// has the newest usable value or, if the newest is unusable, the cell's previous value.
func TestMirrorProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		src := &source{Store: memory.New(nil), t: t}
		cell := memory.New(nil)
		mirrors := []*configflow.Mirror{
			configflow.NewMirror(configflow.MirrorConfig{From: src, To: cell}),
			configflow.NewMirror(configflow.MirrorConfig{From: src, To: cell}),
		}
		src.write(ctx, store.Key{Namespace: store.Registry, Kind: store.KindNamespaceID, ID: "t1"}, []byte(`{"name":"tenant"}`))
		seen := make(map[store.Key]string) // in the cell
		n := 0
		last := make(map[string]int) // when each content was written
		check := func() {
			for _, key := range mirroredKeys {
				now := valueOf(ctx, cell, key)
				if now == badContent || now != "" && seen[key] != "" && last[now] < last[seen[key]] {
					t.Fatalf("%s went back from %s to %s", key, seen[key], now)
				}
				seen[key] = now
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				n++
				key := rapid.SampledFrom(mirroredKeys).Draw(t, "key")
				value := content(key, n)
				last[string(value)] = n
				src.write(ctx, key, value)
			},
			"delete": func(t *rapid.T) { src.write(ctx, rapid.SampledFrom(mirroredKeys).Draw(t, "key"), nil) },
			"poison": func(t *rapid.T) {
				src.write(ctx, rapid.SampledFrom([]store.Key{mirroredKeys[0], mirroredKeys[1], aliceLimits}).Draw(t, "key"), []byte(badContent))
			},
			"deliver": func(t *rapid.T) { // any event, any number of times
				if len(src.events) > 0 {
					if err := rapid.SampledFrom(mirrors).Draw(t, "mirror").Apply(ctx, rapid.SampledFrom(src.events).Draw(t, "event")); err != nil {
						t.Fatal(err)
					}
				}
			},
			"reconcile": func(t *rapid.T) {
				before := maps.Clone(seen)
				if err := rapid.SampledFrom(mirrors).Draw(t, "mirror").Reconcile(ctx); err != nil {
					t.Fatal(err)
				}
				for _, key := range mirroredKeys {
					want := valueOf(ctx, src, key)
					if want == badContent {
						want = before[key]
					}
					if got := valueOf(ctx, cell, key); got != want {
						t.Fatalf("%s is %q, want %q", key, got, want)
					}
				}
			},
			"": func(*rapid.T) { check() },
		})
	})
}

// Mirrors that work on the same cell concurrently, while the source changes, agree in the end.
func TestMirrorsTogether(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	src := &source{Store: memory.New(nil), t: t}
	cell := memory.New(nil)
	var wg sync.WaitGroup
	events := make(chan configflow.Event)
	var mirrors []*configflow.Mirror
	for range 4 {
		m := configflow.NewMirror(configflow.MirrorConfig{From: src, To: cell})
		mirrors = append(mirrors, m)
		wg.Go(func() {
			for e := range events {
				if err := m.Apply(ctx, e); err != nil && !errors.Is(err, store.ErrConflict) {
					t.Error(err)
				}
			}
		})
	}
	for i := range 300 {
		src.write(ctx, aliceLimits, content(aliceLimits, i+1))
		events <- src.events[i]
	}
	close(events)
	wg.Wait()
	if err := mirrors[0].Reconcile(ctx); err != nil {
		t.Fatal(err)
	}
	if got := valueOf(ctx, cell, aliceLimits); !strings.Contains(got, `"amount":300,`) {
		t.Errorf("the cell has %s", got)
	}
	if age, stale := mirrors[0].Age(); age > time.Minute || stale {
		t.Errorf("they were last equal %v ago", age)
	}
}

// An unchanged source costs one read per namespace. Only records that decisions use are mirrored.
func TestMirrorCost(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		src, cell := newRemote(t), newRemote(t)
		lim, err := weir.New(weir.Config{Store: src.handle()})
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Close()
		if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute("rpm", 5)); err != nil {
			t.Fatal(err)
		}
		m := configflow.NewMirror(configflow.MirrorConfig{From: src.handle(), To: cell.handle()})
		reconcile := func() {
			if err := m.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		reconcile()
		reconcile()
		before := src.reads.Load()
		for range 10 {
			reconcile()
		}
		if n := src.reads.Load() - before; n != 0 {
			t.Errorf("%d reads of records", n)
		}
		page, err := cell.Store.List(t.Context(), store.Query{Namespace: "default", Kind: store.KindAudit})
		if err != nil || len(page.Records) > 0 {
			t.Errorf("audit events were brought over: %v, %v", page, err)
		}
		// A manual change in the cell is reverted within the hour.
		cell.raw(t, store.Key{Namespace: "default", Kind: store.KindSystem}, `{"limits":[{"name":"rpm","amount":6,"period":"min"}]}`)
		time.Sleep(time.Hour)
		reconcile()
		if got := valueOf(t.Context(), cell.Store, store.Key{Namespace: "default", Kind: store.KindSystem}); !strings.Contains(got, `"amount":5,`) {
			t.Errorf("the cell has %s", got)
		}
		src.down.Store(true)
		if err := m.Reconcile(t.Context()); !errors.Is(err, errDown) {
			t.Errorf("error %v", err)
		}
		if got := valueOf(t.Context(), cell.Store, store.Key{Namespace: "default", Kind: store.KindSystem}); got == "" {
			t.Error("a source that is away empties the cell")
		}
	})
}

func TestEvent(t *testing.T) {
	t.Parallel()
	for _, key := range slices.Concat(mirroredKeys, []store.Key{{Namespace: "a/b", Kind: "entity", ID: "\x00%", Sub: "é"}}) {
		e := configflow.Event{Key: key, Version: "49590338271490256608559692538361571095921575989136588898"}
		if got, err := configflow.DecodeEvent(e.Encode()); err != nil || got != e {
			t.Errorf("%v, %v, want %v", got, err, e)
		}
	}
	for _, bad := range []string{
		``, `{}`, `null`, `[]`, `{"format":"weir-event-2","namespace":"a","kind":"entity","version":"1"}`,
		`{"format":"weir-event-1","namespace":"","kind":"entity","version":"1"}`, `{"format":"weir-event-1","namespace":"a","kind":"entity","version":"-1"}`,
		`{"format":"weir-event-1","namespace":"a","kind":"entity","version":"` + strings.Repeat("9", 65) + `"}`,
	} {
		if e, err := configflow.DecodeEvent([]byte(bad)); err == nil {
			t.Errorf("%s is taken for %v", bad, e)
		}
	}
}

// A source that was never configured is the wrong one, or has lost its data: the cell keeps what it has, whether all is
// compared or an event comes.
func TestMirrorOfTheWrongSource(t *testing.T) {
	t.Parallel()
	to := &source{Store: memory.New(nil), t: t}
	key := mirroredKeys[0]
	to.write(t.Context(), key, content(key, 1))
	m := configflow.NewMirror(configflow.MirrorConfig{From: memory.New(nil), To: to})
	apply := func(ctx context.Context) error { return m.Apply(ctx, to.events[0]) }
	for name, do := range map[string]func(context.Context) error{"compared": m.Reconcile, "an event": apply} {
		if err := do(t.Context()); err == nil || !strings.Contains(err.Error(), "check the address of the source") {
			t.Errorf("%s: error %v", name, err)
		}
		if valueOf(t.Context(), to, key) == "" {
			t.Errorf("%s: it is deleted", name)
		}
	}
}

// The configuration of a store that is mirrored is changed at its source, until no process mirrors it any more. What is
// not mirrored can be written.
func TestMirroredRefusesChanges(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	src, cell := memory.New(nil), memory.New(nil)
	limiter := func(st store.Store) *weir.Limiter {
		lim, err := weir.New(weir.Config{Store: st})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lim.Close() })
		return lim
	}
	at, local := admin.New(limiter(src)), admin.New(limiter(cell))
	rpm := weir.PerMinute("rpm", 5)
	if err := at.Limits.Set(ctx, admin.Scope{}, rpm); err != nil {
		t.Fatal(err)
	}
	m := configflow.NewMirror(configflow.MirrorConfig{From: src, To: cell, Source: "dynamodb://weir?region=eu-central-1"})
	for range 2 {
		if err := m.Reconcile(ctx); err != nil {
			t.Fatal(err)
		}
	}
	changes := map[string]func() error{
		"limits":    func() error { return local.Limits.Set(ctx, admin.Scope{Resource: "api"}, rpm) },
		"entity":    func() error { return local.Entities.Create(ctx, admin.Entity{ID: "alice"}) },
		"namespace": func() error { _, err := local.Namespaces.Create(ctx, "tenant"); return err },
	}
	for name, change := range changes {
		err := change()
		if !errors.Is(err, weir.ErrConflict) ||
			!strings.Contains(err.Error(), "copied from dynamodb://weir?region=eu-central-1: make the change there") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if err := at.Limits.Set(ctx, admin.Scope{Resource: "api"}, rpm); err != nil {
		t.Errorf("at the source: %v", err)
	}
	if err := configflow.Release(ctx, cell); err != nil {
		t.Fatal(err)
	}
	for name, change := range changes {
		if err := change(); err != nil {
			t.Errorf("%s, no longer mirrored: %v", name, err)
		}
	}
}

// A change that was accepted before the mirror recorded the source, and that comes after it compared, is reverted soon.
func TestMirrorComparesAgainSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		from, to := memory.New(nil), memory.New(nil)
		system, api := mirroredKeys[0], mirroredKeys[1]
		(&source{Store: from, t: t}).write(ctx, system, content(system, 1))
		var running sync.WaitGroup
		running.Go(func() {
			_ = configflow.NewMirror(configflow.MirrorConfig{From: from, To: to, Whole: 24 * time.Hour}).Run(ctx)
		})
		synctest.Wait()
		(&source{Store: to, t: t}).write(ctx, api, content(api, 1))
		time.Sleep(6 * time.Second) // virtual time
		if valueOf(ctx, to, api) != "" || valueOf(ctx, to, system) == "" {
			t.Error("the target is not as its source after six seconds")
		}
		cancel()
		running.Wait()
	})
}
