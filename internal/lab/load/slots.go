package load

import (
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/lab/traffic"
)

// slotTally is how many slots were held. A slot is held from the answer that grants it to the call that gives it back.
type slotTally struct {
	Of   int64         `json:"of"`   // how many an entity can hold of a resource; 0: nobody held any
	Most int64         `json:"most"` // held at once of one of these, by one worker
	Time time.Duration `json:"time"` // for which slots were held, summed up
}

func (t *slotTally) merge(o slotTally) {
	t.Of, t.Most, t.Time = max(t.Of, o.Of), max(t.Most, o.Most), t.Time+o.Time
}

// slots counts what the callers of a run hold.
type slots struct {
	mu   sync.Mutex
	held map[bucket]int64
	t    slotTally
}

// bucket is what slots are held of.
type bucket struct{ entity, resource string }

// take counts slots as held until end is called. Only time from begun to the end of the run counts as time held.
func (s *slots) take(c *traffic.Call, n Slots, begun time.Time, length time.Duration) (end func()) {
	b, from := bucket{c.Entity, c.Resource}, max(0, time.Since(begun))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = make(map[bucket]int64)
	}
	s.held[b] += n.Held
	s.t.Of, s.t.Most = max(s.t.Of, n.Of), max(s.t.Most, s.held[b])
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held[b] -= n.Held
		s.t.Time += time.Duration(n.Held) * max(0, min(time.Since(begun), length)-from)
	}
}

func (s *slots) tally() slotTally {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.t
}

// SlotReport is how many slots were held.
type SlotReport struct {
	Of   int64   `json:"of"`           // how many an entity can hold of a resource
	Most int64   `json:"most"`         // held at once of one of these, by one worker
	Busy float64 `json:"busy_percent"` // of the time and of all slots
}

// report evaluates a run; nil if nobody held slots.
func (t slotTally) report(p *traffic.Plan, length time.Duration) *SlotReport {
	if t.Of == 0 {
		return nil
	}
	all := float64(t.Of) * float64(p.Buckets()) * max(1, float64(length))
	return &SlotReport{t.Of, t.Most, 100 * float64(t.Time) / all}
}
