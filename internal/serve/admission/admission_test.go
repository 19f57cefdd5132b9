package admission_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/serve/admission"
)

// all takes slots for who until there are none left, and returns how many it got.
func all(p *admission.Slots, who string) (n int) {
	for p.Try(who) {
		n++
	}
	return n
}

func TestNobodyTakesAll(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		most int
		who  []string // each takes as many as it can, in this order
		want []int
	}{
		{100, []string{""}, []int{100}},
		{100, []string{"a"}, []int{75}},
		{100, []string{"a", "b", "c"}, []int{75, 19, 5}},
		{100, []string{"a", "b", "c", "d", "e"}, []int{75, 19, 5, 1, 0}},
		{100, []string{"a", ""}, []int{75, 25}}, // a caller without a token, such as a health check
		{4, []string{"a", "b"}, []int{3, 1}},
		{1, []string{"a", "b"}, []int{1, 0}},
	} {
		p := admission.New(tt.most)
		var got []int
		for _, who := range tt.who {
			got = append(got, all(p, who))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("of %d, %q got %d, want %d", tt.most, tt.who, got, tt.want)
		}
	}
}

// TestEvensOut checks that the first and largest holder yields as its slots are freed.
func TestEvensOut(t *testing.T) {
	t.Parallel()
	p := admission.New(100)
	held := map[string]int{"a": all(p, "a"), "b": all(p, "b")}
	for range 1000 { // every slot of a is freed in time, and both want more
		p.Free("a")
		held["a"]--
		held["b"] += all(p, "b")
		held["a"] += all(p, "a")
	}
	if held["a"] < 40 || held["a"] > 46 || held["b"] < 40 || held["b"] > 46 {
		t.Errorf("a holds %d and b %d, want three sevenths of 100 each", held["a"], held["b"])
	}
	if all(p, "c") == 0 {
		t.Error("nothing is left for a third")
	}
}

// TestWaits checks that waiters are served as slots are freed, those that hold the fewest first, and wait no longer than
// they want to.
func TestWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := admission.New(4)
		all(p, "hog")
		all(p, "other") // 3 and 1
		var mu sync.Mutex
		var served []string
		var wg sync.WaitGroup
		wait := func(who string, patience time.Duration) {
			wg.Go(func() {
				if p.Take(t.Context(), who, 1, patience) == 1 {
					mu.Lock()
					served = append(served, who)
					mu.Unlock()
				}
			})
			synctest.Wait()
		}
		wait("hog", time.Hour)
		wait("late", time.Second)
		wait("holder", time.Hour)
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if p.Take(ctx, "holder", 1, time.Hour) != 0 || time.Since(began) != 0 {
			t.Errorf("waited for %s though its context had ended", time.Since(began))
		}
		time.Sleep(2 * time.Second)
		p.Free("hog")
		synctest.Wait()
		if !slices.Equal(served, []string{"holder"}) {
			t.Errorf("served %q, want the holder: hog holds two, and who was late has gone", served)
		}
		p.Free("other")
		p.Free("holder")
		wg.Wait()
		if !slices.Equal(served, []string{"holder", "hog"}) {
			t.Errorf("served %q, then hog is the only one left", served)
		}
	})
}

// TestQueueIsBounded checks that one name's full queue does not affect another's.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := admission.New(2)
		all(p, "")
		var wg sync.WaitGroup
		for _, who := range []string{"a", "a", "b"} {
			wg.Go(func() {
				if p.Take(t.Context(), who, 1, time.Second) != 0 {
					t.Errorf("%s got a slot that nobody gave back", who)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		if p.Take(t.Context(), "a", 1, time.Second) != 0 || time.Since(began) != 0 {
			t.Errorf("a third of a waited %s", time.Since(began))
		}
		if p.Take(t.Context(), "b", 1, time.Second) != 0 || time.Since(began) != time.Second {
			t.Errorf("b waited %s", time.Since(began))
		}
		wg.Wait()
	})
}

// TestSeveralAtOnce checks that whoever needs several slots gets them together, before those that came later, and never
// so many that nobody else finds one.
func TestSeveralAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := admission.Varying(func(bool) int { return 16 }, 16)
		if n := p.Take(t.Context(), "a", 5, 0); n != 5 {
			t.Fatalf("a got %d of 5", n)
		}
		if n := p.Take(t.Context(), "a", 1000, time.Second); n != 0 {
			t.Fatalf("a got %d more, of 12 that it may have", n)
		}
		var mu sync.Mutex
		var served []string
		var wg sync.WaitGroup
		wait := func(who string, n, want int) {
			wg.Go(func() {
				if got := p.Take(t.Context(), who, n, time.Hour); got != want {
					t.Errorf("%s got %d of %d, want %d", who, got, n, want)
				}
				mu.Lock()
				served = append(served, who)
				mu.Unlock()
			})
			synctest.Wait()
		}
		wait("b", 1000, 12)
		wait("c", 2, 2)
		p.Return("a", 2)
		synctest.Wait()
		if len(served) > 0 {
			t.Errorf("served %q: 13 are free, b needs 12 beside 4 that stay free, and c comes after b", served)
		}
		p.Return("a", 3)
		wg.Wait()
		if want := []string{"b", "c"}; !slices.Equal(slices.Sorted(slices.Values(served)), want) {
			t.Errorf("served %q, want %q", served, want)
		}
		if n := all(p, "d"); n != 2 {
			t.Errorf("d got %d beside the 14 of b and c", n)
		}
	})
}

// TestMoreIsKeptWaiting checks that whoever waits for slots that may be held for long keeps only those waiting who would then
// hold as many or more: neither those that try nor those that wait, too.
func TestMoreIsKeptWaiting(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		wants, holds, takes int
		kept                bool
	}{
		{938, 0, 2, false},
		{64, 0, 2, false},
		{64, 60, 3, false},
		{64, 60, 4, true},
		{49, 48, 1, true},
		{49, 0, 48, false},
	} {
		for _, patience := range []time.Duration{0, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				p, left := admission.New(4096), 4096-tt.holds
				p.Take(t.Context(), "good", tt.holds, 0)
				p.Take(t.Context(), "", left, 0)
				var wg sync.WaitGroup
				wait := func(who string, n int, patience time.Duration) (got *int) {
					got = new(int)
					wg.Go(func() {
						*got = p.Take(t.Context(), who, n, patience)
						p.Return(who, *got)
					})
					synctest.Wait()
					return got
				}
				wait("hostile", tt.wants, time.Second)
				wait("another", tt.wants, time.Second)
				got := new(int)
				if patience > 0 {
					got = wait("good", tt.takes, patience)
				}
				p.Return("", 64) // these are free
				synctest.Wait()
				if patience == 0 {
					got = wait("good", tt.takes, 0)
				}
				if (*got == 0) != tt.kept {
					t.Errorf("beside one who waits for %d, who holds %d took %d of %d", tt.wants, tt.holds, *got, tt.takes)
				}
				p.Return("", left-64)
				wg.Wait()
			})
		}
	}
}

// onWait is a context that never ends, and is called when somebody begins to wait for its end.
type onWait func()

func (onWait) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (onWait) Err() error                              { return nil }
func (onWait) Value(any) any                           { return nil }
func (w onWait) Done() <-chan struct{} {
	w()
	return nil
}

// TestImpatientKeepNobodyWaiting checks that whoever does not wait is never first in line, not even for a moment.
func TestImpatientKeepNobodyWaiting(t *testing.T) {
	t.Parallel()
	p := admission.New(4096)
	p.Take(t.Context(), "a", 3072, 0)
	p.Take(t.Context(), "b", 768, 0)
	p.Take(t.Context(), "c", 192, 0) // 64 are free
	ctx := onWait(func() {
		if got := p.Take(t.Context(), "good", 2, 0); got != 2 {
			t.Errorf("meanwhile another got %d of 64 that are free", got)
		}
	})
	if got := p.Take(ctx, "impatient", 64, 0); got != 0 {
		t.Errorf("got %d of 64 that are free", got)
	}
}

// TestSeveralAmidAFlood checks that somebody who needs several slots gets them within two calls of another who always
// wants all.
func TestSeveralAmidAFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most, call = 32, time.Millisecond
		p := admission.Varying(func(bool) int { return most }, most)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range most {
			wg.Go(func() {
				for ctx.Err() == nil {
					if p.Take(ctx, "flood", 1, time.Second) == 1 {
						time.Sleep(call)
						p.Free("flood")
					}
				}
			})
		}
		time.Sleep(10 * call)
		for n := 1; n <= most; n++ {
			began := time.Now()
			got := p.Take(ctx, "polite", n, time.Hour)
			if took := time.Since(began); got != min(n, 24) || took > 2*call {
				t.Errorf("got %d of %d slots after %s", got, n, took)
			}
			p.Return("polite", got)
		}
		cancel()
		wg.Wait()
	})
}

// TestFewerWhileWaiting checks that whoever waits for many slots gets as many as there are once there are fewer, and does
// not keep calls of its own waiting.
func TestFewerWhileWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := admission.Varying(func(alone bool) int {
			if alone {
				return 1024
			}
			return 32
		}, 10)
		if got := p.Take(t.Context(), "a", 500, 0); got != 500 {
			t.Fatalf("a got %d of 500", got)
		}
		var wg sync.WaitGroup
		for _, tt := range []struct{ n, want int }{{400, 24}, {1, 1}, {1, 1}} {
			wg.Go(func() {
				if got := p.Take(t.Context(), "a", tt.n, time.Second); got != tt.want {
					t.Errorf("a got %d of %d, want %d", got, tt.n, tt.want)
				} else {
					p.Return("a", got)
				}
			})
			synctest.Wait()
		}
		if p.Take(t.Context(), "b", 1, 0) != 0 { // from now on there are 32
			t.Error("b got one of 32 while a holds 500")
		}
		p.Return("a", 500)
		wg.Wait()
	})
}

// TestTurns checks that whoever waits with many calls does not delay another by more than one of them.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := admission.Varying(func(bool) int { return 1 }, 10)
		p.Try("x")
		var served []string
		var wg sync.WaitGroup
		for _, who := range []string{"a", "a", "a", "b", "c", "b"} {
			wg.Go(func() {
				p.Take(t.Context(), who, 1, time.Hour)
				served = append(served, who)
				p.Free(who)
			})
			synctest.Wait()
		}
		p.Free("x")
		wg.Wait()
		if want := []string{"a", "b", "c", "a", "b", "a"}; !slices.Equal(served, want) {
			t.Errorf("served %q, want %q", served, want)
		}
	})
}

// TestAlone checks that the number of slots can follow whether one name is alone: nobody else has called for a minute.
func TestAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := admission.Varying(func(alone bool) int {
			if alone {
				return 8
			}
			return 1
		}, 10)
		take := func(who string, n, want int) {
			t.Helper()
			if got := p.Take(t.Context(), who, n, 0); got != want {
				t.Errorf("%s got %d of %d, want %d", who, got, n, want)
			}
			p.Return(who, want)
		}
		take("a", 6, 6) // nobody else has ever called
		take("b", 6, 1)
		take("a", 6, 1)
		for range 10 { // b calls rarely
			time.Sleep(time.Minute)
			take("a", 6, 1)
			take("b", 6, 1)
			take("a", 6, 1)
		}
		time.Sleep(time.Minute + 1)
		take("a", 6, 6)
	})
}

// TestNamesAreForgotten checks that slots keep nothing of the many names that held some once.
func TestNamesAreForgotten(t *testing.T) {
	t.Parallel()
	p := admission.Varying(func(bool) int { return 1 }, 0)
	for i := range 3000 {
		p.Try("holder")
		p.Take(t.Context(), fmt.Sprint("late", i), 1, 0)
		p.Free("holder")
		p.Try(fmt.Sprint(i))
		p.Free(fmt.Sprint(i))
		p.Try("holder")
		p.Try(fmt.Sprint("refused", i))
		p.Free("holder")
	}
	if n := p.Remembered(); n > 1100 {
		t.Errorf("%d names are kept", n)
	}
}

// TestForce checks that a returning holder gets a slot even if none is free, and that the slot counts.
func TestForce(t *testing.T) {
	t.Parallel()
	p := admission.New(1)
	p.Try("a")
	p.Free("a")
	p.Try("b")
	p.Force("a")
	p.Free("b")
	if p.Try("b") {
		t.Error("a holds the only slot")
	}
	p.Free("a")
	if !p.Try("b") {
		t.Error("the slot is free again")
	}
}

// TestAnyOrder checks random sequences: no more slots are taken than exist, a name gets a slot only while it holds fewer
// than three for each free one, and every slot can be freed.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 12).Draw(t, "most")
		p := admission.New(most)
		held := map[string]int{}
		sum := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			who := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "who")
			if rapid.Bool().Draw(t, "free") {
				if held[who] > 0 {
					p.Free(who)
					held[who]--
					sum--
				}
				continue
			}
			free := most - sum
			want := free > 0 && (who == "" || held[who] < 3*free)
			if got := p.Try(who); got != want {
				t.Fatalf("%q holds %d, %d of %d are free: got %t", who, held[who], free, most, got)
			}
			if want {
				held[who]++
				sum++
			}
		}
		for who, n := range held {
			for range n {
				p.Free(who)
			}
		}
		if n := all(p, ""); n != most {
			t.Fatalf("%d of %d came back", n, most)
		}
	})
}
