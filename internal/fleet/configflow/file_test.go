package configflow_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/lastgood"
	"github.com/weirlimits/weir/store"
)

// allowed makes a request while the store is away. It is admitted if the namespace's own on_unavailable is known.
func (d *decider) allowed(namespace, entity string) bool {
	d.t.Helper()
	lease, err := d.In(namespace).Acquire(d.t.Context(), weir.Request{Entity: entity, Resource: "api"})
	if err == nil && !lease.Decision().Degraded {
		d.t.Errorf("%s: decided by a store that is away", entity)
	}
	return err == nil
}

// A process that starts while the store is away uses the file, and then the store once it answers.
func TestStartWithoutStore(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r, file := newRemote(t), filepath.Join(t.TempDir(), "known")
		a := r.start(t, "")
		a.set("", 10)
		if err := admin.New(a.Limiter).Limits.SetOnUnavailable(t.Context(), admin.Scope{}, weir.OnUnavailableAllow); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.New(a.Limiter).Namespaces.Create(t.Context(), "tenant"); err != nil {
			t.Fatal(err)
		}
		tenant := a.In("tenant")
		if err := errors.Join(admin.New(tenant).Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute("rpm", 5)), admin.New(tenant).Limits.SetOnUnavailable(t.Context(), admin.Scope{}, weir.OnUnavailableAllow)); err != nil {
			t.Fatal(err)
		}
		first := r.start(t, file)
		time.Sleep(period)
		a.set("alice", 12) // saved when the process stops
		first.flow.Counted(7)
		time.Sleep(period)
		first.stop()
		if k, err := lastgood.Open(file, "memory:"); err != nil {
			t.Error(err)
		} else if got, ok := k.LastGood([]store.Key{aliceLimits}); !ok || got.Records[0].Version != 1 {
			t.Errorf("%v, %v", got, ok)
		} else if n := k.Instances(); n != 7 {
			t.Errorf("%d instances are known, want 7", n)
		}
		a.set("", 11) // no process saves this
		r.down.Store(true)
		time.Sleep(time.Minute)

		b := r.start(t, file)
		if s := b.flow.Status(); !s.FromFile || s.Age < time.Minute {
			t.Errorf("%+v", s)
		}
		for _, ns := range []string{"default", "tenant"} {
			if !b.allowed(ns, "alice") {
				t.Errorf("%s: denied, although it is known that it is to be allowed", ns)
			}
		}
		if b.allowed("ghost", "alice") {
			t.Error("a namespace that nobody knows allows")
		}
		none := r.start(t, filepath.Join(t.TempDir(), "none"))
		if none.allowed("default", "alice") {
			t.Error("without the file it is not known that it is to be allowed")
		}
		if s := none.flow.Status(); s.FromFile {
			t.Errorf("%+v", s)
		}

		r.down.Store(false)
		time.Sleep(period)
		b.want("bob", 11, "the store is back")
		none.want("bob", 11, "the store is back")
		time.Sleep(6 * time.Second) // until the next attempt to save
		again, err := lastgood.Open(file, "memory:")
		if err != nil || time.Since(again.At()) > 10*time.Second {
			t.Errorf("saved %s ago, error %v", time.Since(again.At()), err)
		}
	})
}

func keep(t *testing.T, r *remote, path string) *lastgood.Known {
	t.Helper()
	k, err := lastgood.Open(path, "memory:")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(k.Update(t.Context(), r.handle(), nil, func(err error) { t.Log(err) }), k.Save()); err != nil {
		t.Fatal(err)
	}
	return k
}

func systemAt(t *testing.T, k *lastgood.Known) (store.Got, bool) {
	t.Helper()
	return k.LastGood([]store.Key{{Namespace: "default", Kind: store.KindSystem}})
}

// A truncated, modified or invalid file counts as no file, and is reported.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	r, path := newRemote(t), filepath.Join(t.TempDir(), "known")
	r.raw(t, store.Key{Namespace: "default", Kind: store.KindSystem}, `{"limits":[{"name":"rpm","amount":7,"period":"min"}]}`)
	keep(t, r, path)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if k, err := lastgood.Open(path, "memory:"); err != nil {
		t.Error(err)
	} else if got, ok := systemAt(t, k); !ok || !bytes.Contains(got.Records[0].Value, []byte(`"amount":7`)) || got.Epoch != 1 {
		t.Errorf("%v, %v", got, ok)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	for name, text := range map[string][]byte{
		"empty": {}, "short": good[:len(good)-1], "head": good[:20], "flipped": flipped, "other": []byte("limits:\n"),
		"newer": bytes.Replace(good, []byte("known-1"), []byte("known-2"), 1),
	} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := lastgood.Open(path, "memory:")
		if !errors.Is(err, lastgood.ErrDamaged) {
			t.Errorf("%s: error %v", name, err)
		}
		if got, ok := systemAt(t, k); ok || !k.At().IsZero() {
			t.Errorf("%s: knows %v", name, got)
		}
	}
	keepAgain, err := lastgood.Open(path, "memory:")
	if err == nil {
		t.Error("damaged")
	}
	if err := errors.Join(keepAgain.Update(t.Context(), r.handle(), nil, nil), keepAgain.Save()); err != nil {
		t.Fatal(err)
	}
	if again, err := lastgood.Open(path, "memory:"); err != nil {
		t.Errorf("not mended: %v", err)
	} else if _, ok := systemAt(t, again); !ok {
		t.Error("mended, and empty")
	}
}

// Unusable records are not saved: the previous values stay.
func TestKnownKeepsTheLastGood(t *testing.T) {
	t.Parallel()
	r, path := newRemote(t), filepath.Join(t.TempDir(), "known")
	system := store.Key{Namespace: "default", Kind: store.KindSystem}
	r.raw(t, system, `{"limits":[{"name":"rpm","amount":7,"period":"min"}]}`)
	k := keep(t, r, path)
	r.raw(t, system, `{"limits":[{"name":"rpm","amount":0,"period":"min"}]}`)
	bad := 0
	if err := errors.Join(k.Update(t.Context(), r.handle(), nil, func(error) { bad++ }), k.Save()); err != nil {
		t.Fatal(err)
	}
	again, err := lastgood.Open(path, "memory:")
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := systemAt(t, again); !ok || !bytes.Contains(got.Records[0].Value, []byte(`"amount":7`)) || bad == 0 {
		t.Errorf("%v, %v, %d", got, ok, bad)
	}

	// If there was no previous value, the file still records that the record exists.
	path = filepath.Join(t.TempDir(), "fresh")
	keep(t, r, path)
	fresh, err := lastgood.Open(path, "memory:")
	if err != nil {
		t.Fatal(err)
	}
	key := store.Key{Namespace: "default", Kind: store.KindEntity, ID: "alice"}
	if got, ok := systemAt(t, fresh); !ok || got.Records[0].Version != 2 || policy.Check(got.Records[0]) == nil {
		t.Errorf("%v, %v", got, ok)
	}
	r.raw(t, system, `{"limits":[{"name":"rpm","amount":8,"period":"min"}]}`)
	if err := fresh.Update(t.Context(), r.handle(), nil, func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	if got, ok := systemAt(t, fresh); !ok || policy.Check(got.Records[0]) != nil {
		t.Errorf("it was mended, but is %v", got)
	}
	if got, ok := again.LastGood([]store.Key{key}); !ok || got.Records[0].Version != 0 || got.Records[0].Key != key {
		t.Errorf("%v, %v", got, ok)
	}
}

// Requests that need an unreadable record of the file are refused, whatever other records hold: its content is unknown.
func TestFileHasUnreadable(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r, dir := newRemote(t), t.TempDir()
		key := func(kind store.Kind, id, sub string) store.Key {
			return store.Key{Namespace: "default", Kind: kind, ID: id, Sub: sub}
		}
		r.raw(t, key(store.KindSystem, "", ""), `{"limits":[{"name":"rpm","amount":7,"period":"min"}],"on_unavailable":"allow"}`)
		r.raw(t, key(store.KindEntity, "child", ""), `{"parent":"alice","cascade":true,"created":"2026-01-01T00:00:00Z"}`)
		r.raw(t, aliceLimits, `{"limits":"by a newer weir"}`)
		r.raw(t, key(store.KindEntityLimits, "bob", "other"), `{"limits":5}`)
		r.raw(t, key(store.KindEntity, "carol", ""), `[]`)
		r.raw(t, key(store.KindResourceLimits, "login", ""), `{"on_unavailable":["deny"]}`)
		path := filepath.Join(dir, "known")
		keep(t, r, path)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		older := regexp.MustCompile(`"version":1,"value":"(eyJsaW1pdHMiOiJ|eyJsaW1pdHMiOjV|W10)[^"]*"`).ReplaceAll(text, []byte(`"version":0,"value":null`))
		_, body, _ := bytes.Cut(older, []byte("\n"))
		sum := sha256.Sum256(body)
		older = append([]byte("weir-known-1 "+hex.EncodeToString(sum[:])+"\n"), body...)
		if bytes.Count(older, []byte(`"version":0`)) != 3 {
			t.Fatalf("%s", older)
		}
		if err := os.WriteFile(filepath.Join(dir, "older"), older, 0o600); err != nil {
			t.Fatal(err)
		}
		r.down.Store(true)
		for _, name := range []string{"known", "older"} { // the latter as an older weir would have written it
			d := r.start(t, filepath.Join(dir, name))
			for _, tt := range []struct {
				entity, resource string
				allowed          bool
			}{{"alice", "api", false}, {"child", "api", false}, {"bob", "api", true}, {"bob", "other", false}, {"carol", "api", false}, {"dave", "api", true}, {"dave", "login", false}} {
				_, err := d.Acquire(t.Context(), weir.Request{Entity: tt.entity, Resource: tt.resource})
				if (err == nil) != tt.allowed || err != nil && !errors.Is(err, weir.ErrUnavailable) {
					t.Errorf("%s: %s on %s: %v", name, tt.entity, tt.resource, err)
				}
				_, err = d.Acquire(t.Context(), weir.Request{Entity: tt.entity, Resource: tt.resource, OnUnavailable: weir.OnUnavailableLocal})
				if (err == nil) != tt.allowed {
					t.Errorf("%s: %s on %s, a share: %v", name, tt.entity, tt.resource, err)
				}
			}
		}
	})
}

// Values known from one store are not used for another store that was given the same file.
func TestFileOfAnotherStore(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r, file := newRemote(t), filepath.Join(t.TempDir(), "known")
		a := r.start(t, file)
		a.set("", 10)
		time.Sleep(period)
		a.stop()
		k, err := lastgood.Open(file, "redis://b")
		if !errors.Is(err, lastgood.ErrOther) || !k.At().IsZero() {
			t.Errorf("%v, known at %v", err, k.At())
		}
		if _, ok := k.LastGood([]store.Key{aliceLimits}); ok {
			t.Error("something is known")
		}
	})
}
