package whatif

import (
	"math"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/lab/report"
)

// window is what was recorded of one limit in one bucket. All amounts are in tokens.
type window struct {
	start, end time.Time
	spent      float64 // debited
	returned   float64
	refused    float64 // what refused requests asked for
	peak       float64 // the most that was debited in a minute; 0: unknown
	request    float64 // the average size of a request; 0: unknown
}

// bounds holds the least and the most tokens that a limit would have refused, and how many with evenly spread requests.
type bounds struct{ least, even, most float64 }

// trial goes through the windows of a bucket in order of time.
type trial struct {
	params      clock.Params // of a quota; of a rate, rate is used
	burst, rate float64      // tokens, tokens per second; a quota has no rate
	level       float64      // the most that can be available at the end of the last window
	owed        float64      // the most that can be outstanding then
	even        float64      // what is available then with evenly spread requests
	end         time.Time
}

func newTrial(l weir.Limit) *trial {
	burst := float64(l.Burst)
	if l.Burst == 0 {
		burst = float64(l.Amount)
	}
	t := &trial{params: report.Params(l), burst: burst, level: burst, even: burst}
	if t.params.Kind() == clock.Rate {
		t.rate = float64(l.Amount) / l.Period.Seconds()
	}
	return t
}

// issued returns the tokens that the limit issues from one instant until before another.
func (t *trial) issued(from, to time.Time) float64 {
	if t.params.Kind() == clock.Rate {
		return t.rate * to.Sub(from).Seconds()
	}
	reading := func(before time.Time) int64 { return t.params.Clock(clock.Nanos(before) - 1) }
	return float64(reading(to)-reading(from)) / 1000
}

// see returns the bounds of the next window.
func (t *trial) see(w *window) bounds {
	if !t.end.IsZero() && !w.start.Before(t.end) {
		gained := t.issued(t.end, begun(w.start)) // a window of a quota may begin with the recorded one
		t.level = min(t.burst, t.level+gained)
		t.even = min(t.burst, t.even+gained)
		t.owed = max(0, t.owed-gained)
	}
	t.end = w.end
	b := bounds{t.least(w), t.evenly(w), t.most(w)}
	b.least = min(b.least, b.most)
	b.even = min(max(b.even, b.least), b.most)
	return b
}

// begun returns the instant after one: what is issued at that one has been issued before.
func begun(at time.Time) time.Time { return at.Add(1) }

const minute = 60

// least returns what was spent beyond everything that the limit can have given. Returned tokens are given again.
func (t *trial) least(w *window) float64 {
	issued := t.issued(begun(w.start), w.end)
	given := t.level + issued
	wanted := w.spent - w.returned
	if t.rate > 0 {
		issued = t.rate * minute
	}
	inMinute := w.peak - w.returned - t.burst - issued
	refused := max(0, wanted-given, inMinute)
	// Had more been refused, that much more would be left, and less refused later.
	t.level = min(t.burst, given-wanted+refused)
	return refused
}

// most returns what is refused if all requests came at the worst moments. Since a refusing bucket was last full, it
// has given its burst and what was issued meanwhile; refusals are what was asked for beyond that in such a stretch.
// The worst case is the one in which stretches give the fewest tokens: either one single stretch, or as many as
// possible, of two minutes each, whose requests came at the end of the first and the start of the second.
func (t *trial) most(w *window) float64 {
	length := w.end.Sub(w.start).Seconds()
	asked := w.spent + w.refused
	peak := asked
	if w.peak > 0 {
		peak = min(asked, w.peak+w.refused)
	}
	burst := max(0, t.burst-max(1, w.request)) // a request is refused while less than it needs is left
	if t.rate == 0 {                           // a quota: all came before a window of it began, or all after
		most := max(0, t.owed+asked-burst)
		if t.issued(begun(w.start), w.end) > 0 {
			t.owed = 0
		}
		t.owed = min(t.burst, t.owed+asked)
		return min(asked, most)
	}
	minutes := 0.0
	if peak > 0 {
		minutes = asked / peak
	}
	pair := min(2*peak, asked)
	row := asked - t.rate*minute*max(0, minutes-2) // outstanding if all come in a row
	most := max(
		row+t.owed-burst,
		max(0, pair+t.owed-burst)+max(0, minutes/2-1)*max(0, pair-burst),
		0)
	// What can be outstanding when the next window begins: from the last requests, or from all since the previous
	// window.
	t.owed = min(t.burst, max(pair, row, t.owed+asked-t.rate*length, 0))
	return min(asked, most)
}

// evenly returns what is refused if the busiest minute was in the middle and the rest came at a steady rate.
func (t *trial) evenly(w *window) (refused float64) {
	length := w.end.Sub(w.start).Seconds()
	asked := max(0, w.spent+w.refused-w.returned)
	peak := min(asked, max(w.peak, asked*minute/length))
	pace := (asked - peak) / (length - minute)
	at := begun(w.start)
	spell := func(sec, asked float64) {
		from := at
		at = at.Add(time.Duration(sec * float64(time.Second)))
		t.even = min(t.burst, t.even+t.issued(from, at)-asked)
		refused -= min(0, t.even)
		t.even = max(0, t.even)
	}
	half := (length - minute) / 2
	spell(half, pace*half)
	spell(minute, peak)
	spell(half, pace*half)
	return refused
}

// surely reports whether the limit certainly refused nothing, or certainly refused something.
func (b bounds) surely() (none, some bool) { return b.most < 0.5, b.least >= 0.5 }

func (b bounds) plus(o bounds) bounds {
	return bounds{b.least + o.least, b.even + o.even, b.most + o.most}
}

// tokens rounds: certain refusals down, possible ones up.
func (b bounds) tokens() (least, even, most int64) {
	return int64(math.Floor(b.least + 1e-6)), int64(math.Round(b.even)), int64(math.Ceil(b.most - 1e-6))
}
