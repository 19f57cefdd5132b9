package reckon

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirlimits/weir/store"
)

// A history of calls by many callers is linearizable if they can be put into one order, no later call before one that
// had returned, in which the model gives the same answers. What a store answers is rich: it shows levels and the time,
// so there are few orders to choose from, and little escapes.

// MaxBuckets and MaxLimits bound a history: buckets, and limits of each.
const (
	MaxBuckets = 3
	MaxLimits  = 2
)

// Call is what a caller asked: a take, a settle, or a look at one bucket.
type Call struct {
	Take   []Debit
	Settle []Debit
	Peek   int // bucket, if neither
}

// Debit is of one bucket: amounts in millitokens in the order of the limits; see [store.Charge].
type Debit struct {
	Bucket  int
	Amounts [MaxLimits]int64
	Force   [MaxLimits]bool
}

// Answer is what the store said, its levels in the order of the call; of a look in that of the limits. An answer that
// was lost is unknown: At is then when the call may have been carried out at the latest.
type Answer struct {
	Unknown bool
	Allowed bool
	At      time.Time
	Levels  []store.Level
}

// Levels is the model's state: by bucket and limit the reading up to which all is spent.
type Levels [MaxBuckets][MaxLimits]int64

// Never is the level of what was never debited.
const Never = math.MinInt64 / 2

// Order is the model of buckets with the same limits, MaxLimits of them.
type Order [MaxLimits]*store.Limit

// Start returns the state in which nothing was ever debited.
func (o *Order) Start() Levels {
	var s Levels
	for b := range s {
		for i := range s[b] {
			s[b][i] = Never
		}
	}
	return s
}

// steps returns the states in which a call may leave the buckets with its answer: none if it may not be given.
func (o *Order) steps(s Levels, c Call, a Answer) []Levels {
	if !a.Unknown {
		if next, ok := o.Step(s, c, a); ok {
			return []Levels{next}
		}
		return nil
	}
	if c.Settle != nil {
		next, _ := o.Step(s, c, a)
		return []Levels{s, next}
	}
	next, fits := o.take(s, c.Take, a.At)
	if fits {
		return []Levels{s, next}
	}
	return []Levels{s}
}

// take debits all, and reports whether that fits.
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

// never reports whether debits ask for more than a burst, which no bucket ever fits.
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

// Step returns the state after a call, and whether it may give the answer in the state before.
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
					*lv += n
				}
			}
		}
		return s, true
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
			return next, true // it may be refused unasked, by levels that were seen before
		}
	}
	for j, d := range c.Take {
		for i := range o {
			lv := a.Levels[j*len(o)+i]
			if !shows(&next, lv, d.Bucket, i) {
				return s, false
			}
			// A debit of 0 need not lift a level to the clock, which a process whose time is behind gets to see.
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
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v → %v", input, o.Show(output.(Answer))) },
	}
	return m.ToModel()
}

// Check looks for an order that explains the answers. Where there is too much to choose from for the time that it has, it
// does not know.
func (o *Order) Check(ops []porcupine.Operation, within time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(o.Model(), ops, within)
}

// String is "take 0: 5 7!", an amount that is forced with an exclamation mark.
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
	}
	return fmt.Sprint("peek ", c.Peek)
}

// Show prints an answer: what was decided, when, and what there then was room for.
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
