package auditlog

import (
	"math"
	"testing"
	"time"
)

// White-box: the public API has no way to set the generator's clock.
func TestEventIDs(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var g eventIDs
	last := ""
	next := func(name string, now time.Time) string {
		t.Helper()
		id := g.next(now)
		if len(id) != 26 {
			t.Fatalf("%s: %q has %d digits", name, id, len(id))
		}
		if id <= last {
			t.Fatalf("%s: %q after %q", name, id, last)
		}
		last = id
		return id
	}
	first := next("first", start)
	for range 1000 {
		next("in one millisecond", start)
	}
	next("the clock was set back", start.Add(-time.Hour))
	if id := next("a millisecond later", start.Add(time.Millisecond)); id[:10] == first[:10] {
		t.Errorf("%q and %q: the same time", id, first)
	}
	g.lo = math.MaxUint64
	next("the lower half runs over", start)
	g.lo, g.hi = math.MaxUint64, g.hi|0xffff
	next("all random bits run over", start)
	next("later", start.AddDate(100, 0, 0))

	var old eventIDs
	if id := old.next(time.Unix(-1, 0)); len(id) != 26 || id[:10] != "0000000000" {
		t.Errorf("before 1970: %q", id)
	}
}

func TestEventIDsConcurrently(t *testing.T) {
	t.Parallel()
	var g eventIDs
	now := time.Now()
	ids := make(chan string, 8*200)
	for range 8 {
		go func() {
			for range 200 {
				ids <- g.next(now)
			}
		}()
	}
	seen := make(map[string]bool)
	for range cap(ids) {
		id := <-ids
		if seen[id] {
			t.Fatalf("%s twice", id)
		}
		seen[id] = true
	}
}
