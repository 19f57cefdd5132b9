package dynamodb_test

import (
	"testing"
	"time"
)

// TestRejectionMemory checks that a refusal is repeated from memory for as long as configured, counted from the write
// that showed it, and no longer than until the take would fit.
func TestRejectionMemory(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open(noGuard)
	rpm, alice := per("rpm", 600, time.Minute, 10), bkt("alice") // one in 100 ms
	for range 10 {
		st.want(s, true, of(alice, rpm, 1))
	}
	for _, step := range []struct {
		after   time.Duration
		tokens  int64
		allowed bool
		calls   int
	}{
		{0, 1, false, 1},                      // asked
		{99 * time.Millisecond, 1, false, 0},  // repeated
		{time.Millisecond, 1, true, 1},        // it fits now
		{50 * time.Millisecond, 5, false, 0},  // 150 ms after the refusal, by what the last write showed
		{50 * time.Millisecond, 5, false, 0},  // not extended by those
		{49 * time.Millisecond, 5, false, 0},  // 249 ms after it
		{1 * time.Millisecond, 5, false, 1},   // asked again
		{100 * time.Millisecond, 5, false, 0}, // and repeated again
		{149 * time.Millisecond, 9, false, 0},
		{time.Millisecond, 9, false, 1},
	} {
		st.clock.Advance(step.after)
		var allowed bool
		if calls := st.spent(func() { allowed = st.take(s, of(alice, rpm, step.tokens)).Allowed }); calls != step.calls || allowed != step.allowed {
			t.Errorf("%+v: allowed %t with %d calls", step, allowed, calls)
		}
	}
}

// TestRejectionForgotten checks that a return of ours ends the memory of a refusal, and so does a change of limits.
func TestRejectionForgotten(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s, other := st.open(noGuard), st.open(noGuard)
	rpm, alice := per("rpm", 10, time.Minute, 10), bkt("alice")
	st.want(s, true, of(alice, rpm, 10))
	st.want(s, false, of(alice, rpm, 5))
	st.settle(s, of(alice, rpm, -2))
	st.settle(other, of(alice, rpm, -3))
	st.want(s, true, of(alice, rpm, 5))

	st.want(s, false, of(alice, rpm, 1))
	more := of(alice, per("rpm", 10, time.Minute, 12), 2)
	more.Epoch = 1
	st.want(s, true, more)
}

// TestNeverFits checks that a request for more than the burst costs nothing and has no finite retry time.
func TestNeverFits(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open()
	rpm, alice, parent := per("rpm", 10, time.Minute, 10), bkt("alice"), bkt("parent")
	st.want(s, true, of(alice, rpm, 1))
	calls := st.spent(func() {
		out := st.want(s, false, of(alice, rpm, 11))
		if !out.Levels[0].Refused {
			t.Errorf("%+v", out.Levels)
		}
	})
	if calls != 0 {
		t.Errorf("%d calls", calls)
	}
	st.want(s, false, of(parent, rpm, 1), of(alice, rpm, 11))
	s.Flush()
	if n := st.outstanding(parent, "rpm"); n != 0 {
		t.Errorf("the parent has %d outstanding", n)
	}
}
