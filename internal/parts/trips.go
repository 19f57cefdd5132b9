package parts

import (
	"context"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// ColdTrips is the number of round trips that the decision on an entity with a parent needs at most, one after the
// other, if nothing is cached: one each for the namespace, the entity, its parent and the take and, on DynamoDB, two
// more for the first that a process decides in a namespace. Each further parent adds one. The default namespace needs
// one less.
const ColdTrips = 6

// Cold returns how long a decision takes at most if nothing is cached, by the time of a round trip.
func Cold(trip time.Duration) time.Duration { return ColdTrips * trip }

// Trips measures round trips to a store: how long it took to answer reads of the catalog and takes, over the last 30
// to 60 s. The zero value has measured none. It is safe for concurrent use, and takes no lock.
type Trips struct{ spans [2]span }

const (
	// spanLength is how long a span counts.
	spanLength = 30 * time.Second
	// steps are the classes of durations: four for each power of two, up to 16 s.
	steps = 96
	// fromMemory is the time within which only an answer from memory comes, such as that of a refusal remembered: it
	// is no round trip.
	fromMemory = 20 * time.Microsecond
)

// span counts round trips by duration.
type span struct {
	number atomic.Int64 // of the span, from 1970
	counts [steps]atomic.Uint32
}

// observe counts a call that was answered at now.
func (t *Trips) observe(now time.Time, took time.Duration) {
	if took < fromMemory {
		return
	}
	n := now.UnixNano() / int64(spanLength)
	s := &t.spans[n&1]
	if old := s.number.Load(); old != n && s.number.CompareAndSwap(old, n) {
		for i := range s.counts { // concurrent calls may be lost
			s.counts[i].Store(0)
		}
	}
	s.counts[step(took)].Add(1)
}

// step returns the class of a duration.
func step(d time.Duration) int {
	us := uint64(d / time.Microsecond)
	if us < 4 {
		return int(us)
	}
	e := bits.Len64(us) - 1
	return min(steps-1, 4*(e-1)+int(us>>(e-2))&3)
}

// upTo returns the end of a class.
func upTo(step int) time.Duration {
	if step < 4 {
		return time.Duration(step+1) * time.Microsecond
	}
	return time.Duration(5+step%4) << (step/4 - 1) * time.Microsecond
}

// Shortest returns the shortest round trip, rounded up by at most a quarter; 0 if none were measured. It is fast.
func (t *Trips) Shortest() time.Duration {
	now := time.Now().UnixNano() / int64(spanLength)
	shortest := steps
	for i := range t.spans {
		if s := &t.spans[i]; s.number.Load() >= now-1 {
			for j := range shortest {
				if s.counts[j].Load() > 0 {
					shortest = j
					break
				}
			}
		}
	}
	if shortest == steps {
		return 0
	}
	return upTo(shortest)
}

// Quantile returns a duration that a share q of the round trips did not exceed, rounded up by at most a quarter; 0 if
// none were measured. The longest counts only if it is the only one: a single late answer among the few of an idle
// process shows nothing about the store.
func (t *Trips) Quantile(q float64) time.Duration {
	now := time.Now().UnixNano() / int64(spanLength)
	var all [steps]uint64
	var total uint64
	for i := range t.spans {
		if s := &t.spans[i]; s.number.Load() >= now-1 {
			for j := range s.counts {
				n := uint64(s.counts[j].Load())
				all[j] += n
				total += n
			}
		}
	}
	if total == 0 {
		return 0
	}
	rank, seen := max(1, min(uint64(math.Ceil(q*float64(total))), total-1)), uint64(0)
	for i, n := range &all {
		if seen += n; seen >= rank {
			return upTo(i)
		}
	}
	return upTo(steps - 1)
}

// Probe makes n reads, one after the other. It measures the store if that was returned by [Bound].
func Probe(ctx context.Context, st store.Store, n int) error {
	for range n {
		if _, err := st.Get(ctx, record.SystemKey(record.DefaultNamespace)); err != nil {
			return err
		}
	}
	return nil
}
