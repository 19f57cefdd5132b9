package dynamodb

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/batch/limitname"
	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/clock"
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
					if err = errors.Join(b.relayout(ctx, p.sh, p.x.answer.Item), b.look(ctx, false)); err == nil {
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
	back := y.s.calls.Skew.SetBack()
	y.now = y.s.now()
	for range 2 {
		for _, round := range y.rounds {
			for _, p := range round {
				y.now = max(y.now, p.sh.raise(y.now, back))
			}
		}
	}
}

// place places a settle's jobs on shards. With an ID, the first round holds the forced debits, the second the returns.
func (y *settlement) place(ctx context.Context, t *store.Settle) error {
	for i := range t.Debits {
		d := &t.Debits[i]
		b := y.s.bucket(d.Bucket)
		if b.long != nil {
			return b.long
		}
		if len(b.all()) > 1 || t.Forgive {
			if err := b.look(ctx, t.Forgive); err != nil {
				return err
			}
		}
		if t.ID != "" {
			x, err := b.settling(t, d, d.Charges)
			if err != nil {
				return err
			}
			y.add(0, b.placeSettle(x.only(func(a int64) bool { return a > 0 })))
			y.add(1, b.placeSettle(x.only(func(a int64) bool { return a < 0 })))
			continue
		}
		for n, charges := range steps(d.Charges) {
			x, err := b.settling(t, d, charges)
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
			return c.Amount < 0 && limitname.Of(c.Limit) == limitname.Of(charges[n].Limit)
		}
		if charges[n].Amount > 0 && slices.ContainsFunc(charges[begin:n], returned) {
			steps, begin = append(steps, charges[begin:n]), n
		}
	}
	return append(steps, charges[begin:])
}

func (b *bucket) settling(t *store.Settle, d *store.Debit, charges []store.Charge) (*waiter, error) {
	v, err := b.views.of(charges)
	if err != nil {
		return nil, err
	}
	x := new(waiter).init(plan.Settle, v, d.Epoch)
	for i := range charges {
		x.job.Amounts[i] = charges[i].Amount
	}
	x.job.Terms = terms(t, charges)
	return x, nil
}

// terms returns the terms of a settle's charges; nil if there are none.
func terms(t *store.Settle, charges []store.Charge) *plan.Terms {
	bounded := func(c store.Charge) bool { return c.StrictReturns() || c.MaxDebt > 0 || c.Hold != nil }
	if !t.Forgive && !slices.ContainsFunc(charges, bounded) {
		return nil
	}
	y := &plan.Terms{
		MaxDebt: make([]int64, len(charges)), Strict: make([]bool, len(charges)),
		Since: clock.Nanos(t.Since), Dated: !t.Since.IsZero(), Forgive: t.Forgive,
		Holds: make([]*store.Hold, len(charges)),
	}
	for i := range charges {
		y.MaxDebt[i], y.Strict[i], y.Holds[i] = charges[i].MaxDebt, charges[i].StrictReturns(), charges[i].Hold
	}
	return y
}

// only returns a copy of a settle with some of its amounts.
func (x *waiter) only(some func(int64) bool) *waiter {
	c := new(waiter).init(plan.Settle, x.job.View, x.job.Epoch)
	c.job.Terms = x.job.Terms
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
	case x.job.Terms != nil && x.job.Terms.Forgive:
		return forgive(shards, x)
	default:
		return divide(shards, x, true)
	}
}

// forgive divides what all shards together are in debt over those that are.
func forgive(shards []*shard, x *waiter) (parts []part) {
	for _, sh := range shards {
		parts = append(parts, part{sh: sh, x: x.only(func(int64) bool { return false })})
	}
	for i, a := range x.job.Amounts {
		rooms, total := make([]int64, len(parts)), int64(0)
		for k, sh := range shards {
			rooms[k], _ = sh.room(x.job.View, i)
			total = clock.Add(total, rooms[k])
		}
		left := max(a, min(0, total))
		for k := range parts {
			got := max(left, min(0, rooms[k]))
			parts[k].x.job.Amounts[i] = got
			left -= got
		}
	}
	return slices.DeleteFunc(parts, func(p part) bool { return p.x.nothing() })
}

// levels appends the levels of a debit's limits.
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
		name := limitname.Of(d.Charges[i].Limit)
		at := slices.IndexFunc(st.Limits, func(l store.LimitState) bool { return limitname.Of(l.Limit) == name })
		if at < 0 {
			l := d.Charges[i].Limit
			p := l.Params()
			level := store.Level{Limit: l, Level: p.Fresh(y.now)}
			level.Hold, level.Refused = y.hold(shards[0], &d.Charges[i])
			levels = append(levels, level)
			continue
		}
		level := store.Level{Limit: st.Limits[at].Limit, Level: st.Limits[at].Level}
		if last[0] != nil && len(shards) == 1 {
			if seen, ok := last[0].Level(name); ok {
				level.Level = seen
			}
		}
		level.Left = y.left(shards, name)
		level.Hold, level.Refused = y.hold(shards[0], &d.Charges[i])
		levels = append(levels, level)
	}
	return levels
}

// hold returns what a charge took of a limit of slots, or renewed, and whether a renewal was refused.
func (y *settlement) hold(root *shard, c *store.Charge) (h *store.Hold, refused bool) {
	if !c.Limit.IsSlots() || c.Amount <= 0 {
		return nil, false
	}
	name := limitname.Of(c.Limit)
	for _, p := range slices.Concat(y.rounds...) {
		if p.sh != root || p.lost || p.moved() {
			continue
		}
		j := &p.x.job
		for i, n := range j.View.Names {
			if n == name && j.Amounts[i] > 0 && j.Hold(i) == c.Hold {
				h = p.x.answer.Hold(i)
			}
		}
	}
	return h, h == nil && c.Hold != nil
}

// left returns how much of a forced debit was left out on all of a bucket's shards.
func (y *settlement) left(shards []*shard, name string) (left int64) {
	for _, p := range slices.Concat(y.rounds...) {
		i := slices.Index(p.x.job.View.Names, name)
		if i < 0 || p.x.job.Terms == nil || p.x.job.Hold(i) != nil || p.moved() || p.x.answer.Amounts == nil ||
			!slices.Contains(shards, p.sh) {
			continue
		}
		left += max(0, p.x.job.Amounts[i]) - max(0, p.x.answer.Amounts[i])
	}
	return left
}

// Credit implements [store.Store]. It makes one transaction and one read. Other processes may repeat a refusal for
// Config.RejectionTTL.
func (s *Store) Credit(ctx context.Context, c store.Credit) (store.Credited, error) {
	if err := s.calls.Ready(ctx); err != nil {
		return store.Credited{}, err
	}
	if err := c.Check(); err != nil {
		return store.Credited{}, err
	}
	b := s.bucket(c.Bucket)
	if b.long != nil {
		return store.Credited{}, b.long
	}
	ctx, cancel := s.calls.Within(ctx)
	defer cancel()
	before, err := b.credit(ctx, &c)
	switch {
	case err != nil:
		return store.Credited{}, err
	case before != 0 && before != c.Amount:
		return store.Credited{}, &store.CreditError{ID: c.ID, Have: before, Want: c.Amount}
	}
	shown := b.shown()
	snap, items, err := s.peek(ctx, c.Bucket)
	if err != nil {
		return store.Credited{}, err
	}
	b.see(items, shown)
	if root := b.root(); before == 0 && items[root.pk] != nil {
		root.queue.Lock()
		root.state.Others.Learn(items[root.pk], true)
		root.queue.Unlock()
	}
	out := store.Credited{At: snap.At, Before: before != 0}
	for _, l := range snap.States[0].Limits {
		if l.Limit.Name == c.Limit && l.Limit.IsBalance() {
			out.Level = l.Level
		}
	}
	return out, nil
}

// ForgetCredits implements [store.Store].
func (s *Store) ForgetCredits(ctx context.Context, b store.Bucket, limit string) error {
	if err := s.calls.Ready(ctx); err != nil {
		return err
	}
	ctx, cancel := s.calls.Within(ctx)
	defer cancel()
	return s.calls.ForgetCredits(ctx, b, limit)
}

// credit credits shard 0, and returns the amount that the credit was made with before, or 0.
func (b *bucket) credit(ctx context.Context, c *store.Credit) (before int64, err error) {
	done := b.credits()
	defer done()
	for {
		root := b.root()
		if err := b.s.calls.Timely(ctx, root.pk); err != nil {
			return 0, b.s.calls.Trouble("credit", root.describe(), err)
		}
		u := root.place().Credit(c.Limit, c.Amount, b.s.births.Add(1), b.s.now())
		plan.List(u, table.IndexPartition(b.key.Namespace, root.pk.PK), table.BucketSort(b.key))
		in := b.s.input(root.pk.Item(), u)
		before, failed, err := b.s.calls.Credit(ctx, c, &types.Update{
			TableName: in.TableName, Key: in.Key,
			ConditionExpression: in.ConditionExpression, UpdateExpression: in.UpdateExpression,
			ExpressionAttributeNames:  in.ExpressionAttributeNames,
			ExpressionAttributeValues: in.ExpressionAttributeValues,
		})
		if failed == nil {
			return before, err
		}
		it, bad := table.ParseItem(failed)
		if bad != nil {
			return 0, b.s.calls.Damaged(root.pk, bad)
		}
		l := it.Find(limitname.Of(store.Balance(c.Limit)))
		switch {
		case it.Frozen || it.Shards != root.place().N:
			if err := b.relayout(ctx, root, it); err != nil {
				return 0, b.s.calls.Trouble("credit", root.describe(), err)
			}
		case l != nil && l.Params != clock.Balance:
			return 0, &store.KindError{Bucket: b.key, Limit: c.Limit}
		case l != nil && l.Level < c.Amount-clock.MaxBurst:
			return 0, store.ErrOverflow
		}
	}
}

// credits makes the process repeat no refusal until the returned function is called, nor later what was seen until
// then; also if the credit's outcome is unknown.
func (b *bucket) credits() (done func()) {
	shards := b.all()
	each := func(change func(*plan.State)) {
		for _, sh := range shards {
			sh.queue.Lock()
			change(&sh.state)
			sh.queue.Unlock()
		}
	}
	each(func(s *plan.State) { s.Refused.Credits++ })
	return func() {
		each(func(s *plan.State) { s.Refused = plan.Refusals{Credits: s.Refused.Credits - 1, Credited: s.Sent} })
	}
}
