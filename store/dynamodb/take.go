package dynamodb

import (
	"context"
	"math"
	"slices"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Take implements [store.Store]. Each bucket takes one conditional write, shared with other callers of the process. A
// bucket that looks as if it will refuse is asked first, alone, so that its refusal costs the other buckets nothing. If
// a bucket refuses after the others were debited, those debits are undone.
func (s *Store) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	if err := s.ready(ctx); err != nil {
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
		if err := legs[i].prepare(s, &t.Debits[i]); err != nil {
			return store.Outcome{}, err
		}
	}
	allowed, err := s.decide(ctx, legs)
	if err != nil {
		return store.Outcome{}, err
	}
	return outcome(legs, allowed), nil
}

// decide decides all legs, all or none.
func (s *Store) decide(ctx context.Context, legs []leg) (bool, error) {
	if len(legs) == 1 {
		legs[0].start()
		return legs[0].finish(ctx)
	}
	now := int64(math.MinInt64)
	for range 2 { // so that all judge at the same time
		for i := range legs {
			now = max(now, legs[i].m.root().raise(now))
		}
	}
	// First the legs that memory refuses, which costs nothing. Then the one that will probably refuse, alone.
	for i := range legs {
		if legs[i].refusedLocally() {
			return false, legs[i].err
		}
	}
	for i := range legs {
		if legs[i].looksRefused() {
			legs[i].start()
			if ok, err := legs[i].finish(ctx); err != nil || !ok {
				return false, err
			}
			break
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
	m     *memory
	debit *store.Debit
	view  *view

	jobs  []placed // one, unless the request spans several shards
	one   [1]placed
	first job // space for the first of its jobs

	hopped bool // it has left a throttled shard

	done    bool
	allowed bool
	err     error
}

// placed is a job on a shard.
type placed struct {
	sh   *shard
	j    *job
	lost bool // its caller gave up before the answer, so the job must not be read any more

	known bool // the shard had been seen when the job was placed
}

// allowed reports whether the job is known to have been admitted.
func (p *placed) allowed() bool { return !p.lost && p.j.err == nil && p.j.allowed }

// moved reports whether the job must be placed anew.
func (p *placed) moved() bool { return !p.lost && p.j.moved }

func (l *leg) prepare(s *Store, d *store.Debit) (err error) {
	l.debit, l.m = d, s.recall(d.Bucket)
	l.view, err = l.m.view(d.Charges)
	return err
}

// job returns the leg's charges as a job.
func (l *leg) job() *job {
	j := &l.first
	if j.v != nil {
		j = new(job)
	}
	j.init(take, l.view, l.debit.Epoch)
	j.counted = true
	for i := range l.debit.Charges {
		c := &l.debit.Charges[i]
		j.amounts[i] = c.Amount
		if c.Shadow {
			if j.shadow == nil {
				n := len(j.amounts)
				j.shadow = &shadow{make([]bool, n), make([]int64, n), make([]bool, n)}
			}
			j.shadow.is[i], j.shadow.wants[i] = true, c.Amount
		}
		if c.Force {
			if j.forced == nil {
				j.forced = make([]bool, len(j.amounts))
			}
			j.forced[i] = true
		}
	}
	return j
}

// start queues the leg's jobs for their writes, unless memory answers them.
func (l *leg) start() {
	l.jobs = l.place(l.one[:0], nil)
	for i := range l.jobs {
		if len(l.jobs) > 1 && l.jobs[i].refused() {
			l.jobs = l.jobs[i : i+1] // one refusal suffices
			return
		}
	}
	for i := range l.jobs {
		l.jobs[i].ask()
	}
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
	if !l.allowed && len(l.jobs) > 1 {
		l.undo()
	}
	return l.allowed, l.err
}

// await waits for the answers of the leg's jobs, and places them anew while they meet shards that are outdated.
func (l *leg) await(ctx context.Context) {
	l.collect(ctx)
	for l.err == nil && slices.ContainsFunc(l.jobs, func(p placed) bool { return p.moved() }) {
		if !l.jobs[0].moved() || len(l.jobs) > 1 {
			l.undo()
		}
		var hot *shard
		expires := l.jobs[0].j.expires
		for i := range l.jobs {
			p := &l.jobs[i]
			if !p.moved() {
				continue
			}
			if p.j.item == nil && p.sh.k < len(l.m.all()) {
				hot, l.hopped = p.sh, true
			}
			if p.j.item != nil || len(l.m.all()) == 1 {
				if l.err = l.m.relayout(ctx, p); l.err != nil {
					l.err = l.m.s.calls.Trouble("take", p.sh.describe(), l.err)
					return
				}
			}
		}
		l.jobs = l.place(l.one[:0], hot)
		for i := range l.jobs {
			l.jobs[i].j.expires = expires
			l.jobs[i].send()
		}
		l.collect(ctx)
	}
}

func (l *leg) collect(ctx context.Context) {
	l.allowed = true
	for i := range l.jobs {
		p := &l.jobs[i]
		if err := p.await(ctx); err != nil && l.err == nil {
			l.err = err
		}
		l.allowed = l.allowed && p.allowed()
	}
}

// send queues the job for a write.
func (p *placed) send() {
	p.sh.lane.Lock()
	defer p.sh.lane.Unlock()
	p.sh.add(p.j)
}

// ask asks the shard to decide the job, unless memory answers it.
func (p *placed) ask() {
	p.sh.lane.Lock()
	defer p.sh.lane.Unlock()
	if !p.sh.local(p.j) {
		p.sh.add(p.j)
	}
}

// await waits for a job's answer.
func (p *placed) await(ctx context.Context) error {
	if p.j.told {
		return p.j.err
	}
	if err := p.sh.lane.Wait(ctx, p.j); err != nil {
		p.lost = true
		return p.sh.s.calls.Trouble("take", p.sh.describe(), err)
	}
	return p.j.err
}

// undo returns what the leg was debited. Nothing is returned unless it is known to have been debited. What is debited
// after the caller gave up is returned when that write lands. undo returns the jobs, which nobody needs to wait for.
func (l *leg) undo() (undos []placed) {
	for i := range l.jobs {
		p := &l.jobs[i]
		if !p.allowed() || p.j.undone {
			continue
		}
		p.j.undone = true
		p.sh.lane.Lock()
		if u := p.sh.takeBack(p.j); u != nil {
			undos = append(undos, placed{sh: p.sh, j: u})
		}
		p.sh.lane.Unlock()
	}
	return undos
}

// local answers a take from memory if possible: from what was debited ahead, or by a refusal. The lane must be locked.
func (sh *shard) local(j *job) bool {
	t := sh.s.clock()
	now := sh.tickAt(t)
	if sh.prefetched(j, now) {
		return true
	}
	// Not while a write is under way: it may count as earlier than this refusal although it is applied later.
	if sh.lane.Idle() && sh.freshAt(t) && sh.refuses(j, now) {
		j.told = true
		j.allowed, j.at, j.item = false, now, sh.seen
		return true
	}
	return false
}

// refuses reports whether the last sight refuses a take.
func (sh *shard) refuses(j *job, now int64) bool {
	it := sh.seen
	if it == nil || !it.exists || j.v.own && j.v.set != it.set {
		return false
	}
	return !fits(it, sh.place(), j, now, nobody)
}

// refused reports whether memory refuses the job, and answers it in that case.
func (p *placed) refused() bool {
	p.sh.lane.Lock()
	defer p.sh.lane.Unlock()
	now := p.sh.tick()
	if !p.sh.lane.Idle() || !p.sh.fresh() || !p.sh.refuses(p.j, now) {
		return false
	}
	p.j.told, p.j.at, p.j.item = true, now, p.sh.seen
	return true
}

// refusedLocally reports whether memory refuses the leg, and answers it in that case.
func (l *leg) refusedLocally() bool {
	p := placed{sh: l.m.root(), j: l.job()}
	if len(l.m.all()) > 1 || !p.refused() {
		return false
	}
	l.jobs, l.done = append(l.one[:0], p), true
	return true
}

// looksRefused reports whether the last sight, however old, would refuse the leg.
func (l *leg) looksRefused() bool {
	sh := l.m.root()
	if len(l.m.all()) > 1 {
		return false
	}
	j := l.job()
	sh.lane.Lock()
	defer sh.lane.Unlock()
	return sh.refuses(j, sh.tick())
}

// outcome returns what was decided, and the levels that were seen afterwards.
func outcome(legs []leg, allowed bool) store.Outcome {
	out := store.Outcome{Allowed: allowed}
	now := int64(math.MinInt64)
	for i := range legs {
		for _, p := range legs[i].jobs {
			if !p.lost {
				now = max(now, p.j.at)
			}
		}
	}
	out.At = clock.Time(now)
	n := 0
	for i := range legs {
		n += len(legs[i].view.limits)
	}
	out.Levels = make([]store.Level, 0, n)
	for i := range legs {
		out.Levels = legs[i].levels(out.Levels, now, allowed)
	}
	return out
}
