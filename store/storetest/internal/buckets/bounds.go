package buckets

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

func boundScenarios() []Scenario {
	return []Scenario{
		{Name: "largest debit", Run: OnStore(boundDebit)},
		{Name: "largest debit of an existing bucket", Peer: true, Run: OnStore(boundCold)},
		{Name: "largest change of limits", Run: OnStore(boundChange)},
		{Name: "limits that are renamed", Need: Caps{HandClock: true}, Run: OnStore(boundRenamed)},
		{Name: "limits that still owe", Run: OnStore(boundFormer)},
		{Name: "sealed", Run: OnStore(boundSealed)},
		{Name: "longest ids", Run: OnStore(boundIDs)},
		{Name: "largest take", Run: OnStore(boundTake)},
		{Name: "beyond", Run: OnStore(boundBeyond)},
		{Name: "together", Run: OnStore(boundTogether)},
		{Name: "another's", Run: OnStore(boundOthers)},
	}
}

// wide returns as many limits as one debit may have, with the longest names: a bucket's own, then overrides.
func wide(tokens int64) (limits []*store.Limit) {
	for i := range store.MaxLimits + store.MaxOverrides {
		l := Still(fmt.Sprintf("%03d", i)+strings.Repeat("%", store.MaxID-3), tokens)
		if i >= store.MaxLimits {
			l = Override(l)
		}
		limits = append(limits, l)
	}
	return limits
}

// each returns a debit of the same amount of each limit.
func each(b store.Bucket, tokens int64, limits []*store.Limit) store.Debit {
	d := Debit(b)
	for _, l := range limits {
		d.Charges = append(d.Charges, Charge(l, tokens))
	}
	return d
}

// wantEach checks what each limit of a bucket has left.
func wantEach(e *Env, b store.Bucket, limits []*store.Limit, tokens int64) {
	e.Helper()
	snap := e.Peek(b)
	for _, l := range limits {
		has := reckon.Find(snap.States[0], l)
		if has == nil {
			e.Fatalf("%s: the bucket has no such limit", l.Name[:3])
		}
		if got := reckon.Room(l, has.Level, snap.At); got != tokens*Token {
			e.Fatalf("%s: available %d millitokens, want %d", l.Name[:3], got, tokens*Token)
		}
	}
}

// boundDebit debits and returns all limits that a bucket can have, at first and again.
func boundDebit(e *Env) {
	b, limits := Bucket("alice", "api"), wide(10)
	for range 3 {
		e.Allow(each(b, 2, limits))
	}
	wantEach(e, b, limits, 4)
	if out := e.Refuse(each(b, 5, limits)); len(out.Levels) != len(limits) {
		e.Fatalf("%d levels", len(out.Levels))
	}
	e.Allow(each(b, 0, limits))
	e.Settle(each(b, -3, limits))
	wantEach(e, b, limits, 7)
	e.Settle(each(b, 8, limits))
	wantEach(e, b, limits, -1)
	e.SettleOnce(e.Once("once", each(b, -1, limits)))
	wantEach(e, b, limits, 0)
	mixed := each(b, 0, limits)
	for i := range mixed.Charges {
		mixed.Charges[i].Amount = Token * int64(1-2*(i%2))
	}
	e.SettleOnce(e.Once("twice", mixed))
	e.Quiesce()
	e.Forget(b)
	forced := each(b, 12, limits)
	for i := range forced.Charges {
		forced.Charges[i].Force = true
	}
	e.Allow(forced)
	wantEach(e, b, limits, -2)
	e.Quiesce()
	e.Forget(b)
	for i := range forced.Charges {
		forced.Charges[i].Force, forced.Charges[i].Shadow = false, i > 0
	}
	forced.Charges[0].Amount = Token
	e.Allow(forced)
	wantEach(e, b, limits[:1], 9)
	e.Quiesce()
	e.Forget(b)
	e.Settle(each(b, 3, limits))
	wantEach(e, b, limits, 7)
}

// boundCold does the same for a bucket that another process has made.
func boundCold(e *Env) {
	b, limits := Bucket("alice", "api"), wide(10)
	e.Allow(each(b, 2, limits))
	e.Quiesce()
	e.Peer().Allow(each(b, 2, limits))
	e.Quiesce()
	e.Peer().Settle(each(b, 2, limits))
	e.Peer().Settle(each(b, -3, limits))
	e.Peer().Allow(each(b, 0, limits))
	e.Peer().Allow(each(b, 7, limits))
	wantEach(e, b, limits, 0)
	e.Peer().Refuse(each(b, 1, limits))
}

// boundChange replaces all limits of a bucket while they are debited.
func boundChange(e *Env) {
	b, own := Bucket("alice", "api"), wide(10)[:store.MaxLimits]
	e.Allow(At(1, each(b, 4, own)))
	raised := wide(20)[:store.MaxLimits]
	e.Allow(At(2, each(b, 4, raised)))
	wantEach(e, b, raised, 12)
	e.TakeFails(store.ErrStaleLimits, At(1, each(b, 1, own)))
	other := make([]*store.Limit, len(own))
	for i, l := range own {
		other[i] = Still("x"+l.Name[1:], 10)
	}
	e.Allow(At(3, each(b, 4, other)))
	wantEach(e, b, other, 6)
	e.Refuse(At(3, each(b, 7, other)))
}

// generation returns as many limits of its own as a bucket may have, with other names for each n.
func generation(n int, of func(name string, tokens int64) *store.Limit) (limits []*store.Limit) {
	for i := range store.MaxLimits {
		limits = append(limits, of(fmt.Sprint(n, "-", i), 10))
	}
	return limits
}

// boundRenamed replaces all limits of a bucket more often than a store could keep them.
func boundRenamed(e *Env) {
	b := Bucket("alice", "api")
	for n := range 25 {
		limits := generation(n, PerMinute)
		e.Allow(At(uint64(n+1), each(b, 4, limits)))
		wantEach(e, b, limits, 6)
		if st, _ := e.State(b); len(st.Limits) > store.MaxLimits+store.MaxFormer {
			e.Fatalf("after %d changes the bucket has %d limits", n, len(st.Limits))
		}
		e.Clock.Advance(time.Minute)
	}
}

// boundFormer replaces all limits of a bucket while those of before still owe.
func boundFormer(e *Env) {
	b := Bucket("alice", "api")
	first, second, third := generation(1, Still), generation(2, Still), generation(3, Still)
	e.Allow(At(1, each(b, 4, first)))
	e.Allow(At(2, each(b, 4, second)))
	var bound *store.BoundError
	if err := take(e, At(3, each(b, 4, third))); !errors.As(err, &bound) || bound.Max != store.MaxFormer {
		e.Fatalf("error %v, want a bound of %d", err, store.MaxFormer)
	}
	e.Allow(At(2, each(b, 1, second)))
	wantEach(e, b, first, 6)
	wantEach(e, b, second, 5)
	e.Settle(each(b, -4, first)) // they are full now
	e.Allow(At(3, each(b, 4, third)))
	wantEach(e, b, second, 5)
	wantEach(e, b, third, 6)
}

// boundSealed seals a bucket that holds as many limits as one can, all of which still owe.
func boundSealed(e *Env) {
	b, last := Bucket("alice", "api"), wide(10)
	e.Allow(At(1, each(b, 4, generation(1, Still))))
	e.Allow(At(2, each(b, 4, last)))
	if err := take(e, store.Seal(b).Debits...); err != nil {
		e.Fatalf("seal: %v", err)
	}
	if st, _ := e.State(b); !st.Sealed() {
		e.Fatalf("%s is not sealed", b)
	}
	e.TakeFails(store.ErrStaleLimits, At(3, each(b, 1, last)))
	e.Settle(each(b, -1, last))
	wantEach(e, b, generation(1, Still), 6)
	wantEach(e, b, last, 7)
}

// boundIDs uses ids of the largest length, in characters that take most room.
func boundIDs(e *Env) {
	b := store.Bucket{
		Namespace: strings.Repeat("n", 32), Entity: strings.Repeat("/", store.MaxID),
		Resource: strings.Repeat("#", store.MaxID),
	}
	l := Still(strings.Repeat("!", store.MaxID), 10)
	e.Allow(Debit(b, Charge(l, 4)))
	e.SettleOnce(e.Once(strings.Repeat("%", store.MaxID), Debit(b, Charge(l, -1))))
	e.WantTokens(b, l, 7)
}

// boundTake takes as much at once as a take may have: of few buckets with many limits, and of many with one.
func boundTake(e *Env) {
	limits := make([]*store.Limit, store.MaxLimits)
	for i := range limits {
		limits[i] = Still(fmt.Sprint("limit", i), 10)
	}
	few := make([]store.Debit, store.MaxCharges/len(limits))
	for i := range few {
		few[i] = each(Bucket(fmt.Sprint("few", i), "api"), 6, limits)
	}
	many := make([]store.Debit, e.Some(store.MaxCharges))
	for i := range many {
		many[i] = Debit(Bucket(fmt.Sprint("many", i), "api"), Charge(limits[i%len(limits)], 6))
	}
	for _, debits := range [][]store.Debit{few, many} {
		if out := e.Allow(debits...); len(out.Levels) != len(debits)*len(debits[0].Charges) {
			e.Fatalf("%d levels", len(out.Levels))
		}
		out := e.Refuse(debits...)
		for i, l := range out.Levels {
			if e.Harness.Caps.AtomicTake && (!l.Refused || reckon.Room(l.Limit, l.Level, out.At) != 4*Token) {
				e.Fatalf("level %d: %+v", i, l)
			}
		}
		e.Quiesce()
		back := make([]store.Debit, len(debits))
		for i, d := range debits {
			back[i] = store.Debit{Bucket: d.Bucket, Epoch: d.Epoch}
			for _, c := range d.Charges {
				c.Amount = -2 * Token
				back[i].Charges = append(back[i].Charges, c)
			}
		}
		e.Settle(back...)
		last := debits[len(debits)-1]
		wantEach(e, last.Bucket, []*store.Limit{last.Charges[0].Limit}, 6)
		e.Allow(debits...)
	}
}

// boundBeyond checks that what exceeds a bound is an error that names it, and that nothing is written.
func boundBeyond(e *Env) {
	b, limits := Bucket("alice", "api"), wide(10)
	long := strings.Repeat("x", store.MaxID+1)
	own := append([]*store.Limit{Still("more", 10)}, limits[:store.MaxLimits]...)
	many := make([]store.Debit, store.MaxCharges/store.MaxLimits+1)
	for i := range many {
		many[i] = each(Bucket(fmt.Sprint(i), "api"), 1, limits[:store.MaxLimits])
	}
	id, entity := e.Once(long, Debit(b, Charge(limits[0], 1))), Debit(Bucket(long, "api"), Charge(limits[0], 1))
	for name, call := range map[string]struct {
		err  error
		most int
	}{
		"limits":           {take(e, each(b, 1, own)), store.MaxLimits},
		"charges":          {take(e, many...), store.MaxCharges},
		"a limit's name":   {take(e, Debit(b, Charge(Still(long, 10), 1))), store.MaxID},
		"an entity":        {take(e, entity), store.MaxID},
		"a resource":       {take(e, Debit(Bucket("alice", long), Charge(limits[0], 1))), store.MaxID},
		"settled charges":  {settle(e, store.Settle{Debits: many}), store.MaxCharges},
		"limits of one":    {settle(e, store.Settle{Debits: []store.Debit{each(b, 1, append(own, limits...))}}), 80},
		"a settle's id":    {settle(e, id), store.MaxID},
		"a settled entity": {settle(e, store.Settle{Debits: []store.Debit{entity}}), store.MaxID},
	} {
		var bound *store.BoundError
		if !errors.As(call.err, &bound) || bound.Max != call.most || bound.Have <= bound.Max {
			e.Errorf("%s: error %v, want a bound of %d", name, call.err, call.most)
		}
	}
	overrides := append([]*store.Limit{Override(Still("more", 10))}, limits[store.MaxLimits:]...)
	e.TakeFails(store.ErrTooManyOverrides, each(b, 1, overrides))
	if snap := e.Peek(b, Bucket("0", "api")); snap.States[0].ID != 0 || snap.States[1].ID != 0 {
		e.Errorf("something was written")
	}
}

func take(e *Env, debits ...store.Debit) error {
	_, err := e.Store.Take(e.Context(), store.Take{Debits: debits})
	return err
}

func settle(e *Env, s store.Settle) error {
	_, err := e.Store.Settle(e.Context(), s)
	return err
}

// boundTogether makes takes of one bucket at once that would be too large together, although each of them fits.
func boundTogether(e *Env) {
	b, limits := Bucket("alice", "api"), wide(1000)
	own, overrides := limits[:store.MaxLimits], limits[store.MaxLimits:]
	rounds := max(2, e.Some(4))
	e.Each(store.MaxOverrides, func(i int) {
		for range rounds {
			d := each(b, 1, own)
			d.Charges = append(d.Charges, Charge(overrides[i], 1))
			if out := e.TakeQuietly(d); !out.Allowed {
				e.Errorf("refused: %d", i)
			}
			e.SettleQuietly(Debit(b, Charge(overrides[i], -1), Charge(own[i], 1)))
		}
	})
	for i, l := range limits {
		want := int64(1000)
		if i < len(own) {
			want -= int64(rounds * store.MaxOverrides)
		}
		if i < store.MaxOverrides {
			want -= int64(rounds)
		}
		e.WantTokens(b, l, want)
	}
}

// boundOthers makes the largest takes of one namespace while another one makes small ones.
func boundOthers(e *Env) {
	limits, small := wide(1_000_000), Still("rpm", 1000)
	var debits []store.Debit
	for i := range e.Some(store.MaxCharges / len(limits)) {
		debits = append(debits, each(store.Bucket{Namespace: "m", Entity: fmt.Sprint(i), Resource: "api"}, 1, limits))
	}
	var done atomic.Bool
	b := Bucket("alice", "api")
	e.Each(2, func(i int) {
		if i == 0 {
			defer done.Store(true)
			for range 3 {
				e.TakeQuietly(debits...)
			}
			return
		}
		for n := 0; n < 20 || !done.Load() && n < 900; n++ {
			if out := e.TakeQuietly(Debit(b, Charge(small, 1))); !out.Allowed {
				e.Errorf("refused: %s", Show(out))
			}
		}
	})
}
