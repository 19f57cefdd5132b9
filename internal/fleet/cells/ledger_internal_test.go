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
	has    sharesRecord // in its own store
	seq    uint64
}

// adopted returns what the cell uses once it has read grants.
func (m *model) adopted(name string, g *grants) sharesRecord {
	o := &localShares{cfg: &Config{Cell: name}, held: m.has}
	want := wanted(name, m.has.Birth, "", g, &m.record.cellRecord)
	if want == nil || want.Birth != m.has.Birth && len(want.Shares) == 0 {
		return m.has
	}
	if next := o.next(&m.has, want); next != nil {
		return *next
	}
	return m.has
}

// report makes the cell report what it uses, and the load offered to it.
func (m *model) report(offered map[string]int64) {
	m.seq++
	r := instanceRecord{Birth: m.record.Birth, Seq: m.seq, Ack: m.has.Version, Offered: offered}
	m.record.instances["i"] = r
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
	l := newLedger(&grants{}, 3*time.Second, now)
	set := Settings{Weights: rapid.SampledFrom([]Weights{Equal, Offered}).Draw(t, "weights")}.WithDefaults()
	cells := make(map[string]*model)
	published := &grants{}
	history := []*grants{published}
	epoch := uint64(1)
	names := []string{"a", "b", "c"}
	for range rapid.IntRange(1, 120).Draw(t, "steps") {
		name := rapid.SampledFrom(names).Draw(t, "cell")
		m := cells[name]
		switch rapid.IntRange(0, 19).Draw(t, "what") {
		case 0, 1, 2: // joins
			if m == nil {
				cells[name] = &model{record: seen{cellRecord{Birth: name + strconv.Itoa(int(epoch))}, map[string]instanceRecord{}}}
			}
		case 3, 4, 5, 6, 7, 8: // reads the published grants
			if m != nil {
				m.has = m.adopted(name, published)
			}
		case 9, 10, 11, 12, 13, 14, 15: // reports its grant and its offered load
			if m != nil {
				m.report(map[string]int64{
					"x": rapid.Int64Range(0, 1000).Draw(t, "x"), "y": rapid.Int64Range(0, 3).Draw(t, "y") * 500,
				})
			}
		case 16: // starts or stops draining
			if m != nil {
				m.record.Draining = !m.record.Draining
			}
		case 17: // another controller takes over
			epoch++
			l = newLedger(published, 3*time.Second, now)
		case 18, 19: // the registry loses grants; a cell that uses them, if any does, reports before new ones
			epoch++
			published = history[max(0, len(history)-1-rapid.IntRange(0, 20).Draw(t, "lost"))]
			history = nil // a cell that has read nothing since could follow contradictory grants
			l = newLedger(published, 3*time.Second, now)
			reported := false
			for _, name := range names {
				m := cells[name]
				if m == nil {
					continue
				}
				needed := !reported && m.has.Version.Compare(published.Version) > 0
				if needed || rapid.Bool().Draw(t, "reports") { // the others are cut off
					m.report(nil)
					reported = reported || needed
				}
			}
		}
		now = now.Add(time.Duration(rapid.IntRange(0, 1000).Draw(t, "ms")) * time.Millisecond)
		records := make(map[string]seen)
		for name, m := range cells {
			records[name] = m.record
		}
		l.observe(records, now)
		published = l.issue(fleet.Head{Version: Version{Epoch: epoch, Seq: published.Seq + 1}, Leader: "l"}, set, now)
		history = append(history, published)
		if rapid.IntRange(0, 19).Draw(t, "unknown") > 0 {
			l.commit(published)
		} else { // written, but the answer was lost
			l = newLedger(published, 3*time.Second, now)
		}
		for _, namespace := range []string{Default, "x", "y", "z"} {
			var sum int64
			for name, m := range cells {
				next := m.adopted(name, published)
				sum += max(m.has.Shares.Of(namespace), next.Shares.Of(namespace))
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

// A restored registry has lost 1/4, which lowered y to a third, and 1/5, which raised x to two thirds. x uses that, but
// was cut off before it could confirm it. Nobody is given what x uses before it confirms newer grants.
func TestLostAndCutOff(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	at := func(epoch, seq uint64) Version { return Version{Epoch: epoch, Seq: seq} }
	cells := map[string]*model{
		"x": {has: sharesRecord{Cell: "x", Birth: "x1", Version: at(1, 5), Shares: Shares{"": 2 * Whole / 3}}},
		"y": {has: sharesRecord{Cell: "y", Birth: "y1", Version: at(1, 4), Shares: Shares{"": Whole / 3}}},
	}
	x, y := cells["x"], cells["y"]
	for name, m := range cells {
		m.record = seen{cellRecord{Birth: name + "1"}, map[string]instanceRecord{}}
	}
	x.record.instances["i"] = instanceRecord{Birth: "x1", Seq: 1, Ack: at(1, 3)}
	set := Settings{Mode: Strict, Weights: Equal}.WithDefaults()
	g := &grants{Head: fleet.Head{Version: at(1, 3)}, Settings: set, Cells: map[string]*cell{
		"x": {Birth: "x1", Version: at(1, 3), Shares: Shares{"": Whole / 3}},
		"y": {Birth: "y1", Version: at(1, 3), Shares: Shares{"": 2 * Whole / 3}},
	}}
	l := newLedger(g, 10*time.Second, now)
	beats := func(cutOff bool, takeover int) {
		for i := range 60 {
			if y.report(nil); !cutOff {
				x.report(nil)
			}
			l.observe(map[string]seen{"x": x.record, "y": y.record}, now)
			g = l.issue(fleet.Head{Version: at(2, g.Seq+1)}, set, now)
			if l.commit(g); i == takeover {
				l = newLedger(g, 10*time.Second, now)
			}
			if y.has = y.adopted("y", g); !cutOff {
				x.has = x.adopted("x", g)
			}
			if sum := x.has.Shares.Of("") + y.has.Shares.Of(""); sum > Whole {
				t.Fatalf("beat %d: x and y use %d of %d", i, sum, Whole)
			}
			now = now.Add(time.Second)
		}
	}
	beats(true, 0)
	if share := y.has.Shares.Of(""); share != Whole/3 {
		t.Errorf("y uses %d of %d, and should keep a third", share, Whole)
	}
	beats(false, 3)
	if x.has.Shares.Of("") != Whole/2 || y.has.Shares.Of("") != Whole/2 {
		t.Errorf("x uses %v, y %v: they should have half each", x.has.Shares, y.has.Shares)
	}
}

// A cell that confirmed lost grants and is gone takes nothing from the others, and none of them rises. When it is back,
// all have what they are granted.
func TestLostAndGone(t *testing.T) {
	t.Parallel()
	now, at := time.Unix(0, 0), Version{Epoch: 1, Seq: 4}
	set := Settings{Mode: Strict, Weights: Equal}.WithDefaults()
	g := &grants{Head: fleet.Head{Version: at}, Settings: set, Cells: make(map[string]*cell)}
	cells, records := make(map[string]*model), make(map[string]seen)
	for _, name := range []string{"a", "b", "gone"} {
		g.Cells[name] = &cell{Birth: name, Version: at, Shares: Shares{"": Whole / 3}}
		cells[name] = &model{
			record: seen{cellRecord{Birth: name}, map[string]instanceRecord{}},
			has:    sharesRecord{Cell: name, Birth: name, Version: at, Shares: g.Cells[name].Shares},
		}
		records[name] = cells[name].record
	}
	cells["gone"].has.Version.Seq = 6
	cells["gone"].report(nil)
	cells["b"].has.Version.Seq, cells["b"].has.Shares = 5, Shares{"": Whole / 6}
	l, epoch := newLedger(g, 10*time.Second, now), uint64(2)
	for _, phase := range []struct {
		present []string
		want    map[string]int64
	}{
		{[]string{"a", "b"}, map[string]int64{"a": Whole / 3, "b": Whole / 6}},
		{[]string{"a", "b", "gone"}, map[string]int64{"a": Whole / 3, "b": Whole / 3, "gone": Whole / 3}},
	} {
		for range 30 {
			for _, name := range phase.present {
				cells[name].report(nil)
			}
			l.observe(records, now)
			g = l.issue(fleet.Head{Version: Version{Epoch: epoch, Seq: g.Seq + 1}}, set, now)
			l.commit(g)
			for _, name := range phase.present {
				cells[name].has = cells[name].adopted(name, g)
			}
			now = now.Add(time.Second)
		}
		for name, want := range phase.want {
			if share := cells[name].has.Shares.Of(""); share != want {
				t.Errorf("%s uses %d, want %d of %d", name, share, want, Whole)
			}
		}
		// It follows grants of a later epoch than the others.
		cells["gone"].has.Version, epoch = Version{Epoch: 3, Seq: 90}, 4
	}
}
