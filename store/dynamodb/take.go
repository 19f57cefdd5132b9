package dynamodb

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Take implements [store.Store]. Each bucket takes one conditional write, shared with other callers of the process. A
// bucket that looks as if it will refuse is written first, alone, so that its refusal costs the other buckets nothing.
// If a bucket refuses after the others were debited, those debits are undone.
func (s *Store) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	if err := s.calls.Ready(ctx); err != nil {
		return store.Outcome{}, err
	}
	if err := t.Check(); err != nil {
		return store.Outcome{}, err
	}
	var one [1]leg
	legs := one[:]
	if n := len(t.Debits); n > 1 {
		legs = make([]leg, n)
	}
	for i := range t.Debits {
		l, d := &legs[i], &t.Debits[i]
		l.debit, l.b = d, s.bucket(d.Bucket)
		err := l.b.long
		if err != nil {
			return store.Outcome{}, err
		}
		if l.view, err = l.b.views.of(d.Charges); err != nil {
			return store.Outcome{}, err
		}
	}
	allowed, err := s.decide(ctx, legs)
	if err != nil {
		return store.Outcome{}, err
	}
	return outcome(legs, allowed), nil
}

// Settle implements [store.Store]. With an ID, forced debits are written first, then a record that can be created only
// once, then the returns. A crash in between leaves tokens spent, and a second call with the same ID takes back what it
// forced.
func (s *Store) Settle(ctx context.Context, t store.Settle) (store.Outcome, error) {
	if err := s.calls.Ready(ctx); err != nil {
		return store.Outcome{}, err
	}
	if err := t.Check(); err != nil {
		return store.Outcome{}, err
	}
	y := &settlement{s: s}
	if t.ID != "" {
		y.rounds = make([][]part, 2)
	}
	if err := y.place(ctx, &t); err != nil {
		return store.Outcome{}, err
	}
	y.align()
	var err error
	if t.ID != "" {
		err = y.once(ctx, &t)
	} else {
		err = y.write(ctx, y.rounds)
	}
	out := store.Outcome{Allowed: true, At: clock.Time(y.now)}
	if err != nil {
		return out, err
	}
	for i := range t.Debits {
		out.Levels = y.levels(out.Levels, &t.Debits[i])
	}
	return out, nil
}

// decide decides all legs, all or none.
func (s *Store) decide(ctx context.Context, legs []leg) (bool, error) {
	if len(legs) == 1 {
		legs[0].start()
		return legs[0].finish(ctx)
	}
	now, back := int64(math.MinInt64), s.calls.Skew.SetBack()
	for range 2 { // so that all judge at the same time
		for i := range legs {
			now = max(now, legs[i].b.root().raise(now, back))
		}
	}
	var doubtful *leg
	for i := range legs {
		l := &legs[i]
		looks := l.looksRefused()
		if l.done { // memory refuses it, which costs nothing
			return false, nil
		}
		if looks && doubtful == nil {
			doubtful = l
		}
	}
	if doubtful != nil {
		doubtful.start()
		if ok, err := doubtful.finish(ctx); err != nil || !ok {
			return false, err
		}
	}
	for i := range legs {
		if !legs[i].done {
			legs[i].start()
		}
	}
	allowed := true
	var failed error
	for i := range legs {
		ok, err := legs[i].finish(ctx)
		allowed = allowed && ok
		if err != nil && failed == nil {
			failed = err
		}
	}
	if !allowed || failed != nil {
		for i := range legs {
			legs[i].undo()
		}
	}
	return allowed, failed
}

// leg is the part of a take that concerns one bucket.
type leg struct {
	b     *bucket
	debit *store.Debit
	view  *plan.View

	parts []part // one, unless the request spans several shards
	one   [1]part
	first waiter // space for the first of its parts

	hopped bool // it has left a throttled shard

	done    bool
	allowed bool
	err     error
}

// part is a leg's or settle's job on one shard.
type part struct {
	sh   *shard
	x    *waiter
	lost bool // its caller gave up before the answer, so the waiter must not be read any more

	known bool // the shard had been seen when the job was placed
}

// allowed reports whether the job is known to have been admitted.
func (p *part) allowed() bool { return !p.lost && p.x.allowed() }

// moved reports whether the job must be placed anew.
func (p *part) moved() bool { return !p.lost && p.x.err == nil && p.x.answer.Verdict == plan.Moved }

// send queues the job for a write.
func (p *part) send() {
	p.sh.queue.Lock()
	defer p.sh.queue.Unlock()
	p.sh.add(p.x)
}

// await waits for the job's answer.
func (p *part) await(ctx context.Context) error {
	if p.x.told {
		return p.x.err
	}
	if err := p.sh.queue.Wait(ctx, p.x); err != nil {
		p.lost = true
		return p.sh.gaveUp(p.x.job.Kind.String(), err)
	}
	return p.x.err
}

// await waits for the answers of jobs, up to the first that fails.
func await(ctx context.Context, parts []part) error {
	for i := range parts {
		if err := parts[i].await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// waiter returns the leg's charges as a job.
func (l *leg) waiter() *waiter {
	x := &l.first
	if l.parts != nil {
		x = new(waiter)
	}
	j := &x.init(plan.Take, l.view, l.debit.Epoch).job
	j.Counts, j.Phase = true, l.debit.Phase
	for i := range l.debit.Charges {
		c := &l.debit.Charges[i]
		j.Amounts[i] = c.Amount
		if c.Shadow {
			mark(&j.Shadow, i, len(j.Amounts))
		}
		if c.Force {
			mark(&j.Forced, i, len(j.Amounts))
		}
	}
	return x
}

func mark(marks *[]bool, i, n int) {
	if *marks == nil {
		*marks = make([]bool, n)
	}
	(*marks)[i] = true
}

// start queues the leg's jobs for their writes, unless memory answers them.
func (l *leg) start() {
	l.parts = l.place(l.one[:0], nil)
	if len(l.parts) > 1 && l.refusedPart() {
		return
	}
	for i := range l.parts {
		l.parts[i].begin()
	}
}

// refusedPart reports whether memory refuses one of the leg's jobs, which suffices, and drops the others in that case.
func (l *leg) refusedPart() bool {
	i := slices.IndexFunc(l.parts, func(p part) bool {
		p.sh.queue.Lock()
		defer p.sh.queue.Unlock()
		return p.refused(p.sh.clock())
	})
	if i < 0 {
		return false
	}
	l.parts = l.parts[i : i+1]
	return true
}

// finish waits for the leg's answer. If ctx ends earlier, whatever the leg is debited later is returned without further
// action.
func (l *leg) finish(ctx context.Context) (bool, error) {
	if l.done {
		return l.allowed, l.err
	}
	l.done, l.err = true, nil
	l.await(ctx)
	if l.err == nil && !l.allowed && l.elsewhere(ctx) {
		return true, nil
	}
	l.allowed = l.allowed && l.err == nil
	if !l.allowed && len(l.parts) > 1 {
		l.undo()
	}
	return l.allowed, l.err
}

// await waits for the answers of the leg's jobs, and of those that replace them while they meet shards that are
// outdated or throttled.
func (l *leg) await(ctx context.Context) {
	for moved := true; moved && l.err == nil; {
		l.allowed, moved = true, false
		for i := range l.parts {
			p := &l.parts[i]
			if err := p.await(ctx); err != nil && l.err == nil {
				l.err = err
			}
			l.allowed = l.allowed && p.allowed()
			moved = moved || p.moved()
		}
		if moved && l.err == nil {
			l.err = l.move(ctx)
		}
	}
}

// move undoes the leg's jobs, and places them anew.
func (l *leg) move(ctx context.Context) error {
	l.undo()
	var hot *shard
	expires := l.parts[0].x.expires
	for i := range l.parts {
		p := &l.parts[i]
		if !p.moved() {
			continue
		}
		it := p.x.answer.Item
		if it == nil && p.sh.k < len(l.b.all()) {
			hot, l.hopped = p.sh, true
		}
		if it != nil || len(l.b.all()) == 1 {
			if err := l.b.relayout(ctx, p.sh, it); err != nil {
				return l.b.s.calls.Trouble("take", p.sh.describe(), err)
			}
		}
	}
	l.parts = l.place(l.one[:0], hot)
	for i := range l.parts {
		l.parts[i].x.expires = expires
		l.parts[i].send()
	}
	return nil
}

// undo returns what the leg was debited. Nothing is returned unless it is known to have been debited. What is debited
// after the caller gave up is returned when that write lands. undo returns the jobs, which nobody needs to wait for.
func (l *leg) undo() (undos []part) {
	for i := range l.parts {
		p := &l.parts[i]
		if !p.allowed() || p.x.undone {
			continue
		}
		p.x.undone = true
		p.sh.queue.Lock()
		if x := p.sh.takeBack(p.x); x != nil {
			undos = append(undos, part{sh: p.sh, x: x})
		}
		p.sh.queue.Unlock()
	}
	return undos
}

// begin queues the job for a write, unless memory answers it: from what was debited ahead, or by a refusal.
func (p *part) begin() {
	sh := p.sh
	sh.queue.Lock()
	defer sh.queue.Unlock()
	at := sh.clock()
	if !sh.prefetched(p.x, at, sh.state.Tick(at)) && !p.refused(at) {
		sh.add(p.x)
	}
}

// refused reports whether memory refuses the job, and answers it in that case. Memory refuses nothing while a write is
// under way: that may count as earlier than the refusal although it is applied later. The queue must be locked.
func (p *part) refused(at time.Time) bool {
	s := &p.sh.state
	now := s.Tick(at)
	s.On = p.sh.place()
	if !p.sh.queue.Idle() || !s.RefusesNow(&p.x.job, at, now) {
		return false
	}
	p.x.told = true
	p.x.answer = plan.Answer{Job: &p.x.job, Verdict: plan.Refused, At: now, Item: s.Last, On: s.On}
	return true
}

// looksRefused reports whether the last answer, however old, would refuse the leg, or follows later limits. If memory
// refuses it, the leg is done.
func (l *leg) looksRefused() bool {
	shards := l.b.all()
	sh := shards[0]
	p := part{sh: sh, x: l.waiter()}
	if slices.ContainsFunc(shards, func(sh *shard) bool { return sh.stale(&p.x.job) }) {
		return true
	}
	if len(shards) > 1 {
		return false
	}
	sh.queue.Lock()
	defer sh.queue.Unlock()
	sh.state.On = sh.place()
	if !sh.state.Refuses(&p.x.job, sh.tick()) {
		return false
	}
	if p.refused(sh.clock()) {
		l.parts, l.done = append(l.one[:0], p), true
	}
	return true
}

// outcome returns what was decided, and the levels that were seen afterwards.
func outcome(legs []leg, allowed bool) store.Outcome {
	out := store.Outcome{Allowed: allowed}
	first, now := int64(math.MaxInt64), int64(math.MinInt64)
	for i := range legs {
		for _, p := range legs[i].parts {
			if !p.lost {
				first, now = min(first, p.x.answer.At), max(now, p.x.answer.At)
			}
		}
	}
	out.At = clock.Time(now)
	if first < now {
		out.First = clock.Time(first)
	}
	n := 0
	for i := range legs {
		n += len(legs[i].view.Limits)
	}
	out.Levels = make([]store.Level, 0, n)
	for i := range legs {
		out.Levels = legs[i].levels(out.Levels, now, allowed)
	}
	return out
}
