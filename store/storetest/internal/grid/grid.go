// Package grid tests decisions over many buckets: the entities of a chain, each on a resource, its group and the total.
package grid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

// Suites returns the suite of this package. Each scenario lets each of the buckets of three entities fail in turn.
func Suites() []Suite {
	return []Suite{{Name: "grid", Scenarios: []Scenario{
		{Name: "refused by each", Run: OnStore(gridRefused)},
		{Name: "stale at each", Run: OnStore(gridStale)},
		{Name: "each damaged", Harm: true, Run: OnStore(gridDamaged)},
		{Name: "each throttled", Hot: true, Run: OnStore(gridThrottled)},
		{
			Name: "each call fails", Cut: true, Need: Caps{HandClock: true, Quotas: true, Credits: true},
			Run: OnStore(gridCut),
		},
	}}}
}

var gridLimit = Still("tpm", 10)

// grid returns the debits of 3 tokens of the n-th grid.
func grid(n int) (debits []store.Debit) {
	for _, entity := range []string{"key", "team", "org"} {
		for _, resource := range []string{"api", store.GroupPrefix + "apis", store.Total} {
			b := Bucket(fmt.Sprintf("%s-%d", entity, n), resource)
			debits = append(debits, At(2, Debit(b, Charge(gridLimit, 3))))
		}
	}
	return debits
}

// gridCells is the number of buckets of a grid.
const gridCells = 9

// wantGrid checks what is debited of each bucket but one.
func wantGrid(e *Env, debits []store.Debit, but int, tokens int64) {
	e.Helper()
	for i, d := range debits {
		if i != but {
			e.WantTokens(d.Bucket, gridLimit, 10-tokens)
		}
	}
}

func gridRefused(e *Env) {
	for at := range gridCells {
		debits := grid(at)
		e.Allow(At(2, Debit(debits[at].Bucket, Charge(gridLimit, 8))))
		out := e.Refuse(debits...)
		for i, l := range out.Levels {
			if l.Refused != (i == at) {
				e.Errorf("bucket %d refuses: charge %d is refused: %t", at, i, l.Refused)
			}
		}
		wantGrid(e, debits, at, 0)
		e.WantTokens(debits[at].Bucket, gridLimit, 2)
		e.Settle(Debit(debits[at].Bucket, Charge(gridLimit, -1)))
		e.Allow(debits...)
		wantGrid(e, debits, at, 3)
		e.WantTokens(debits[at].Bucket, gridLimit, 0)
	}
}

func gridStale(e *Env) {
	newer := Still("tpm", 20)
	for at := range gridCells {
		debits := grid(at)
		e.Allow(At(3, Debit(debits[at].Bucket, Charge(newer, 1))))
		e.TakeFails(store.ErrStaleLimits, debits...)
		wantGrid(e, debits, at, 0)
		e.WantTokens(debits[at].Bucket, newer, 19)
	}
}

// doubtful checks that of each bucket but one, a take that failed has debited nothing, what it asked for, or a part.
func doubtful(e *Env, debits []store.Debit, but int) {
	e.Helper()
	for i, d := range debits {
		if i == but {
			continue
		}
		if left := e.Available(d.Bucket, gridLimit); left < 7*Token || left > 10*Token {
			e.Errorf("bucket %d failed: bucket %d has %d left, want 7 to 10 tokens", but, i, left)
		}
	}
}

func gridDamaged(e *Env) {
	for at := range gridCells {
		debits := grid(at)
		e.Allow(At(2, Debit(debits[at].Bucket, Charge(gridLimit, 1))))
		e.Quiesce()
		e.Harness.Harm(e.Outer, e.Store, debits[at].Bucket)
		if out, err := e.Store.Take(e.Context(), store.Take{Debits: debits}); err == nil {
			e.Errorf("bucket %d is damaged: got %s", at, Show(out))
		}
		e.Quiesce()
		doubtful(e, debits, at)
	}
}

func gridThrottled(e *Env) {
	for at := range gridCells {
		debits := grid(at)
		e.Allow(At(2, Debit(debits[at].Bucket, Charge(gridLimit, 1))))
		e.Quiesce()
		end := e.Harness.Throttle(e.Outer, e.Store, debits[at].Bucket)
		brief, cancel := context.WithTimeout(e.Context(), 20*time.Millisecond) // a store may try again until then
		out, err := e.Store.Take(brief, store.Take{Debits: debits})
		if cancel(); err == nil {
			e.Errorf("bucket %d is throttled: got %s", at, Show(out))
		}
		end()
		e.Quiesce()
		doubtful(e, debits, at)
		if left := e.Available(debits[at].Bucket, gridLimit); left < 6*Token || left > 9*Token {
			e.Errorf("bucket %d was throttled, and has %d left, want 6 to 9 tokens", at, left)
		}
		e.Allow(debits...)
	}
}

// gridCut lets each call of a take and of a return fail, before it is made and after. The limits of resources are
// rates, those of groups quotas, and those of totals balances. Where no answer was given, each bucket has debited what
// was asked for, nothing, or a part, and a store that decides all in one step all or nothing. A store that debits one
// bucket after another may repeat a call of which it has no answer; then that one bucket is debited twice.
func gridCut(e *Env) {
	round := 0
	for _, made := range []bool{false, true} {
		for _, born := range []bool{true, false} {
			for n := 0; ; n++ {
				round++
				if g := newCut(e, round, born); max(g.take(n, made), g.giveBack(n, made)) <= n {
					break
				}
			}
		}
	}
}

// cut is a grid with limits of all kinds, of which 10 tokens can be debited.
type cut struct {
	*Env

	id     string
	debits []store.Debit // of 3 tokens each
	at     time.Time
}

func newCut(e *Env, round int, born bool) *cut {
	g := &cut{Env: e, id: fmt.Sprint("cut-", round), debits: grid(1000 + round)}
	for i := range g.debits {
		l := []*store.Limit{gridLimit, Quota("usd", 10, "day@UTC"), Balance("credits")}[i%3]
		if g.debits[i].Charges = []store.Charge{Charge(l, 3)}; i%3 == 2 {
			e.Credit(g.debits[i].Bucket, l.Name, 10, g.id)
		}
	}
	if born {
		e.Allow(g.of(0)...)
	}
	e.Quiesce()
	return g
}

// of returns the debits of other amounts.
func (g *cut) of(tokens int64) []store.Debit {
	debits := slices.Clone(g.debits)
	for i, d := range debits {
		debits[i].Charges = []store.Charge{Charge(d.Charges[0].Limit, tokens)}
	}
	return debits
}

// left returns what can be debited of each bucket.
func (g *cut) left() (left []int64) {
	g.Quiesce()
	for _, d := range g.debits {
		left = append(left, g.Available(d.Bucket, d.Charges[0].Limit))
	}
	return left
}

// within checks what each bucket has left: from least to most tokens, and the same of all if they are debited together.
func (g *cut) within(what string, least, most int64, twice bool) {
	g.Helper()
	left := g.left()
	for i, n := range left {
		if twice && !g.Harness.Caps.AtomicTake && n == (least-3)*Token {
			twice = false
			continue
		}
		if n < least*Token || n > most*Token || g.Harness.Caps.AtomicTake && n != left[0] {
			g.Errorf("%s: %s has %d left, want %d to %d tokens; all: %v",
				what, g.debits[i].Bucket, n, least, most, left)
		}
	}
}

// take lets a call of a take fail, and returns how many calls there were.
func (g *cut) take(n int, made bool) (calls int) {
	end := g.Harness.Cut(g.Outer, g.Store, n, made)
	out, err := g.Store.Take(g.Context(), store.Take{Debits: g.debits})
	calls = end()
	what := fmt.Sprintf("call %d of %d failed, made %t, error %v", n, calls, made, err)
	switch {
	case err != nil:
		g.within(what, 7, 10, made)
	case !out.Allowed:
		g.Errorf("%s: refused: %s", what, Show(out))
	default:
		g.within(what, 7, 7, made)
	}
	before := g.left()
	g.at = g.Allow(g.debits...).At
	for i, n := range g.left() {
		if n != before[i]-3*Token {
			g.Errorf("%s: %s had %d, and has %d after 3 more tokens", what, g.debits[i].Bucket, before[i], n)
		}
	}
	return calls
}

// giveBack lets a call of a return with an id fail, and repeats it: at most once, it gives back what it should.
func (g *cut) giveBack(n int, made bool) (calls int) {
	before := g.left()
	s := g.Once(g.id, g.of(-2)...)
	s.Since = g.at
	end := g.Harness.Cut(g.Outer, g.Store, n, made)
	_, err := g.Store.Settle(g.Context(), s)
	calls = end()
	what := fmt.Sprintf("return: call %d of %d failed, made %t, error %v", n, calls, made, err)
	sure := err == nil
	if !sure {
		_, err = g.Store.Settle(g.Context(), s)
		if sure = err == nil; !sure && !errors.Is(err, store.ErrSettled) {
			g.Errorf("%s; repeated: %v", what, err)
		}
	}
	for i, n := range g.left() {
		if back := n - before[i]; back != 2*Token && (sure || back < 0 || back > 2*Token) {
			g.Errorf("%s: %s got %d back", what, g.debits[i].Bucket, back)
		}
	}
	return calls
}
