package history

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// The invariants of docs/format/token-clock.md over random histories of one caller. I1 with many callers is in
// concurrency.go and torture.go, and I5 in concurrency.go.
func invariantScenarios() []Scenario {
	hand := Caps{HandClock: true}
	all := features{legs: historyBuckets, force: true, back: true}
	return []Scenario{
		{Name: "I1 never over-admit", Need: hand, Run: property(features{legs: historyBuckets}, playI1)},
		{Name: "I1 with returns", Need: hand, Run: property(features{legs: 2, back: true}, playI1)},
		{Name: "I1 with forced debits", Need: hand, Run: property(all, playI1)},
		{Name: "I1 and I4 when the clock jumps back", Need: hand, Run: property(
			features{legs: historyBuckets, force: true, back: true, jump: true}, playI1)},
		{Name: "I2 never lose", Need: hand, Run: property(all, playI2)},
		{Name: "I2 with shadow charges", Need: hand, Run: property(
			features{legs: historyBuckets, force: true, back: true, shadow: true}, playI2)},
		{Name: "I2 through changes of limits", Need: hand, Run: invariantChanges},
		{Name: "I3 polling-free", Need: hand, Run: property(all, playI3)},
		{Name: "I4 time never runs backwards", Need: hand, Run: property(all, playI4)},
		{Name: "I6 retryAfter is tight", Need: hand, Run: property(all, playI6)},
		{Name: "strict returns bound what is kept", Need: hand, Run: strictKeeps},
	}
}

// The invariants for balances: what was admitted and what is available is what was credited, always.
func balanceScenarios() []Scenario {
	need := Caps{HandClock: true, Credits: true}
	all := features{legs: historyBuckets, force: true, back: true, credit: true}
	shadow, jump := all, all
	shadow.shadow, jump.jump = true, true
	return []Scenario{
		{Name: "I1 and I2 with shadow charges", Need: need, Run: property(shadow, playI2)},
		{Name: "I1 and I4 when the clock jumps back", Need: need, Run: property(jump, playBalances)},
		{Name: "I3 polling-free", Need: need, Run: property(all, playI3)},
		{Name: "I4 time never runs backwards", Need: need, Run: property(all, playI4)},
		{Name: "I6 retryAfter is tight", Need: need, Run: property(all, playI6)},
	}
}

// playBalances compares each balance with a sum, whatever the time is.
func playBalances(e *Env, h history) error {
	has := map[store.Bucket]int64{}
	for i, o := range h.Ops {
		debits, out := do(e, &h, o)
		for _, d := range debits {
			switch a := d.Charges[0].Amount; {
			case o.Credit != "":
				has[d.Bucket] += a
			case o.Settle, out.Allowed:
				has[d.Bucket] -= a
			}
		}
		for b, want := range has {
			if got := e.Available(b, h.Limits[0]); got != want {
				return fmt.Errorf("operation %d: %v has %d, want %d", i, b, got, want)
			}
		}
	}
	return nil
}

// property turns a property of every history into a scenario.
func property(may features, play func(e *Env, h history) error) func(testing.TB, Harness) {
	return func(t testing.TB, h Harness) {
		t.Helper()
		gen := histories(may)
		Property(t, h, func(rt *rapid.T) {
			story := gen.Draw(rt, "history")
			e, done := openOnce(rt, t, h, Noon.Add(story.Start))
			defer done()
			if err := play(e, story); err != nil {
				rt.Fatal(err)
			}
		})
	}
}

// openOnce is open for repeated use: done closes the store.
func openOnce(t TB, outer testing.TB, h Harness, now time.Time) (e *Env, done func()) {
	clock := NewClock(now)
	s := h.Open(outer, clock)
	return &Env{TB: t, Outer: outer, Harness: h, Clock: clock, Store: s}, func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

// do performs one operation on the store.
func do(e *Env, h *history, o op) ([]store.Debit, store.Outcome) {
	defer e.Quiesce() // what a refused take must return to some buckets is returned now, not at some later time
	e.Clock.Advance(o.Wait)
	debits := h.debits(o)
	switch {
	case o.Settle:
		return debits, e.Settle(debits...)
	case o.Credit != "":
		var out store.Outcome
		for _, d := range debits {
			got := e.CreditRaw(d.Bucket, d.Charges[0].Limit.Name, d.Charges[0].Amount, o.Credit)
			out = store.Outcome{Allowed: true, At: got.At}
		}
		return debits, out
	}
	return debits, e.Take(debits...)
}

// playI1 keeps the books by the times that the store reports. These must lie between the clock's time and its latest
// ever.
func playI1(e *Env, h history) error {
	books, latest := ledger{}, e.Clock.Now()
	for i, o := range h.Ops {
		debits, out := do(e, &h, o)
		now := e.Clock.Now()
		if now.After(latest) {
			latest = now
		}
		if out.At.Before(now) || out.At.After(latest) {
			return fmt.Errorf(
				"operation %d: decided at %v, the clock says %v and never said more than %v", i, out.At, now, latest,
			)
		}
		if o.Settle {
			books.settle(debits, out)
		} else {
			books.take(debits, out)
		}
		if err := books.check(); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
	}
	return nil
}

// playI2 expects exactly the model's results, in every answer and in every bucket after each operation.
func playI2(e *Env, h history) error {
	m := newModel()
	for i, o := range h.Ops {
		debits, out := do(e, &h, o)
		if !out.At.Equal(e.Clock.Now()) {
			return fmt.Errorf("operation %d: decided at %v, the clock says %v", i, out.At, e.Clock.Now())
		}
		switch {
		case o.Settle:
			m.settle(debits, out.At)
		case o.Credit != "":
			m.credit(debits, out.At)
		default:
			if err := m.compareTake(debits, out); err != nil {
				return fmt.Errorf("operation %d: %w: %s", i, err, Show(out))
			}
		}
		if err := m.compareStates(e); err != nil {
			return fmt.Errorf("after operation %d: %w", i, err)
		}
	}
	return nil
}

func (m *model) compareTake(debits []store.Debit, out store.Outcome) error {
	allowed, meters, refused := m.take(debits, out.At)
	if allowed != out.Allowed {
		return fmt.Errorf("allowed %t, want %t", out.Allowed, allowed)
	}
	if len(out.Levels) != len(meters) {
		return fmt.Errorf("%d levels of %d charges", len(out.Levels), len(meters))
	}
	for i, l := range out.Levels {
		if err := meters[i].agree(l.Limit, l.Level, out.At); err != nil {
			return fmt.Errorf("level %d: %w", i, err)
		}
		if l.Refused != refused[i] {
			return fmt.Errorf("level %d (%s): refused %t, want %t", i, l.Limit.Name, l.Refused, refused[i])
		}
	}
	return nil
}

// compareStates compares all buckets with the model. A limit that the store does not remember must be full.
func (m *model) compareStates(e *Env) error {
	for b, mb := range m.buckets {
		st, now := e.State(b)
		for _, mt := range mb.meters {
			l, level := &mt.limit, int64(math.MinInt64/2)
			if have := reckon.Find(st, l); have != nil {
				l, level = have.Limit, have.Level
			} else if mt.level <= reckon.Reading(l, now) || mt.level == reckon.Fresh(l, now) {
				continue
			}
			if err := mt.agree(l, level, now); err != nil {
				return fmt.Errorf("%v: %w", b, err)
			}
		}
	}
	return nil
}

// invariantChanges is I2 with limits that change between operations, and callers that have not seen the change yet.
func invariantChanges(t testing.TB, h Harness) {
	gen := histories(features{legs: 1, force: true, back: true})
	Property(t, h, func(rt *rapid.T) {
		versions := []history{gen.Draw(rt, "history")}
		for range 3 {
			l := *versions[0].Limits[0]
			l.Amount, l.Burst = max(
				1, l.Amount/int64(1+len(versions)),
			), rapid.Int64Range(1, 2*l.Burst).Draw(rt, "burst")
			if l.Period += time.Duration(len(versions)); l.Period > time.Hour { // no two versions alike
				l.Period -= 2 * time.Duration(len(versions))
			}
			v := versions[0]
			v.Limits = append([]*store.Limit{&l}, v.Limits[1:]...)
			versions = append(versions, v)
		}
		e, done := openOnce(rt, t, h, Noon.Add(versions[0].Start))
		defer done()
		m := newModel()
		for i, o := range versions[0].Ops {
			v := rapid.IntRange(0, len(versions)-1).Draw(rt, "version")
			e.Clock.Advance(o.Wait)
			d := At(uint64(v+1), versions[v].debits(o)[0])
			if err := m.changing(e, o, d); err != nil {
				rt.Fatalf("operation %d, version %d: %v", i, v+1, err)
			}
		}
	})
}

// errNone stands for a missing error.
var errNone = errors.New("none")

// changing performs one operation on a bucket whose limits change. If the bucket is full, the store may have forgotten
// its limits, and then it is created anew.
func (m *model) changing(e *Env, o op, d store.Debit) error {
	now := e.Clock.Now()
	b := m.buckets[d.Bucket]
	full := b == nil || b.full(now)
	if o.Settle {
		if full {
			return nil // a bucket created by a settle gets the limits of the next take
		}
		e.Settle(d)
		m.settle([]store.Debit{d}, now)
		return nil
	}
	out, err := e.Store.Take(e.Context(), store.Take{Debits: []store.Debit{d}})
	switch stale := m.stale(d); {
	case stale && full && err == nil:
		delete(m.buckets, d.Bucket)
	case stale && !errors.Is(err, store.ErrStaleLimits):
		return fmt.Errorf("error %w, want another: %w", cmp.Or(err, errNone), store.ErrStaleLimits)
	case stale:
		return m.compareStates(e)
	case err != nil:
		return err
	}
	return m.compareChanged(d, out)
}

// compareChanged is compareTake for a change that may have cost a millitoken, which may be the one that was missing.
func (m *model) compareChanged(d store.Debit, out store.Outcome) error {
	b := m.follow(d, out.At)
	if !out.Allowed {
		for i, c := range d.Charges { // learn the cost before judging
			if l := out.Levels[i]; l.Limit != nil {
				if err := b.find(c.Limit).agree(l.Limit, l.Level, out.At); err != nil {
					return err
				}
			}
		}
	}
	return m.compareTake([]store.Debit{d}, out)
}

// playI3 performs the same operations on a second store that is read in between.
func playI3(e *Env, h history) error {
	asked, done := openOnce(e.TB, e.Outer, e.Harness, e.Clock.Now())
	defer done()
	for i, o := range h.Ops {
		if err := poll(asked); err != nil {
			return err
		}
		_, out := do(e, &h, o)
		_, also := do(asked, &h, o)
		if out.Allowed != also.Allowed || !out.At.Equal(also.At) || !o.Settle && Show(out) != Show(also) {
			return fmt.Errorf("I3: operation %d: %s; when asked in between: %s", i, Show(out), Show(also))
		}
	}
	for i := range historyBuckets {
		for _, l := range h.Limits {
			b := Bucket(fmt.Sprint("entity-", i), "api")
			if a, b := e.Available(b, l), asked.Available(b, l); a != b {
				return fmt.Errorf("I3: available %d in the end; when asked in between %d", a, b)
			}
		}
	}
	return nil
}

func poll(e *Env) error {
	for i := range historyBuckets {
		e.Peek(Bucket(fmt.Sprint("entity-", i), "api"), Bucket(fmt.Sprint("entity-", i), "other"))
	}
	if _, err := e.Store.Buckets(e.Context(), store.BucketQuery{Namespace: "n"}); err != nil {
		return err
	}
	if _, err := e.Store.Get(e.Context(), store.Key{Namespace: "n", Kind: store.KindSystem}); err != nil {
		return err
	}
	_, err := e.Store.List(e.Context(), store.Query{Namespace: "n", Kind: store.KindEntity})
	return err
}

// playI4 turns the clock back after the history: no bucket may then have more than it had.
func playI4(e *Env, h history) error {
	for _, o := range h.Ops {
		do(e, &h, o)
	}
	for i := range historyBuckets {
		b := Bucket(fmt.Sprint("entity-", i), "api")
		had := make([]int64, len(h.Limits))
		for j, l := range h.Limits {
			had[j] = e.Available(b, l)
		}
		for _, back := range []time.Duration{time.Nanosecond, time.Second, time.Hour, 24 * time.Hour} {
			now := e.Clock.Now()
			e.Clock.Advance(-back)
			for j, l := range h.Limits {
				d := Debit(b)
				for k, other := range h.Limits {
					d.Charges = append(d.Charges, store.Charge{Limit: other, Force: k != j})
				}
				d.Charges[j].Amount = max(0, had[j]+1)
				if out := e.Take(d); out.Allowed {
					return fmt.Errorf(
						"I4: bucket %d had %d of %s, and %v before it admits %d", i, had[j], l.Name, back,
						d.Charges[j].Amount,
					)
				}
			}
			e.Clock.Set(now)
		}
	}
	return nil
}

// playI6 waits after each refusal for exactly the reported time.
func playI6(e *Env, h history) error {
	for i, o := range h.Ops {
		debits, out := do(e, &h, o)
		if out.Allowed {
			continue
		}
		var wait time.Duration
		possible, n := true, 0
		for _, d := range debits {
			for _, c := range d.Charges {
				if l := out.Levels[n]; l.Refused {
					after, ok := RetryAfter(out, n, c.Amount)
					possible = possible && ok
					wait = max(wait, after)
				}
				n++
			}
		}
		if !possible || wait > 30*24*time.Hour {
			continue
		}
		if wait <= 0 {
			return fmt.Errorf("I6: operation %d: refused, but to be retried at once: %s", i, Show(out))
		}
		e.Clock.Advance(wait - 1)
		if e.Take(debits...).Allowed {
			return fmt.Errorf("I6: operation %d: admitted 1ns before %v: %s", i, wait, Show(out))
		}
		e.Clock.Advance(1)
		if again := e.Take(debits...); !again.Allowed {
			return fmt.Errorf("I6: operation %d: refused after %v: %s; %s", i, wait, Show(out), Show(again))
		}
	}
	return nil
}
