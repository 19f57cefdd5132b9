package history

import (
	"fmt"
	"math"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// history is a random sequence of operations by one caller.
type history struct {
	Limits []*store.Limit // of every bucket
	Start  time.Duration  // offset from noon
	Ops    []op
}

type op struct {
	Settle bool
	Credit string        // the id of a credit of the first amounts
	Wait   time.Duration // before it; negative if the clock jumps back
	Legs   []leg
}

type leg struct {
	Bucket  int
	Amounts []int64 // by limit; in a settle, negative amounts are returns
	Force   []bool
	Shadow  []bool
}

const historyBuckets = 3

// debits returns the operation's debits.
func (h *history) debits(o op) []store.Debit {
	debits := make([]store.Debit, len(o.Legs))
	for i, lg := range o.Legs {
		debits[i] = Debit(Bucket(fmt.Sprint("entity-", lg.Bucket), "api"))
		for j, a := range lg.Amounts {
			c := store.Charge{Limit: h.Limits[j], Amount: a}
			if o.Credit == "" {
				c.Force, c.Shadow = lg.Force[j], lg.Shadow[j]
			}
			debits[i].Charges = append(debits[i].Charges, c)
		}
	}
	return debits
}

// String makes a history readable when rapid shows the smallest one that fails.
func (h history) String() string {
	var b strings.Builder
	for _, l := range h.Limits {
		fmt.Fprintf(&b, "\n  limit %+v", *l)
	}
	fmt.Fprintf(&b, "\n  from %v", Noon.Add(h.Start))
	for _, o := range h.Ops {
		fmt.Fprintf(&b, "\n  after %v settle=%t %s", o.Wait, o.Settle, o.Credit)
		for _, lg := range o.Legs {
			fmt.Fprintf(&b, " bucket %d: %v force %v shadow %v;", lg.Bucket, lg.Amounts, lg.Force, lg.Shadow)
		}
	}
	return b.String()
}

// GoString returns what rapid prints.
func (h history) GoString() string { return h.String() }

// features determine what a history may contain.
type features struct {
	legs   int  // most buckets in one operation
	force  bool // forced charges
	back   bool // returns
	jump   bool // the clock jumps back
	shadow bool // shadow charges
	quota  bool // limits are quotas, at least the first
	credit bool // the first limit is a balance, and is credited
}

func histories(may features) *rapid.Generator[history] {
	return rapid.Custom(func(t *rapid.T) history {
		h := history{Start: time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "start"))}
		switch {
		case may.quota:
			limit, start := drawQuota(t, "usd")
			h.Limits, h.Start = append(h.Limits, limit), start
		case may.credit:
			h.Limits = append(h.Limits, Balance("credits"))
		default:
			h.Limits = append(h.Limits, drawLimit(t, "rpm"))
		}
		if rapid.Bool().Draw(t, "two") {
			h.Limits = append(h.Limits, drawLimit(t, "tpm"))
		}
		for i := range rapid.IntRange(1, 30).Draw(t, "ops") {
			o := drawOp(t, h.Limits, may)
			if may.credit && (i == 0 || rapid.IntRange(0, 3).Draw(t, "credit") == 0) {
				o = o.credited(fmt.Sprint("credit-", i), i == 0)
			}
			h.Ops = append(h.Ops, o)
		}
		return h
	})
}

// drawLimit draws from all legal limits, except those whose clock would reach the horizon within a test.
func drawLimit(t *rapid.T, name string) *store.Limit {
	period := rapid.OneOf(
		rapid.SampledFrom([]int64{int64(time.Second), int64(time.Minute), int64(7 * time.Second), int64(time.Hour)}),
		rapid.Int64Range(1, int64(time.Hour)),
		rapid.Int64Range(1, int64(366*24*time.Hour)),
	).Draw(t, "period")
	most := min(1e12, 4*period)
	amount := rapid.OneOf(rapid.Int64Range(1, min(most, 5000)), rapid.Int64Range(1, most)).Draw(t, "amount")
	burst := rapid.OneOf(rapid.Just(amount), rapid.Int64Range(1, 5000), rapid.Int64Range(1, 1e12)).Draw(t, "burst")
	return &store.Limit{Name: name, Amount: amount, Period: time.Duration(period), Burst: burst}
}

func drawOp(t *rapid.T, limits []*store.Limit, may features) op {
	waits := []*rapid.Generator[int64]{
		rapid.Just(int64(0)), rapid.Int64Range(0, 1000), rapid.Int64Range(0, int64(time.Second)),
		rapid.Int64Range(0, int64(time.Hour)),
	}
	for _, l := range limits { // about the time to refill it
		if reckon.Balance(l) {
			continue
		}
		if refill := float64(l.Burst) / float64(l.Amount) * float64(l.Period); refill < float64(24*time.Hour) {
			waits = append(waits, rapid.Int64Range(0, int64(refill)+1))
		}
		if reckon.Quota(l) {
			waits = append(waits, rapid.Int64Range(0, int64(50*time.Hour)))
		}
	}
	if may.jump {
		waits = append(waits, rapid.Int64Range(-int64(time.Hour), 0), rapid.Int64Range(-int64(time.Second), 0))
	}
	o := op{Wait: time.Duration(rapid.OneOf(waits...).Draw(t, "wait"))}
	o.Settle = (may.back || may.force) && rapid.IntRange(0, 3).Draw(t, "settle") == 0
	buckets := rapid.Permutation([]int{0, 1, 2}).Draw(t, "buckets")
	for _, b := range buckets[:rapid.IntRange(1, min(may.legs, historyBuckets)).Draw(t, "legs")] {
		lg := leg{Bucket: b}
		for _, l := range limits {
			most := l.Burst
			if reckon.Balance(l) {
				most = 20_000
			}
			a := rapid.OneOf(
				rapid.SampledFrom([]int64{0, 1, most}),
				rapid.Int64Range(0, most), rapid.Int64Range(0, most), rapid.Int64Range(0, most+most/4+1),
			).Draw(t, "amount")
			force, shadow := false, false
			if o.Settle {
				if may.back && (!may.force || rapid.Bool().Draw(t, "back")) {
					a = -a
				}
			} else {
				force = may.force && rapid.IntRange(0, 5).Draw(t, "force") == 0
				shadow = may.shadow && !force && rapid.Bool().Draw(t, "shadow")
			}
			lg.Amounts, lg.Force, lg.Shadow = append(lg.Amounts, a), append(lg.Force, force), append(lg.Shadow, shadow)
		}
		o.Legs = append(o.Legs, lg)
	}
	return o
}

// credited returns a credit of the operation's first amounts, or of as much to all buckets: where a bucket never had a
// balance, stores differ in whether a return makes one.
func (o op) credited(id string, all bool) op {
	o.Settle, o.Credit = false, id
	for b := range historyBuckets {
		if all {
			o.Legs = append(o.Legs[:b], leg{Bucket: b, Amounts: []int64{o.Legs[0].Amounts[0]}})
		}
	}
	for _, lg := range o.Legs {
		lg.Amounts[0] = 1 + max(lg.Amounts[0], -lg.Amounts[0])
	}
	return o
}

// event is a change of one limit of one bucket, in the order in which the store made them.
type event struct {
	debited  int64 // unforced
	returned int64
	clock    int64 // the limit's clock at the time that the store reported
}

type slot struct {
	bucket store.Bucket
	limit  *store.Limit
}

// ledger is what a store reported to have done.
type ledger map[slot][]event

func (g ledger) take(debits []store.Debit, out store.Outcome) {
	if !out.Allowed {
		return
	}
	for _, d := range debits {
		for _, c := range d.Charges {
			if !c.Force {
				s := slot{d.Bucket, c.Limit}
				g[s] = append(g[s], event{debited: c.Amount, clock: reckon.Reading(c.Limit, out.At)})
			}
		}
	}
}

func (g ledger) settle(debits []store.Debit, out store.Outcome) {
	for _, d := range debits {
		for _, c := range d.Charges {
			if c.Amount < 0 {
				s := slot{d.Bucket, c.Limit}
				g[s] = append(g[s], event{returned: -c.Amount, clock: reckon.Reading(c.Limit, out.At)})
			}
		}
	}
}

// check checks I1 between any two debits.
func (g ledger) check() error {
	for s, events := range g {
		if err := checkI1(events, s.limit.Burst); err != nil {
			return fmt.Errorf("%v %s: %w", s.bucket, s.limit.Name, err)
		}
	}
	return nil
}

// checkI1 returns an error if, for some debits i and j, counting both, debits - returns > burst + c_j - c_i.
func checkI1(events []event, burst int64) error {
	var sum int64 // debits - returns so far
	least := int64(math.MaxInt64)
	for j, ev := range events {
		if ev.debited > 0 {
			least = min(least, sum-ev.clock)
		}
		sum += ev.debited - ev.returned
		if over := sum - ev.clock - burst; ev.debited > 0 && over > least {
			return fmt.Errorf("I1: over-admitted by %d millitokens at debit %d", over-least, j)
		}
	}
	return nil
}
