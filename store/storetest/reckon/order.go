package reckon

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirlimits/weir/store"
)

// A history of concurrent calls is linearizable if the calls can be put into one order in which the model gives the
// same answers and no call precedes one that had returned before it began. A store's answers are rich: they show levels
// and the time. So few orders are possible, and few errors escape.

// MaxBuckets and MaxLimits bound a history: the number of buckets, and of limits per bucket.
const (
	MaxBuckets = 3
	MaxLimits  = 2
)

// Call is a caller's request: a take, a settle, a credit to the first limit of a bucket, which is a balance, or a peek
// at one bucket.
type Call struct {
	Take   []Debit
	Settle []Debit
	Since  time.Time // when what a settle gives back was debited; zero if that is not known
	Credit int64     // millitokens
	Peek   int       // the bucket, if neither Take nor Settle is set
}

// Debit is the debit of one bucket: amounts in millitokens, in the order of the limits; see [store.Charge].
type Debit struct {
	Bucket  int
	Amounts [MaxLimits]int64
	Force   [MaxLimits]bool
}

// Answer is the store's answer. Levels are in the order of the call's charges, or for a peek in that of the limits; of
// a credit, the balance, or none if it was read later. A lost answer is unknown: At is then the latest time at which
// the call may have been carried out.
type Answer struct {
	Unknown bool
	Allowed bool
	At      time.Time
	Levels  []store.Level
}

// Levels is the model's state: for each bucket and limit, the clock reading up to which everything is spent.
type Levels [MaxBuckets][MaxLimits]int64

// Never is the level of a limit that was never debited.
const Never = math.MinInt64 / 2

// Order is the model of buckets that all have the same limits, MaxLimits of them.
type Order [MaxLimits]*store.Limit

// Start returns the state in which nothing was ever debited.
func (o *Order) Start() Levels {
	var s Levels
	for b := range s {
		for i, l := range o {
			if s[b][i] = Never; Balance(l) {
				s[b][i] = 0
			}
		}
	}
	return s
}

// steps returns the states in which a call with this answer may leave the buckets; none if the answer is impossible.
func (o *Order) steps(s Levels, c Call, a Answer) []Levels {
	if !a.Unknown {
		if next, ok := o.Step(s, c, a); ok {
			return []Levels{next}
		}
		return nil
	}
	if c.Settle != nil || c.Credit > 0 {
		next, _ := o.Step(s, c, a)
		return []Levels{s, next}
	}
	next, fits := o.take(s, c.Take, a.At)
	if fits {
		return []Levels{s, next}
	}
	return []Levels{s}
}

// take debits everything, and reports whether it fits.
func (o *Order) take(s Levels, debits []Debit, at time.Time) (_ Levels, fits bool) {
	fits = true
	for i, l := range o {
		clock := Reading(l, at)
		for _, d := range debits {
			lv := max(s[d.Bucket][i], clock) + d.Amounts[i]
			fits = fits && (d.Force[i] || lv <= clock+l.Burst)
			s[d.Bucket][i] = lv
		}
	}
	return s, fits
}

// never reports whether debits ask for more than a burst, which never fits.
func (o *Order) never(debits []Debit) bool {
	for _, d := range debits {
		for i, l := range o {
			if !d.Force[i] && d.Amounts[i] > l.Burst {
				return true
			}
		}
	}
	return false
}

// Step returns the state after a call, and whether the answer is possible in the state before.
func (o *Order) Step(s Levels, c Call, a Answer) (_ Levels, ok bool) {
	var clocks [MaxLimits]int64
	for i, l := range o {
		clocks[i] = Reading(l, a.At)
	}
	shows := func(s *Levels, lv store.Level, b, i int) bool {
		return max(0, lv.Level-clocks[i]) == max(0, s[b][i]-clocks[i])
	}
	if c.Settle != nil {
		for _, d := range c.Settle {
			for i, n := range d.Amounts {
				switch lv := &s[d.Bucket][i]; {
				case n > 0:
					*lv = max(*lv, clocks[i]) + n
				case *lv != Never:
					*lv -= Returned(o[i], -n, c.Since, a.At)
				}
			}
		}
		return s, true
	}
	if c.Credit > 0 {
		s[c.Peek][0] -= c.Credit
		return s, len(a.Levels) == 0 || shows(&s, a.Levels[0], c.Peek, 0)
	}
	if c.Take == nil {
		for i, lv := range a.Levels {
			if !shows(&s, lv, c.Peek, i) {
				return s, false
			}
		}
		return s, true
	}
	next, fits := o.take(s, c.Take, a.At)
	if fits != a.Allowed || len(a.Levels) != len(c.Take)*len(o) {
		return s, false
	}
	if !fits {
		next = s
		if o.never(c.Take) {
			return next, true // it may be refused without asking the store, with levels seen earlier
		}
	}
	for j, d := range c.Take {
		for i := range o {
			lv := a.Levels[j*len(o)+i]
			if !shows(&next, lv, d.Bucket, i) {
				return s, false
			}
			// A debit of 0 need not raise a level to the clock, which is visible to a process whose time is behind.
			if n := &next[d.Bucket][i]; fits && d.Amounts[i] == 0 {
				*n = min(*n, max(s[d.Bucket][i], lv.Level))
			}
		}
	}
	return next, true
}

// Model returns the model in porcupine's form: inputs are Calls, outputs Answers.
func (o *Order) Model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{o.Start()} },
		Step: func(state, input, output any) []any {
			next := o.steps(state.(Levels), input.(Call), output.(Answer))
			states := make([]any, len(next))
			for i, s := range next {
				states[i] = s
			}
			return states
		},
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%v → %v", input, o.Show(output.(Answer)))
		},
	}
	return m.ToModel()
}

// Check searches for an order that explains the answers. If the search does not end in time, the result is unknown.
func (o *Order) Check(ops []porcupine.Operation, within time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(o.Model(), ops, within)
}

// String formats the call like "take 0: 5 7!", with an exclamation mark after forced amounts.
func (c Call) String() string {
	show := func(verb string, debits []Debit) string {
		var b strings.Builder
		b.WriteString(verb)
		for _, d := range debits {
			fmt.Fprintf(&b, " %d:", d.Bucket)
			for i, n := range d.Amounts {
				fmt.Fprintf(&b, " %d", n)
				if d.Force[i] {
					b.WriteString("!")
				}
			}
		}
		return b.String()
	}
	switch {
	case c.Take != nil:
		return show("take", c.Take)
	case c.Settle != nil:
		return show("settle", c.Settle)
	case c.Credit > 0:
		return fmt.Sprint("credit ", c.Peek, ": ", c.Credit)
	}
	return fmt.Sprint("peek ", c.Peek)
}

// Show formats an answer: the decision, its time, and the room that there was then.
func (o *Order) Show(a Answer) string {
	if a.Unknown {
		return "unknown"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%t at %s", a.Allowed, a.At.Format("05.000000000"))
	for i, l := range a.Levels {
		lim := l.Limit
		if lim == nil {
			lim = o[i%len(o)]
		}
		fmt.Fprintf(&b, " %d", Room(lim, l.Level, a.At))
	}
	return b.String()
}
