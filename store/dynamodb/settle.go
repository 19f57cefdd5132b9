package dynamodb

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// settlement is a settle under way.
type settlement struct {
	s      *Store
	rounds [][]part // the writes, one round after another. With an ID: forced debits, then returns
	now    int64    // the latest time of all writes so far
}

// once makes two rounds, one of forced debits and one of returns, and claims the settle's ID in between. A crash in
// between leaves tokens spent, and a second call with the same ID takes back what it forced.
func (y *settlement) once(ctx context.Context, t *store.Settle) error {
	if !y.s.calls.Clock().Before(t.Expires) {
		return store.ErrExpired
	}
	if err := y.write(ctx, y.rounds[:1]); err != nil {
		return err
	}
	return y.finish(ctx, t, func(ctx context.Context, y *settlement) error {
		err := y.s.calls.PutMarker(ctx, t.ID, t.Expires.Add(24*time.Hour))
		switch {
		case errors.Is(err, store.ErrSettled):
			return errors.Join(err, y.write(ctx, [][]part{y.undos(y.rounds[0])}))
		case err != nil:
			return err
		}
		return y.write(ctx, y.rounds[1:])
	})
}

// undos returns the jobs that undo what other jobs were debited.
func (y *settlement) undos(parts []part) (undos []part) {
	for _, p := range parts {
		if p.allowed() {
			x := &waiter{job: *p.x.answer.Undo(), expires: time.Now().Add(10 * y.s.cfg.WriteTimeout)}
			undos = append(undos, part{sh: p.sh, x: x})
		}
	}
	return undos
}

// finish runs f to its end even if the caller leaves earlier: once the ID is claimed, no other call can finish the
// settle. In an outage it gives up after a while, and what was to be returned stays debited.
func (y *settlement) finish(
	ctx context.Context, t *store.Settle, f func(context.Context, *settlement) error,
) error {
	rest := *y // a caller that has left reads nothing that f changes
	done := make(chan error, 1)
	if !y.s.others.Go(func() {
		bounded, cancel := y.s.calls.Within(context.WithoutCancel(ctx))
		defer cancel()
		done <- f(bounded, &rest)
	}) {
		return store.ErrClosed
	}
	select {
	case err := <-done:
		*y = rest
		return err
	case <-ctx.Done():
		return y.s.calls.Trouble("settle", table.MarkerKey(t.ID).String(), ctx.Err())
	}
}

// write makes rounds of writes, one after another. What meets a shard that is outdated is placed anew.
func (y *settlement) write(ctx context.Context, rounds [][]part) error {
	var errs []error
	for i := range rounds {
		for begun := 0; begun < len(rounds[i]); {
			parts := rounds[i][begun:]
			begun = len(rounds[i])
			for k := range parts {
				parts[k].send()
			}
			for k := range parts {
				p := &parts[k]
				err := p.await(ctx)
				if err == nil && !p.moved() {
					y.now = max(y.now, p.x.answer.At)
				} else if err == nil {
					b := p.sh.b
					if err = errors.Join(b.relayout(ctx, p.sh, p.x.answer.Item), b.look(ctx)); err == nil {
						rounds[i] = append(rounds[i], b.placeSettle(p.x.only(nonzero))...)
					}
				}
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// align makes all shards of a settle judge at the same time.
func (y *settlement) align() {
	y.now = y.s.now()
	for range 2 {
		for _, round := range y.rounds {
			for _, p := range round {
				y.now = max(y.now, p.sh.raise(y.now))
			}
		}
	}
}

// place places a settle's jobs on shards. With an ID, the first round holds the forced debits, the second the returns.
func (y *settlement) place(ctx context.Context, t *store.Settle) error {
	for i := range t.Debits {
		d := &t.Debits[i]
		b := y.s.bucket(d.Bucket)
		if len(b.all()) > 1 {
			if err := b.look(ctx); err != nil {
				return err
			}
		}
		if t.ID != "" {
			x, err := b.settling(d, d.Charges)
			if err != nil {
				return err
			}
			y.add(0, b.placeSettle(x.only(func(a int64) bool { return a > 0 })))
			y.add(1, b.placeSettle(x.only(func(a int64) bool { return a < 0 })))
			continue
		}
		for n, charges := range steps(d.Charges) {
			x, err := b.settling(d, charges)
			if err != nil {
				return err
			}
			y.add(n, b.placeSettle(x))
		}
	}
	return nil
}

func (y *settlement) add(round int, parts []part) {
	for round >= len(y.rounds) {
		y.rounds = append(y.rounds, nil)
	}
	y.rounds[round] = append(y.rounds[round], parts...)
}

// steps divides charges into steps. Forced debits and returns share a step, except that forcing a limit after a return
// to it starts a new step, so that the forced debit finds what the return left.
func steps(charges []store.Charge) (steps [][]store.Charge) {
	begin := 0
	for n := range charges {
		returned := func(c store.Charge) bool {
			return c.Amount < 0 && plan.LimitName(c.Limit) == plan.LimitName(charges[n].Limit)
		}
		if charges[n].Amount > 0 && slices.ContainsFunc(charges[begin:n], returned) {
			steps, begin = append(steps, charges[begin:n]), n
		}
	}
	return append(steps, charges[begin:])
}

func (b *bucket) settling(d *store.Debit, charges []store.Charge) (*waiter, error) {
	v, err := b.views.of(charges)
	if err != nil {
		return nil, err
	}
	x := new(waiter).init(plan.Settle, v, d.Epoch)
	for i := range charges {
		x.job.Amounts[i] = charges[i].Amount
	}
	return x, nil
}

// only returns a copy of a settle with some of its amounts.
func (x *waiter) only(some func(int64) bool) *waiter {
	c := new(waiter).init(plan.Settle, x.job.View, x.job.Epoch)
	for i, a := range x.job.Amounts {
		if some(a) {
			c.job.Amounts[i] = a
		}
	}
	return c
}

// placeSettle places a settle on the bucket's shards.
func (b *bucket) placeSettle(x *waiter) []part {
	switch shards := b.all(); {
	case x.nothing():
		return nil
	case len(shards) == 1:
		return []part{{sh: shards[0], x: x}}
	default:
		return divide(shards, x, true)
	}
}

// levels appends the levels of those of a debit's limits that the bucket has.
func (y *settlement) levels(levels []store.Level, d *store.Debit) []store.Level {
	shards := y.s.bucket(d.Bucket).all()
	items := make([]*plan.Item, len(shards))
	last := make([]*plan.Answer, len(shards)) // what each shard answered last
	for k, sh := range shards {
		for _, p := range slices.Concat(y.rounds...) {
			if p.sh == sh && !p.moved() && p.x.answer.Item != nil {
				items[k], last[k] = p.x.answer.Item, &p.x.answer
			}
		}
		if last[k] == nil {
			items[k] = cmp.Or(sh.last(), plan.Missing)
		}
	}
	st := plan.Combine(d.Bucket, items, y.now)
	for i := range d.Charges {
		name := plan.LimitName(d.Charges[i].Limit)
		for _, l := range st.Limits {
			if plan.LimitName(l.Limit) != name {
				continue
			}
			if last[0] != nil && len(shards) == 1 {
				if level, ok := last[0].Level(name); ok {
					l.Level = level
				}
			}
			levels = append(levels, store.Level{Limit: l.Limit, Level: l.Level})
		}
	}
	return levels
}
