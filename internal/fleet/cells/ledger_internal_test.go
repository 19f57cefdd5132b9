package cells

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/fleet"
)

func TestDivide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pool    int64
		weights []int64
		floor   int64
		want    []int64
	}{
		{Whole, nil, 10, []int64{}},
		{0, []int64{1, 2}, 10, []int64{0, 0}},
		{100, []int64{0, 0}, 10, []int64{50, 50}},
		{100, []int64{90, 10}, 10, []int64{90, 10}},
		{100, []int64{97, 3}, 10, []int64{95, 5}},
		{100, []int64{5, 0}, 20, []int64{90, 10}},
		{100, []int64{90, 10}, 100, []int64{50, 50}},
		{90, []int64{800, 90, 10}, 30, []int64{72, 9, 9}}, // raising the third to the floor pushes the second below it
	} {
		if have := divide(c.pool, c.weights, c.floor); !slices.Equal(have, c.want) {
			t.Errorf("divide(%d, %d, %d%%) = %d, want %d", c.pool, c.weights, c.floor, have, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		pool := rapid.Int64Range(0, Whole).Draw(t, "pool")
		weights := rapid.SliceOfN(rapid.Int64Range(0, 1e12), 1, 20).Draw(t, "weights")
		floor := rapid.Int64Range(1, 100).Draw(t, "floor")
		var sum int64
		for _, s := range divide(pool, weights, floor) {
			if pool >= 100*int64(len(weights)) && s < pool*floor/100/int64(len(weights)) {
				t.Fatalf("%d is less than the floor", s)
			}
			sum += s
		}
		if sum > pool {
			t.Fatalf("%d of %d", sum, pool)
		}
		if pool > 100*20 && sum < pool-20 {
			t.Fatalf("only %d of %d", sum, pool)
		}
	})
}

// model is a cell that uses grants, as late and as seldom as it likes.
type model struct {
	record seen
	has    cell // the grant it uses
	seq    uint64
}

// TestLedger: whatever cells do, whichever controller leads, and whatever the registry loses, the shares that cells may be
// using never add up to more than the whole.
func TestLedger(t *testing.T) {
	t.Parallel()
	for range 20 { // what goes wrong is rare
		rapid.Check(t, checkLedger)
	}
}

func checkLedger(t *rapid.T) {
	now := time.Unix(0, 0)
	l := newLedger(&grants{}, 10*time.Second, now)
	set := Settings{Weights: rapid.SampledFrom([]Weights{Equal, Offered}).Draw(t, "weights")}.WithDefaults()
	cells := make(map[string]*model)
	published := &grants{}
	history := []*grants{published}
	epoch := uint64(1)
	names := []string{"a", "b", "c", "d", "e"}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		name := rapid.SampledFrom(names).Draw(t, "cell")
		m := cells[name]
		switch rapid.IntRange(0, 7).Draw(t, "what") {
		case 0: // joins
			if m == nil {
				cells[name] = &model{record: seen{cellRecord{Birth: name + strconv.Itoa(int(epoch))}, map[string]instanceRecord{}}}
			}
		case 1, 2: // reads the published grants
			if m != nil && published.Cells[name] != nil && published.Cells[name].Birth == m.record.Birth {
				m.has = *published.Cells[name]
			}
		case 3, 4: // reports its grant and its offered load
			if m != nil {
				m.seq++
				m.record.instances["i"] = instanceRecord{Birth: m.record.Birth, Seq: m.seq, Ack: m.has.Version, Offered: map[string]int64{
					"x": rapid.Int64Range(0, 1000).Draw(t, "x"), "y": rapid.Int64Range(0, 3).Draw(t, "y") * 500,
				}}
			}
		case 5: // starts or stops draining
			if m != nil {
				m.record.Draining = !m.record.Draining
			}
		case 6: // another controller takes over
			epoch++
			l = newLedger(published, 10*time.Second, now)
		case 7: // the registry loses grants, and all cells report before new ones are issued
			epoch++
			published = rapid.SampledFrom(history).Draw(t, "restored")
			history = nil // a cell that has read nothing since could follow contradictory grants
			l = newLedger(published, 10*time.Second, now)
			for _, m := range cells {
				m.seq++
				m.record.instances["i"] = instanceRecord{Birth: m.record.Birth, Seq: m.seq, Ack: m.has.Version}
			}
		}
		now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
		records := make(map[string]seen)
		for name, m := range cells {
			records[name] = m.record
		}
		l.observe(records, now)
		published = l.issue(fleet.Head{Version: Version{Epoch: epoch, Seq: published.Seq + 1}, Leader: "l"}, set, now)
		history = append(history, published)
		if rapid.IntRange(0, 9).Draw(t, "lost") > 0 {
			l.commit(published)
		} else { // written, but the answer was lost
			l = newLedger(published, 10*time.Second, now)
		}
		for _, namespace := range []string{Default, "x", "y", "z"} {
			var sum int64
			for name, m := range cells {
				most := m.has.Shares.Of(namespace)
				if c := published.Cells[name]; c != nil {
					most = max(most, c.Shares.Of(namespace))
				}
				sum += most
			}
			if sum > Whole {
				t.Fatalf("%q: cells may be going by %d of %d", namespace, sum, Whole)
			}
		}
	}
}

// A ledger forgets no share that a cell may still be using, however many it is granted.
func TestLedgerManyIssues(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	l := newLedger(&grants{}, 10*time.Second, now)
	set := Settings{Mode: Available}.WithDefaults()
	record := func(name string, seq uint64, ack Version) seen {
		return seen{cellRecord{Birth: name}, map[string]instanceRecord{"i": {Birth: name, Seq: seq, Ack: ack}}}
	}
	records := map[string]seen{"a": record("a", 1, Version{})}
	var version Version
	publish := func() *grants {
		version.Seq++
		l.observe(records, now)
		g := l.issue(fleet.Head{Version: version, Leader: "l"}, set, now)
		l.commit(g)
		return g
	}
	publish()
	for i := range 3 * fleet.MaxIssues { // other cells come and go, and a, which has the whole, confirms nothing
		now = now.Add(time.Second)
		if delete(records, "b"); i%2 == 0 {
			records["b"] = record("b", uint64(i+1), Version{})
		}
		records["a"] = record("a", uint64(i+2), Version{})
		publish()
	}
	if n := len(l.Issued("a")); n > fleet.MaxIssues {
		t.Errorf("%d issues are kept", n)
	}
	if held := l.Held("a", Default, now); held != Whole {
		t.Errorf("a may be going by %d, the ledger has %d", Whole, held)
	}
	records["b"] = record("b", 99, Version{})
	g := publish()
	records["a"] = record("a", 100, g.Cells["a"].Version)
	if g = publish(); g.Cells["a"].Held != nil || l.Held("a", Default, now) != Whole/2 {
		t.Errorf("what was replaced and confirmed is still held: %+v", g.Cells["a"])
	}
}
