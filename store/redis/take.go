package redis

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/steps"
	"github.com/weirlimits/weir/store/redis/internal/layout"
	"github.com/weirlimits/weir/store/redis/internal/script"
	"github.com/weirlimits/weir/store/redis/internal/settings"
)

// Take implements [store.Store]. One script decides all buckets and limits; concurrent takes share one run of it.
func (s *Store) Take(ctx context.Context, take store.Take) (store.Outcome, error) {
	if err := s.ready(ctx); err != nil {
		return store.Outcome{}, err
	}
	if err := take.Check(); err != nil {
		return store.Outcome{}, err
	}
	if err := s.guard.check(); err != nil {
		return store.Outcome{}, err
	}
	if err := s.sameNode(take.Debits); err != nil {
		return store.Outcome{}, err
	}
	raw, err := s.hand.reckon(ctx, s.cfg.CallTimeout, func(ctx context.Context, m *moment) (string, error) {
		r := s.waiter()
		var on *queue
		for i := range take.Debits {
			p, err := s.at(&take.Debits[i], m)
			if err != nil {
				return "", err
			}
			r.add(p, &take.Debits[i])
			on = p.queue
		}
		r.slots = copyOf(&take)
		r.others = m.others()
		raw, err := s.decide(ctx, on, r)
		if err != nil {
			err = s.trouble("take", take.Debits[0].Bucket.String(), err)
		}
		return raw, err
	})
	if err != nil {
		return store.Outcome{}, err
	}
	return s.outcome(&take, raw)
}

// outcome decodes the script's answer to a take: see waiter.size.
func (s *Store) outcome(take *store.Take, raw string) (out store.Outcome, err error) {
	if raw[0] == 'E' {
		return out, s.trouble("take", take.Debits[0].Bucket.String(), settings.ReplyError(raw[3:]))
	}
	if raw[0] == 'K' && len(raw) >= 5 {
		b := take.Debits[layout.Read16(raw[3:])].Bucket
		return out, &store.KindError{Bucket: b, Limit: raw[5:], Held: true}
	}
	if err := refusal(raw); err != nil {
		return out, err
	}
	if len(raw) < 9 {
		return out, s.trouble("take", take.Debits[0].Bucket.String(), layout.ErrFormat)
	}
	out.Allowed, out.At = raw[0] == 'A', clock.Time(layout.Read64(raw[1:]))
	if raw[0] == 'P' {
		return store.Outcome{}, &store.PhaseError{At: out.At}
	}
	rest, n := raw[9:], 0
	for i := range take.Debits {
		n += len(take.Debits[i].Charges)
	}
	out.Levels = make([]store.Level, 0, n)
	for i := range take.Debits {
		charges := take.Debits[i].Charges
		out.Levels = layout.TakeLevels(out.Levels, charges, rest, clock.Nanos(out.At))
		rest = rest[layout.LevelsSize(charges):]
	}
	return out, nil
}

// copyOf returns a copy of a take that may take slots, and otherwise nil.
func copyOf(take *store.Take) *store.Take {
	if store.RefuseSlots(take.Debits) == nil {
		return nil
	}
	debits := slices.Clone(take.Debits)
	for i := range debits {
		charges := slices.Clone(debits[i].Charges)
		for j := range charges {
			l := *charges[j].Limit
			charges[j].Limit = &l
		}
		debits[i].Charges = charges
	}
	return &store.Take{Debits: debits}
}

// giveBack gives back the slots of a take whose caller has left. If that fails, they heal.
func (s *Store) giveBack(take *store.Take, answer string) {
	out, err := s.outcome(take, answer)
	if err != nil {
		return
	}
	if back := store.GiveBack(take.Debits, out.Levels); len(back) > 0 {
		_, _ = s.settle(context.Background(), store.Settle{Debits: back})
	}
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
	case "L":
		return store.TooManyFormer(store.MaxFormer + 1)
	case "X":
		return store.ErrExpired
	case "E":
		return store.ErrSettled
	}
	return nil
}

// Settle implements [store.Store]. One script applies it and writes the marker of its ID, in one step; concurrent
// settles share one run of it. In a cluster the marker lies on another node than the buckets: see settleApart.
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
	namespace := registry
	if len(t.Debits) > 0 {
		namespace = t.Debits[0].Bucket.Namespace
	}
	var got []string
	_, err = s.hand.reckon(ctx, s.cfg.CallTimeout, func(ctx context.Context, m *moment) (first string, err error) {
		r, err := s.settling(&t, m)
		if err != nil {
			return "", err
		}
		if err = await(ctx, s.cfg.CallTimeout, s.lanes(namespace).settles, r); err == nil {
			got, err = r.got, r.err
		}
		if err != nil {
			return "", s.trouble("settle", about(&t), err)
		}
		return got[0], nil
	})
	if err != nil {
		return out, err
	}
	return s.settled(&t, got)
}

// settled decodes the script's answer to a settle: see settle.lua.
func (s *Store) settled(t *store.Settle, got []string) (out store.Outcome, err error) {
	n, about := len(t.Debits), about(t)
	if err := refusal(got[0]); err != nil {
		return out, err
	}
	if why, ok := strings.CutPrefix(got[0], "T"); ok {
		return out, s.trouble("settle", about, settings.ReplyError(why))
	}
	quick := len(got[0]) >= 9 && got[0][0] == 'Q'
	if !quick && (len(got) != 2*n+1 || len(got[0]) != 9) {
		return out, s.trouble("settle", about, layout.ErrFormat)
	}
	now := layout.Read64(got[0][1:])
	out.Allowed, out.At = true, clock.Time(now)
	if quick {
		if out.Levels, err = layout.QuickLevels(t.Debits, got[0][9:], now); err != nil {
			return store.Outcome{}, s.trouble("settle", about, err)
		}
		return out, nil
	}
	for i, raw := range got[1 : n+1] {
		d := &t.Debits[i]
		var st store.State
		if raw != "" {
			if st, err = layout.ParseBucket(d.Bucket, raw, now); err != nil {
				return store.Outcome{}, s.trouble("settle", about, err)
			}
		}
		out.Levels = layout.SettleLevels(out.Levels, d.Charges, &st, got[n+1+i], now)
	}
	return out, nil
}

// about names what a settle is about.
func about(t *store.Settle) string {
	if len(t.Debits) > 0 {
		return t.Debits[0].Bucket.String()
	}
	return t.ID
}

// settleApart settles once where the marker and the buckets lie on different nodes. It continues after the caller has
// given up: between the marker and the return, nobody else can finish it.
func (s *Store) settleApart(ctx context.Context, t store.Settle) (store.Outcome, error) {
	type answer struct {
		out store.Outcome
		err error
	}
	done := make(chan answer, 1)
	if !s.group.Go(func() {
		out, err := steps.Once(context.WithoutCancel(ctx), t, s.settle)
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

// settling returns a settle for the queue.
func (s *Store) settling(t *store.Settle, m *moment) (*settling, error) {
	n := len(t.Debits)
	r := &settling{
		keys: make([]string, 0, n+1), limits: make([]string, 0, n), debits: make([][]byte, 0, n), others: m.others(),
	}
	for i := range t.Debits {
		d := &t.Debits[i]
		p, err := s.at(d, m)
		if err != nil {
			return nil, err
		}
		buf := make([]byte, 0, 18+25*len(d.Charges))
		buf = binary.BigEndian.AppendUint64(buf, d.Epoch)
		buf = binary.BigEndian.AppendUint64(buf, birth())
		buf = binary.BigEndian.AppendUint16(buf, uint16(p.base))
		r.keys, r.limits = append(r.keys, p.key), append(r.limits, p.text)
		r.debits = append(r.debits, layout.AppendSettled(buf, t, d.Charges))
	}
	if t.ID == "" {
		r.head = binary.BigEndian.AppendUint16(nil, uint16(n))
		return r, nil
	}
	r.keys = append(r.keys, s.keys.marker(t.ID))
	r.head = layout.Pair(binary.BigEndian.AppendUint16(nil, 1<<15|uint16(n)), clock.Nanos(t.Expires))
	return r, nil
}

// at returns the place of a debit's bucket, with the debit's limits.
func (s *Store) at(d *store.Debit, m *moment) (p place, err error) {
	if err := checkBucket(d.Bucket); err != nil {
		return p, err
	}
	p.key, p.base = s.keys.bucket(d.Bucket)
	p.queue, p.limits = s.lanes(d.Bucket.Namespace).takes, len(d.Charges)
	p.levels = layout.LevelsSize(d.Charges)
	var room [256]byte
	text := room[:0]
	for i := range d.Charges {
		l := d.Charges[i].Limit
		if bad := l.Params().Check(); bad != nil {
			return p, invalid("limit %q: %s %s", l.Name, bad.Field, bad.Reason)
		}
		if l.Override && (l.IsBalance() || l.IsSlots()) {
			return p, invalid("limit %q: a request cannot bring a balance or slots", l.Name)
		}
		text = layout.AppendLimit(text, l, m.now)
	}
	p.text = string(text)
	return p, nil
}

// birth returns an ID for a bucket that a call may have to create.
func birth() uint64 { return rand.Uint64() | 1 }

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

// ForgetCredits implements [store.Store].
func (s *Store) ForgetCredits(ctx context.Context, b store.Bucket, limit string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	key := s.keys.credits(b, limit)
	if _, err := call(ctx, &s.server, script.Credits, []string{key}, nil, asMessage); err != nil {
		return s.trouble("forget", key, err)
	}
	return nil
}

// Credit implements [store.Store], in one script: the credit's ID lies in the slot of the bucket. It is as durable as
// the server's other data: what a crash takes back, it takes back together with the ID, so that the same call repeated
// applies again.
func (s *Store) Credit(ctx context.Context, c store.Credit) (out store.Credited, err error) {
	if err := s.ready(ctx); err != nil {
		return out, err
	}
	if err := c.Check(); err != nil {
		return out, err
	}
	if err := checkBucket(c.Bucket); err != nil {
		return out, err
	}
	if err := s.guard.check(); err != nil {
		return out, err
	}
	key, base := s.keys.bucket(c.Bucket)
	limit := string(layout.AppendLimit(nil, store.Balance(c.Limit), 0))
	raw, err := call(ctx, &s.server, script.Credit, []string{key, s.keys.credits(c.Bucket, c.Limit)}, []string{
		s.now(), limit, c.ID, string(layout.Pair(nil, c.Amount)), string(layout.Pair(nil, int64(birth()))),
		strconv.Itoa(base),
	}, asString)
	if err != nil {
		return out, s.trouble("credit", c.Bucket.String(), err)
	}
	switch {
	case raw == "K":
		return out, &store.KindError{Bucket: c.Bucket, Limit: c.Limit}
	case len(raw) == 9 && raw[0] == 'D':
		return out, &store.CreditError{ID: c.ID, Have: layout.Read64(raw[1:]), Want: c.Amount}
	case len(raw) == 17:
		return store.Credited{
			At: clock.Time(layout.Read64(raw[1:])), Level: layout.Read64(raw[9:]), Before: raw[0] == 'B',
		}, nil
	}
	if err := refusal(raw); err != nil {
		return out, err
	}
	return out, s.trouble("credit", c.Bucket.String(), layout.ErrFormat)
}
