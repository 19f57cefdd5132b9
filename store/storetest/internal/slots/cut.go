package slots

import (
	"fmt"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

// callsFail lets each call of a take over three buckets, and of the settle that gives back what it took, fail: before
// it is made and after. In each bucket, the slot and the tokens are always taken together or not at all, and the bucket
// that refuses, whichever it is, loses neither. What nobody has heals.
func callsFail(e *Env) {
	other := e // whose takes the store does not expect, if it can have one
	if e.Harness.Peer != nil {
		other = e.Peer()
	}
	refusals := []refusal{{"nothing", -1}}
	for at := range 3 {
		refusals = append(refusals, refusal{"slot", at}, refusal{"tokens", at})
	}
	round := 0
	for _, r := range refusals {
		for _, made := range []bool{false, true} {
			for n := 0; ; n++ {
				round++
				c := &cut{Env: e, refusal: r}
				c.what = fmt.Sprintf("lacks %s at %d, call %d failed, made %t", r.lacks, r.at, n, made)
				for i := range 3 {
					c.buckets = append(c.buckets, Bucket(fmt.Sprintf("%c-%d", 'a'+i, round), "api"))
				}
				calls := max(c.take(other, n, made), c.giveBack(n, made))
				if calls == 0 && e.Harness.Caps.Remote {
					e.Fatalf("%s: no call was seen", c.what)
				}
				if calls <= n {
					break
				}
			}
		}
	}
}

// refusal is which bucket refuses a take, or -1, and what it lacks.
type refusal struct {
	lacks string
	at    int
}

// cut is three buckets of 10 tokens and 2 slots. A take is of 3 tokens and a slot of each.
type cut struct {
	*Env
	refusal

	what    string
	buckets []store.Bucket
}

var (
	cutRate  = Still("rpm", 10)
	cutSlots = Slots("parallel", 2)
)

func (c *cut) debits(tokens int64) (debits []store.Debit) {
	for _, b := range c.buckets {
		debits = append(debits, Debit(b, Charge(cutRate, tokens), Charge(cutSlots, 1)))
	}
	return debits
}

// taken returns of how many buckets a take has what it takes. Of each, it has both or none, given what others have of
// the bucket that refuses.
func (c *cut) taken(tokens, slots int64) (all int64) {
	c.Helper()
	for i, b := range c.buckets {
		n, spent := 2-c.Available(b, cutSlots)/Token, 10-c.Available(b, cutRate)/Token
		if i == c.at {
			n, spent = n-slots, spent-tokens
		}
		if spent != 3*n || n < 0 || n > 1 || i == c.at && n > 0 {
			c.Errorf("%s: %s has lost %d slots and %d tokens", c.what, b, n, spent)
		}
		all += n
	}
	return all
}

func (c *cut) take(other *Env, n int, made bool) (calls int) {
	for _, b := range c.buckets {
		c.Allow(Debit(b, Charge(cutRate, 0), Charge(cutSlots, 0)))
	}
	var tokens, slots int64
	switch c.lacks {
	case "slot":
		slots = 2
	case "tokens":
		tokens = 9
	}
	if c.at >= 0 {
		other.Allow(Debit(c.buckets[c.at], Charge(cutRate, tokens), Charge(cutSlots, slots)))
	}
	c.Quiesce()
	end := c.Harness.Cut(c.Outer, c.Store, n, made)
	out, err := c.Store.Take(c.Context(), store.Take{Debits: c.debits(3)})
	c.Quiesce()
	calls = end()
	taken, all := c.taken(tokens, slots), int64(len(c.buckets))
	switch {
	case err == nil && out.Allowed != (c.at < 0), out.Allowed && taken != all:
		c.Errorf("%s: allowed %t", c.what, out.Allowed)
	case taken > 0 && taken < all && c.Harness.Caps.AtomicTake, err == nil && !out.Allowed && taken > 0 && calls <= n:
		c.Errorf("%s: error %v, taken of %d buckets", c.what, err, taken)
	}
	return calls
}

// giveBack lets what a take took be given back.
func (c *cut) giveBack(n int, made bool) (calls int) {
	if c.at >= 0 {
		return 0
	}
	for i := range c.buckets {
		c.buckets[i].Entity += "-back"
	}
	out := c.Allow(c.debits(3)...)
	var back []store.Debit
	for i, b := range c.buckets {
		back = append(back, Debit(b, Charge(cutRate, -3), GiveBack(cutSlots, 1, hold(c.Env, out, 2*i+1))))
	}
	c.Quiesce()
	end := c.Harness.Cut(c.Outer, c.Store, n, made)
	_, err := c.Store.Settle(c.Context(), store.Settle{Debits: back})
	c.Quiesce()
	calls = end()
	if left := c.taken(0, 0); err == nil && left > 0 {
		c.Errorf("%s: %d buckets are not given back", c.what, left)
	}
	c.Clock.Advance(2*heal + 2*skew)
	for _, b := range c.buckets {
		c.WantTokens(b, cutSlots, 2)
	}
	return calls
}
