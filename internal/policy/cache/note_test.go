package cache_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/policy/cache"
)

// note makes "noted" the known value of a key.
func note(c *texts, key string) {
	c.Note(key, func(string, bool) (string, bool) { return "noted", true })
}

// forget removes everything known about a key.
func forget(c *texts, key string) {
	c.Note(key, func(string, bool) (string, bool) { return "", false })
}

func notNoted(v string) bool { return v != "noted" }

// A load under way when Note is called may return an old value: callers waiting for that load get it, later ones do not.
func TestNoteWhileLoading(t *testing.T) {
	t.Parallel()
	for name, evict := range map[string]func(c *texts){
		"noted":     func(c *texts) { note(c, "a") },
		"forgotten": func(c *texts) { forget(c, "a") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, s := open(t, config{TTL: time.Minute, Good: notNoted})
				want(t, get(t, c, s, "keep"), "keep@1")
				old, fresh := make(chan struct{}), make(chan struct{})
				s.set(nil, old)
				var wg sync.WaitGroup
				wg.Go(func() { want(t, get(t, c, s, "a"), "a@2") })
				synctest.Wait()
				evict(c)
				s.set(nil, fresh)
				wg.Go(func() { want(t, get(t, c, s, "a"), "a@3") })
				synctest.Wait()
				close(fresh)
				synctest.Wait()
				close(old) // ends last, and must not win
				wg.Wait()
				want(t, get(t, c, s, "a", "keep"), "a@3", "keep@1")

				// The same if there was no Get in between.
				evict(c)
				gate := make(chan struct{})
				s.set(nil, gate)
				wg.Go(func() { want(t, get(t, c, s, "a"), "a@4") })
				synctest.Wait()
				evict(c)
				close(gate)
				wg.Wait()
				want(t, get(t, c, s, "a"), "a@5")
			})
		})
	}
}

// A noted value is returned by Known and never by Get, and a failed Get restores neither the earlier value nor the
// fallback's.
func TestNoteIsOnlyKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t, config{TTL: time.Minute, Good: notNoted, Fallback: func(string) (string, bool) { return "older", true }})
		known := func(want string) {
			t.Helper()
			if got, ok := c.Known([]string{"a"}); !ok || got[0] != want {
				t.Errorf("known as %q, want %q", got, want)
			}
		}
		known("older")
		want(t, get(t, c, s, "a"), "a@1")
		c.Note("a", func(now string, ok bool) (string, bool) {
			if now != "a@1" || !ok {
				t.Errorf("made of %q", now)
			}
			return "noted", true
		})
		known("noted")
		down := errors.New("down")
		s.set(down, nil)
		for range 2 {
			if got, _, err := c.Get(t.Context(), []string{"a"}, s.load); !errors.Is(err, down) {
				t.Errorf("got %q, %v", got, err)
			}
			known("noted")
		}
		s.set(nil, nil)
		want(t, get(t, c, s, "a"), "a@4")
		known("a@4")
		forget(c, "a")
		known("older")
	})
	c, _ := open(t, config{TTL: -1})
	note(c, "a")
	if _, ok := c.Known([]string{"a"}); ok {
		t.Error("it was remembered without a TTL")
	}
}

// If a load returns a bad value, Known returns that value unless a better one is known.
func TestBadIsKnown(t *testing.T) {
	t.Parallel()
	c, _ := open(t, config{TTL: time.Minute, Good: notNoted, Fallback: func(k string) (string, bool) { return "noted", k == "b" }})
	bad := errors.New("bad")
	load := func(_ context.Context, keys []string) ([]string, error) {
		return []string{"noted"}, cache.Errors{bad}
	}
	for _, k := range []string{"a", "b"} {
		if _, _, err := c.Get(t.Context(), []string{k}, load); !errors.Is(err, bad) {
			t.Errorf("%s: error %v", k, err)
		}
		if got, ok := c.Known([]string{k}); !ok || got[0] != "noted" {
			t.Errorf("%s: known as %q", k, got)
		}
	}
	good := func(_ context.Context, keys []string) ([]string, error) { return []string{"good"}, nil }
	for _, l := range []cache.Load[string, string]{good, load} {
		if got, _, err := c.Get(t.Context(), []string{"a"}, l); err != nil || got[0] != "good" {
			t.Errorf("%q, %v", got, err)
		}
		c.Expire("a")
	}
}
