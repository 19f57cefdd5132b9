package policy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// catalog has limits of one resource.
type catalog struct {
	store.Catalog

	burst int64
	err   error
}

func (c *catalog) Get(_ context.Context, keys ...store.Key) (store.Got, error) {
	got := store.Got{Records: make([]store.Record, len(keys))}
	for i, k := range keys {
		if got.Records[i].Key = k; k == (record.Scope{Resource: "api"}).Key("id") {
			limit := record.Limit{Name: "rpm", Amount: c.burst, Period: time.Minute}
			got.Records[i].Version, got.Records[i].Value = 1, record.Encode(record.Limits{Limits: []record.Limit{limit}})
		}
	}
	return got, c.err
}

// builds counts how often a policy is made: each time, the share is looked up once.
type builds struct{ n int }

func (b *builds) Share(string) Share {
	b.n++
	return Whole
}

func (b *builds) Stale(context.Context, uint64) {}

// TestKnownEvicted checks that without the store, a policy whose records are not cached any more is not made again for
// each request, and that what has been read meanwhile for another entity applies after a second.
func TestKnownEvicted(t *testing.T) {
	t.Parallel()
	for what, key := range map[string]store.Key{
		"entity":   record.EntityKey("id", "alice"),
		"resource": record.Scope{Resource: "api"}.Key("id"),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, made := &catalog{burst: 1000}, &builds{}
				r := New(Config{Catalog: c, TTL: time.Minute, Entries: 100, Timeout: time.Second, OnChange: func(string) {}})
				defer r.Close()
				r.Use(made, nil)
				n := r.Namespace("shop", "id")
				if _, err := n.Resolve(t.Context(), "alice", "api", true); err != nil {
					t.Fatal(err)
				}
				want := func(tokens int64, builds int) {
					t.Helper()
					before := made.n
					for range 2 {
						if p := n.Known("alice", "api", true); p == nil || p.UsesBroaderLimits ||
							p.Targets[0].Limits[0].Burst != 1000*tokens {
							t.Errorf("got %+v, want %d tokens", p, tokens)
						}
					}
					if got := made.n - before; got != builds {
						t.Errorf("made %d times, want %d", got, builds)
					}
				}
				want(1000, 0)
				time.Sleep(2 * time.Minute)
				c.err = errors.New("away")
				r.records.Note(key, func(*catalogRecord, bool) (*catalogRecord, bool) { return nil, false })
				for range 3 {
					want(1000, 1)
					time.Sleep(time.Second)
				}
				c.burst, c.err = 10, nil
				if _, err := n.Resolve(t.Context(), "bob", "api", true); err != nil {
					t.Fatal(err)
				}
				if c.err = errors.New("away"); what == "resource" {
					want(10, 1)
				} else {
					want(1000, 1) // alice may have limits of her own
				}
			})
		})
	}
}
