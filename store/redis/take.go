package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// levelSize is the length in bytes of a level in an answer.
const levelSize = 9

// Take implements [store.Store]. One script decides all buckets and limits; concurrent takes share one run of it.
func (s *Store) Take(ctx context.Context, take store.Take) (store.Outcome, error) {
	if err := s.ready(ctx); err != nil {
		return store.Outcome{}, err
	}
	if err := take.Check(); err != nil {
		return store.Outcome{}, err
	}
	if err := s.sameNode(take.Debits); err != nil {
		return store.Outcome{}, err
	}
	r := s.waiter()
	var on *queue
	for i := range take.Debits {
		p, err := s.at(&take.Debits[i])
		if err != nil {
			return store.Outcome{}, err
		}
		r.add(p, &take.Debits[i])
		on = p.queue
	}
	raw, err := s.decide(ctx, on, r)
	if err != nil {
		return store.Outcome{}, s.trouble("take", take.Debits[0].Bucket.String(), err)
	}
	return s.outcome(&take, raw)
}

// outcome decodes the script's answer to a take: see waiter.size.
func (s *Store) outcome(take *store.Take, raw string) (out store.Outcome, err error) {
	if raw[0] == 'E' {
		return out, s.trouble("take", take.Debits[0].Bucket.String(), replyError(raw[3:]))
	}
	if err := refusal(raw); err != nil {
		return out, err
	}
	if len(raw) < 9 {
		return out, s.trouble("take", take.Debits[0].Bucket.String(), errFormat)
	}
	out.Allowed, out.At = raw[0] == 'A', clock.Time(read64(raw[1:]))
	rest := raw[9:]
	out.Levels = make([]store.Level, 0, len(rest)/levelSize)
	for i := range take.Debits {
		for j := range take.Debits[i].Charges {
			out.Levels = append(out.Levels, store.Level{
				Limit: take.Debits[i].Charges[j].Limit, Level: read64(rest), Refused: rest[8] == 1,
			})
			rest = rest[levelSize:]
		}
	}
	return out, nil
}

// refusal returns the error for a script's one-letter answer.
func refusal(raw string) error {
	switch raw {
	case "S":
		return store.ErrStaleLimits
	case "O":
		return store.ErrTooManyOverrides
	case "F":
		return store.ErrOverflow
	case "X":
		return store.ErrExpired
	case "E":
		return store.ErrSettled
	}
	return nil
}

// Settle implements [store.Store]. One script applies it and writes the marker of its ID, in one step. In a cluster the
// marker lies on another node than the buckets: see settleApart.
func (s *Store) Settle(ctx context.Context, t store.Settle) (store.Outcome, error) {
	if err := s.ready(ctx); err != nil {
		return store.Outcome{}, err
	}
	if err := t.Check(); err != nil {
		return store.Outcome{}, err
	}
	if err := s.sameNode(t.Debits); err != nil {
		return store.Outcome{}, err
	}
	if s.cluster && t.ID != "" && len(t.Debits) > 0 {
		return s.settleApart(ctx, t)
	}
	return s.settle(ctx, t)
}

func (s *Store) settle(ctx context.Context, t store.Settle) (out store.Outcome, err error) {
	n := len(t.Debits)
	keys, args := make([]string, 0, n+1), make([]string, 0, 3+2*n)
	ends, about := "", ""
	if t.ID != "" {
		ends, about = string(pair(nil, clock.Nanos(t.Expires))), t.ID
	}
	args = append(args, s.now(), s.margin(), ends)
	for i := range t.Debits {
		if keys, args, err = s.debit(keys, args, &t.Debits[i]); err != nil {
			return out, err
		}
		about = t.Debits[0].Bucket.String()
	}
	if t.ID != "" {
		keys = append(keys, s.keys.marker(t.ID))
	}
	got, err := s.run(ctx, settleScript, keys, args).AsStrSlice()
	if err != nil {
		return out, s.trouble("settle", about, err)
	}
	if len(got) > 0 {
		if err := refusal(got[0]); err != nil {
			return out, err
		}
	}
	if len(got) != n+1 || !strings.HasPrefix(got[0], "A") || len(got[0]) != 9 {
		return out, s.trouble("settle", about, errFormat)
	}
	out.Allowed, out.At = true, clock.Time(read64(got[0][1:]))
	for i, raw := range got[1:] {
		if raw == "" {
			continue
		}
		st, err := parseBucket(t.Debits[i].Bucket, raw)
		if err != nil {
			return store.Outcome{}, s.trouble("settle", about, err)
		}
		for j := range t.Debits[i].Charges {
			if has := find(&st, t.Debits[i].Charges[j].Limit); has != nil {
				out.Levels = append(out.Levels, store.Level{Limit: has.Limit, Level: has.Level})
			}
		}
	}
	return out, nil
}

// at returns the place of a debit's bucket, with the debit's limits.
func (s *Store) at(d *store.Debit) (p place, err error) {
	if err := checkBucket(d.Bucket); err != nil {
		return p, err
	}
	p.key, p.base = s.keys.bucket(d.Bucket)
	p.queue, p.limits = s.queue(d.Bucket.Namespace), len(d.Charges)
	text := make([]byte, 0, len(d.Charges)*(limitSize+16))
	for i := range d.Charges {
		if text, err = appendLimit(text, d.Charges[i].Limit); err != nil {
			return p, err
		}
	}
	p.text = string(text)
	return p, nil
}

// debit appends the arguments of a settle for one debit: its limits and its charges.
func (s *Store) debit(keys, args []string, d *store.Debit) ([]string, []string, error) {
	p, err := s.at(d)
	if err != nil {
		return keys, args, err
	}
	buf := make([]byte, 0, 18+9*len(d.Charges))
	buf = binary.BigEndian.AppendUint64(buf, d.Epoch)
	buf = binary.BigEndian.AppendUint64(buf, birth())
	buf = binary.BigEndian.AppendUint16(buf, uint16(p.base))
	buf = appendCharges(buf, d.Charges)
	return append(keys, p.key), append(args, p.text, string(buf)), nil
}

// birth returns an ID for a bucket that a call may have to create.
func birth() uint64 { return rand.Uint64() | 1 }

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
