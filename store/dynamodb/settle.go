package dynamodb

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// Settle implements [store.Store]. With an ID, forced debits are written first, then a record that can be created only
// once, then the returns. A crash in between leaves tokens spent, and a second call with the same ID takes back what it
// forced.
func (s *Store) Settle(ctx context.Context, t store.Settle) (store.Outcome, error) {
	if err := s.ready(ctx); err != nil {
		return store.Outcome{}, err
	}
	if err := t.Check(); err != nil {
		return store.Outcome{}, err
	}
	rounds, err := s.rounds(ctx, &t)
	if err != nil {
		return store.Outcome{}, err
	}
	now := s.align(rounds)
	if t.ID != "" {
		now, err = s.settleOnce(ctx, &t, rounds, now)
	} else {
		now, err = s.settle(ctx, rounds, now)
	}
	out := store.Outcome{Allowed: true, At: clock.Time(now)}
	if err != nil {
		return out, err
	}
	for i := range t.Debits {
		out.Levels = s.settled(out.Levels, &t.Debits[i], rounds, now)
	}
	return out, nil
}

// settleOnce makes two rounds, one of forced debits and one of returns, and claims the settle's ID in between.
func (s *Store) settleOnce(ctx context.Context, t *store.Settle, rounds [][]placed, now int64) (int64, error) {
	if !s.clock().Before(t.Expires) {
		return now, store.ErrExpired
	}
	now, err := s.settle(ctx, rounds[:1], now)
	if err != nil {
		return now, err
	}
	return s.finish(ctx, table.MarkerKey(t.ID), now, func(ctx context.Context) (int64, error) {
		if err := s.calls.PutMarker(ctx, t.ID, t.Expires.Add(24*time.Hour)); err != nil {
			if errors.Is(err, store.ErrSettled) {
				var back []placed
				for _, p := range rounds[0] {
					if !p.j.moved {
						back = append(back, placed{sh: p.sh, j: s.returning(p.j)})
					}
				}
				_, undone := s.settle(ctx, [][]placed{back}, now)
				err = errors.Join(err, undone)
			}
			return now, err
		}
		return s.settle(ctx, rounds[1:], now)
	})
}

// finish runs f to its end even if the caller leaves earlier: once the ID is claimed, no other call can finish the
// settle.
func (s *Store) finish(
	ctx context.Context, id table.Key, now int64, f func(context.Context) (int64, error),
) (int64, error) {
	type result struct {
		now int64
		err error
	}
	done := make(chan result, 1)
	begun := s.background(func() {
		now, err := f(context.WithoutCancel(ctx))
		done <- result{now, err}
	})
	if !begun {
		return now, store.ErrClosed
	}
	select {
	case r := <-done:
		return r.now, r.err
	case <-ctx.Done():
		return now, s.calls.Trouble("settle", id.String(), ctx.Err())
	}
}

// settle makes rounds of writes, one after another, and returns the latest time of all of them.
func (s *Store) settle(ctx context.Context, rounds [][]placed, now int64) (int64, error) {
	var errs []error
	for i := range rounds {
		for begun := 0; begun < len(rounds[i]); {
			part := rounds[i][begun:]
			begun = len(rounds[i])
			for _, p := range part {
				p.send()
			}
			for k := range part {
				p := &part[k]
				err := p.await(ctx)
				if err == nil && !p.j.moved {
					now = max(now, p.j.at)
				} else if err == nil {
					if err = errors.Join(p.sh.m.relayout(ctx, p), p.sh.m.look(ctx)); err == nil {
						rounds[i] = append(rounds[i], p.sh.m.placeSettle(p.j.only(anyAmount))...)
					}
				}
				errs = append(errs, err)
			}
		}
	}
	return now, errors.Join(errs...)
}

func anyAmount(int64) bool { return true }

// align makes all shards of a settle judge at the same time, and returns that time.
func (s *Store) align(rounds [][]placed) int64 {
	now := s.now()
	for range 2 {
		for _, round := range rounds {
			for _, p := range round {
				now = max(now, p.sh.raise(now))
			}
		}
	}
	return now
}

// rounds places a settle's jobs on shards. With an ID, the first round holds the forced debits, the second the returns.
func (s *Store) rounds(ctx context.Context, t *store.Settle) (rounds [][]placed, err error) {
	if t.ID != "" {
		rounds = append(rounds, nil, nil)
	}
	for i := range t.Debits {
		d := &t.Debits[i]
		m := s.recall(d.Bucket)
		if len(m.all()) > 1 {
			if err := m.look(ctx); err != nil {
				return nil, err
			}
		}
		if t.ID != "" {
			j, err := m.settling(d, d.Charges)
			if err != nil {
				return nil, err
			}
			rounds[0] = append(rounds[0], m.placeSettle(j.only(positive))...)
			rounds[1] = append(rounds[1], m.placeSettle(j.only(negative))...)
			continue
		}
		for n, charges := range steps(d.Charges) {
			j, err := m.settling(d, charges)
			if err != nil {
				return nil, err
			}
			if n == len(rounds) {
				rounds = append(rounds, nil)
			}
			rounds[n] = append(rounds[n], m.placeSettle(j)...)
		}
	}
	return rounds, nil
}

// steps divides charges into steps. Forced debits and returns share a step, except that forcing a limit after a return
// to it starts a new step, so that the forced debit finds what the return left.
func steps(charges []store.Charge) (steps [][]store.Charge) {
	begin := 0
	for n := range charges {
		returned := func(c store.Charge) bool {
			return c.Amount < 0 && limitName(c.Limit) == limitName(charges[n].Limit)
		}
		if charges[n].Amount > 0 && slices.ContainsFunc(charges[begin:n], returned) {
			steps, begin = append(steps, charges[begin:n]), n
		}
	}
	return append(steps, charges[begin:])
}

func (m *memory) settling(d *store.Debit, charges []store.Charge) (*job, error) {
	v, err := m.view(charges)
	if err != nil {
		return nil, err
	}
	j := m.s.newJob(settle, v, d.Epoch)
	for i := range charges {
		j.amounts[i] = charges[i].Amount
	}
	return j, nil
}

// only returns a copy of a settle with some of its amounts.
func (j *job) only(some func(int64) bool) *job {
	c := new(job).init(settle, j.v, j.epoch)
	for i, a := range j.amounts {
		if some(a) {
			c.amounts[i] = a
		}
	}
	return c
}

// placeSettle places a settle: on shard 0, unless the bucket is split.
func (m *memory) placeSettle(j *job) []placed {
	switch {
	case j.nothing():
		return nil
	case len(m.all()) == 1:
		return []placed{{sh: m.root(), j: j}}
	}
	var jobs []placed
	if up := j.only(positive); !up.nothing() {
		jobs = m.placeForced(up)
	}
	if down := j.only(negative); !down.nothing() {
		jobs = append(jobs, m.placeReturn(down)...)
	}
	return jobs
}

// settled appends the levels of those of a debit's limits that the bucket has.
func (s *Store) settled(levels []store.Level, d *store.Debit, rounds [][]placed, now int64) []store.Level {
	m := s.recall(d.Bucket)
	shards := m.all()
	items := make([]*item, len(shards))
	last := make([]*job, len(shards)) // the job that each shard answered last
	for k, sh := range shards {
		items[k] = missing
		for _, round := range rounds {
			for _, p := range round {
				if p.sh == sh && p.j.item != nil && !p.j.moved {
					items[k], last[k] = p.j.item, p.j
				}
			}
		}
		if last[k] == nil {
			sh.lane.Lock()
			if sh.seen != nil {
				items[k] = sh.seen
			}
			sh.lane.Unlock()
		}
	}
	st := combine(d.Bucket, items, now)
	for i := range d.Charges {
		name := limitName(d.Charges[i].Limit)
		for _, l := range st.Limits {
			if limitName(l.Limit) != name {
				continue
			}
			if last[0] != nil && len(shards) == 1 {
				if level, ok := last[0].level(name); ok {
					l.Level = level
				}
			}
			levels = append(levels, store.Level{Limit: l.Limit, Level: l.Level})
		}
	}
	return levels
}
