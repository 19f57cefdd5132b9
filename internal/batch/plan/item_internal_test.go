package plan

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
)

// TestShare checks that the shares of all shards add up to the whole, and that a shard's share is that of the two into
// which it splits.
func TestShare(t *testing.T) {
	t.Parallel()
	ends := rapid.SampledFrom([]int64{math.MinInt64, math.MinInt64 + 1, -65, -64, -1, 0, 1, 63, 64, math.MaxInt64 - 63, math.MaxInt64 - 1, math.MaxInt64})
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.OneOf(ends, rapid.Int64()).Draw(t, "x")
		n := 1 << rapid.IntRange(0, 6).Draw(t, "log")
		sum := new(big.Int)
		for k := range n {
			pl := Place{k, n}
			got := pl.Portion(x)
			want := new(big.Int).Div(new(big.Int).Add(big.NewInt(x), big.NewInt(int64(k))), big.NewInt(int64(n))) // Euclidean: floor, as n > 0
			if want.Cmp(big.NewInt(got)) != 0 {
				t.Fatalf("share %d of %d of %d is %d, want %s", k, n, x, got, want)
			}
			sum.Add(sum, big.NewInt(got))
			if n < MaxShards {
				a, b := Place{k, 2 * n}, Place{k + n, 2 * n}
				if a.Portion(x)+b.Portion(x) != got {
					t.Fatalf("%d of %d has %d of %d, its halves %d and %d", k, n, got, x, a.Portion(x), b.Portion(x))
				}
			}
		}
		if sum.Cmp(big.NewInt(x)) != 0 {
			t.Fatalf("%d shares of %d add up to %s", n, x, sum)
		}
	})
}

// TestWindowShares checks that within a window, the shards of a quota have together at most its amount, and less than a
// millitoken for each shard less; and that a shard keeps its item until its next window begins.
func TestWindowShares(t *testing.T) {
	t.Parallel()
	month, err := calendar.Parse("month@Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.OneOf(rapid.Int64Range(1, 200), rapid.Int64Range(1, 1e15)).Draw(t, "amount")
		p := clock.Params{Amount: amount, Burst: amount, Window: month}
		n := 1 << rapid.IntRange(0, 6).Draw(t, "log")
		now := rapid.Int64Range(0, int64(20*365*24*time.Hour)).Draw(t, "now")
		_, next := month.Bounds(now)
		room := int64(0)
		for k := range n {
			pl := Place{k, n}
			spent := clock.Add(pl.Clock(p, now), pl.Burst(p)) // the window before
			q := p
			q.Burst = pl.Burst(p)
			room += q.Available(spent, pl.Clock(p, next))
			if full := pl.full(p, now, pl.Burst(p)); full < next {
				t.Fatalf("shard %d of %d may be forgotten %v before its next window", k, n, time.Duration(next-full))
			}
		}
		if room > amount || room <= amount-int64(n) {
			t.Fatalf("%d of %d in the next window of %d shards", room, amount, n)
		}
	})
}

// TestHalves checks that at any reading of the clock, the halves of a shard have no more room than the shard has, that
// neither has room where the shard has none, and that they lack at most two millitokens.
func TestHalves(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 2; n++ {
		for k := range n {
			whole, a, b := Place{k, n}, Place{k, 2 * n}, Place{k + n, 2 * n}
			for burst := range int64(12) {
				for level := range int64(24) {
					low, high := (&Limit{Level: level, Params: clock.Params{Period: 1}}).halves()
					for reading := range int64(24 * n) {
						room := func(pl Place, level int64) int64 {
							return pl.Portion(burst) - clock.Outstanding(level, pl.Portion(reading))
						}
						have, left, right := room(whole, level), room(a, low), room(b, high)
						if max(0, left)+max(0, right) > max(0, have) || max(left, right) > 0 && have <= 0 || left+right < have-2 {
							t.Fatalf("%d of %d: level %d at %d, burst %d: room %d becomes %d and %d", k, n, level, reading, burst, have, left, right)
						}
					}
				}
			}
		}
	}
}
