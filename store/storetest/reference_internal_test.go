package storetest

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// reference is the smallest store that passes the suite: one mutex over plain maps, with a bucket forgotten as soon as it
// is full. With a flaw, it must not pass.
type reference struct {
	*world0

	closed atomic.Bool
}

// world0 is the state that all clients of a reference share.
type world0 struct {
	flaw    string
	clock   func() time.Time
	mu      sync.Mutex
	latest  int64 // no time before it is used
	births  uint64
	returns int
	buckets map[any]*refBucket
	settled map[string]time.Time
	catalog refCatalog
}

type refBucket struct {
	key    store.Bucket
	id     uint64
	at     int64
	epoch  uint64
	inUse  map[string]bool
	meters []*store.LimitState
}

func newReference(clock func() time.Time, flaw string) *reference {
	return &reference{world0: &world0{
		flaw: flaw, clock: clock, latest: -1 << 63, buckets: map[any]*refBucket{}, settled: map[string]time.Time{},
		catalog: refCatalog{flaw: flaw, clock: clock, records: map[store.Key]store.Record{}, epochs: map[string]uint64{}},
	}}
}

func (s *reference) peer() *reference { return &reference{world0: s.world0} }

func (s *reference) has(flaw string) bool { return s.flaw == flaw }

func (s *reference) ready(ctx context.Context) error {
	if s.closed.Load() && !s.has("works after close") {
		return store.ErrClosed
	}
	if s.has("ignores contexts") {
		return nil
	}
	return ctx.Err()
}

func (s *reference) now() int64 {
	now := clock.Nanos(s.clock())
	if s.has("time runs backwards") {
		return now
	}
	s.latest = max(s.latest, now)
	return s.latest
}

func (s *reference) name(b store.Bucket) any {
	if s.has("ids run together") {
		return b.Namespace + "/" + b.Entity + "/" + b.Resource
	}
	return b
}

func params(l *store.Limit) clock.Params {
	return clock.Params{Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst}
}

// sweep forgets full buckets.
func (s *reference) sweep(now int64) {
	for k, b := range s.buckets {
		meters := b.meters
		if s.has("keeps for the first limit") {
			meters = meters[:min(1, len(meters))]
		}
		owes := slices.ContainsFunc(meters, func(m *store.LimitState) bool { return m.Level > params(m.Limit).Clock(now) })
		if !owes || s.has("forgets debtors") && now-b.at > int64(time.Minute) {
			delete(s.buckets, k)
		}
	}
}

// find returns a bucket, creating it if born is true.
func (s *reference) find(key store.Bucket, born bool, now int64) *refBucket {
	b := s.buckets[s.name(key)]
	if b == nil && born {
		if s.births++; s.has("ids of births repeat") {
			s.births = 1
		}
		b = &refBucket{key: key, id: s.births, at: now, inUse: map[string]bool{}}
		s.buckets[s.name(key)] = b
	}
	return b
}

func (s *reference) meter(b *refBucket, l *store.Limit) *store.LimitState {
	for _, m := range b.meters {
		if s.has("overrides by name") && m.Limit.Name == l.Name && m.Limit.Override == l.Override || reckon.Same(m.Limit, l) {
			return m
		}
	}
	return nil
}

// follow makes the bucket adopt the debit's limits. Without commit, it only reports whether that is allowed.
func (s *reference) follow(b *refBucket, d store.Debit, now int64) error {
	own, differs, overrides, held := 0, false, 0, 0
	for _, c := range d.Charges {
		m := s.meter(b, c.Limit)
		if c.Limit.Override {
			if m == nil {
				overrides++
			}
			continue
		}
		own++
		differs = differs || m == nil || *m.Limit != *c.Limit || !b.inUse[c.Limit.Name]
	}
	differs = own > 0 && (differs || own != len(b.inUse))
	if differs && len(b.inUse) > 0 && d.Epoch < b.epoch && !s.has("stale limits") {
		return store.ErrStaleLimits
	}
	if overrides > 0 {
		b.meters = slices.DeleteFunc(b.meters, func(m *store.LimitState) bool {
			return m.Limit.Override && m.Level <= params(m.Limit).Clock(now)
		})
		for _, m := range b.meters {
			if m.Limit.Override {
				held++
			}
		}
		if held+overrides > store.MaxOverrides && !s.has("any number of overrides") {
			return store.ErrTooManyOverrides
		}
	}
	if differs {
		if s.has("a removed limit is forgotten") {
			b.meters = slices.DeleteFunc(b.meters, func(m *store.LimitState) bool {
				return !slices.ContainsFunc(d.Charges, func(c store.Charge) bool { return reckon.Same(m.Limit, c.Limit) })
			})
		}
		b.epoch, b.inUse = d.Epoch, map[string]bool{}
	}
	for _, c := range d.Charges {
		m := s.meter(b, c.Limit)
		switch {
		case m == nil:
			b.meters = append(b.meters, &store.LimitState{Limit: c.Limit, Level: params(c.Limit).Clock(now)})
		case c.Limit.Override:
		case *m.Limit != *c.Limit:
			if m.Level = clock.Rebase(params(m.Limit), params(c.Limit), m.Level, now); s.has("a change forgives") {
				m.Level = params(c.Limit).Clock(now)
			}
			m.Limit = c.Limit
		}
		if differs && !c.Limit.Override {
			b.inUse[c.Limit.Name] = true
		}
	}
	return nil
}

func duplicate(debits []store.Debit) bool {
	seen := map[store.Bucket]bool{}
	for _, d := range debits {
		if seen[d.Bucket] {
			return true
		}
		seen[d.Bucket] = true
	}
	return false
}

func (s *reference) Take(ctx context.Context, t store.Take) (out store.Outcome, err error) {
	if err := s.ready(ctx); err != nil {
		return out, err
	}
	if duplicate(t.Debits) && !s.has("buckets twice") {
		return out, store.ErrDuplicateBucket
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.sweep(now)
	out = store.Outcome{Allowed: true, At: clock.Time(now)}
	found := make([]*refBucket, len(t.Debits))
	for i, d := range t.Debits {
		for _, c := range d.Charges {
			if c.Amount < 0 && !s.has("negative amounts") || c.Force && c.Shadow && !s.has("any shadow") {
				return store.Outcome{}, store.ErrInvalid
			}
		}
		found[i] = s.find(d.Bucket, true, now)
		if err := s.follow(found[i], d, now); err != nil {
			if s.has("half before an error") && i > 0 {
				s.apply(found[0], t.Debits[0], now)
			}
			return store.Outcome{}, err
		}
	}
	for i, d := range t.Debits {
		for _, c := range d.Charges {
			m := s.meter(found[i], c.Limit)
			p := params(m.Limit)
			lv := store.Level{Limit: m.Limit, Level: m.Level, Refused: !s.fits(p, c, m.Level, p.Clock(now))}
			if s.has("flags one refusal") && !out.Allowed {
				lv.Refused = false
			}
			out.Allowed = out.Allowed && (!lv.Refused || c.Shadow && !s.has("a shadow refuses"))
			out.Levels = append(out.Levels, lv)
		}
	}
	if s.has("looks before it leaps") {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	if out.Allowed {
		for i, d := range t.Debits {
			for _, c := range d.Charges {
				m := s.meter(found[i], c.Limit)
				if c.Shadow {
					continue // a shadow charge that does not fit is left out
				}
				if clock.Spend(m.Level, params(m.Limit).Clock(now), c.Amount) > clock.MaxLevel && !s.has("overflows") {
					return store.Outcome{}, store.ErrOverflow
				}
			}
		}
	}
	i := 0
	for j, d := range t.Debits {
		if out.Allowed || s.has("half a take") && j == 0 && len(t.Debits) > 1 {
			s.apply(found[j], d, now)
		}
		for _, c := range d.Charges {
			m := s.meter(found[j], c.Limit)
			if !out.Allowed && (c.Force && s.has("forces though refused") || c.Shadow && s.has("a shadow is charged though refused")) {
				m.Level = clock.Spend(m.Level, params(m.Limit).Clock(now), c.Amount)
			}
			if out.Levels[i].Level = m.Level; c.Shadow && out.Allowed && s.has("a shadow says nothing") {
				out.Levels[i].Refused = false
			}
			i++
		}
	}
	if s.has("sorts levels") {
		slices.SortStableFunc(out.Levels, func(a, b store.Level) int { return cmp.Compare(a.Limit.Name, b.Limit.Name) })
	}
	return out, nil
}

func (s *reference) fits(p clock.Params, c store.Charge, level, reading int64) bool {
	switch {
	case c.Force && !s.has("force asks"), c.Amount == 0 && s.has("nothing is free in debt"):
		return true
	case s.has("a millitoken too many"):
		return p.Fits(level, reading, max(0, c.Amount-1))
	case s.has("a millitoken too few") && c.Amount > 0:
		return p.Fits(level, reading, c.Amount+1)
	}
	return p.Fits(level, reading, c.Amount)
}

func (s *reference) apply(b *refBucket, d store.Debit, now int64) {
	b.at = now
	for _, c := range d.Charges {
		m := s.meter(b, c.Limit)
		p := params(m.Limit)
		if c.Shadow && !s.has("a shadow is forced") && (!s.fits(p, c, m.Level, p.Clock(now)) || s.has("a shadow counts nothing")) {
			continue
		}
		m.Level = clock.Spend(m.Level, p.Clock(now), c.Amount)
		m.Debited += c.Amount
		if s.has("idling is credited twice") {
			m.Level = min(m.Level, params(m.Limit).Clock(now)) + c.Amount
		}
	}
}

func (s *reference) Settle(ctx context.Context, st store.Settle) (out store.Outcome, err error) {
	if err := s.ready(ctx); err != nil {
		return out, err
	}
	if duplicate(st.Debits) {
		return out, store.ErrDuplicateBucket
	}
	for _, d := range st.Debits {
		if slices.ContainsFunc(d.Charges, func(c store.Charge) bool { return c.Shadow }) && !s.has("any shadow") {
			return out, store.ErrInvalid
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.sweep(now)
	out = store.Outcome{Allowed: true, At: clock.Time(now)}
	if st.ID != "" && out.At.After(st.Expires) && !s.has("never expires") {
		return store.Outcome{}, store.ErrExpired
	}
	if _, ok := s.settled[st.ID]; ok && !s.has("settles again") {
		return store.Outcome{}, store.ErrSettled
	}
	if s.has("looks before it settles") {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	for _, d := range st.Debits {
		for _, c := range d.Charges {
			level := int64(0)
			if b := s.find(d.Bucket, false, now); b != nil && s.meter(b, c.Limit) != nil {
				level = s.meter(b, c.Limit).Level
			}
			if c.Amount > 0 && clock.Spend(level, params(c.Limit).Clock(now), c.Amount) > clock.MaxLevel {
				return store.Outcome{}, store.ErrOverflow
			}
		}
	}
	if st.ID != "" {
		s.settled[st.ID] = st.Expires
	}
	for _, d := range st.Debits {
		for _, c := range d.Charges {
			if m := s.settle(d, c, now); m != nil {
				out.Levels = append(out.Levels, store.Level{Limit: m.Limit, Level: m.Level})
			}
		}
	}
	return out, nil
}

func (s *reference) settle(d store.Debit, c store.Charge, now int64) *store.LimitState {
	b := s.find(d.Bucket, c.Amount > 0 || s.has("a return makes a bucket"), now)
	if b == nil {
		return nil
	}
	b.at = now
	m := s.meter(b, c.Limit)
	if m == nil {
		if c.Amount <= 0 {
			return nil
		}
		m = &store.LimitState{Limit: c.Limit, Level: params(c.Limit).Clock(now)}
		b.meters = append(b.meters, m)
	}
	if s.has("a settle changes limits") {
		m.Limit = c.Limit
	}
	switch reading := params(m.Limit).Clock(now); {
	case c.Amount > 0:
		m.Level = clock.Spend(m.Level, reading, c.Amount)
		m.Debited += c.Amount
	case s.has("loses a return") && c.Amount < 0 && s.returns%2 == 0:
		s.returns++
	default:
		s.returns++
		m.Level = clock.Credit(m.Level, -c.Amount)
		if s.has("gives back more than there was") && m.Level < reading {
			m.Limit = &store.Limit{Name: m.Limit.Name, Amount: m.Limit.Amount, Period: m.Limit.Period, Burst: m.Limit.Burst + reading - m.Level, Override: m.Limit.Override}
		}
		if m.Returned -= c.Amount; s.has("counts net") {
			m.Returned += c.Amount
			m.Debited += c.Amount
		}
	}
	return m
}

func (s *reference) Peek(ctx context.Context, keys ...store.Bucket) (snap store.Snapshot, err error) {
	if err := s.ready(ctx); err != nil {
		return snap, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	snap.At = clock.Time(s.now())
	for _, k := range keys {
		st := store.State{Bucket: k}
		if b := s.find(k, s.has("a look makes a bucket"), s.latest); b != nil {
			st = s.state(b)
		}
		snap.States = append(snap.States, st)
	}
	return snap, nil
}

func (s *reference) state(b *refBucket) store.State {
	st := store.State{Bucket: b.key, ID: b.id, At: clock.Time(b.at), Epoch: b.epoch}
	for _, m := range b.meters {
		if s.has("a look rounds down") {
			m.Level -= m.Level % 1000
		}
		st.Limits = append(st.Limits, *m)
	}
	return st
}

func (s *reference) Buckets(ctx context.Context, q store.BucketQuery) (page store.BucketPage, err error) {
	if err := s.ready(ctx); err != nil {
		return page, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	page.At = clock.Time(s.now())
	var all []*refBucket
	for _, b := range s.buckets {
		if b.key.Namespace == q.Namespace && (q.Entity == "" || q.Entity == b.key.Entity) && (q.Resource == "" || q.Resource == b.key.Resource) {
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b *refBucket) int {
		return func(a, b store.Bucket) int {
			return cmp.Or(cmp.Compare(a.Entity, b.Entity), cmp.Compare(a.Resource, b.Resource))
		}(a.key, b.key)
	})
	after, err := decode(q.After, fmt.Sprintf("%q", q.Namespace))
	if err != nil {
		return page, err
	}
	for _, b := range all {
		pos := [2]string{b.key.Entity, b.key.Resource}
		if q.After != "" && slices.Compare(pos[:], after[:]) <= 0 {
			continue
		}
		if len(page.States) == store.PageSize(q.Max) {
			last := page.States[len(page.States)-1].Bucket
			page.Next = encode(fmt.Sprintf("%q", q.Namespace), last.Entity, last.Resource)
			break
		}
		page.States = append(page.States, s.state(b))
	}
	return page, nil
}

func (s *reference) Forget(ctx context.Context, keys ...store.Bucket) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		if !s.has("forgets nothing") {
			delete(s.buckets, s.name(k))
		}
	}
	return nil
}

func (s *reference) Close() error {
	s.closed.Store(true)
	return nil
}
