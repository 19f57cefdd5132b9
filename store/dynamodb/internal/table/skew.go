package table

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
)

const (
	// sightings is how many dates decide together: more than twice as many as may be wrong in a row.
	sightings = 7
	// sightEvery is the least time between two of them.
	sightEvery = 100 * time.Millisecond
	// Slack is the difference that is left alone, beside what the rounding of dates explains.
	Slack = time.Second
	// SmallSkew is the largest difference that needs no other witness than the dates.
	SmallSkew = 5 * time.Second
	// slewing is the divisor of the rate at which a small difference is corrected: by 1 % of the time that passes.
	slewing = 100
	// outlast is how long dates must agree to be believed without another witness.
	outlast = 90 * time.Second
	// longest is the longest round trip that shows anything, but for the first.
	longest = time.Second
	// apart is the longest time between two dates that counts as time in which they agreed.
	apart = 5 * time.Second
)

// Machine reads a machine's two clocks: the wall clock, and the monotonic clock since some instant.
type Machine func() (wall time.Time, mono time.Duration)

// Skew keeps the time of a store. It advances with the machine's monotonic clock, whatever happens to the wall clock,
// and is corrected by the dates of the server's answers: never by one date alone, but by the median of several.
//
// A large difference needs a second witness, which is the wall clock: it shows the true time after the machine was
// suspended. Without it, the dates must have agreed for longer than a proxy may be expected to lie.
//
// The time is in doubt before the first answer, from then on if its date contradicts the wall clock, and after the wall
// clock was set forward, until an answer shows whether the machine was suspended. Meanwhile nothing may be debited by
// it.
//
// All instants are kept as their distance from the monotonic clock: they are constant while nothing goes wrong.
type Skew struct {
	machine Machine
	phase   atomic.Int32
	by      atomic.Int64 // the time
	wall    atomic.Int64 // the wall clock when the time was last confirmed
	against atomic.Bool  // the latest date disagrees with the time
	back    atomic.Int32 // how often the time was set back

	mu    sync.Mutex
	dates []sighting // the latest ones
	last  int64      // when the last one was added
	other int64      // the time that the dates agree on, if they disagree with the time; 0: none
	since int64      // since when they have
}

// The phases of a Skew.
const (
	unseen    = iota // there was no answer
	undated          // no answer had a date: the wall clock counts
	uncertain        // the first dates disagree with the wall clock
	confirmed
)

// sighting is what one date shows: bounds of the server's time.
type sighting struct{ low, high int64 }

func (o sighting) mid() int64 { return o.low + (o.high-o.low)/2 }

// near reports whether a time is not certainly more than the slack from the server's.
func (o sighting) near(t int64) bool { return o.low-int64(Slack) <= t && t <= o.high+int64(Slack) }

func newMachine() Machine {
	start := time.Now()
	return func() (time.Time, time.Duration) {
		now := time.Now()
		return now, now.Sub(start)
	}
}

// read returns the monotonic clock, and the wall clock as its distance from that.
func (s *Skew) read() (mono, wall int64) {
	w, m := s.machine()
	return int64(m), w.UnixNano() - int64(m)
}

// Now returns the time.
func (s *Skew) Now() time.Time {
	mono, wall := s.read()
	if s.phase.Load() < uncertain {
		return time.Unix(0, mono+wall)
	}
	return time.Unix(0, mono+s.by.Load())
}

// Offset returns how far the time is ahead of the machine's clock.
func (s *Skew) Offset() time.Duration {
	if s.phase.Load() < uncertain {
		return 0
	}
	_, wall := s.read()
	return time.Duration(s.by.Load() - wall)
}

// Sure reports whether the time is not in doubt.
func (s *Skew) Sure() bool {
	switch s.phase.Load() {
	case unseen, uncertain:
		return false
	case undated:
		return true
	}
	_, wall := s.read()
	was := s.wall.Load()
	if wall < was { // a later jump counts from here
		s.wall.CompareAndSwap(was, wall)
	}
	return wall-was <= int64(Slack)
}

// Unseen reports whether there was no answer yet.
func (s *Skew) Unseen() bool { return s.phase.Load() == unseen }

// Confirmed reports whether the time was confirmed before. If so, a doubt lasts about a second; otherwise it may last
// long.
func (s *Skew) Confirmed() bool { return s.phase.Load() == confirmed }

// SetBack returns how often the time was set back.
func (s *Skew) SetBack() int32 { return s.back.Load() }

// Seen returns how far the latest date was ahead of the machine's clock.
func (s *Skew) Seen() time.Duration {
	_, wall := s.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.dates) == 0 {
		return 0
	}
	return time.Duration(s.dates[len(s.dates)-1].mid() - wall)
}

// Sent returns the reading of the monotonic clock that [Skew.Answered] needs of when a call was made.
func (s *Skew) Sent() int64 {
	mono, _ := s.read()
	return mono
}

// Answered takes the date of an answer into account. When the server wrote it, its clock was between the date and a
// second later, and ours between sent and now.
func (s *Skew) Answered(meta middleware.Metadata, sent int64) {
	date, ok := awsmiddleware.GetServerTime(meta)
	now, wall := s.read()
	if !ok {
		s.phase.CompareAndSwap(unseen, undated)
	} else if now-sent <= int64(longest) || s.Unseen() {
		s.saw(sighting{date.UnixNano() - now, date.Add(time.Second).UnixNano() - sent}, now, wall)
	}
}

func (s *Skew) saw(o sighting, now, wall int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.phase.Load() < uncertain
	if first {
		s.by.Store(wall)
	}
	if o.near(s.by.Load()) { // two clocks agree
		s.confirm(wall)
	} else if s.against.Store(true); first {
		s.phase.Store(uncertain)
	}
	passed := now - s.last
	if s.dates != nil && passed < int64(sightEvery) {
		return
	}
	if passed > int64(apart) {
		passed, s.other = int64(apart), 0
	}
	s.dates, s.last = append(s.dates, o), now
	if len(s.dates) > sightings {
		s.dates = slices.Delete(s.dates, 0, 1)
	}
	if m, ok := s.median(); ok && o.near(m.mid()) {
		s.decide(m, now, wall, passed)
	}
}

// median returns the median of the dates, provided that most of them agree with it.
func (s *Skew) median() (m sighting, ok bool) {
	if len(s.dates) < sightings {
		return m, false
	}
	sorted := slices.Clone(s.dates)
	slices.SortFunc(sorted, func(a, b sighting) int { return cmp.Compare(a.mid(), b.mid()) })
	m = sorted[sightings/2]
	agree := 0
	for _, o := range sorted {
		if o.near(m.mid()) {
			agree++
		}
	}
	return m, agree > sightings/2
}

// decide compares the time with the median of the dates.
func (s *Skew) decide(m sighting, now, wall, passed int64) {
	by, was := s.by.Load(), s.phase.Load()
	off := m.mid() - by
	little := max(off, -off) <= int64(SmallSkew)
	if !m.near(s.other) {
		s.other, s.since = m.mid(), now
	}
	held := now-s.since >= int64(outlast)
	jumped := by + wall - s.wall.Load() // the time if the machine was suspended for as long as the wall clock jumped
	switch {
	case m.near(by):
	case m.near(wall):
		s.move(wall, wall)
	case was == confirmed && m.near(jumped):
		s.move(jumped, wall)
	case was == confirmed && little:
		s.wall.Store(wall)
		if held {
			s.slew(m.mid(), passed)
		}
	case little, held:
		s.move(m.mid(), wall)
	}
}

// slew moves the time, by at most 1 % of what has passed.
func (s *Skew) slew(to, passed int64) {
	by, most := s.by.Load(), passed/slewing
	s.by.Store(min(max(to, by-most), by+most))
}

func (s *Skew) move(to, wall int64) {
	if s.by.Swap(to) > to {
		s.back.Add(1)
	}
	s.confirm(wall)
}

func (s *Skew) confirm(wall int64) {
	s.wall.Store(wall)
	s.against.Store(false)
	s.other = 0
	s.phase.Store(confirmed)
}

// watched reports whether more dates are needed.
func (s *Skew) watched() bool { return !s.Sure() || s.against.Load() }
