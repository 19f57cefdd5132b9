// Package slots implements the arithmetic of limits of slots, which bound how much is held at once. Slots whose holders
// are gone come back by themselves, and no list of holders is kept.
//
// A bucket keeps two cohorts for each such limit: Cur slots that count until End, and Prev slots that count until
// PrevEnd, which is earlier. Ends lie on a grid of the limit's heal time T:
//
//	grid(t) = (floor((t - S) / T) + 2) * T
//
// S bounds how far each clock is from true time: 0 where one clock decides. A cohort is dead at a clock's time t if its
// end is at most t - S. A lease carries the end of the cohort that it took from. It is valid for less than that: see
// [Limit.Valid].
//
// A caller that renews or gives back judges whether its cohort is dead by the latest time that another clock can have
// shown, t + 2 S. A faster clock may have found the cohort dead before, and its slots may be held by others.
//
// Three invariants hold, with any clocks within S, lost answers, crashes, pauses, and changes of the limit:
//
//   - I7: The slots of valid leases are at most the limit's at every instant, except what was taken by force. If the
//     limit is lowered, nothing is taken until enough was given back.
//   - I8: All slots are free 2 T + 2 S after the last holder is gone.
//   - I9: What others do cuts no valid lease.
//
// All functions are pure, and allocate nothing. Times are nanoseconds since the epoch of package clock. The unit of
// slots is up to the caller.
package slots

import "time"

const (
	// MinHeal is the shortest heal time: eight times the largest S of any store.
	MinHeal = 16 * time.Second
	// MaxHeal is the longest heal time.
	MaxHeal = time.Hour
)

// Limit is what applies to a decision. The arithmetic assumes that Slots is positive, that Heal is between [MinHeal]
// and [MaxHeal], and that Skew is from 0 to an eighth of Heal.
type Limit struct {
	Slots int64 // that may be held at once
	Heal  int64 // T, in nanoseconds
	Skew  int64 // S, in nanoseconds
}

// Held is what a bucket keeps of a limit. The zero value holds nothing.
type Held struct {
	Cur, End      int64
	Prev, PrevEnd int64
}

// At returns what counts at a clock's time: without the cohorts that are dead.
func (h Held) At(now, skew int64) Held {
	if h.PrevEnd <= now-skew {
		h.Prev = 0
	}
	if h.End <= now-skew {
		h.Cur = 0
	}
	return h
}

// Total returns how many slots are held.
func (h Held) Total() int64 { return h.Cur + h.Prev }

// Next returns the time at which the first of the slots that are held at a clock's time come back unless they are
// renewed, by the same clock; false if none is held.
func (h Held) Next(now, skew int64) (end int64, ok bool) {
	counts := h.At(now, skew)
	if counts.Prev > 0 {
		return h.PrevEnd + skew, true
	}
	return h.End + skew, counts.Cur > 0
}

// Take takes k slots at a clock's time, if they are free. The lease then carries the result's End. Otherwise Take
// returns h unchanged, and false. Of 0 slots, it reports whether no more are held than the limit allows.
func (l Limit) Take(h Held, now, k int64) (Held, bool) {
	if k > l.Slots-h.At(now, l.Skew).Total() {
		return h, false
	}
	return l.Force(h, now, k), true
}

// Force takes k slots whether they are free or not.
func (l Limit) Force(h Held, now, k int64) Held {
	h = l.shift(h, now)
	h.Cur += k
	return h
}

// Renew moves k slots of the cohort that ends at end to the current one. The lease then carries the result's End. It
// changes how long slots are held, and never how many. Renew returns false, and h unchanged, if the cohort may be dead,
// or was corrected: see [Limit.Ahead]. It may be repeated.
func (l Limit) Renew(h Held, now, k, end int64) (Held, bool) {
	if l.late(now, end) || end > h.End {
		return h, false
	}
	h = l.shift(h, now)
	if end < h.End {
		moved := min(k, h.Prev)
		h.Cur, h.Prev = h.Cur+moved, h.Prev-moved
	}
	return h, true
}

// Release gives back k slots of the cohort that ends at end. If that cohort may be dead, or was corrected, Release
// changes nothing.
func (l Limit) Release(h Held, now, k, end int64) Held {
	if l.late(now, end) || end > h.End {
		return h
	}
	h = h.At(now, l.Skew)
	if end < h.End {
		old := min(k, h.Prev)
		h.Prev, k = h.Prev-old, k-old // the rest was renewed, by a call without an answer
	}
	h.Cur = max(0, h.Cur-k)
	return h
}

// Valid returns for how long a lease is valid that a decision at a clock's time gave an end, in nanoseconds from when
// its request was sent. That is from T - 2 S to 2 T - 2 S after a take.
func (l Limit) Valid(end, at int64) int64 { return end - l.Skew - at }

// Ahead reports whether an end is so late that a clock must have been far ahead when it was written, whatever the heal
// time then. The next take or renewal corrects it.
func (l Limit) Ahead(h Held, now int64) bool {
	longest := Limit{Heal: int64(MaxHeal), Skew: l.Skew}
	return h.End > longest.grid(now)+longest.Heal
}

// shift makes the cohort current that a lease of now belongs to: what else is held becomes the previous one.
func (l Limit) shift(h Held, now int64) Held {
	h = h.At(now, l.Skew)
	end := l.grid(now)
	if l.Ahead(h, now) { // those who took by that clock are valid for at most 2 T - 2 S from then
		return Held{Cur: h.Total(), End: end + l.Heal}
	}
	if end > h.End {
		h = Held{Prev: h.Total(), PrevEnd: h.End, End: end}
	}
	return h
}

// late reports whether the cohort that ends at end may be dead by the clock of somebody else who acted before now.
func (l Limit) late(now, end int64) bool { return end <= now+l.Skew }

func (l Limit) grid(now int64) int64 {
	n := (now - l.Skew) / l.Heal
	if (now-l.Skew)%l.Heal < 0 {
		n--
	}
	return (n + 2) * l.Heal
}
