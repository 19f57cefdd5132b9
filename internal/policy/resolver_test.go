package policy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// oneRecord is a catalog whose every record is the same.
type oneRecord struct {
	store.Catalog

	value []byte
	err   error
}

func (c *oneRecord) Get(_ context.Context, keys ...store.Key) (store.Got, error) {
	got := store.Got{Records: make([]store.Record, len(keys))}
	for i, k := range keys {
		got.Records[i] = store.Record{Key: k, Version: 1, Value: c.value}
	}
	return got, c.err
}

// TestMaxBucketsUnreadable checks that the number of buckets of a namespace stays as last read while its record cannot
// be read, also if it was read only to find the namespace.
func TestMaxBucketsUnreadable(t *testing.T) {
	t.Parallel()
	set := func(most int) []byte { return record.Encode(record.Namespace{ID: "x1", MaxBuckets: most}) }
	c := &oneRecord{value: set(7)}
	r := policy.New(policy.Config{Catalog: c, TTL: -1, Entries: 10, Timeout: time.Minute, OnChange: func(string) {}})
	if id, err := r.Namespace("shop", "").ID(t.Context()); id != "x1" || err != nil {
		t.Fatalf("%q, %v", id, err)
	}
	for _, c.err = range []error{nil, errors.New("away")} {
		c.value = []byte("no record")
		if shop, most := r.MaxBuckets(t.Context(), "x1"); shop != "shop" || most != 7 {
			t.Errorf("%v: %q has %d, want 7", c.err, shop, most)
		}
	}
	c.err = nil
	for _, want := range []int{5, 0} {
		c.value = set(want)
		if _, most := r.MaxBuckets(t.Context(), "x1"); most != want {
			t.Errorf("has %d, want %d", most, want)
		}
		c.value = nil
		if _, most := r.MaxBuckets(t.Context(), "x1"); most != want {
			t.Errorf("unreadable: has %d, want %d", most, want)
		}
	}
}
