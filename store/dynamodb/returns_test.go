package dynamodb_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/store/dynamodb"
)

// TestUndoMelts: what a refused take is given back is only what the clock has not passed since: a bucket that has filled
// up meanwhile got it back by that. Else it could be spent twice.
func TestUndoMelts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s, other := st.open(noGuard), st.open(noGuard)
		rpm, alice, bob := per("rpm", 10, time.Hour, 10), bkt("alice"), bkt("bob")
		st.want(other, true, of(bob, rpm, 10))
		st.want(s, false, of(alice, rpm, 4), of(bob, rpm, 1)) // alice is debited, and waits to be given back
		if d, _ := st.number(alice, "D_rpm"); d != "4000" {
			t.Fatalf("debited %s", d)
		}
		st.clock.Advance(time.Hour)
		st.want(s, true, of(alice, rpm, 10))
		s.Flush()
		st.want(s, false, of(alice, rpm, 1))

		// And half of it where half has come back.
		st.clock.Advance(2 * time.Hour)
		st.want(other, true, of(bob, rpm, 10))
		st.clock.Advance(time.Hour / 2)
		st.want(other, true, of(bob, rpm, 5))
		st.want(s, false, of(alice, rpm, 4), of(bob, rpm, 1))
		st.clock.Advance(time.Hour / 5)
		s.Flush()
		if r, _ := st.number(alice, "R_rpm"); r != "2000" {
			t.Errorf("returned %s", r)
		}
		if n := st.outstanding(alice, "rpm"); n != 0 {
			t.Errorf("%d outstanding", n)
		}
	})
}

// TestUndoTwice: what two takes gave back in another order than they took it is no more than is still spent.
func TestUndoTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		late := func(c *dynamodb.Config) { c.ReturnDelay = time.Minute }
		s1, s2, other := st.open(noGuard, late), st.open(noGuard, late), st.open(noGuard, noMemory)
		l, alice, bob := per("rpm", 10, time.Hour, 10), bkt("alice"), bkt("bob")
		st.want(other, true, of(bob, l, 10))
		st.want(s1, false, of(alice, l, 5), of(bob, l, 1))
		st.want(s2, false, of(alice, l, 5), of(bob, l, 1))
		s1.Flush()
		st.clock.Advance(time.Hour / 2)
		st.want(other, true, of(alice, l, 10))
		s2.Flush()
		st.want(other, false, of(alice, l, 5))
	})
}
