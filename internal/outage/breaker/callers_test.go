package breaker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/outage/breaker"
)

// in makes a call in a namespace, and reports whether it was let through.
func in(b *breaker.Breaker, space uint64, r breaker.Result) bool {
	k := breaker.Key{Space: space, Root: space}
	c, ok := b.Begin(func() breaker.Key { return k })
	if ok {
		c.Done(k, r)
	}
	return ok
}

// TestProbers: once three have failed, everybody waits for the cooldown. Then one may probe after the other, until three
// have failed again: if the one who calls most has trouble of its own, the others do not wait for it.
func TestProbers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{})
		for i := range uint64(10) {
			in(b, i%3, breaker.Failed)
		}
		wantState(t, b, breaker.Open)
		if in(b, 7, breaker.Succeeded) {
			t.Error("called although three have failed")
		}
		time.Sleep(cooldown * 6 / 5)
		for _, tt := range []struct {
			space  uint64
			probes bool
		}{{1, true}, {1, false}, {2, true}, {1, false}, {2, false}, {3, true}, {4, false}, {1, false}} {
			if in(b, tt.space, breaker.Failed) != tt.probes {
				t.Errorf("%d probes: %v", tt.space, !tt.probes)
			}
		}
		time.Sleep(cooldown * 6 / 5)
		if !in(b, 1, breaker.Failed) || !in(b, 4, breaker.Succeeded) {
			t.Error("no probe")
		}
		wantState(t, b, breaker.Closed)
	})
}

// TestStrangers: while one has failed, two others of whom nothing is known may call at once. The first answer closes it
// for all.
func TestStrangers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{})
		begin := func(space uint64) (breaker.Call, bool) {
			return b.Begin(func() breaker.Key { return breaker.Key{Space: space, Root: space} })
		}
		trip(t, b)
		two, _ := begin(2)
		three, ok := begin(3)
		if !ok {
			t.Fatal("the second stranger was not let through")
		}
		var waiting breaker.Call
		for _, space := range []uint64{1, 2, 4} {
			if waiting, ok = begin(space); ok || (waiting.Wait() != nil) != (space > 1) {
				t.Errorf("%d was let through: %v, or waits: %v", space, ok, waiting.Wait() != nil)
			}
		}
		two.Done(breaker.Key{Space: 2, Root: 2}, breaker.Unknown)
		select {
		case <-waiting.Wait():
		default:
			t.Error("waits although one has given up")
		}
		if four, ok := begin(4); !ok {
			t.Error("not let through although one has given up")
		} else {
			four.Done(breaker.Key{Space: 4, Root: 4}, breaker.Failed)
		}
		five, ok := begin(5)
		if ok {
			t.Error("let through although two have failed and one is on its way")
		}
		wantState(t, b, breaker.Open)
		three.Done(breaker.Key{Space: 3, Root: 3}, breaker.Succeeded)
		wantState(t, b, breaker.Closed)
		<-five.Wait()
	})
}

// TestNoWait: once three have failed, strangers do not wait for others, not even after a probe has begun them anew.
func TestNoWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{})
		for i := range uint64(10) {
			in(b, i%3, breaker.Failed)
		}
		time.Sleep(cooldown * 6 / 5)
		for space := range uint64(5) {
			c, ok := b.Begin(func() breaker.Key { return breaker.Key{Space: space, Root: space} })
			if ok != (space < several) || c.Wait() != nil {
				t.Errorf("%d: called: %v, waits: %v", space, ok, c.Wait() != nil)
			}
		}
	})
}

// TestRemembered: at most 256 of those who were answered are remembered, for a minute, and who called last is.
func TestRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{Cooldown: time.Hour})
		const all = 10_000
		for space := range uint64(all) {
			in(b, space, breaker.Succeeded)
			time.Sleep(time.Microsecond)
		}
		const after, strangers = time.Minute - time.Millisecond, 2
		time.Sleep(after)
		for range 10 {
			in(b, all, breaker.Failed)
		}
		wantState(t, b, breaker.Open)
		called := 0
		for space := range uint64(all) {
			_, ok := b.Begin(func() breaker.Key { return breaker.Key{Space: space, Root: space} })
			if ok {
				called++
			} else if space >= all-200 {
				t.Errorf("%d is not called", space)
			}
		}
		if called > 256+strangers || called < 250 {
			t.Errorf("%d are called", called)
		}
	})
}

// TestAnsweredIsNoSilence: a service that answers with errors that concern one caller is not silent.
func TestAnsweredIsNoSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{Silence: func() time.Duration { return 400 * time.Millisecond }})
		for range 20 {
			in(b, 3, breaker.Succeeded)
		}
		for range 12 {
			in(b, 1, breaker.Failed)
			in(b, 2, breaker.Answered)
			time.Sleep(50 * time.Millisecond)
		}
		wantState(t, b, breaker.Closed)
	})
}

// TestConnections: calls without a connection count for everybody, those without an answer for who made them.
func TestConnections(t *testing.T) {
	t.Parallel()
	for result, want := range map[breaker.Result]breaker.State{breaker.Broken: breaker.Open, breaker.Failed: breaker.Closed} {
		synctest.Test(t, func(t *testing.T) {
			b := breaker.New(breaker.Config{})
			for range 100 {
				in(b, 2, breaker.Succeeded)
			}
			for range 100 {
				in(b, 1, result)
			}
			wantState(t, b, want)
		})
	}
}

// TestLongAgo: who has failed before the window is not among those whose failures open it.
func TestLongAgo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{})
		in(b, 2, breaker.Failed)
		time.Sleep(11 * time.Second)
		for range 10 {
			in(b, 1, breaker.Failed)
		}
		wantState(t, b, breaker.Open)
		if !in(b, 2, breaker.Succeeded) {
			t.Error("not called")
		}
	})
}

// TestAnswered: an error that concerns one caller counts for nothing, but shows that the service is back.
func TestAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{})
		for range 100 {
			call(b, breaker.Answered)
		}
		wantState(t, b, breaker.Closed)
		trip(t, b)
		time.Sleep(cooldown * 6 / 5)
		call(b, breaker.Answered)
		wantState(t, b, breaker.Closed)
	})
}
