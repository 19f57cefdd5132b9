package admission_test

import (
	"context"
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
				if p.Take(t.Context(), who, patience) {
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
		if p.Take(ctx, "holder", time.Hour) || time.Since(began) != 0 {
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
				if p.Take(t.Context(), who, time.Second) {
					t.Errorf("%s got a slot that nobody gave back", who)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		if p.Take(t.Context(), "a", time.Second) || time.Since(began) != 0 {
			t.Errorf("a third of a waited %s", time.Since(began))
		}
		if p.Take(t.Context(), "b", time.Second) || time.Since(began) != time.Second {
			t.Errorf("b waited %s", time.Since(began))
		}
		wg.Wait()
	})
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
