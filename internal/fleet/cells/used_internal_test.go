package cells

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/fleet"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
)

var perMinute = store.Limit{Name: "rpm", Amount: 60_000, Period: time.Minute, Burst: 60_000} // a token a second

func debit(entity string, tokens int64, l *store.Limit) []store.Debit {
	return []store.Debit{{Bucket: store.Bucket{Namespace: "id", Entity: entity, Resource: "api"}, Charges: []store.Charge{{Limit: l, Amount: 1000 * tokens}}}}
}

// The number of counted entries is bounded, as is the number that a beat reports. The heaviest users are reported,
// whoever came first.
func TestUsed(t *testing.T) {
	t.Parallel()
	var u used
	half := policy.Share{Num: 1, Den: 2}
	shadow := debit("shadow", 1000, &perMinute)
	shadow[0].Charges[0].Shadow = true
	own := perMinute
	own.Override = true
	for beat := range uint64(5) {
		for i := range 5000 {
			u.count("default", debit(fmt.Sprint(beat, "-", i), 1, &perMinute), half)
		}
		u.count("default", shadow, half)
		u.count("default", debit("own", 1000, &own), half)
		reported := u.report(beat + 1)
		if len(reported) != maxReported || len(u.of) > maxKept {
			t.Fatalf("%d are reported of, %d kept", len(reported), len(u.of))
		}
		for i := range 3 { // starts when entries already exist
			u.count("default", debit(fmt.Sprint("much", i), 50, &perMinute), half)
		}
		u.count("default", debit("much0", -40, &perMinute), half) // 10 s, at half a limit: 5
	}
	reported := u.report(9)
	text, err := json.Marshal(instanceRecord{Birth: "0123456789ab", Store: "0123456789ab", Seq: 1 << 40, Ack: Version{Epoch: 1 << 20, Seq: 1 << 40}, Used: reported})
	if err != nil || len(text) > 900 {
		t.Errorf("a beat has %d bytes, error %v", len(text), err)
	}
	for i, want := range map[int]int64{0: 5 * 5000, 1: 5 * 25_000, 2: 5 * 25_000} {
		key := usedKey{"default", fmt.Sprint("much", i), "api", "rpm"}.String()
		at := slices.IndexFunc(reported, func(r usedRecord) bool { return r.Key == key })
		if at < 0 || reported[at].Spent != want || reported[at].Burst != 60_000 || reported[at].Namespace != "default" {
			t.Errorf("much%d: %+v, want %d ms", i, reported, want)
		}
	}
	for beat := range uint64(40) {
		u.report(10 + beat)
	}
	if len(u.of) > 0 {
		t.Errorf("%d are counted that use nothing any more", len(u.of))
	}
}

// cellsModel models cells that admit under one limit and report, sometimes late, with changing leaders.
type cellsModel struct {
	ledger   *ledger
	last     *grants
	used     []*used
	seq      []uint64
	reported map[string]seen
	now      time.Time
}

func newCellsModel(n int) *cellsModel {
	m := &cellsModel{ledger: newLedger(&grants{}, 10*time.Second, time.Unix(0, 0)), last: &grants{}, reported: make(map[string]seen), now: time.Unix(0, 0)}
	for i := range n {
		m.used, m.seq = append(m.used, &used{}), append(m.seq, 0)
		m.reported[fmt.Sprint(i)] = seen{cellRecord{Birth: "b"}, map[string]instanceRecord{}}
	}
	return m
}

func (m *cellsModel) admit(cell int, seconds float64, l *store.Limit) {
	m.admitOf("e", cell, seconds, l)
}

func (m *cellsModel) admitOf(entity string, cell int, seconds float64, l *store.Limit) {
	d := debit(entity, 1, l)
	d[0].Charges[0].Amount = int64(math.Floor(seconds * float64(l.Amount) / l.Period.Seconds()))
	m.used[cell].count("default", d, policy.Share{Num: 1, Den: 1})
}

func (m *cellsModel) tell(cell int) {
	m.seq[cell]++
	m.reported[fmt.Sprint(cell)].instances[fmt.Sprint("i", cell)] = instanceRecord{Birth: "b", Seq: m.seq[cell], Used: m.used[cell].report(m.seq[cell])}
}

// look returns what the leader finds.
func (m *cellsModel) look() float64 {
	m.ledger.observe(m.reported, m.now)
	g := m.ledger.issue(fleet.Head{Version: Version{Epoch: 1, Seq: m.last.Seq + 1}, Leader: "l"}, Settings{}.WithDefaults(), m.now)
	m.ledger.commit(g)
	m.last = g
	return max(1, float64(g.Over["default"])/1000)
}

// Two cells that go by different limits for one entity are found within seconds, and no longer than a minute after they
// agree. Shares of one limit, however small and unequal, do not count as different, nor do other entities' limits.
func TestDiffer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newCellsModel(2)
		whole := store.Limit{
			Name: "rpm", Amount: rapid.Int64Range(10, 1<<40).Draw(t, "amount") * 1000, Period: time.Minute,
			Burst: rapid.Int64Range(10, 1<<40).Draw(t, "burst") * 1000,
		}
		num := rapid.Int64Range(1, Whole-1).Draw(t, "share")
		least := rapid.Bool().Draw(t, "least")
		both := func(second store.Limit, entity string) {
			for range 5 {
				for cell, l := range []store.Limit{whole, second} {
					sh := policy.Share{Num: []int64{num, Whole - num}[cell], Den: Whole, Least: least}
					l = sh.Of(l)
					d := debit([]string{"e", entity}[cell], 1, &l)
					d[0].Charges[0].Amount = max(1, l.Amount/20)
					m.used[cell].count("default", d, sh)
					m.tell(cell)
				}
				m.now = m.now.Add(time.Second)
				m.look()
			}
		}
		both(whole, "e")
		if len(m.last.Differ) > 0 {
			t.Fatalf("%v differ, with one limit", m.last.Differ)
		}
		other := whole
		if rapid.Bool().Draw(t, "another burst") {
			other.Burst += max(1000, other.Burst/10)
		} else {
			other.Amount += max(1000, other.Amount/10)
		}
		both(other, "another")
		if len(m.last.Differ) > 0 {
			t.Fatalf("%v differ, with other limits of another entity", m.last.Differ)
		}
		both(other, "e")
		known := num > Whole/4 && num < 3*Whole/4 && whole.Burst/whole.Amount < 1<<20 && whole.Amount/whole.Burst < 2
		if known && !slices.Equal(m.last.Differ, []string{"default"}) {
			t.Fatalf("%v differ, want default", m.last.Differ)
		}
		for range 75 {
			m.now = m.now.Add(time.Second)
			m.look()
		}
		if both(whole, "e"); len(m.last.Differ) > 0 {
			t.Fatalf("%v differ, after a minute", m.last.Differ)
		}
	})
}

// Whatever all cells together admit within one limit, whether they report it late or never, and whichever cell leads: the
// leader never finds more than the limit.
func TestWithinLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "cells")
		m := newCellsModel(n)
		l := perMinute
		l.Burst = rapid.Int64Range(1, 120).Draw(t, "burst") * 1000
		full := float64(l.Burst) / float64(l.Amount) * l.Period.Seconds()
		level := full // of the single bucket, in seconds
		silent := make([]int, n)
		leases := make([][]float64, n) // that may return tokens
		quiet := 0
		crowd := rapid.IntRange(0, 12).Draw(t, "crowd")
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			m.now = m.now.Add(time.Second)
			level = min(full, level+1)
			for i := range n {
				if part := level * rapid.SampledFrom([]float64{0, 0, 0.1, 0.5, 1}).Draw(t, "part"); part > 0.01 {
					m.admit(i, part*0.999, &l)
					level -= part
					leases[i] = append(leases[i], part*0.998)
				}
				if k := len(leases[i]); k > 0 && rapid.IntRange(0, 3).Draw(t, "back") == 0 {
					back := leases[i][0]
					leases[i] = leases[i][1:]
					m.admit(i, -back, &l)
					level = min(full, level+back*0.998)
				}
				for j := range crowd { // others with as much to report
					m.admitOf(fmt.Sprint("crowd", j), i, rapid.SampledFrom([]float64{0.01, 0.1, 0.25}).Draw(t, "use"), &l)
				}
				switch {
				case silent[i] > 0: // cut off
					silent[i]--
				case rapid.IntRange(0, 30).Draw(t, "cut") == 0:
					silent[i] = rapid.IntRange(1, 90).Draw(t, "for")
				default:
					m.tell(i)
				}
			}
			if rapid.IntRange(0, 40).Draw(t, "leader") == 0 {
				m.ledger = newLedger(m.last, 10*time.Second, m.now)
			}
			quiet++
			if slices.Max(silent) > 0 {
				quiet = 0
			}
			if r := m.look(); r > 1.01 && quiet > 2 { // before that, a return may not have been reported yet
				t.Fatalf("%.3f of what is allowed", r)
			}
		}
	})
}

// Use beyond a limit is reported with its size, and no longer than it matters.
func TestOverLimits(t *testing.T) {
	t.Parallel()
	for _, times := range []float64{1.5, 2, 3.2} {
		m := newCellsModel(4)
		at := make(map[int]float64)
		for second := range 900 {
			m.now = m.now.Add(time.Second)
			for i := range m.used {
				if second < 600 {
					m.admit(i, times/4, &perMinute)
				}
				m.tell(i)
			}
			at[second] = m.look()
		}
		if got := at[599]; math.Abs(got-times) > 0.1 {
			t.Errorf("%.1f times: %.2f", times, got)
		}
		if at[40] > 1 && times < 2 || at[899] > 1.05 {
			t.Errorf("%.1f times: %.2f soon, %.2f five minutes later", times, at[40], at[899])
		}
	}
	// An hourly limit, used in full in each of three cells.
	hour, m := store.Limit{Name: "rph", Amount: 3600_000, Period: time.Hour, Burst: 3600_000}, newCellsModel(3)
	for range 2 { // the first beat may be an old one
		for i := range m.used {
			m.tell(i)
		}
		m.look()
		m.now = m.now.Add(time.Second)
	}
	for i := range m.used {
		m.admit(i, 3600, &hour)
		m.tell(i)
	}
	if got := m.look(); math.Abs(got-3) > 0.1 {
		t.Errorf("an hour's limit, three times: %.2f", got)
	}
}

// The grants report on a bounded number of namespaces: those with the largest excess.
func TestOverBounded(t *testing.T) {
	t.Parallel()
	m := newCellsModel(10)
	namespace := func(i int) string { return fmt.Sprintf("ns%02d", i) }
	for second := range 300 {
		m.now = m.now.Add(time.Second)
		for i := range 80 { // each instance reports eight
			d := debit("e", 1, &perMinute)
			d[0].Charges[0].Amount = int64(1000 * (1.5 + float64(i)/10))
			m.used[i/8].count(namespace(i), d, policy.Share{Num: 1, Den: 1})
		}
		for i := range m.used {
			m.tell(i)
		}
		_ = second
		m.look()
	}
	over := m.ledger.over(m.now)
	if len(over) != maxOver || over[namespace(79)] == 0 || over[namespace(60)] == 0 || over[namespace(59)] != 0 {
		t.Errorf("%v", slices.Sorted(maps.Keys(over)))
	}
}

// Debits or returns that are reported late do not look like use beyond the limit.
func TestToldLate(t *testing.T) {
	t.Parallel()
	small := perMinute
	small.Burst = 5000
	for name, f := range map[string]func(m *cellsModel, beat func(cells ...int)){
		"a cell that was cut off": func(m *cellsModel, beat func(cells ...int)) {
			for range 60 {
				m.admit(0, 1, &small)
				beat(1)
			}
			beat(0, 1)
		},
		"given back, and taken elsewhere": func(m *cellsModel, beat func(cells ...int)) {
			m.admit(0, 60, &perMinute)
			beat(0, 1)
			m.admit(0, -60, &perMinute)
			m.admit(1, 60, &perMinute)
			beat(1)
			beat(0, 1)
		},
		"given back after a pause": func(m *cellsModel, beat func(cells ...int)) {
			m.admit(0, 60, &perMinute)
			for range 30 {
				beat(0, 1)
			}
			m.admit(0, -60, &perMinute)
			m.admit(0, 60, &perMinute)
			beat(0, 1)
			beat(0, 1)
		},
		"given back while others use more": func(m *cellsModel, beat func(cells ...int)) {
			m.admit(0, 60, &perMinute)
			for i := range 20 {
				for j := range 2 * maxReported {
					m.admitOf(fmt.Sprint(j), 0, 0.9, &perMinute)
				}
				m.admit(0, 0.1, &perMinute)
				if i == 10 {
					m.admit(0, -55, &perMinute)
				}
				if i == 13 {
					m.admit(0, 55, &perMinute)
				}
				beat(0, 1)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newCellsModel(2)
			last := 1.
			beat := func(cells ...int) {
				m.now = m.now.Add(time.Second)
				for _, i := range cells {
					m.tell(i)
				}
				last = m.look()
			}
			beat(0, 1)
			beat(0, 1)
			if f(m, beat); last > 1 {
				t.Errorf("%.3f of what is allowed", last)
			}
		})
	}
}
