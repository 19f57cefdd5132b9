package torture

import (
	"context"
	"errors"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// probe makes a few calls on one bucket directly at the store, which shows exact levels.
func (c *caller) probe(ctx context.Context) error {
	b := store.Bucket{Namespace: c.NamespaceID, Entity: ordered, Resource: resource(c.Round)}
	var (
		room [reckon.MaxLimits]int64 // as this caller last saw it: a call at the edge is worth ten at random
		owns [reckon.MaxLimits]int64 // what it took and may return: the level stays above the clock
	)
	for range c.Calls {
		rec := Record{Op: OpTake, Charges: []Charge{{Entity: ordered}}}
		ch := &rec.Charges[0]
		switch k := c.r.IntN(8); {
		case k == 0:
			rec.Op = OpLook
		case k <= 2 && (owns[0] > 0 || owns[1] > 0):
			rec.Op, ch.Force = OpAdjust, true
			for i, n := range owns {
				ch.Amounts[i] = -c.r.Int64N(n + 1)
				if c.r.IntN(4) == 0 {
					ch.Amounts[i] *= -1
				}
			}
		default:
			ch.Force = c.r.IntN(10) == 0
			for i, l := range orderLimits {
				ch.Amounts[i] = c.r.Int64N(l.Burst / 8)
				switch c.r.IntN(6) {
				case 0:
					ch.Amounts[i] = 0
				case 1, 2:
					ch.Amounts[i] = max(0, room[i]+c.r.Int64N(2))
				}
			}
		}
		done, err := c.call(ctx, rec, func(ctx context.Context, rec *Record) error { return c.ask(ctx, b, rec) })
		if err != nil {
			return err
		}
		if done.Result == Refused || !done.known() {
			continue
		}
		for i, lv := range done.Levels {
			room[i] = reckon.Room(orderLimits[i], lv, done.At)
		}
		if done.Op != OpLook {
			for i, n := range done.Charges[0].Amounts {
				owns[i] = max(0, owns[i]+n)
			}
		}
	}
	return nil
}

// ask makes the call that a record describes.
func (c *caller) ask(ctx context.Context, b store.Bucket, rec *Record) error {
	if rec.Op == OpLook {
		snap, err := c.store.Peek(ctx, b)
		if err != nil {
			return err
		}
		rec.At, rec.Result, rec.Levels = snap.At, Applied, levelsOf(snap.States[0])
		return nil
	}
	d := store.Debit{Bucket: b, Epoch: 1}
	for i, l := range orderLimits {
		d.Charges = append(d.Charges, store.Charge{
			Limit: l, Amount: rec.Charges[0].Amounts[i], Force: rec.Charges[0].Force && rec.Op == OpTake,
		})
	}
	if rec.Op == OpAdjust {
		out, err := c.store.Settle(ctx, store.Settle{Debits: []store.Debit{d}})
		rec.At, rec.Result = out.At, Applied
		return err
	}
	out, err := c.store.Take(ctx, store.Take{Debits: []store.Debit{d}})
	if err != nil {
		return err
	}
	rec.At, rec.Result = out.At, Refused
	if out.Allowed {
		rec.Result = Admitted
	}
	for _, l := range out.Levels {
		rec.Levels = append(rec.Levels, l.Level)
	}
	if len(rec.Levels) != len(orderLimits) {
		return errors.New("the answer to a take lacks the levels of its charges")
	}
	return nil
}

func levelsOf(st store.State) []int64 {
	levels := make([]int64, len(orderLimits))
	for i, l := range orderLimits {
		levels[i] = reckon.Never
		if s := reckon.Find(st, l); s != nil {
			levels[i] = s.Level
		}
	}
	return levels
}
