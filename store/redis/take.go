package redis

import (
	"context"
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
