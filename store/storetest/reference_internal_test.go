package storetest

import (
	"cmp"
	"context"
	"errors"
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

	closed  atomic.Bool
	trouble atomic.Int64 // for a flaw: how many calls are still to fail
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
	credits map[creditOf]int64
	hot     atomic.Pointer[store.Bucket] // fails
	cut     atomic.Pointer[refCut]
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
		flaw: flaw, clock: clock, latest: -1 << 63, buckets: map[any]*refBucket{}, settled: map[string]time.Time{}, credits: map[creditOf]int64{},
		catalog: refCatalog{flaw: flaw, clock: clock, records: map[store.Key]store.Record{}, epochs: map[string]uint64{}},
	}}
}

// refCut makes one of the calls fail.
type refCut struct {
	left, calls int
	made        bool
}

// cutting returns what a call fails with, before it is made or after.
func (s *reference) cutting() (before, after error) {
	c := s.cut.Load()
	if c == nil {
		return nil, nil
	}
	failed := &store.Error{Op: "call", Err: errors.New("no answer")}
	c.calls++
	if c.left--; c.left != -1 {
		return nil, nil
	}
	if c.made {
		return nil, failed
	}
	return failed, nil
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

// sweep forgets full buckets.
func (s *reference) sweep(now int64) {
	for k, b := range s.buckets {
		meters := b.meters
		if s.has("keeps for the first limit") {
			meters = meters[:min(1, len(meters))]
		}
		owes := slices.ContainsFunc(meters, func(m *store.LimitState) bool { return !full(m, now) })
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
	from, until := d.Phase.Bounds()
	if differs && (now < from || len(b.inUse) > 0 && now >= until) && !s.has("former limits return") {
		return &store.PhaseError{At: clock.Time(now)}
	}
	if differs && len(b.inUse) > 0 && d.Epoch < b.epoch && !s.has("stale limits") {
		return store.ErrStaleLimits
	}
	for _, c := range d.Charges {
		m := s.meter(b, c.Limit)
		if c.Limit.IsBalance() && c.Limit.Override {
			return store.ErrInvalid
		}
		if m != nil && m.Limit.IsBalance() && m.Level != 0 && !c.Limit.IsBalance() && !s.has("a balance becomes a rate") {
			return &store.KindError{Bucket: d.Bucket, Limit: c.Limit.Name, Held: true}
		}
	}
	if overrides > 0 {
		b.meters = slices.DeleteFunc(b.meters, func(m *store.LimitState) bool {
			return m.Limit.Override && full(m, now)
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
		if err := b.tidy(d, now); err != nil {
			return err
		}
		b.epoch, b.inUse = d.Epoch, map[string]bool{}
	}
	for _, c := range d.Charges {
		m := s.meter(b, c.Limit)
		switch {
		case m == nil:
			b.meters = append(b.meters, &store.LimitState{Limit: c.Limit, Level: c.Limit.Params().Fresh(now)})
		case c.Limit.Override:
		case *m.Limit != *c.Limit:
			was, before := m.Limit.Params(), m.Level
			if m.Level = clock.Rebase(was, c.Limit.Params(), before, now); s.has("a change forgives") {
				m.Level = c.Limit.Params().Clock(now)
			} else if s.has("a boost costs months") {
				m.Level += max(0, clock.Outstanding(before, was.Clock(now))-clock.Outstanding(m.Level, c.Limit.Params().Clock(now)))
			}
			m.Limit = c.Limit
		}
		if differs && !c.Limit.Override {
			b.inUse[c.Limit.Name] = true
		}
	}
	return nil
}

// tidy forgets limits that a debit's do not keep in force, once there are too many.
func (b *refBucket) tidy(d store.Debit, now int64) error {
	former := func(m *store.LimitState) bool {
		return !m.Limit.Override && !slices.ContainsFunc(d.Charges, func(c store.Charge) bool { return reckon.Same(m.Limit, c.Limit) })
	}
	count := func() (n int) {
		for _, m := range b.meters {
			if former(m) {
				n++
			}
		}
		return n
	}
	if count() <= store.MaxFormer || store.IsSeal(d.Charges[0].Limit) {
		return nil
	}
	b.meters = slices.DeleteFunc(b.meters, func(m *store.LimitState) bool {
		return former(m) && full(m, now)
	})
	if n := count(); n > store.MaxFormer {
		return store.TooManyFormer(n)
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
	if err := t.CheckSize(); err != nil {
		return out, err
	}
	if err := store.RefuseSlots(t.Debits); err != nil && !s.has("any limit") {
		return out, err
	}
	before, after := s.cutting()
	if before != nil {
		return out, before
	}
	defer func() {
		if err == nil && after != nil {
			if out, err = (store.Outcome{}), after; s.has("half a take") {
				s.find(t.Debits[0].Bucket, true, s.now()).meters = nil
			}
		}
	}()
	if s.has("trouble spreads") {
		if s.trouble.Add(-1) >= 0 {
			return out, store.ErrClosed
		}
		defer func() {
			if err != nil {
				s.trouble.Store(3)
			}
		}()
	}
	hot := s.hot.Load()
	if hot != nil && slices.ContainsFunc(t.Debits, func(d store.Debit) bool { return d.Bucket == *hot }) {
		return out, &store.Error{Op: "take", Key: hot.String(), Err: errors.New("throttled"), Extent: store.ExtentKey}
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
			p := m.Limit.Params()
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
				if clock.Spend(m.Level, m.Limit.Params().Clock(now), c.Amount) > clock.MaxLevel && !s.has("overflows") {
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
				m.Level = clock.Spend(m.Level, m.Limit.Params().Clock(now), c.Amount)
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
		p := m.Limit.Params()
		if c.Shadow && !s.has("a shadow is forced") && (!s.fits(p, c, m.Level, p.Clock(now)) || s.has("a shadow counts nothing")) {
			continue
		}
		m.Level = clock.Spend(m.Level, p.Clock(now), c.Amount)
		m.Debited += c.Amount
		if s.has("idling is credited twice") {
			m.Level = min(m.Level, m.Limit.Params().Clock(now)) + c.Amount
		}
	}
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
	of := fmt.Sprintf("%q %q %q", q.Namespace, q.Entity, q.Resource)
	after, err := decode(q.After, of)
	if err == nil && q.After != "" && q.Entity != "" && after[0] != q.Entity && !s.has("any position") {
		err = store.ErrBadCursor
	}
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
			page.Next = encode(of, last.Entity, last.Resource)
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
		if s.has("forgets nothing") {
			continue
		}
		b := s.buckets[s.name(k)]
		delete(s.buckets, s.name(k))
		if b == nil || s.has("forgets balances") {
			continue
		}
		for _, m := range b.meters {
			if m.Limit.IsBalance() && m.Level != 0 {
				kept := s.find(k, true, s.now())
				kept.meters = append(kept.meters, &store.LimitState{Limit: m.Limit, Level: m.Level})
			}
		}
	}
	return nil
}

func (s *reference) Close() error {
	s.closed.Store(true)
	return nil
}
