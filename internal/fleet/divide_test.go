package fleet_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/fleet"
)

func TestDivide(t *testing.T) {
	t.Parallel()
	want := func(n int64) fleet.Claim { return fleet.Claim{Weight: 1, Want: n} }
	for _, tt := range []struct {
		name   string
		pool   int64
		claims []fleet.Claim
		want   []int64
	}{
		{"nobody", 100, nil, []int64{}},
		{"nothing", 0, []fleet.Claim{want(1)}, []int64{0}},
		{"less than there is: the rest is spread", 100, []fleet.Claim{want(10), want(30)}, []int64{40, 60}},
		{"one wants little", 100, []fleet.Claim{want(10), want(90), want(90)}, []int64{10, 45, 45}},
		{"all want everything", 100, []fleet.Claim{want(fleet.Unbounded), want(fleet.Unbounded)}, []int64{50, 50}},
		{"weights", 100, []fleet.Claim{{3, 0, fleet.Unbounded}, {1, 0, fleet.Unbounded}}, []int64{75, 25}},
		{"raised", 100, []fleet.Claim{{99, 0, fleet.Unbounded}, {1, 10, fleet.Unbounded}}, []int64{90, 10}},
		{"raised and lowered", 100, []fleet.Claim{{98, 0, 20}, {1, 10, fleet.Unbounded}, {1, 0, fleet.Unbounded}}, []int64{20, 40, 40}},
		{"no weights", 90, []fleet.Claim{{0, 0, fleet.Unbounded}, {0, 0, 10}}, []int64{80, 10}},
	} {
		if got := fleet.Divide(tt.pool, tt.claims); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

// The shares never exceed the pool and use it up; each is at least its least, and nobody gets less than it wants while
// another gets more than its part.
func TestDivideInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "n")
		pool := rapid.Int64Range(1, 1e12).Draw(t, "pool")
		claims := make([]fleet.Claim, n)
		for i := range claims {
			least := rapid.Int64Range(0, pool/int64(n)).Draw(t, "least")
			claims[i] = fleet.Claim{
				Weight: rapid.Int64Range(0, 1e12).Draw(t, "weight"), Least: least,
				Want: rapid.SampledFrom([]int64{least, least + pool/10, fleet.Unbounded}).Draw(t, "want"),
			}
		}
		shares := fleet.Divide(pool, claims)
		var sum, wanted int64
		for i, s := range shares {
			sum += s
			wanted += min(pool, claims[i].Want)
			if s < claims[i].Least {
				t.Fatalf("%d of %+v: %d", i, claims, s)
			}
		}
		if sum > pool || sum <= pool-2*int64(n) {
			t.Fatalf("%d of %d", sum, pool)
		}
		if spread := max(0, pool-wanted) / int64(n); spread == 0 {
			for i, s := range shares {
				if s-int64(n) > claims[i].Want {
					t.Fatalf("%d wants %d and got %d, though all is wanted", i, claims[i].Want, s)
				}
			}
		}
	})
}

func TestIssue(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		targets, held []int64
		pool          int64
		want          []int64
	}{
		{[]int64{50, 50}, []int64{100, 0}, 100, []int64{50, 0}}, // the first must confirm before the second is given anything
		{[]int64{50, 50}, []int64{50, 0}, 100, []int64{50, 50}}, // it has
		{[]int64{60, 40}, []int64{30, 10}, 70, []int64{45, 25}},
		{[]int64{60, 40}, []int64{30, 10}, 35, []int64{30, 10}},
	} {
		now := time.Unix(0, 0)
		l, targets := fleet.NewLedger(time.Second, 1000, now), make(map[string]int64)
		for i, held := range tt.held {
			name := strconv.Itoa(i)
			targets[name] = tt.targets[i]
			l.Observe(name, now, fleet.Version{})
			l.Commit(name, fleet.Version{Seq: 1}, fleet.Grant{Shares: fleet.Shares{"k": held}})
		}
		next := l.Issue("k", tt.pool, targets, now)
		if got := []int64{next["0"], next["1"]}; !slices.Equal(got, tt.want) {
			t.Errorf("%d of %d, with %d held: %d, want %d", tt.targets, tt.pool, tt.held, got, tt.want)
		}
	}
}
