package dynamodb

import (
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/clock"
)

// surplus is what a write debited ahead, for each limit of a view. It occupies the interval from its level down. The
// part that the clock has passed would have been refilled by now, and is not handed out in addition.
type surplus struct {
	view  *plan.View
	left  []int64
	proof *plan.Proof // nil: there is none
	since time.Time
	timer *time.Timer

	asking *plan.View // the limits of the last take
	asked  []int64    // the amounts that takes of these requested since the last write: the demand
	from   int64      // when that write was
}

// prefetched answers a take from what was debited ahead, and reports whether it did. The queue must be locked.
func (sh *shard) prefetched(x *waiter, at time.Time, now int64) bool {
	su, j := &sh.surplus, &x.job
	if sh.s.cfg.Prefetch.Share == 0 || j.View.Slots {
		return false
	}
	if su.asking != j.View {
		su.asking, su.asked, su.from = j.View, make([]int64, len(j.Amounts)), now
	}
	for i, a := range j.Amounts {
		su.asked[i] = clock.Add(su.asked[i], a)
	}
	if su.proof == nil || !sh.s.calls.Sure() || su.view != j.View || j.Forced != nil || j.Shadow != nil ||
		at.Sub(su.since) >= sh.s.cfg.Prefetch.For {
		return false
	}
	left := slices.Clone(su.left)
	for i, a := range j.Amounts { // what has melted is neither handed out nor returned
		left[i] = min(left[i], su.proof.Above(sh.state.Last, sh.place(), su.view, i, now)) - a
	}
	if slices.ContainsFunc(left, func(n int64) bool { return n < 0 }) {
		return false
	}
	su.left = left
	if j.Counts {
		sh.state.Count(plan.Counts{ID: su.proof.Item.ID, Takes: 1})
	}
	x.told = true
	x.answer = plan.Answer{
		Job: j, At: now, Item: su.proof.Item, On: su.proof.On, Amounts: j.Amounts,
		Later: slices.Clone(left), // what is left of the surplus lies above it
	}
	return true
}

// ahead returns a job that debits what recent demand, if it continues, needs while a surplus is kept; nil: none. The
// queue must be locked.
func (sh *shard) ahead(at time.Time) *plan.Job {
	cfg, su := &sh.s.cfg.Prefetch, &sh.surplus
	now := sh.state.Tick(at)
	if cfg.Share == 0 || su.asking == nil || now <= su.from {
		return nil
	}
	j := &plan.Job{Kind: plan.Take, View: su.asking, Amounts: make([]int64, len(su.asked)), Ahead: cfg.Share}
	for i, n := range su.asked {
		j.Amounts[i] = int64(min(float64(n)/float64(now-su.from)*float64(cfg.For), clock.MaxBurst))
	}
	return j
}

// keep takes over what a write that was applied debited ahead, and returns what was left of the previous surplus. The
// queue must be locked.
func (sh *shard) keep(w *plan.Write, a plan.Answer) {
	if a.Verdict != plan.Allowed {
		return
	}
	sh.giveUp()
	su, proof := &sh.surplus, a.Prove()
	su.view, su.left, su.proof, su.since = a.Job.View, a.Amounts, proof, w.Planned
	clear(su.asked)
	su.from = w.Now
	keepFor := sh.s.cfg.Prefetch.For
	if sh.s.calls.Closed() {
		keepFor = 0
	}
	su.timer = time.AfterFunc(keepFor, func() {
		sh.queue.Lock()
		defer sh.queue.Unlock()
		if su.proof == proof {
			sh.giveUp()
		}
	})
	if keepFor == 0 {
		sh.giveUp()
	}
}

// giveUp returns what is left of a surplus. The queue must be locked.
func (sh *shard) giveUp() {
	su := &sh.surplus
	if su.proof == nil {
		return
	}
	su.timer.Stop()
	j := &plan.Job{Kind: plan.Undo, View: su.view, Amounts: su.left, Proof: su.proof}
	su.view, su.left, su.proof = nil, nil, nil
	if slices.ContainsFunc(j.Amounts, nonzero) {
		sh.undo(j)
	}
}
