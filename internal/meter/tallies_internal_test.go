package meter

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
)

// Invented entities, resources and limits take bounded memory. Nothing is left out, and nothing is counted for another
// namespace. Each bucket has one id at a time: a store takes the readings of the largest.
func TestInventedNames(t *testing.T) {
	t.Parallel()
	counted := make(map[string]int64) // requests by namespace
	ids := make(map[store.Bucket]uint64)
	ts := newTallies(func(_ context.Context, rs ...store.Reading) error {
		for i := range rs {
			if n := len(rs[i].Counts); n > maxLimits+1 {
				t.Fatalf("a bucket has %d limits", n)
			}
			if id := ids[rs[i].Bucket]; id != 0 {
				t.Errorf("%v has the ids %d and %d", rs[i].Bucket, id, rs[i].ID)
			}
			ids[rs[i].Bucket] = rs[i].ID
			for _, c := range rs[i].Counts {
				counted[rs[i].Bucket.Namespace] += c.Refused
			}
		}
		return nil
	})
	ts.armed.Store(true) // nothing is flushed before the end
	now := time.Now()
	count := func(namespace, entity, resource, limit string) {
		b := store.Bucket{Namespace: namespace, Entity: entity, Resource: resource}
		ts.count(b, now, func(ta *tally) { ta.of(limit).Refused++ })
	}
	const room, names = tallyShards * maxTallies, 4 * tallyShards * maxTallies
	for i := range names {
		count("a", fmt.Sprint(i%1000), fmt.Sprint(i), "")
	}
	for i := range 10_000 {
		count("b", "alice", "api", fmt.Sprint(i))
	}
	tallies := 0
	for i := range ts.shards {
		tallies += len(ts.shards[i].m)
	}
	if most := 2*room + 2*tallyShards; tallies > most {
		t.Errorf("%d buckets are counted individually, at most %d are to be", tallies, most)
	}
	ts.close()
	if counted["a"] != names || counted["b"] != 10_000 {
		t.Errorf("counted %v", counted)
	}
}
