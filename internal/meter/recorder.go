// Package meter counts and reports what decisions do: the usage that only this process sees, limits that are nearly
// used up, and limits in shadow that would have refused.
package meter

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Config configures a [Recorder]. What is nil is not wanted.
type Config struct {
	// Count hands the counts of this process to the store.
	Count func(context.Context, ...store.Reading) error
	// Near receives near-limit events.
	Near func(context.Context, Event)
	// Shadow receives each charge in shadow that would have been refused.
	Shadow func(ctx context.Context, namespace string, b store.Bucket, c store.Charge, allowed bool)
}

// Recorder counts and reports decisions. It is safe for concurrent use.
type Recorder struct {
	cfg     Config
	tallies *tallies // nil if nobody counts
	near    *near    // nil if nobody wants near-limit events
	tap     Tap      // nil if nobody wants debits
}

// Tap receives what decisions and leases have debited or, if negative, given back, parents included, with the part
// num/den of the limits to which the limits in it are scaled; 0/0 if that is not known. It must not keep or modify the
// debits.
type Tap func(namespace string, debits []store.Debit, num, den int64)

// Tap makes debits go to f, too. It must be called before the first decision.
func (r *Recorder) Tap(f Tap) { r.tap = f }

// Debited hands debits to the tap.
func (r *Recorder) Debited(namespace string, debits []store.Debit, num, den int64) {
	if r.tap != nil {
		r.tap(namespace, debits, num, den)
	}
}

// New returns a recorder.
func New(cfg Config) *Recorder {
	r := &Recorder{cfg: cfg}
	if cfg.Count != nil {
		r.tallies = newTallies(cfg.Count)
	}
	if cfg.Near != nil {
		r.near = newNear(cfg.Near)
	}
	return r
}

// Decision is a decision of the store, or a change of what a lease holds.
type Decision struct {
	Namespace  string // its name
	Thresholds []int  // percentages of a burst at which events are due; nil for the default
	Debits     []store.Debit
	store.Outcome
}

// defaultThresholds are the percentages by the kind of limit; for a balance, that there are any. Slots are used up time
// and again: only their refusals are reported.
var defaultThresholds = [...][]int{
	clock.Rate: {80, 95, 100}, clock.Quota: {50, 80, 100}, clock.Credits: {0}, clock.Slots: {},
}

func (d *Decision) look() nearLook {
	return nearLook{thresholds: d.Thresholds, at: d.At, now: clock.Nanos(d.At)}
}

// Decided reports what a decision of the store has brought near its end, what refused, and what in shadow would have.
func (r *Recorder) Decided(ctx context.Context, d *Decision) {
	if len(d.Levels) == 0 {
		return
	}
	o, n := d.look(), 0
	for i := range d.Debits {
		b := &d.Debits[i].Bucket
		for j := range d.Debits[i].Charges {
			c, lv := &d.Debits[i].Charges[j], &d.Levels[n]
			n++
			if r.near != nil {
				o.shadow, o.refused, o.moved = c.Shadow, lv.Refused && !c.Shadow && !d.Allowed, 0
				if d.Allowed && !(c.Shadow && lv.Refused) {
					o.moved = c.Amount
				}
				r.near.look(ctx, d.Namespace, *b, lv, &o)
			}
			if c.Shadow && lv.Refused {
				r.wouldRefuse(ctx, d, *b, *c)
			}
		}
	}
}

func (r *Recorder) wouldRefuse(ctx context.Context, d *Decision, b store.Bucket, c store.Charge) {
	r.tallies.count(b, d.At, func(ta *tally) {
		f := ta.of(c.Limit.Name)
		f.WouldRefuse++
		f.WouldTokens += c.Amount
	})
	if r.cfg.Shadow != nil {
		r.cfg.Shadow(ctx, d.Namespace, b, c, d.Allowed)
	}
}

// Refused counts what refused a decision over debits.
func (r *Recorder) Refused(debits []store.Debit, out *store.Outcome) {
	if r.tallies == nil {
		return
	}
	n := 0
	for i := range debits {
		for _, c := range debits[i].Charges {
			if out.Levels[n].Refused && !c.Shadow {
				r.tallies.count(debits[i].Bucket, out.At, func(ta *tally) {
					f := ta.of(c.Limit.Name)
					f.Refused++
					f.RefusedTokens += c.Amount
				})
			}
			n++
		}
	}
}

// Request counts a request that was refused, or else was admitted without the store.
func (r *Recorder) Request(b store.Bucket, at time.Time, refused bool) {
	r.tallies.count(b, at, func(ta *tally) {
		if refused {
			ta.of("").Refused++
		} else {
			ta.of("").Degraded++
		}
	})
}

// RefusedOne counts a refused request in one atomic step. The counter n is for one bucket; only is what refused, nil if
// several limits may have.
func (r *Recorder) RefusedOne(n *atomic.Int64, b store.Bucket, only *store.Charge) {
	r.tallies.refused(n, b, only)
}

// Adjusted counts a change of what a lease holds, and reports the limits that it has brought near their end. shadow
// reports whether a limit is in shadow for the bucket's entity.
func (r *Recorder) Adjusted(ctx context.Context, d *Decision, shadow func(store.Bucket, *store.Limit) bool) {
	charges := 0
	for i := range d.Debits {
		charges += len(d.Debits[i].Charges)
		r.tallies.count(d.Debits[i].Bucket, d.At, func(ta *tally) {
			for _, c := range d.Debits[i].Charges {
				ta.of(c.Limit.Name).Adjustments++
			}
		})
	}
	if r.near == nil || charges != len(d.Levels) {
		return // tokens came back to a bucket that is gone: the next decision reports the others
	}
	o, n := d.look(), 0
	for i := range d.Debits {
		for _, c := range d.Debits[i].Charges {
			o.shadow, o.moved = shadow(d.Debits[i].Bucket, c.Limit), c.Amount
			r.near.look(ctx, d.Namespace, d.Debits[i].Bucket, &d.Levels[n], &o)
			n++
		}
	}
}

// WantsNear reports whether anybody wants near-limit events.
func (r *Recorder) WantsNear() bool { return r.near != nil }

// Stats returns for how many limits events are remembered as sent, and how many had to be forgotten.
func (r *Recorder) Stats() (limits int, forgotten uint64) { return r.near.stats() }

// Flush hands the counts to the store. What the store does not take is handed over again next time.
func (r *Recorder) Flush(ctx context.Context) { r.tallies.flush(ctx) }

// Close flushes for the last time.
func (r *Recorder) Close() { r.tallies.close() }
