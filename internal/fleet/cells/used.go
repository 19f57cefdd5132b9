package cells

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
)

const (
	// maxUsed is how many limits of buckets an instance counts between two beats, and maxKept how many it continues to
	// count after a beat. A bucket that uses much of a limit is soon counted again.
	maxUsed = 1000
	maxKept = 250
	// maxReported is how many a beat reports, so that an instance's record stays below one kilobyte.
	maxReported = 8
)

// usedRecord is what an instance has admitted of a limit of one bucket, in milliseconds: the time that the limit of all
// cells takes to issue as much.
type usedRecord struct {
	Key       string `json:"k"` // the same in all cells
	Namespace string `json:"n"`
	Since     uint64 `json:"s"` // the beat since which it has been counted
	Spent     int64  `json:"u"`
	Burst     int64  `json:"b"`
	Rate      int64  `json:"r,omitempty"` // of all cells: see rateOf; 0 if not known
}

// used counts what is admitted of limits, for the buckets that use most of theirs. It is bounded.
type used struct {
	mu   sync.Mutex
	of   map[usedKey]*usage
	beat uint64
}

type usedKey struct{ namespace, entity, resource, limit string }

// String is the same in every process, and does not reveal the key.
func (k usedKey) String() string {
	h := fnv.New64a()
	for _, part := range []string{k.namespace, k.entity, k.resource, k.limit} {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(part)))
		_, _ = h.Write(n[:])
		_, _ = h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// usage is counted in seconds.
type usage struct {
	since    uint64
	rate     int64
	burst    float64
	spent    float64
	reported float64 // spent as of the last beat
	recent   float64 // debited and returned in the last beats, the latest weighing most
}

// count counts debits made under a share.
func (u *used) count(namespace string, debits []store.Debit, of policy.Share) {
	if len(debits) == 0 || of.Num == 0 {
		return
	}
	part := float64(of.Num) / float64(of.Den)
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range debits {
		for _, c := range debits[i].Charges {
			if c.Amount == 0 || c.Shadow || c.Limit.Override || c.Limit.Period == 0 { // cells share rates only
				continue
			}
			k := usedKey{namespace, debits[i].Bucket.Entity, debits[i].Bucket.Resource, c.Limit.Name}
			us := u.of[k]
			if us == nil {
				// A return must not be missed if its debit was reported.
				if n := len(u.of); n >= maxUsed && c.Amount > 0 || n >= 2*maxUsed {
					continue
				}
				if u.of == nil {
					u.of = make(map[usedKey]*usage)
				}
				us = &usage{since: u.beat}
				u.of[k] = us
			}
			issues := c.Limit.Period.Seconds() / float64(c.Limit.Amount) // seconds to issue a millitoken
			us.burst = float64(c.Limit.Burst) * issues
			if c.Limit.Amount > 1000 && c.Limit.Burst > 1000 { // what is less may be far from the cell's part
				us.rate = rateOf(issues * part)
			}
			us.spent += float64(c.Amount) * issues * part
		}
	}
}

// rateOf returns a rate as a power of 1.02, from the seconds in which it issues a millitoken. Equal limits that are
// divided differently differ by one at most.
func rateOf(issues float64) int64 {
	return int64(math.Round(-math.Log(issues)/math.Log(1.02))) + rateOffset
}

const rateOffset = 5000 // all rates are positive

// report returns what to report with a beat, and forgets the buckets that use least.
func (u *used) report(beat uint64) []usedRecord {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.beat = beat
	for k, us := range u.of {
		us.recent = us.recent/2 + math.Abs(us.spent-us.reported)
		us.reported = us.spent
		if us.recent < 0.0005 {
			delete(u.of, k)
		}
	}
	most := slices.SortedFunc(maps.Keys(u.of), func(a, b usedKey) int {
		return cmp.Compare(u.of[b].recent, u.of[a].recent)
	})
	var reported []usedRecord
	for i, k := range most {
		us := u.of[k]
		if i >= maxKept {
			delete(u.of, k)
		} else if i < maxReported {
			reported = append(reported, usedRecord{
				k.String(), k.namespace, us.since, int64(us.spent * 1000), int64(us.burst * 1000), us.rate,
			})
		}
	}
	return reported
}

// measure is how much all cells admit of a limit of one bucket: a bucket that fills with what they report, and drains
// as the limit issues. Overflow is more than the limit allows. It is counted in seconds of the limit.
type measure struct {
	namespace string
	at        time.Time
	burst     float64
	level     float64
	over      float64   // recent overflow
	differed  time.Time // when two cells last went by different limits
	reported  map[string]usedReport
}

// usedReport is the last report of an instance, kept while the bucket is not empty.
type usedReport struct {
	cell  string
	since uint64
	spent int64
	rate  int64
	burst int64
	at    time.Time
}

// differs reports whether two cells go by different limits.
func (r *usedReport) differs(o *usedReport) bool {
	const least = 20 // milliseconds: rounding
	apart := max(r.burst, o.burst) - min(r.burst, o.burst)
	return r.cell != o.cell && r.rate > 0 && o.rate > 0 &&
		(max(r.rate, o.rate)-min(r.rate, o.rate) > 1 || apart > max(least, r.burst/50))
}

// measured is the shortest time over which over decays; a longer burst extends it.
const measured = time.Minute

func (m *measure) while() float64 { return max(measured.Seconds(), m.burst) }

func (m *measure) pass(now time.Time) {
	d := now.Sub(m.at).Seconds()
	m.at = now
	m.level = max(0, m.level-d)
	m.over *= math.Exp(-d / m.while())
}

// fill adds what was admitted. late is how late cells may report it. A return may be reported after tokens that were
// admitted elsewhere in its place and overflowed.
func (m *measure) fill(seconds float64, late time.Duration) {
	if seconds < 0 {
		back := min(-seconds, m.over)
		m.over -= back
		seconds += back
	}
	m.level = max(0, m.level+seconds)
	if over := m.level - m.burst - late.Seconds(); over > 0 {
		m.over += over
		m.level -= over
	}
}

// ratio is what was recently admitted relative to what the limit allows, at least 1.
func (m *measure) ratio() float64 { return 1 + m.over/m.while() }

// measure takes in the report of an instance that has beaten before. Of a bucket reported for the first time, it counts
// only what was admitted since the beat before.
func (l *ledger) measure(cell, id string, was *instance, now instanceRecord, at time.Time) {
	late := l.Patience / 3
	for _, u := range now.Used {
		m := l.measures[u.Key]
		if m == nil {
			m = &measure{namespace: u.Namespace, at: at, reported: make(map[string]usedReport)}
			l.measures[u.Key] = m
		}
		before, known := m.reported[id]
		if !known {
			before.at = was.seen
			if i := slices.IndexFunc(was.record.Used, func(w usedRecord) bool { return w.Key == u.Key }); i >= 0 {
				before.since, before.spent, known = was.record.Used[i].Since, was.record.Used[i].Spent, true
			}
		}
		r := usedReport{cell, u.Since, u.Spent, u.Rate, u.Burst, at}
		m.reported[id] = r
		for _, o := range m.reported {
			if at.Sub(o.at) < l.Patience && r.differs(&o) {
				m.differed = at
			}
		}
		spent := u.Spent
		switch {
		case known && before.since == u.Since:
			spent -= before.spent
		case u.Since < was.record.Seq:
			spent = 0 // admitted at an unknown time
		default:
			before.at = was.seen
		}
		seconds := float64(spent) / 1000
		if gap := at.Sub(before.at); gap > late { // nor is it known how much was admitted when
			seconds = min(seconds, max(0, seconds-gap.Seconds()))
		}
		m.burst = float64(u.Burst) / 1000
		m.pass(at)
		m.fill(seconds, late)
	}
}

// maxOver is how many namespaces the grants list as having admitted more than their limits.
const maxOver = 20

// over returns, by namespace, what was admitted relative to what limits allow, in thousandths, for the bucket with the
// most, if it exceeds the limit by more than a hundredth. It forgets what need not be known any more.
func (l *ledger) over(now time.Time) map[string]int64 {
	most := make(map[string]int64)
	for key, m := range l.measures {
		if m.pass(now); m.level == 0 && m.ratio() < 1.001 && !m.differs(now) {
			delete(l.measures, key)
		} else if m.ratio() > 1.01 {
			most[m.namespace] = max(most[m.namespace], int64(1000*m.ratio()))
		}
	}
	for len(most) > maxOver {
		least := slices.MinFunc(slices.Collect(maps.Keys(most)), func(a, b string) int {
			return cmp.Or(cmp.Compare(most[a], most[b]), cmp.Compare(b, a))
		})
		delete(most, least)
	}
	return most
}

// differs reports whether two cells have lately gone by different limits.
func (m *measure) differs(now time.Time) bool {
	return !m.differed.IsZero() && now.Sub(m.differed) < measured
}

// differ returns the namespaces of which two cells lately went by different limits, at most maxOver.
func (l *ledger) differ(now time.Time) []string {
	found := make(map[string]bool)
	for _, m := range l.measures {
		if m.differs(now) {
			found[m.namespace] = true
		}
	}
	names := slices.Sorted(maps.Keys(found))
	return names[:min(len(names), maxOver)]
}
