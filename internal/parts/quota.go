package parts

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/policy/cache"
	"github.com/weirlimits/weir/store"
)

// DefaultBuckets is how many live buckets a namespace may have if nothing is set.
const DefaultBuckets = 1_000_000

// Quota bounds how many live buckets this process lets each namespace have. A bucket is live until it is full again, by
// what was last decided on it here. The zero value and nil bound nothing. It is safe for concurrent use.
type Quota struct {
	once  sync.Once
	rules atomic.Pointer[QuotaRules]
	seed  maphash.Seed
	start time.Time
	of    sync.Map // *live, by opaque id of the namespace
	ids   sync.Map // likewise, of the IDs of settles, each with the second in which it expires
}

// QuotaRules are how many live buckets a namespace may have.
type QuotaRules struct {
	// Most bounds each namespace, and is what it may have if nothing is set for it. 0 bounds none, and means
	// [DefaultBuckets] for those.
	Most int
	// Of returns the name of a namespace by its opaque id, and what is set for it; 0 if nothing is. It is called before
	// a bucket is created. Optional.
	Of func(ctx context.Context, id string) (name string, most int)
	// Reached is called once a minute at most for a namespace that is refused a bucket. Optional.
	Reached func(name string, most int)
}

// most returns how many live buckets a namespace may have, and its name.
func (r *QuotaRules) most(ctx context.Context, id string) (name string, most int) {
	if r.Of != nil {
		name, most = r.Of(ctx, id)
	}
	switch {
	case most == 0:
		return name, cmp.Or(r.Most, DefaultBuckets)
	case r.Most != 0:
		return name, min(most, r.Most)
	}
	return name, most
}

// Use sets the rules. It must be called before the first decision; only the first call counts.
func (q *Quota) Use(r QuotaRules) {
	q.once.Do(func() {
		q.seed, q.start = maphash.MakeSeed(), time.Now()
		q.rules.Store(&r)
	})
}

// bounds returns the rules, if debits may create buckets that they bound.
func (q *Quota) bounds(debits []store.Debit) *QuotaRules {
	if q == nil || len(debits) == 0 {
		return nil
	}
	return q.rules.Load()
}

// live are buckets of a namespace by hash, each with the second after Quota.start in which it is full again.
type live struct {
	mu     sync.Mutex
	until  map[uint64]uint32
	next   int          // how many there are when those that are full are removed
	again  uint32       // the second before which that is not repeated
	report uint32       // the second before which a refusal is not reported
	misses cache.Misses // of buckets that are looked up at the quota
}

// undecided is the second of a bucket that is about to be created.
const undecided = math.MaxUint32

// enter returns where [Quota.left] counts the buckets of debits, nil if nothing bounds them, or an error if they would
// create one in a namespace that may have no more. Only then it reads: buckets that this process has not used, such as
// those of before its start, are found live in the store. It does not look if too many were not found lately.
func (q *Quota) enter(ctx context.Context, debits []store.Debit, settle bool, peek peek) (*live, error) {
	rules := q.bounds(debits)
	if rules == nil {
		return nil, nil
	}
	id := debits[0].Bucket.Namespace
	l := liveOf(&q.of, id)
	l.mu.Lock()
	needs := len(q.missing(l, debits, settle)) > 0
	l.mu.Unlock()
	if !needs {
		return l, nil
	}
	name, most := rules.most(ctx, id)
	missing := q.add(l, debits, settle, most)
	if missing == nil {
		return l, nil
	}
	found, err := q.find(ctx, l, missing, peek)
	switch {
	case err != nil:
		return nil, err
	case found:
		l.mu.Lock()
		defer l.mu.Unlock()
		q.count(l, missing)
		return l, nil
	case rules.Reached != nil && l.mayReport(q.now()):
		rules.Reached(name, most)
	}
	return nil, &store.BucketQuotaError{Bucket: missing[0], Most: most}
}

// liveOf returns those of a namespace.
func liveOf(all *sync.Map, id string) *live {
	v, ok := all.Load(id)
	if !ok {
		v, _ = all.LoadOrStore(id, &live{until: make(map[uint64]uint32)})
	}
	return v.(*live)
}

// remember counts the ID of a settle until it expires, or returns an error if the namespace has as many as it may have
// live buckets. IDs of settles that change nothing are counted together, whatever their namespaces. Those of what was
// admitted without the store are not counted: it must be charged.
func (q *Quota) remember(ctx context.Context, s *store.Settle) error {
	if q == nil || s.ID == "" || strings.HasPrefix(s.ID, outage.Owed) {
		return nil
	}
	rules := q.rules.Load()
	if rules == nil {
		return nil
	}
	var b store.Bucket
	if len(s.Debits) > 0 {
		b = s.Debits[0].Bucket
	}
	l, h, now := liveOf(&q.ids, b.Namespace), maphash.String(q.seed, s.ID), q.now()
	until := now + uint32(max(0, time.Until(s.Expires))/time.Second) + 2
	if l.remember(h, until, now, 0) {
		return nil
	}
	name, most := rules.most(ctx, b.Namespace)
	if l.remember(h, until, now, most) {
		return nil
	}
	if rules.Reached != nil && l.mayReport(now) {
		rules.Reached(name, most)
	}
	return &store.BucketQuotaError{Bucket: b, Most: most, IDs: true}
}

// remember counts an ID, if there are no more than before which nothing is removed, or than most.
func (l *live) remember(h uint64, until, now uint32, most int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.until) + 1
	if was, again := l.until[h]; again {
		l.until[h] = max(was, until)
		return true
	}
	if most > 0 && n > l.next && now >= l.again {
		l.tidy(now, most)
		n = len(l.until) + 1
	}
	if n > max(l.next, most) {
		return false
	}
	l.until[h] = until
	return true
}

// add counts the buckets that debits would create, or returns them if they are more than the namespace may have.
func (q *Quota) add(l *live, debits []store.Debit, settle bool, most int) (tooMany []store.Bucket) {
	now := q.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	missing := q.missing(l, debits, settle)
	if n := len(l.until) + len(missing); n > l.next && now >= l.again {
		l.tidy(now, most)
	}
	if len(missing) > 0 && len(l.until)+len(missing) > most {
		return missing
	}
	q.count(l, missing)
	return nil
}

// mayReport reports whether a refusal may be reported now.
func (l *live) mayReport(now uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now < l.report {
		return false
	}
	l.report = now + 60
	return true
}

type peek func(ctx context.Context, buckets ...store.Bucket) (store.Snapshot, error)

// find reports whether buckets are live in the store.
func (q *Quota) find(ctx context.Context, l *live, missing []store.Bucket, peek peek) (bool, error) {
	if l.misses.Spent(int64(time.Since(q.start))) {
		return false, nil
	}
	snap, err := peek(ctx, missing...)
	if err != nil {
		return false, err
	}
	found := true
	for i := range snap.States {
		rest := int64(0)
		for _, ls := range snap.States[i].Limits {
			rest = max(rest, untilFull(ls.Limit, ls.Level, snap.At))
		}
		if q.second(rest) <= q.now() {
			l.misses.Add(int64(time.Since(q.start)))
			found = false
		}
	}
	return found, nil
}

// missing returns the buckets that debits would create. The caller holds l.mu.
func (q *Quota) missing(l *live, debits []store.Debit, settle bool) (missing []store.Bucket) {
	now := q.now()
	for i := range debits {
		b := debits[i].Bucket
		if creates(&debits[i], settle) && l.until[maphash.Comparable(q.seed, b)] <= now {
			missing = append(missing, b)
		}
	}
	return missing
}

// creates reports whether a debit makes a bucket that does not exist.
func creates(d *store.Debit, settle bool) bool {
	return slices.ContainsFunc(d.Charges, func(c store.Charge) bool {
		return c.Amount > 0 || !settle && !store.IsSeal(c.Limit)
	})
}

func (q *Quota) count(l *live, bs []store.Bucket) {
	for _, b := range bs {
		l.until[maphash.Comparable(q.seed, b)] = undecided
	}
}

// tidy removes the buckets that are full, or the IDs that have expired. It takes about 20 ms for a million.
func (l *live) tidy(now uint32, most int) {
	before := len(l.until)
	maps.DeleteFunc(l.until, func(_ uint64, until uint32) bool { return until <= now })
	if 4*len(l.until) < before { // a map never gets smaller
		l.until = maps.Collect(maps.All(l.until))
	}
	l.next, l.again = min(most, 2*len(l.until)+1024), now+1
}

// left counts the buckets of debits that [Quota.enter] let pass as what was decided on them. If that is not known, or
// another decision left a bucket emptier, the later time counts.
func (q *Quota) left(l *live, debits []store.Debit, settle bool, out store.Outcome, failed error) {
	if l == nil {
		return
	}
	unknown := failed != nil && !errors.Is(failed, store.ErrStaleLimits)
	if out.At.IsZero() {
		out.At = time.Now()
	}
	levels := out.Levels
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range debits {
		rest := int64(0)
		for _, c := range debits[i].Charges {
			limit, level := c.Limit, int64(0)
			if unknown {
				full := limit.Params()
				level = clock.Add(full.Clock(clock.Nanos(out.At)), clock.Add(full.Burst, max(0, c.Amount)))
			} else if len(levels) > 0 {
				limit, level, levels = levels[0].Limit, levels[0].Level, levels[1:]
			}
			rest = max(rest, untilFull(limit, level, out.At))
		}
		h, until := maphash.Comparable(q.seed, debits[i].Bucket), q.second(rest)
		if was := l.until[h]; creates(&debits[i], settle) && (was == undecided || was < until) {
			l.until[h] = until
		}
	}
}

// now returns the seconds since the start.
func (q *Quota) now() uint32 { return uint32(time.Since(q.start) / time.Second) }

// second returns the second in which a bucket is full that is full after so many nanoseconds; 0 if it is full.
func (q *Quota) second(rest int64) uint32 {
	if rest == 0 {
		return 0
	}
	return uint32(min(int64(q.now())+rest/int64(time.Second)+2, undecided-1))
}

// untilFull returns how long after an instant of the store a limit is full, in nanoseconds; not positive if it is.
// Slots that are held come back within twice the heal time and 4 s, unless they are renewed.
func untilFull(l *store.Limit, level int64, at time.Time) int64 {
	switch {
	case l == nil || l.IsSlots() && level <= 0 || l.IsBalance() && level == 0:
		return 0
	case l.IsSlots():
		return int64(2*l.Heal + 4*time.Second)
	}
	return clock.Sub(l.Params().Full(level), clock.Nanos(at))
}
