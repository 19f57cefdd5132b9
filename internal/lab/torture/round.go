package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
)

const (
	spendCalls   = 150 // of each caller in a round
	roundLasts   = 3 * time.Second
	orderCalls   = 12
	orderCallers = 12 // of all workers: the search for an order grows quickly
)

// round runs the workers once and checks what they did. It returns a failure if the store broke a promise, and an error
// if the round could not be carried out.
func (r *run) round(ctx context.Context, n int) (*failure, error) {
	r.records, r.sorted = map[call]*Record{}, nil
	o := order{Round: n, Kind: spending, Calls: cmp.Or(r.Calls, spendCalls), Callers: r.Callers, Sharp: n%4 == 1}
	calm := n%2 == 0
	if n%3 == 0 {
		o.Kind, o.Calls = ordering, orderCalls
		o.Callers = min(r.Callers, max(2, orderCallers/len(r.hands)))
	}
	if r.Rate > 0 { // no longer than a few seconds
		o.Calls = min(o.Calls, max(orderCalls, int(r.Rate*roundLasts.Seconds())/((o.Callers+1)*len(r.hands))))
	}
	if !calm {
		o.Faults = r.Faults
	}
	if o.Frugal = r.frugal != nil && n%6 >= 4; o.Frugal {
		r.rep.Frugal++
	}
	ev := &evidence{
		atomic: r.Traits.Atomic, tolerance: r.Traits.Back, killed: map[[2]int]bool{}, frugal: o.Frugal,
		credited: n == credited,
	}
	if r.skewed() {
		ev.slack, ev.tolerance = maxSkew, ev.tolerance+2*maxSkew
	}
	buckets, err := r.open(ctx, o)
	if err != nil {
		return nil, err
	}
	if ev.before, ev.at, err = r.look(ctx, buckets); err != nil {
		return nil, err
	}
	if err := r.spread(ctx, o, buckets, func() error { return r.loose(ctx, o, ev) }); err != nil {
		return nil, err
	}
	if o.Held = r.held(); len(o.Held) > 0 {
		o.Kind = releasing
		if err := r.loose(ctx, o, ev); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, r.Traits.InFlight); err != nil {
		return nil, err
	}
	if ev.after, ev.end, err = r.look(ctx, buckets); err != nil {
		return nil, err
	}
	r.rep.Rounds++
	return r.judge(ev, o), r.drain(ctx, ev.after)
}

// open creates a round's buckets and spends some of each one's tokens, so that its level is above the clock.
func (r *run) open(ctx context.Context, o order) (buckets []store.Bucket, err error) {
	at := func(entity string) store.Bucket {
		return store.Bucket{Namespace: r.ids[0], Entity: entity, Resource: resource(o.Round)}
	}
	if o.Kind == ordering {
		b := at(ordered)
		d := store.Debit{Bucket: b, Epoch: 1}
		rec := &Record{Round: o.Round, Op: OpTake, Charges: []Charge{{Entity: ordered}}, Asked: time.Now().UnixNano()}
		for i, l := range orderLimits {
			rec.Charges[0].Amounts[i] = l.Burst / 2
			d.Charges = append(d.Charges, store.Charge{Limit: l, Amount: l.Burst / 2})
		}
		out, err := r.store.Take(ctx, store.Take{Debits: []store.Debit{d}})
		if err != nil {
			return nil, err
		}
		if !out.Allowed {
			return nil, errors.New("a new bucket refused half of its burst")
		}
		rec.Told, rec.At, rec.Result = time.Now().UnixNano(), out.At, Admitted
		for _, l := range out.Levels {
			rec.Levels = append(rec.Levels, l.Level)
		}
		return []store.Bucket{b}, r.heard(rec)
	}
	create := func(lim *weir.Limiter, entity string) error {
		_, err := lim.Acquire(ctx, weir.Request{
			Entity: entity, Resource: resource(o.Round), Tokens: weir.Tokens{"ledger": 1000},
		})
		return err
	}
	for i := range children {
		if err := r.endow(ctx, at(child(i))); err != nil {
			return nil, err
		}
		if err := create(r.lim, child(i)); err != nil {
			return nil, err
		}
		buckets = append(buckets, at(child(i)))
	}
	apart := at(neighbour)
	apart.Namespace = r.ids[1]
	return append(buckets, apart, at(parent)), create(r.lim.In(beside(r.Namespace)), neighbour)
}

// credited is the round whose balances are credited: ids of credits are never forgotten, so there are no more of them.
// In other rounds, the balances have what is returned to them.
const credited = 1

// endow sets the limits of a child with other kinds than rates, and gives its balance something to spend.
func (r *run) endow(ctx context.Context, b store.Bucket) error {
	own, ok := ownLimits[b.Entity]
	if !ok {
		return nil
	}
	scope := admin.Scope{Entity: b.Entity, Resource: b.Resource}
	if err := admin.New(r.lim).Limits.Set(ctx, scope, public(own)...); err != nil {
		return err
	}
	for i, l := range own {
		if !l.IsBalance() {
			continue
		}
		if r.rep.Rounds != credited {
			d := store.Debit{Bucket: b, Epoch: 1, Charges: []store.Charge{{Limit: own[live]}, {Limit: own[ledger]}}}
			if _, err := r.store.Take(ctx, store.Take{Debits: []store.Debit{d}}); err != nil { // creates the bucket
				return err
			}
			if err := r.settle(ctx, b, 1, l, -credits[i]); err != nil {
				return err
			}
			continue
		}
		credit := store.Credit{Bucket: b, Limit: l.Name, Amount: credits[i], ID: "torture"}
		for range 2 { // repeated, it adds nothing
			if _, err := r.store.Credit(ctx, credit); err != nil {
				return err
			}
		}
	}
	return nil
}

// drain spends what the balances of a round have left, or returns what they owe: a balance that is not 0 is never
// forgotten.
func (r *run) drain(ctx context.Context, states []store.State) error {
	for _, st := range states {
		for _, l := range st.Limits {
			if !l.Limit.IsBalance() || l.Level == 0 {
				continue
			}
			if err := r.settle(ctx, st.Bucket, st.Epoch, l.Limit, -l.Level); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle changes the level of one limit.
func (r *run) settle(ctx context.Context, b store.Bucket, epoch uint64, l *store.Limit, amount int64) error {
	_, err := r.store.Settle(ctx, store.Settle{Debits: []store.Debit{
		{Bucket: b, Epoch: epoch, Charges: []store.Charge{{Limit: l, Amount: amount}}},
	}})
	return err
}

// splitter is a store that splits buckets into several items.
type splitter interface {
	store.Store

	Split(ctx context.Context, b store.Bucket, n int) (int, error)
}

// openSplitter opens the store frugal.
func openSplitter(open Opener) (splitter, error) {
	st, err := open(nil, true)
	if err != nil {
		return nil, err
	}
	sp, ok := st.(splitter)
	if !ok {
		return nil, errors.Join(errors.New("a frugal store that splits no buckets"), st.Close())
	}
	return sp, nil
}

// spread makes the workers work, in a frugal round on buckets that are split before and meanwhile.
func (r *run) spread(ctx context.Context, o order, buckets []store.Bucket, work func() error) error {
	if !o.Frugal {
		return work()
	}
	split := func(n int) error {
		var errs []error
		for _, b := range []store.Bucket{buckets[0], buckets[len(buckets)-1]} { // a child and the parent
			_, err := r.frugal.Split(ctx, b, n)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	if err := split(2); err != nil {
		return err
	}
	var meanwhile error
	var wg sync.WaitGroup
	wg.Go(func() { meanwhile = split(4) })
	err := work()
	wg.Wait()
	return errors.Join(err, meanwhile)
}

// look reads the buckets while no caller is active.
func (r *run) look(ctx context.Context, buckets []store.Bucket) ([]store.State, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	snap, err := r.store.Peek(ctx, buckets...)
	return snap.States, snap.At, err
}

// heard records what was reported about a call.
func (r *run) heard(rec *Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := *rec
	key := call{rec.Process, rec.Life, rec.Caller, rec.N}
	if was := r.records[key]; was != nil {
		*was = seen
		return nil
	}
	r.records[key] = &seen
	r.sorted = append(r.sorted, &seen)
	return nil
}

// held returns the leases that left their processes.
func (r *run) held() (all []weir.LeaseToken) {
	for _, rec := range r.sorted {
		if rec.Op == OpHold && rec.Held != nil && len(rec.Held.Charges) > 0 {
			all = append(all, *rec.Held)
		}
	}
	return all
}

// loose makes all workers carry out an order at once, and kills one of them if that fault is active.
func (r *run) loose(ctx context.Context, o order, ev *evidence) error {
	victim := -1
	if r.Processes > 0 && slices.Contains(o.Faults, Kill) {
		victim = r.r.IntN(len(r.hands))
	}
	wait := time.Duration(r.r.Int64N(int64(100 * time.Millisecond)))
	if r.Rate > 0 && r.r.IntN(2) == 0 {
		wait = time.Duration(r.r.Int64N(int64(roundLasts / 2)))
	}
	errs := make([]error, len(r.hands))
	killed, shot := make([]bool, len(r.hands)), false
	var wg, killer sync.WaitGroup
	busy, rest := context.WithCancel(ctx)
	for i, h := range r.hands {
		to := o
		if o.Kind == releasing && i > 0 && !slices.Contains(r.Faults, Duplicate) {
			continue
		}
		wg.Go(func() {
			failed, dead, err := h.do(ctx, to, r.heard)
			killed[i], errs[i] = dead, err
			if !dead {
				ev.note(&r.mu, failed > r.failed[i])
				r.failed[i] = failed
			}
			if i == victim {
				rest()
			}
		})
	}
	if victim >= 0 {
		killer.Go(func() {
			_ = pause(busy, wait) // or until it is done
			shot = r.hands[victim].kill()
		})
	}
	wg.Wait()
	rest()
	killer.Wait()
	if err := errors.Join(errs...); err != nil || ctx.Err() != nil {
		return cmp.Or(err, ctx.Err())
	}
	for i, dead := range killed {
		if !dead && !(i == victim && shot) { // it may have been killed after it was done
			continue
		}
		if i != victim {
			return fmt.Errorf("process %d has died", i+1)
		}
		if err := r.revive(ctx, i, ev); err != nil {
			return err
		}
	}
	return nil
}

// note records whether writes have failed.
func (ev *evidence) note(mu *sync.Mutex, failed bool) {
	mu.Lock()
	defer mu.Unlock()
	ev.writesFailed = ev.writesFailed || failed
}

// revive restarts a killed process.
func (r *run) revive(ctx context.Context, i int, ev *evidence) error {
	s := &r.setups[i]
	ev.killed[[2]int{s.Process, s.Life}] = true
	r.rep.Killed++
	if err := r.hands[i].close(); err != nil {
		return err
	}
	s.Life++
	h, err := r.start(ctx, *s)
	if err != nil {
		return err
	}
	r.hands[i], r.failed[i] = h, 0
	return nil
}

// judge checks a round.
func (r *run) judge(ev *evidence, o order) *failure {
	slices.SortStableFunc(r.sorted, func(a, b *Record) int { return cmp.Compare(a.Asked, b.Asked) })
	for _, rec := range r.sorted {
		if rec.Op == OpHold {
			continue
		}
		r.rep.Calls++
		switch {
		case !rec.known():
			r.rep.Unknown++
		case rec.Result == Admitted:
			r.rep.Admitted++
		case rec.Result == Refused:
			r.rep.Refused++
		}
	}
	seen := func(check, cases int) { r.rep.Checks[check].Cases += cases }
	undecided := func(check int) { r.rep.Checks[check].Undecided++ }
	ev.records = r.sorted
	if f := ev.time(seen); f != nil {
		return f
	}
	if len(ev.before) == 1 {
		r.last(ev, o.Round)
		return ev.order(seen, undecided)
	}
	return cmp.Or(ev.apart(seen), ev.spent(seen, undecided))
}

// last adds the look after a round to its history.
func (r *run) last(ev *evidence, round int) {
	now := time.Now().UnixNano()
	ev.records = append(ev.records, &Record{
		Round: round, N: 1, Op: OpLook, Charges: []Charge{{Entity: ordered}}, Asked: now, Told: now + 1,
		Result: Applied, At: ev.end, Levels: levelsOf(ev.after[0]),
	})
	r.sorted = ev.records
}
