package redis

import (
	"context"
	"errors"

	"github.com/weirlimits/weir/store"
)

// settleApart settles once where the marker and the buckets lie on different nodes. It continues after the caller has
// given up: between the marker and the return, nobody else can finish it.
func (s *Store) settleApart(ctx context.Context, t store.Settle) (store.Outcome, error) {
	type answer struct {
		out store.Outcome
		err error
	}
	done := make(chan answer, 1)
	if !s.group.Go(func() {
		out, err := s.apart(context.WithoutCancel(ctx), t)
		done <- answer{out, err}
	}) {
		return store.Outcome{}, store.ErrClosed
	}
	select {
	case a := <-done:
		return a.out, a.err
	case <-ctx.Done():
		return store.Outcome{}, s.trouble("settle", t.ID, ctx.Err())
	}
}

// apart settles in steps: first the forced charges, then the marker, then the returns. A failure in between leaves
// tokens debited, never given: see ADR 0010.
func (s *Store) apart(ctx context.Context, t store.Settle) (out store.Outcome, err error) {
	forced, given, undo := split(t.Debits)
	if len(forced) > 0 {
		if out, err = s.settle(ctx, store.Settle{Debits: forced}); err != nil {
			return store.Outcome{}, err
		}
	}
	once, err := s.settle(ctx, store.Settle{ID: t.ID, Expires: t.Expires})
	if err != nil {
		if len(forced) > 0 && (errors.Is(err, store.ErrSettled) || errors.Is(err, store.ErrExpired)) {
			if _, failed := s.settle(ctx, store.Settle{Debits: undo}); failed != nil {
				return store.Outcome{}, errors.Join(err, failed)
			}
		}
		return store.Outcome{}, err
	}
	out.Allowed, out.At = true, once.At
	if len(given) > 0 {
		last, err := s.settle(ctx, store.Settle{Debits: given})
		if err != nil {
			return store.Outcome{}, err
		}
		out.At, out.Levels = last.At, append(out.Levels, last.Levels...)
	}
	return out, nil
}

// split separates the debits into forced charges and the rest, and returns the debits that undo the forced ones.
func split(debits []store.Debit) (forced, given, undo []store.Debit) {
	for _, d := range debits {
		more, less, back := d, d, d
		more.Charges, less.Charges, back.Charges = nil, nil, nil
		for _, c := range d.Charges {
			if c.Amount > 0 {
				more.Charges = append(more.Charges, c)
				c.Amount = -c.Amount
				back.Charges = append(back.Charges, c)
			} else {
				less.Charges = append(less.Charges, c)
			}
		}
		if len(more.Charges) > 0 {
			forced, undo = append(forced, more), append(undo, back)
		}
		if len(less.Charges) > 0 {
			given = append(given, less)
		}
	}
	return forced, given, undo
}

// sameNode returns an error if debits of several namespaces meet in a cluster, where their buckets lie on different
// nodes.
func (s *Store) sameNode(debits []store.Debit) error {
	for i := range debits {
		if s.cluster && debits[i].Bucket.Namespace != debits[0].Bucket.Namespace {
			return invalid("%s and %s lie on different nodes of a cluster", debits[0].Bucket, debits[i].Bucket)
		}
	}
	return nil
}
