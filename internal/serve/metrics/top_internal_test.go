package metrics

import (
	"math"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestTop checks that no count is too low, that none is too high by more than it states, that this error is at most the
// total divided by the room, and that every key with more than that is counted. Subtracting changes none of it.
func TestTop(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.IntRange(1, 8).Draw(t, "room")
		keys := rapid.IntRange(1, 24).Draw(t, "keys")
		tp := newTop(room)
		exact := make(map[key]int64)
		var total int64
		for range rapid.IntRange(1, 300).Draw(t, "changes") {
			k := key{strconv.Itoa(rapid.IntRange(0, keys-1).Draw(t, "key")), "api"}
			n := rapid.Int64Range(0, 1000).Draw(t, "n")
			if rapid.IntRange(0, 3).Draw(t, "back") == 0 {
				n = min(n, exact[k])
				tp.sub(k, n)
				exact[k] -= n
				continue
			}
			tp.add(k, n)
			exact[k] += n
			total += n
		}
		counted := make(map[key]bool)
		for _, c := range tp.all {
			counted[c.key] = true
			if c.n < exact[c.key] || c.n-c.over > exact[c.key] || c.over > total/int64(room) {
				t.Errorf("%v counted %d, by at most %d too high; it is %d of %d", c.key, c.n, c.over, exact[c.key], total)
			}
		}
		if len(counted) > room || len(tp.by) != len(counted) {
			t.Errorf("%d counted, %d found, room for %d", len(counted), len(tp.by), room)
		}
		for k, n := range exact {
			if !counted[k] && n > total/int64(room) {
				t.Errorf("%v has %d of %d and is not counted", k, n, total)
			}
		}
	})
}

// TestTopExact checks that counts are exact while there is room.
func TestTopExact(t *testing.T) {
	t.Parallel()
	tp := newTop(3)
	for i, n := range []int64{5, 9, 1, 5} {
		tp.add(key{strconv.Itoa(i % 3), "api"}, n)
	}
	got := rank(tp.all, 2)
	if len(got) != 2 || got[0].entity != "0" || got[0].n != 10 || got[0].over != 0 || got[1].entity != "1" || got[1].n != 9 {
		t.Errorf("%+v", got)
	}
}

// TestTopSaturates checks that a key whose count saturates stays at the top.
func TestTopSaturates(t *testing.T) {
	t.Parallel()
	tp := newTop(2)
	for range 3 {
		tp.add(key{"whale", "api"}, math.MaxInt64/2)
	}
	tp.add(key{"fish", "api"}, 1)
	if got := rank(tp.all, 1); got[0].entity != "whale" || got[0].n != math.MaxInt64 {
		t.Errorf("%+v", got)
	}
}
