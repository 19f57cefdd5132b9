package breaker_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/outage/breaker"
)

// event is a call that was made while the breaker was closed.
type event struct {
	at     time.Duration
	key    breaker.Key
	result breaker.Result
}

const (
	window  = 2 * time.Second
	silence = 240 * time.Millisecond
)

// opens is the rule, from all calls since the breaker was new: whether it opens by the last of them.
func opens(calls []event) bool {
	now := calls[len(calls)-1].at
	slot := func(at time.Duration) time.Duration { return at / (window / 10) }
	var made, failed, broken int
	row, silent := 0, time.Duration(0)
	spaces, roots := make(map[uint64]bool), make(map[uint64]bool)
	for _, c := range calls {
		if c.result == breaker.Answered {
			row = 0
			continue
		}
		bad := c.result != breaker.Succeeded
		if slot(now)-slot(c.at) < 10 {
			made++
			if bad {
				failed++
			}
			if c.result == breaker.Broken {
				broken++
			}
		}
		if c.at >= now-window {
			spaces[c.key.Space], roots[c.key.Root] = bad, bad
		}
		if !bad {
			row = 0
			continue
		}
		if row++; row == 1 {
			silent = c.at
		}
	}
	if r := calls[len(calls)-1].result; r == breaker.Succeeded || r == breaker.Answered {
		return false
	}
	most := made >= 10 && 2*failed >= made
	long := row >= 10 && now-silent >= silence
	tenants := spaces
	if len(spaces) == 1 {
		tenants = roots
	}
	failing := 0
	for _, bad := range tenants {
		if bad {
			failing++
		}
	}
	unrelated := failing == len(tenants) || failing >= 3 && 2*failing >= len(tenants)
	return long || most && (2*broken >= made || unrelated)
}

// TestRule compares the breaker with its rule: it opens if nobody is answered for long, or if half of the calls of the
// window fail and those who make them are unrelated.
func TestRule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(0, 0)
		start := now
		b := breaker.New(breaker.Config{
			Window: window, Silence: func() time.Duration { return silence }, Now: func() time.Time { return now }, Uniform: rand.Float64,
		})
		spaces := rapid.Uint64Range(1, 12).Draw(rt, "namespaces")
		breaks := rapid.IntRange(0, 2).Draw(rt, "without connection, of 2")
		outage := rapid.IntRange(0, 3).Draw(rt, "failing of 3")
		var calls []event
		for range rapid.IntRange(1, 300).Draw(rt, "calls") {
			now = now.Add(time.Duration(rapid.IntRange(0, 60).Draw(rt, "pause")) * time.Millisecond)
			e := event{at: now.Sub(start), key: breaker.Key{
				Space: rapid.Uint64Range(1, spaces).Draw(rt, "namespace"), Root: rapid.Uint64Range(1, 8).Draw(rt, "root"),
			}}
			switch {
			case rapid.IntRange(1, 20).Draw(rt, "concerns one key") == 1:
				e.result = breaker.Answered
			case rapid.IntRange(1, 3).Draw(rt, "fails") > outage:
				e.result = breaker.Succeeded
			case rapid.IntRange(1, 2).Draw(rt, "breaks") <= breaks:
				e.result = breaker.Broken
			default:
				e.result = breaker.Failed
			}
			c, ok := b.Begin(anybody)
			if !ok {
				rt.Fatal("it is open")
			}
			c.Done(e.key, e.result)
			calls = append(calls, e)
			want := breaker.Closed
			if opens(calls) {
				want = breaker.Open
			}
			if got := b.State(); got != want {
				rt.Fatalf("after %d calls it is %s, not %s: %+v", len(calls), got, want, calls)
			}
			if want == breaker.Open {
				return
			}
		}
	})
}

// TestOneTenant: one namespace fails in every way, with as many roots as it likes, some of its calls taking long;
// another is answered now and then. It is called in time each time, and so are its calls at the same time if it was
// called in the last minute; if not, they may wait for two that are under way.
func TestOneTenant(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(0, 0)
		b := breaker.New(breaker.Config{Window: window, Silence: func() time.Duration { return silence }, Now: func() time.Time { return now }})
		victim := breaker.Key{Space: 1, Root: 1}
		begin := func() (breaker.Call, bool) { return b.Begin(func() breaker.Key { return victim }) }
		last := now.Add(-time.Hour)
		var inFlight []func()
		for range rapid.IntRange(1, 50).Draw(rt, "calls of the victim") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(rt, "seconds")) * time.Second)
			for range rapid.IntRange(0, 200).Draw(rt, "calls of the other") {
				now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(rt, "pause")) * time.Millisecond)
				k := breaker.Key{Space: 2, Root: rapid.Uint64Range(1, 10_000).Draw(rt, "root")}
				if c, ok := b.Begin(func() breaker.Key { return k }); ok {
					inFlight = append(inFlight, func() {
						c.Done(k, rapid.SampledFrom([]breaker.Result{
							breaker.Failed, breaker.Failed, breaker.Answered, breaker.Unknown, breaker.Succeeded,
						}).Draw(rt, "result"))
					})
				}
				for len(inFlight) > 0 && rapid.IntRange(0, 9).Draw(rt, "ends") > 0 {
					inFlight[0]()
					inFlight = inFlight[1:]
				}
			}
			one, first := begin()
			two, second := begin()
			if !first || !second && (now.Sub(last) <= time.Minute || two.Wait() == nil) {
				rt.Fatalf("called: %v, then %v, %v after the last call", first, second, now.Sub(last))
			}
			one.Done(victim, breaker.Succeeded)
			if second {
				two.Done(victim, breaker.Succeeded)
			}
			last = now
		}
	})
}
